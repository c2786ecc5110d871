/* SPDX-License-Identifier: MIT
 * Buffers on the device, cut from larger allocations. */
#ifndef STILL_VULKAN_MEMORY_H
#define STILL_VULKAN_MEMORY_H

#include "backend/vulkan/vulkan_result.h"

typedef struct still_vulkan still_vulkan;
typedef struct still_vulkan_chunk still_vulkan_chunk;

/* Where a buffer lies. */
typedef enum still_vulkan_place {
  STILL_VULKAN_DEVICE = 0,  /* device-local; mapped too on devices that share the host's memory */
  STILL_VULKAN_UPLOAD = 1,  /* host, for writing by the CPU */
  STILL_VULKAN_READBACK = 2 /* host, cached: for reading by the CPU */
} still_vulkan_place;
enum { STILL_VULKAN_PLACES = 3 };

typedef struct still_vulkan_buffer {
  VkBuffer handle;
  VkDeviceSize bytes;
  VkDeviceSize binding; /* where a binding begins: not 0 only in buffers of the application */
  void *mapped;         /* NULL if the CPU cannot see it */
  still_vulkan_chunk *chunk;
  VkDeviceSize offset, reserved; /* the range taken from the chunk */
  uint64_t last_use;             /* number of the submission that used it last, 0 = none */
  uint64_t changed; /* number of the write that it saw last, of all that the device has recorded */
} still_vulkan_buffer;

typedef struct still_vulkan_memory {
  VkPhysicalDeviceMemoryProperties properties;
  still_vulkan_chunk *chunks;
  VkDeviceSize heap_bytes[VK_MAX_MEMORY_HEAPS]; /* taken by us */
  VkDeviceSize used_bytes, peak_bytes;          /* of device-local buffers that exist */
  bool unified; /* device-local memory is host-visible too, and the device is no discrete card */
} still_vulkan_memory;

still_status still_vulkan_memory_create(still_vulkan *vulkan);
/* Bytes that device buffers can still take: what is left of the heap, or of the driver's budget where it tells one. */
VkDeviceSize still_vulkan_memory_free(const still_vulkan *vulkan);
void still_vulkan_memory_destroy(still_vulkan *vulkan);

/* bytes >= 1. MEMORY when the heap or its budget is exhausted, UNSUPPORTED when a device buffer is larger than one binding may
 * be. The content is undefined. A zeroed buffer struct is "no buffer" everywhere. */
still_status still_vulkan_buffer_create(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                        VkDeviceSize bytes, still_vulkan_place place);
/* At once; the device must be done with it (still_vulkan_discard waits for that instead). */
void still_vulkan_buffer_destroy(still_vulkan *vulkan, still_vulkan_buffer *buffer);

#endif
