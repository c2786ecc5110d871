/* SPDX-License-Identifier: MIT
 * One opened GPU: what it can do and the parts that run on it. */
#ifndef STILL_VULKAN_DEVICE_H
#define STILL_VULKAN_DEVICE_H

#include "backend/vulkan/vulkan_commands.h"
#include "backend/vulkan/vulkan_loader.h"
#include "backend/vulkan/vulkan_memory.h"
#include "backend/vulkan/vulkan_pipelines.h"
#include "backend/vulkan/vulkan_timer.h"
#include "backend/vulkan/vulkan_transfer.h"

#include <pthread.h>

/* What variants of shaders need; each can be switched off by its word in STILL_VULKAN_DISABLE (comma-separated). */
typedef enum still_vulkan_feature {
  STILL_VULKAN_F16 = 1 << 0,      /* "f16": 16-bit storage and arithmetic */
  STILL_VULKAN_SUBGROUP = 1 << 1, /* "subgroup": sums and maxima by subgroups, of any size */
  STILL_VULKAN_COOPMAT =
      1 << 2, /* "coopmat": KHR cooperative matrices, f16 in, f32 out, 16x16x16 */
  STILL_VULKAN_TRANSFER = 1 << 3, /* "transfer": large uploads by a queue of their own */
  STILL_VULKAN_UNCHECKED =
      1 << 4 /* "unchecked": no bounds checks of the driver's, VK_EXT_pipeline_robustness */
} still_vulkan_feature;

/* The device's limits, lowered by STILL_VULKAN_LIMITS ("range=134217728,heap=67108864") for tests. */
typedef struct still_vulkan_limits {
  VkDeviceSize storage_range; /* most bytes of one buffer binding */
  VkDeviceSize allocation;    /* most bytes of one vkAllocateMemory */
  VkDeviceSize heap;          /* most bytes that the allocator takes from one heap */
  uint32_t shared_bytes;      /* of a workgroup */
  uint32_t subgroup;
  bool shuffles;      /* within subgroups */
  float timestamp_ns; /* of one tick; 0 without timestamps */
} still_vulkan_limits;

enum { STILL_VULKAN_CHECKS = 64 };

typedef struct still_vulkan still_vulkan;
struct still_vulkan {
  VkInstance instance; /* of the physical device */
  VkPhysicalDevice physical;
  VkPhysicalDeviceProperties properties;
  uint8_t pipeline_uuid[VK_UUID_SIZE];
  VkDevice device;
  struct VolkDeviceTable call; /* functions of this device */
  VkQueue queue;
  uint32_t family;
  bool shared; /* device and queue are the application's */
  void (*lock_queue)(void *user), (*unlock_queue)(void *user); /* NULL: ours alone */
  void *queue_user;
  still_vulkan_limits limits;
  unsigned features; /* still_vulkan_feature bits in use */
  bool has_budget;   /* the driver tells what a heap still has (VK_EXT_memory_budget) */
  bool lost;         /* VK_ERROR_DEVICE_LOST was seen: every later call fails at once */

  still_vulkan_memory memory;
  still_vulkan_commands commands;
  still_vulkan_pipelines pipelines;
  still_vulkan_timer timer;
  still_vulkan_transfer transfer;
  struct still_vulkan_work *work; /* of attention (vulkan_attention.h); NULL until used */

  uint64_t checked[STILL_VULKAN_CHECKS]; /* self-checks that were passed (vulkan_check.h) */
  uint32_t checked_count;

  pthread_mutex_t lock;              /* whoever records holds it */
  const struct still_backend *stops; /* asked at checkpoints whether to go on; NULL: nobody */
  int users;
  char name[32]; /* "vulkan:0" */
  still_vulkan *next;
};

/* Opens the device or counts one more user of the open one. name: "vulkan" (the first discrete, else the first integrated
 * one; CPU drivers never) or "vulkan:N" (any kind). ARGUMENT for another word, DEVICE if it cannot be had.
 * Thread-safe. */
still_status still_vulkan_open(still_vulkan **vulkan, const char *name);
void still_vulkan_close(still_vulkan *vulkan);

/* Appends the Vulkan devices to a still_list_devices() answer whose first *count entries exist already; a machine without
 * Vulkan appends nothing. */
void still_vulkan_list(still_device_info *devices, size_t capacity, size_t *count);

/* The subgroup variant of a shader, which stands behind the plain one in the variant table, where the device has it. */
static inline still_shader still_vulkan_reducing(const still_vulkan *vulkan, still_shader plain) {
  return vulkan->features & STILL_VULKAN_SUBGROUP ? (still_shader)(plain + 1) : plain;
}

/* Drops features of the open device ("f16"), e.g. after a failed self-check; logged with the reason. */
void still_vulkan_switch_off(still_vulkan *vulkan, unsigned features, const char *reason);
#endif
