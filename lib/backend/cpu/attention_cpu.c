/* SPDX-License-Identifier: MIT
 * The attention operations: the operator of lib/attention on token-major rows. */
#include "backend/cpu/backend_cpu.h"
#include "base/memory.h"

static still_status create(still_backend *backend, const still_attention_plan *plan,
                           still_layer_cache **out) {
  (void)backend;
  *out = NULL;
  still_layer_cache *layer;
  STILL_TRY(STILL_ALLOC(&layer, 1, "a layer's cache"));
  layer->plan = plan;
  const still_status status = still_attention_cache_create(&layer->cache, plan);
  if (status)
    still_free(layer);
  else
    *out = layer;
  return status;
}

static void destroy(still_backend *backend, still_layer_cache *layer) {
  (void)backend;
  if (!layer) return;
  still_attention_cache_destroy(layer->cache);
  still_free(layer);
}

static still_rows rows_of(const still_buffer *buffer, size_t heads, size_t dim) {
  return buffer ? (still_rows){buffer->data, dim, heads * dim} : (still_rows){NULL, 0, 0};
}

static still_status forward(still_backend *backend, still_layer_cache *layer, still_buffer *out,
                            const still_buffer *q, const still_buffer *k, const still_buffer *v,
                            const still_buffer *gate, const still_buffer *q_raw,
                            const still_buffer *k_raw, size_t n, const still_taps *taps) {
  const still_attention_options *options = still_attention_plan_options(layer->plan);
  const size_t heads = (size_t)options->heads, kv_heads = (size_t)options->kv_heads;
  const size_t dim = (size_t)options->head_dim;
  still_attention_inputs inputs = STILL_ATTENTION_INPUTS_INIT;
  inputs.q = rows_of(q, heads, dim);
  inputs.k = rows_of(k, kv_heads, dim);
  inputs.v = rows_of(v, kv_heads, dim);
  inputs.gate = rows_of(gate, heads, dim);
  inputs.q_raw = rows_of(q_raw, heads, dim);
  inputs.k_raw = rows_of(k_raw, kv_heads, dim);
  inputs.scores = taps->scores;
  inputs.linear_mass = taps->linear_mass;
  inputs.linear_output = taps->linear_output;
  inputs.stop = backend->stop;
  inputs.stop_user = backend->stop_user;
  return still_attention_forward(layer->plan, layer->cache, n, &inputs, out->data, dim,
                                 heads * dim);
}

static void usage(still_backend *backend, const still_layer_cache *layer,
                  still_attention_usage *out) {
  (void)backend;
  still_attention_cache_usage(layer->cache, out);
}

static void reset(still_backend *backend, still_layer_cache *layer) {
  (void)backend;
  still_attention_cache_reset(layer->cache);
}

static size_t snapshot_bytes(still_backend *backend, const still_layer_cache *layer) {
  (void)backend;
  return still_attention_cache_snapshot_bytes(layer->cache);
}

static still_status snapshot(still_backend *backend, const still_layer_cache *layer, void *out) {
  (void)backend;
  return still_attention_cache_snapshot(layer->cache, out);
}

static still_status restore(still_backend *backend, still_layer_cache *layer, const void *from) {
  (void)backend;
  return still_attention_cache_restore(layer->cache, from);
}

static size_t save_bytes(still_backend *backend, const still_layer_cache *layer) {
  (void)backend;
  return still_attention_cache_save_bytes(layer->cache);
}

static still_status save(still_backend *backend, const still_layer_cache *layer, void *bytes) {
  (void)backend;
  return still_attention_cache_save(layer->cache, bytes);
}

static still_status load(still_backend *backend, still_layer_cache *layer, const void *bytes,
                         size_t count) {
  (void)backend;
  return still_attention_cache_load(layer->cache, bytes, count);
}

static still_attention_cache *host(still_backend *backend, still_layer_cache *layer) {
  (void)backend;
  return layer->cache;
}

void still_cpu_attention_operations(still_backend_ops *ops) {
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
