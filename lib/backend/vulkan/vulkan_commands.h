/* SPDX-License-Identifier: MIT
 * Recording and submitting: work goes to the device in bounded pieces, in order. */
#ifndef STILL_VULKAN_COMMANDS_H
#define STILL_VULKAN_COMMANDS_H

#include "backend/vulkan/vulkan_memory.h"

typedef struct still_vulkan_pipeline still_vulkan_pipeline;

enum {
  STILL_VULKAN_SLOTS = 3,         /* submissions in flight */
  STILL_VULKAN_DISPATCHES = 1024, /* most dispatches of one submission */
  STILL_VULKAN_BINDINGS = 9,
  STILL_VULKAN_TRACKED = 24 /* buffers remembered between two barriers */
};

/* What cooperative matrices gain over plain shaders, roughly: for the length of submissions. */
#define STILL_VULKAN_COOPMAT_GAIN 8.0

/* One run of a shader. */
typedef struct still_vulkan_dispatch {
  const still_vulkan_pipeline *pipeline;
  still_vulkan_buffer
      *buffers[STILL_VULKAN_BINDINGS]; /* by binding; NULL where the shader has none */
  unsigned writes;                     /* bit i: binding i is written */
  const void *push;
  uint32_t push_bytes;
  uint32_t groups[3];
  double work; /* floating-point operations, or bytes if more: only proportions matter */
  double gain; /* how many times faster than plain shaders it does them, roughly; 0 means 1 */
} still_vulkan_dispatch;

typedef struct still_vulkan_slot {
  VkCommandBuffer commands;
  VkDescriptorPool descriptors;
  VkFence fence;
  bool pending;
  uint32_t dispatches;
  double work, submitted_at;
  still_vulkan_buffer *garbage; /* destroyed when the fence has signalled */
  size_t garbage_count, garbage_capacity;
} still_vulkan_slot;

/* Which buffers were touched since the last barrier. */
typedef struct still_vulkan_hazards {
  VkBuffer read[STILL_VULKAN_TRACKED], written[STILL_VULKAN_TRACKED];
  uint32_t reads, writes;
} still_vulkan_hazards;

typedef struct still_vulkan_commands {
  VkCommandPool pool;
  still_vulkan_slot slots[STILL_VULKAN_SLOTS];
  uint32_t current;
  bool recording;
  still_vulkan_hazards hazards;
  still_vulkan_buffer readback;
  double rate;            /* work per second, measured */
  double longest_seconds; /* of all submissions, for tests */
  uint64_t submissions;   /* so far */
  uint64_t writes;        /* recorded so far */
  uint64_t dropped;       /* recordings that a failure has kept from the device */
} still_vulkan_commands;

still_status still_vulkan_commands_create(still_vulkan *vulkan);
void still_vulkan_commands_destroy(still_vulkan *vulkan);

/* All record at the end of what is recorded; barriers are put where a buffer needs one. */
still_status still_vulkan_run(still_vulkan *vulkan, const still_vulkan_dispatch *dispatch);
still_status still_vulkan_write(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                VkDeviceSize offset, const void *data, VkDeviceSize bytes);
still_status still_vulkan_copy(still_vulkan *vulkan, still_vulkan_buffer *to,
                               VkDeviceSize to_offset, still_vulkan_buffer *from,
                               VkDeviceSize from_offset, VkDeviceSize bytes);
still_status still_vulkan_zero(still_vulkan *vulkan, still_vulkan_buffer *buffer);
/* Waits for everything before it. */
still_status still_vulkan_read(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                               VkDeviceSize offset, void *data, VkDeviceSize bytes);
/* All of several buffers, one behind the other, waiting once. */
still_status still_vulkan_read_all(still_vulkan *vulkan, still_vulkan_buffer *const *buffers,
                                   int count, void *data);

/* The work that takes about `seconds`, by what was measured so far: no single dispatch should be longer than 0.05 s of it. */
double still_vulkan_work_of(const still_vulkan *vulkan, double seconds);
/* Submits if the pieces recorded so far make up about 50 ms; CANCELLED where vulkan->stops says so; */
still_status still_vulkan_checkpoint(still_vulkan *vulkan);
/* in any case, */
still_status still_vulkan_submit(still_vulkan *vulkan);
/* and waits for all of it. */
still_status still_vulkan_finish(still_vulkan *vulkan);
/* Destroys a buffer once the device is done with it. */
void still_vulkan_discard(still_vulkan *vulkan, still_vulkan_buffer *buffer);

/* A failed result as a status; notes when it means that the device is gone. */
still_status still_vulkan_device_failed(still_vulkan *vulkan, VkResult result, const char *call);
/* VK_TRY for such a call. */
#define VK_TRY_LOST(vulkan, call)                                                                  \
  do {                                                                                             \
    VkResult lost_result_;                                                                         \
    VK_RESULT(lost_result_, call);                                                                 \
    if (lost_result_ < 0) return still_vulkan_device_failed(vulkan, lost_result_, #call);          \
  } while (0)

#endif
