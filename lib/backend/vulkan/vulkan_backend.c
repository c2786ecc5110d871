/* SPDX-License-Identifier: MIT
 * The table of operations on a Vulkan device: everything is recorded, and submitted in bounded pieces. */
#include "backend/vulkan/vulkan_backend.h"

#include "backend/vulkan/vulkan_check.h"
#include "base/memory.h"
#include "base/threads.h"

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static still_status buffer_create(still_backend *backend, size_t floats, still_buffer **out) {
  still_vulkan *vulkan = still_vulkan_of(backend)->vulkan;
  *out = NULL;
  size_t bytes;
  if (!still_mul_size(floats, sizeof(float), &bytes))
    return still_fail(STILL_ERROR_MEMORY, "a buffer of %zu floats does not fit", floats);
  still_buffer *buffer;
  STILL_TRY(STILL_ALLOC(&buffer, 1, "a buffer"));
  buffer->floats = floats;
  still_status status;
  STILL_VULKAN_LOCKED(
      vulkan, status,
      still_vulkan_buffer_create(vulkan, &buffer->data, bytes ? bytes : 16, STILL_VULKAN_DEVICE));
  if (status)
    still_free(buffer);
  else
    *out = buffer;
  return status;
}

static void buffer_destroy(still_backend *backend, still_buffer *buffer) {
  still_vulkan *vulkan = still_vulkan_of(backend)->vulkan;
  if (!buffer) return;
  pthread_mutex_lock(&vulkan->lock);
  still_vulkan_discard(vulkan, &buffer->data);
  pthread_mutex_unlock(&vulkan->lock);
  still_free(buffer);
}

static still_status buffer_write(still_backend *backend, still_buffer *buffer, size_t offset,
                                 const float *data, size_t floats) {
  still_vulkan *vulkan = still_vulkan_of(backend)->vulkan;
  still_status status;
  STILL_VULKAN_LOCKED(vulkan, status,
                      still_vulkan_write(vulkan, &buffer->data, offset * sizeof *data, data,
                                         floats * sizeof *data));
  return status;
}

static still_status buffer_read(still_backend *backend, const still_buffer *buffer, size_t offset,
                                float *data, size_t floats) {
  still_vulkan *vulkan = still_vulkan_of(backend)->vulkan;
  still_status status;
  STILL_VULKAN_LOCKED(vulkan, status,
                      still_vulkan_read(vulkan, (still_vulkan_buffer *)&buffer->data,
                                        offset * sizeof *data, data, floats * sizeof *data));
  return status;
}

/* ---- order ----------------------------------------------------------------------------------------------------- */

static still_status checkpoint(still_backend *backend) {
  still_status status;
  STILL_VULKAN_STOPPABLE(backend, status,
                         still_vulkan_checkpoint(still_vulkan_of(backend)->vulkan));
  return status;
}

static still_status finish(still_backend *backend) {
  still_vulkan *vulkan = still_vulkan_of(backend)->vulkan;
  still_status status;
  STILL_VULKAN_LOCKED(vulkan, status, still_vulkan_finish(vulkan));
  return status;
}

static uint64_t memory_free(still_backend *backend) {
  still_vulkan *vulkan = still_vulkan_of(backend)->vulkan;
  pthread_mutex_lock(&vulkan->lock);
  const uint64_t bytes = still_vulkan_memory_free(vulkan);
  pthread_mutex_unlock(&vulkan->lock);
  return bytes;
}

static uint64_t buffer_most(const still_backend *backend) {
  return ((const still_backend_vulkan *)backend)->vulkan->limits.storage_range;
}

static int is_lost(const still_backend *backend) {
  still_vulkan *vulkan = ((const still_backend_vulkan *)backend)->vulkan;
  pthread_mutex_lock(&vulkan->lock);
  const int lost = vulkan->lost;
  pthread_mutex_unlock(&vulkan->lock);
  return lost;
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

static void destroy(still_backend *backend) {
  still_backend_vulkan *b = still_vulkan_of(backend);
  pthread_mutex_lock(&b->vulkan->lock);
  still_vulkan_discard(b->vulkan, &b->ids);
  still_vulkan_discard(b->vulkan, &b->angles);
  still_vulkan_discard(b->vulkan, &b->halves);
  still_vulkan_discard(b->vulkan, &b->worst);
  pthread_mutex_unlock(&b->vulkan->lock);
  still_vulkan_close(b->vulkan);
  still_free(b);
}

static still_backend_ops operations = {.destroy = destroy,
                                       .buffer_create = buffer_create,
                                       .buffer_destroy = buffer_destroy,
                                       .buffer_write = buffer_write,
                                       .buffer_read = buffer_read,
                                       .weight_create = still_vulkan_weight_create,
                                       .weight_destroy = still_vulkan_weight_destroy,
                                       .weight_bytes = still_vulkan_weight_bytes,
                                       .memory_free = memory_free,
                                       .buffer_most = buffer_most,
                                       .checkpoint = checkpoint,
                                       .finish = finish,
                                       .is_lost = is_lost};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void complete_operations(void) {
  still_vulkan_dense_operations(&operations);
  still_vulkan_layer_operations(&operations);
}

still_status still_backend_vulkan_create(still_backend **out, const char *device, int threads) {
  *out = NULL;
  pthread_once(&once, complete_operations);
  still_backend_vulkan *b;
  STILL_TRY(STILL_ALLOC(&b, 1, "the Vulkan backend"));
  still_status status = still_vulkan_open(&b->vulkan, device);
  if (status) {
    still_free(b);
    return status;
  }
  b->base = (still_backend){
      .ops = &operations, .name = b->vulkan->name, .threads = still_resolve_threads(threads)};
  status = still_vulkan_check_dense(&b->base);
  if (status)
    destroy(&b->base);
  else
    *out = &b->base;
  return status;
}

size_t still_backend_vulkan_devices(still_device_info *devices, size_t capacity) {
  size_t count = 0;
  still_vulkan_list(devices, capacity, &count);
  return count;
}
