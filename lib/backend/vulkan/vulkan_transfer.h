/* SPDX-License-Identifier: MIT
 * Large uploads by a queue that does nothing else, where the device has one: the CPU fills one staging buffer while the
 * other is copied, and neither waits for shaders. */
#ifndef STILL_VULKAN_TRANSFER_H
#define STILL_VULKAN_TRANSFER_H

#include "backend/vulkan/vulkan_commands.h"

enum { STILL_VULKAN_TRANSFERS = 2 }; /* in flight */

typedef struct still_vulkan_transfer {
  VkQueue queue; /* VK_NULL_HANDLE: there is none */
  uint32_t family;
  VkCommandPool pool;
  struct {
    VkCommandBuffer commands;
    VkFence fence;
    still_vulkan_buffer staging;
    bool pending;
  } slots[STILL_VULKAN_TRANSFERS];
  uint32_t current;
  bool unseen; /* something was submitted that the compute queue has not waited for */
  VkSemaphore done[STILL_VULKAN_SLOTS]; /* waited for by the submission of that slot */
} still_vulkan_transfer;

/* Needs vulkan->transfer.queue and family; without a queue these do nothing. */
still_status still_vulkan_transfer_create(still_vulkan *vulkan);
void still_vulkan_transfer_destroy(still_vulkan *vulkan);

/* Copies to a buffer that no shader has used yet. */
still_status still_vulkan_transfer_write(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                         VkDeviceSize offset, const char *data, VkDeviceSize bytes);
/* The semaphore that the compute submission of this slot has to wait for; VK_NULL_HANDLE: none. */
still_status still_vulkan_transfer_signal(still_vulkan *vulkan, uint32_t slot,
                                          VkSemaphore *semaphore);
/* Waits for all copies. */
still_status still_vulkan_transfer_finish(still_vulkan *vulkan);

#endif
