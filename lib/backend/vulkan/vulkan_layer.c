/* SPDX-License-Identifier: MIT
 * The attention operations of the table: vulkan_attention.h with the device locked. */
#include "backend/vulkan/vulkan_backend.h"
#include "base/memory.h"

static still_vulkan *device_of(still_backend *backend) {
  return still_vulkan_of(backend)->vulkan;
}

static still_status create(still_backend *backend, const still_attention_plan *plan,
                           still_layer_cache **out) {
  still_vulkan *vulkan = device_of(backend);
  *out = NULL;
  still_layer_cache *layer;
  STILL_TRY(STILL_ALLOC(&layer, 1, "a layer's cache"));
  still_status status;
  STILL_VULKAN_LOCKED(vulkan, status,
                      still_vulkan_attention_create(&layer->attention, vulkan, plan));
  if (status)
    still_free(layer);
  else
    *out = layer;
  return status;
}

static void destroy(still_backend *backend, still_layer_cache *layer) {
  still_vulkan *vulkan = device_of(backend);
  if (!layer) return;
  pthread_mutex_lock(&vulkan->lock);
  still_vulkan_attention_destroy(layer->attention);
  pthread_mutex_unlock(&vulkan->lock);
  still_free(layer);
}

static still_vulkan_buffer *data_of(const still_buffer *buffer) {
  return buffer ? (still_vulkan_buffer *)&buffer->data : NULL;
}

static still_status forward(still_backend *backend, still_layer_cache *layer, still_buffer *out,
                            const still_buffer *q, const still_buffer *k, const still_buffer *v,
                            const still_buffer *gate, const still_buffer *q_raw,
                            const still_buffer *k_raw, size_t n, const still_taps *taps) {
  const still_vulkan_rows rows = {data_of(q), data_of(k),     data_of(v),    data_of(gate),
                                  &out->data, data_of(q_raw), data_of(k_raw)};
  still_status status;
  if (taps->linear_mass || taps->linear_output)
    return still_fail(STILL_ERROR_UNSUPPORTED, "shares of the linear branch are not told by a GPU");
  STILL_VULKAN_STOPPABLE(backend, status,
                         still_vulkan_attention_forward(layer->attention, &rows, n, taps->scores));
  return status;
}

static void usage(still_backend *backend, const still_layer_cache *layer,
                  still_attention_usage *out) {
  (void)backend;
  still_vulkan_attention_usage(layer->attention, out);
}

static void reset(still_backend *backend, still_layer_cache *layer) {
  still_status status;
  STILL_VULKAN_LOCKED(device_of(backend), status, still_vulkan_attention_reset(layer->attention));
  (void)status; /* a lost device says so at the next call */
}

static size_t snapshot_bytes(still_backend *backend, const still_layer_cache *layer) {
  (void)backend;
  return still_vulkan_attention_snapshot_bytes(layer->attention);
}

static still_status snapshot(still_backend *backend, const still_layer_cache *layer, void *out) {
  still_status status;
  STILL_VULKAN_LOCKED(device_of(backend), status,
                      still_vulkan_attention_snapshot(layer->attention, out));
  return status;
}

static still_status restore(still_backend *backend, still_layer_cache *layer, const void *from) {
  still_status status;
  STILL_VULKAN_LOCKED(device_of(backend), status,
                      still_vulkan_attention_restore(layer->attention, from));
  return status;
}

static size_t save_bytes(still_backend *backend, const still_layer_cache *layer) {
  (void)backend;
  return still_vulkan_attention_save_bytes(layer->attention);
}

static still_status save(still_backend *backend, const still_layer_cache *layer, void *bytes) {
  still_status status;
  STILL_VULKAN_LOCKED(device_of(backend), status,
                      still_vulkan_attention_save(layer->attention, bytes));
  return status;
}

static still_status load(still_backend *backend, still_layer_cache *layer, const void *bytes,
                         size_t count) {
  still_status status;
  STILL_VULKAN_LOCKED(device_of(backend), status,
                      still_vulkan_attention_load(layer->attention, bytes, count));
  return status;
}

static still_attention_cache *host(still_backend *backend, still_layer_cache *layer) {
  (void)backend;
  (void)layer;
  return NULL;
}

void still_vulkan_layer_operations(still_backend_ops *ops) {
  ops->attention_create = create;
  ops->attention_destroy = destroy;
  ops->attention = forward;
  ops->attention_usage = usage;
  ops->attention_reset = reset;
  ops->attention_snapshot_bytes = snapshot_bytes;
  ops->attention_snapshot = snapshot;
  ops->attention_restore = restore;
  ops->attention_save_bytes = save_bytes;
  ops->attention_save = save;
  ops->attention_load = load;
  ops->attention_host = host;
}
