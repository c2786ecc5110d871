/* SPDX-License-Identifier: MIT */
#include "backend/vulkan/vulkan_memory.h"

#include "backend/vulkan/vulkan_device.h"
#include "base/memory.h"

enum { MOST_FREE_RANGES = 256 };
/* Small buffers share chunks of this size; larger ones get their own. */
static const VkDeviceSize chunk_bytes = 32u << 20;

typedef struct free_range {
  VkDeviceSize offset, bytes;
} free_range;

struct still_vulkan_chunk {
  VkDeviceMemory memory;
  VkDeviceSize bytes;
  uint32_t type;
  void *mapped;
  /* Ascending and never adjacent. A range that no longer fits the array is lost until the chunk is empty. */
  free_range free[MOST_FREE_RANGES];
  uint32_t free_count;
  uint32_t buffers;
  still_vulkan_chunk *next;
};

/* ---- memory types ---------------------------------------------------------------------------------- */

/* In order of preference, ended by 0. */
static const VkMemoryPropertyFlags preferences[STILL_VULKAN_PLACES][3] = {
    {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0, 0},
    {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, 0, 0},
    {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
         VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
     VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, 0}};
static const VkMemoryPropertyFlags shared_flags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                                  VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                                  VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

static bool find_type(const still_vulkan_memory *memory, uint32_t allowed,
                      VkMemoryPropertyFlags flags, uint32_t *type) {
  for (uint32_t i = 0; i < memory->properties.memoryTypeCount; i++)
    if (allowed >> i & 1 && (memory->properties.memoryTypes[i].propertyFlags & flags) == flags) {
      *type = i;
      return true;
    }
  return false;
}

static still_status choose_type(still_vulkan *vulkan, uint32_t allowed, still_vulkan_place place,
                                uint32_t *type) {
  const still_vulkan_memory *memory = &vulkan->memory;
  if (place == STILL_VULKAN_DEVICE && memory->unified &&
      find_type(memory, allowed, shared_flags, type))
    return STILL_OK;
  for (int i = 0; i < 3 && preferences[place][i]; i++)
    if (find_type(memory, allowed, preferences[place][i], type)) return STILL_OK;
  return still_fail(STILL_ERROR_DEVICE, "%s: no memory type for buffers of place %d", vulkan->name,
                    (int)place);
}

still_status still_vulkan_memory_create(still_vulkan *vulkan) {
  still_vulkan_memory *memory = &vulkan->memory;
  uint32_t type;
  vkGetPhysicalDeviceMemoryProperties(vulkan->physical, &memory->properties);
  memory->unified = vulkan->properties.deviceType != VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU &&
                    find_type(memory, UINT32_MAX, shared_flags, &type);
  return STILL_OK;
}

/* The heap that device buffers come from: that of the first type they would get. */
static uint32_t device_heap(const still_vulkan_memory *memory) {
  uint32_t type = 0;
  if (!memory->unified || !find_type(memory, UINT32_MAX, shared_flags, &type))
    find_type(memory, UINT32_MAX, preferences[STILL_VULKAN_DEVICE][0], &type);
  return memory->properties.memoryTypes[type].heapIndex;
}

/* What others have taken counts, where the driver says so. */
static VkDeviceSize driver_budget(const still_vulkan *vulkan, uint32_t heap) {
  if (!vulkan->has_budget) return UINT64_MAX;
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 properties = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
  vkGetPhysicalDeviceMemoryProperties2(vulkan->physical, &properties);
  const VkDeviceSize most = budget.heapBudget[heap], used = budget.heapUsage[heap];
  return most > used ? most - used : 0;
}

VkDeviceSize still_vulkan_memory_free(const still_vulkan *vulkan) {
  const still_vulkan_memory *memory = &vulkan->memory;
  const uint32_t heap = device_heap(memory);
  const VkDeviceSize bytes = memory->properties.memoryHeaps[heap].size;
  const VkDeviceSize most = bytes < vulkan->limits.heap ? bytes : vulkan->limits.heap;
  const VkDeviceSize left = most > memory->heap_bytes[heap] ? most - memory->heap_bytes[heap] : 0;
  const VkDeviceSize budget = driver_budget(vulkan, heap);
  return left < budget ? left : budget;
}

/* ---- chunks ---------------------------------------------------------------------------------------- */

static void release_chunk(still_vulkan *vulkan, still_vulkan_chunk *chunk) {
  still_vulkan_chunk **link = &vulkan->memory.chunks;
  while (*link && *link != chunk) link = &(*link)->next;
  if (*link) *link = chunk->next;
  const uint32_t heap = vulkan->memory.properties.memoryTypes[chunk->type].heapIndex;
  if (chunk->memory) {
    vulkan->memory.heap_bytes[heap] -= chunk->bytes;
    vulkan->call.vkFreeMemory(vulkan->device, chunk->memory, NULL); /* unmaps too */
  }
  still_free(chunk);
}

void still_vulkan_memory_destroy(still_vulkan *vulkan) {
  while (vulkan->memory.chunks) release_chunk(vulkan, vulkan->memory.chunks);
}

static still_status fill_chunk(still_vulkan *vulkan, still_vulkan_chunk *chunk) {
  const VkMemoryType *type = &vulkan->memory.properties.memoryTypes[chunk->type];
  const VkDeviceSize heap = vulkan->memory.properties.memoryHeaps[type->heapIndex].size;
  const VkDeviceSize budget = heap < vulkan->limits.heap ? heap : vulkan->limits.heap;
  VkDeviceSize *taken = &vulkan->memory.heap_bytes[type->heapIndex];
  if (chunk->bytes > vulkan->limits.allocation || chunk->bytes > budget - *taken)
    return still_fail(STILL_ERROR_MEMORY,
                      "%s: no room for %llu bytes: %llu of %llu are in use, one allocation holds "
                      "at most %llu",
                      vulkan->name, (unsigned long long)chunk->bytes, (unsigned long long)*taken,
                      (unsigned long long)budget, (unsigned long long)vulkan->limits.allocation);
  const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                     .allocationSize = chunk->bytes,
                                     .memoryTypeIndex = chunk->type};
  VK_TRY(vulkan->call.vkAllocateMemory(vulkan->device, &info, NULL, &chunk->memory));
  *taken += chunk->bytes;
  if (type->propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT &&
      (vulkan->memory.unified || !(type->propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)))
    VK_TRY(vulkan->call.vkMapMemory(vulkan->device, chunk->memory, 0, VK_WHOLE_SIZE, 0,
                                    &chunk->mapped));
  return STILL_OK;
}

static still_status add_chunk(still_vulkan *vulkan, uint32_t type, VkDeviceSize bytes,
                              still_vulkan_chunk **out) {
  still_vulkan_chunk *chunk;
  STILL_TRY(STILL_ALLOC(&chunk, 1, "a piece of device memory"));
  chunk->type = type;
  chunk->bytes = bytes;
  chunk->free[0] = (free_range){0, bytes};
  chunk->free_count = 1;
  const still_status status = fill_chunk(vulkan, chunk);
  if (status) {
    release_chunk(vulkan, chunk);
    return status;
  }
  chunk->next = vulkan->memory.chunks;
  vulkan->memory.chunks = chunk;
  *out = chunk;
  return STILL_OK;
}

/* First fit. bytes is a multiple of the alignment, so every offset is too. */
static bool take(still_vulkan_chunk *chunk, VkDeviceSize bytes, VkDeviceSize *offset) {
  for (uint32_t i = 0; i < chunk->free_count; i++) {
    free_range *range = &chunk->free[i];
    if (range->bytes < bytes) continue;
    *offset = range->offset;
    range->offset += bytes;
    range->bytes -= bytes;
    if (!range->bytes) {
      chunk->free_count--;
      for (uint32_t j = i; j < chunk->free_count; j++) chunk->free[j] = chunk->free[j + 1];
    }
    return true;
  }
  return false;
}

static void give(still_vulkan_chunk *chunk, VkDeviceSize offset, VkDeviceSize bytes) {
  uint32_t i = 0;
  while (i < chunk->free_count && chunk->free[i].offset < offset) i++;
  free_range *before = i ? &chunk->free[i - 1] : NULL;
  free_range *after = i < chunk->free_count ? &chunk->free[i] : NULL;
  const bool joins_before = before && before->offset + before->bytes == offset;
  const bool joins_after = after && offset + bytes == after->offset;
  if (joins_before && joins_after) {
    before->bytes += bytes + after->bytes;
    chunk->free_count--;
    for (uint32_t j = i; j < chunk->free_count; j++) chunk->free[j] = chunk->free[j + 1];
  } else if (joins_before) {
    before->bytes += bytes;
  } else if (joins_after) {
    after->offset = offset;
    after->bytes += bytes;
  } else if (chunk->free_count < MOST_FREE_RANGES) {
    for (uint32_t j = chunk->free_count++; j > i; j--) chunk->free[j] = chunk->free[j - 1];
    chunk->free[i] = (free_range){offset, bytes};
  }
}

/* ---- buffers ---------------------------------------------------------------------------------------- */

static void count_bytes(still_vulkan_memory *memory, const still_vulkan_buffer *buffer, int sign) {
  const VkMemoryType *type = &memory->properties.memoryTypes[buffer->chunk->type];
  if (!(type->propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)) return;
  memory->used_bytes += sign > 0 ? buffer->reserved : -buffer->reserved;
  if (memory->used_bytes > memory->peak_bytes) memory->peak_bytes = memory->used_bytes;
}

static still_status reserve(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                            still_vulkan_place place) {
  VkMemoryRequirements needs;
  vulkan->call.vkGetBufferMemoryRequirements(vulkan->device, buffer->handle, &needs);
  uint32_t type = 0;
  STILL_TRY(choose_type(vulkan, needs.memoryTypeBits, place, &type));
  /* One unit for all keeps every free range aligned for every buffer. */
  const VkDeviceSize unit = needs.alignment > 4096 ? needs.alignment : 4096;
  buffer->reserved = (needs.size + unit - 1) / unit * unit;
  still_vulkan_chunk *chunk = vulkan->memory.chunks;
  while (chunk && !(chunk->type == type && take(chunk, buffer->reserved, &buffer->offset)))
    chunk = chunk->next;
  if (!chunk) {
    const bool own = buffer->reserved > chunk_bytes / 4;
    still_status status = add_chunk(vulkan, type, own ? buffer->reserved : chunk_bytes, &chunk);
    if (status == STILL_ERROR_MEMORY && !own) /* a small heap: take no more than needed */
      status = add_chunk(vulkan, type, buffer->reserved, &chunk);
    STILL_TRY(status);
    take(chunk, buffer->reserved, &buffer->offset);
  }
  chunk->buffers++;
  buffer->chunk = chunk;
  count_bytes(&vulkan->memory, buffer, 1);
  if (chunk->mapped) buffer->mapped = (char *)chunk->mapped + buffer->offset;
  VK_TRY(vulkan->call.vkBindBufferMemory(vulkan->device, buffer->handle, chunk->memory,
                                         buffer->offset));
  return STILL_OK;
}

static still_status create(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                           still_vulkan_place place) {
  VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                             .size = buffer->bytes,
                             .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                      VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                      VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  const uint32_t families[] = {vulkan->family, vulkan->transfer.family};
  if (vulkan->transfer.queue && families[0] != families[1]) {
    info.sharingMode = VK_SHARING_MODE_CONCURRENT;
    info.queueFamilyIndexCount = 2;
    info.pQueueFamilyIndices = families;
  }
  VK_TRY(vulkan->call.vkCreateBuffer(vulkan->device, &info, NULL, &buffer->handle));
  return reserve(vulkan, buffer, place);
}

still_status still_vulkan_buffer_create(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                        VkDeviceSize bytes, still_vulkan_place place) {
  *buffer = (still_vulkan_buffer){.bytes = (bytes + 15) / 16 * 16};
  if (place == STILL_VULKAN_DEVICE && buffer->bytes > vulkan->limits.storage_range)
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "%s: a buffer of %llu bytes; the device binds at most %llu", vulkan->name,
                      (unsigned long long)bytes, (unsigned long long)vulkan->limits.storage_range);
  const still_status status = create(vulkan, buffer, place);
  if (status) still_vulkan_buffer_destroy(vulkan, buffer);
  return status;
}

/* An empty piece of the host's own memory, one of each type: to pin and to free one takes the time of a hundred shaders. */
static bool is_kept(const still_vulkan_memory *memory, const still_vulkan_chunk *empty) {
  const VkMemoryPropertyFlags flags = memory->properties.memoryTypes[empty->type].propertyFlags;
  if (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT || empty->bytes != chunk_bytes) return false;
  for (const still_vulkan_chunk *chunk = memory->chunks; chunk; chunk = chunk->next)
    if (chunk != empty && chunk->type == empty->type && !chunk->buffers) return false;
  return true;
}

void still_vulkan_buffer_destroy(still_vulkan *vulkan, still_vulkan_buffer *buffer) {
  if (buffer->handle) vulkan->call.vkDestroyBuffer(vulkan->device, buffer->handle, NULL);
  if (buffer->chunk) {
    count_bytes(&vulkan->memory, buffer, -1);
    give(buffer->chunk, buffer->offset, buffer->reserved);
    if (!--buffer->chunk->buffers && !is_kept(&vulkan->memory, buffer->chunk))
      release_chunk(vulkan, buffer->chunk);
  }
  *buffer = (still_vulkan_buffer){0};
}
