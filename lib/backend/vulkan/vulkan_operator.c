/* SPDX-License-Identifier: MIT
 * The operator of attention.h on a Vulkan device: host arrays in and out, a piece of tokens at a time. */
#include "attention/device_operator.h"
#include "backend/vulkan/vulkan_attention.h"
#include "base/memory.h"

#include <string.h>

/* Tokens that are copied to the device at a time. */
enum { PIECE = 2048 };

struct still_device {
  still_vulkan *vulkan;
};

struct still_device_cache {
  still_vulkan *vulkan;
  still_vulkan_attention *attention;
  still_vulkan_buffer q, k, v, gate, out, q_raw, k_raw; /* a piece, token-major */
  bool damaged; /* a call failed half-way: the content is neither the old nor the new */
};

static void lock(const still_vulkan *vulkan) {
  pthread_mutex_lock(&((still_vulkan *)vulkan)->lock);
}
static void unlock(const still_vulkan *vulkan) {
  pthread_mutex_unlock(&((still_vulkan *)vulkan)->lock);
}

static still_status open_device(still_device **out, const still_attention_plan *plan) {
  *out = NULL;
  still_device *device;
  STILL_TRY(STILL_ALLOC(&device, 1, "a device"));
  still_status status = still_vulkan_open(&device->vulkan, plan->options.device);
  if (!status) {
    status = still_vulkan_attention_check(device->vulkan, plan);
    if (status) still_vulkan_close(device->vulkan);
  }
  if (status)
    still_free(device);
  else
    *out = device;
  return status;
}

static void close_device(still_device *device) {
  if (!device) return;
  still_vulkan_close(device->vulkan);
  still_free(device);
}

/* ---- caches ------------------------------------------------------------------------------------------------ */

static void cache_destroy(still_device_cache *cache) {
  if (!cache) return;
  still_vulkan *vulkan = cache->vulkan;
  lock(vulkan);
  still_vulkan_attention_destroy(cache->attention);
  still_vulkan_buffer *buffers[] = {&cache->q,   &cache->k,     &cache->v,    &cache->gate,
                                    &cache->out, &cache->q_raw, &cache->k_raw};
  for (int i = 0; i < 7; i++) still_vulkan_discard(vulkan, buffers[i]);
  unlock(vulkan);
  still_free(cache);
}

static still_status cache_create(still_device_cache **out, still_device *device,
                                 const still_attention_plan *plan) {
  *out = NULL;
  still_device_cache *cache;
  STILL_TRY(STILL_ALLOC(&cache, 1, "a cache on the device"));
  cache->vulkan = device->vulkan;
  lock(cache->vulkan);
  const still_status status = still_vulkan_attention_create(&cache->attention, cache->vulkan, plan);
  unlock(cache->vulkan);
  if (status)
    still_free(cache);
  else
    *out = cache;
  return status;
}

static void cache_reset(still_device_cache *cache) {
  lock(cache->vulkan);
  cache->damaged = still_vulkan_attention_reset(cache->attention) != STILL_OK;
  unlock(cache->vulkan);
}

static void cache_usage(const still_device_cache *cache, still_attention_usage *usage) {
  lock(cache->vulkan);
  still_vulkan_attention_usage(cache->attention, usage);
  unlock(cache->vulkan);
}

static uint64_t cache_bytes(still_device *device, const still_attention_plan *plan,
                            int64_t tokens) {
  (void)device;
  return still_vulkan_attention_bytes_at(plan, tokens);
}

static size_t cache_kept(const still_device_cache *cache, int head, int64_t *positions,
                         size_t capacity) {
  lock(cache->vulkan);
  const size_t count = still_vulkan_attention_kept(cache->attention, head, positions, capacity);
  unlock(cache->vulkan);
  return count;
}

static still_status cache_state(const still_device_cache *cache, int head, float *state,
                                float *normalizer) {
  lock(cache->vulkan);
  const still_status status =
      still_vulkan_attention_state(cache->attention, head, state, normalizer);
  unlock(cache->vulkan);
  return status;
}

static size_t snapshot_bytes(const still_device_cache *cache) {
  return still_vulkan_attention_snapshot_bytes(cache->attention);
}

static still_status snapshot(const still_device_cache *cache, void *bytes) {
  lock(cache->vulkan);
  const still_status status = still_vulkan_attention_snapshot(cache->attention, bytes);
  unlock(cache->vulkan);
  return status;
}

static still_status restore(still_device_cache *cache, const void *bytes) {
  lock(cache->vulkan);
  const still_status status = still_vulkan_attention_restore(cache->attention, bytes);
  unlock(cache->vulkan);
  return status;
}

static size_t save_bytes(const still_device_cache *cache) {
  return still_vulkan_attention_save_bytes(cache->attention);
}

static still_status save(const still_device_cache *cache, void *bytes) {
  lock(cache->vulkan);
  const still_status status = still_vulkan_attention_save(cache->attention, bytes);
  unlock(cache->vulkan);
  return status;
}

static still_status load(still_device_cache *cache, const void *bytes, size_t count) {
  lock(cache->vulkan);
  const still_status status = still_vulkan_attention_load(cache->attention, bytes, count);
  if (!status) cache->damaged = false;
  unlock(cache->vulkan);
  return status;
}

/* ---- forward ------------------------------------------------------------------------------------------------ */

/* Rows first .. first+n-1 of a strided array, token-major. */
static void pack(float *to, const still_rows *from, size_t heads, size_t dim, size_t first,
                 size_t n) {
  for (size_t t = 0; t < n; t++)
    for (size_t h = 0; h < heads; h++)
      memcpy(to + (t * heads + h) * dim,
             from->data + h * from->head_stride + (first + t) * from->token_stride,
             dim * sizeof *to);
}

static still_status upload(still_device_cache *cache, still_vulkan_buffer *to,
                           const still_rows *from, size_t heads, size_t first, size_t n,
                           float *host) {
  const size_t dim = (size_t)cache->attention->plan->options.head_dim;
  if (!from->data) return STILL_OK;
  pack(host, from, heads, dim, first, n);
  STILL_TRY(still_vulkan_work_reserve(cache->vulkan, to, n * heads * dim * sizeof *host));
  return still_vulkan_write(cache->vulkan, to, 0, host, n * heads * dim * sizeof *host);
}

static still_status download(still_device_cache *cache, size_t first, size_t n, float *host,
                             float *y, size_t head_stride, size_t token_stride) {
  const size_t dim = (size_t)cache->attention->plan->options.head_dim;
  const size_t heads = (size_t)cache->attention->plan->options.heads;
  STILL_TRY(still_vulkan_read(cache->vulkan, &cache->out, 0, host, n * heads * dim * sizeof *host));
  for (size_t t = 0; t < n; t++)
    for (size_t h = 0; h < heads; h++)
      memcpy(y + h * head_stride + (first + t) * token_stride, host + (t * heads + h) * dim,
             dim * sizeof *y);
  return STILL_OK;
}

typedef struct call {
  still_device_cache *cache;
  const still_attention_inputs *inputs;
  float *y, *host, *scores; /* host: a piece; scores: of a piece */
  size_t n, y_head_stride, y_token_stride;
} call;

static still_status run_piece(const call *c, size_t first, size_t n) {
  still_device_cache *cache = c->cache;
  const still_attention_options *o = &cache->attention->plan->options;
  const size_t heads = (size_t)o->heads, kv_heads = (size_t)o->kv_heads;
  STILL_TRY(upload(cache, &cache->q, &c->inputs->q, heads, first, n, c->host));
  STILL_TRY(upload(cache, &cache->k, &c->inputs->k, kv_heads, first, n, c->host));
  STILL_TRY(upload(cache, &cache->v, &c->inputs->v, kv_heads, first, n, c->host));
  STILL_TRY(upload(cache, &cache->gate, &c->inputs->gate, heads, first, n, c->host));
  STILL_TRY(upload(cache, &cache->q_raw, &c->inputs->q_raw, heads, first, n, c->host));
  STILL_TRY(upload(cache, &cache->k_raw, &c->inputs->k_raw, kv_heads, first, n, c->host));
  STILL_TRY(still_vulkan_work_reserve(cache->vulkan, &cache->out,
                                      n * heads * (size_t)o->head_dim * sizeof(float)));
  const still_vulkan_rows rows = {
      &cache->q,   &cache->k,     &cache->v,    c->inputs->gate.data ? &cache->gate : NULL,
      &cache->out, &cache->q_raw, &cache->k_raw};
  STILL_TRY(still_vulkan_attention_forward(cache->attention, &rows, n, c->scores));
  for (size_t h = 0; c->scores && h < heads; h++)
    memcpy(c->inputs->scores + h * c->n + first, c->scores + h * n, n * sizeof(float));
  return download(cache, first, n, c->host, c->y, c->y_head_stride, c->y_token_stride);
}

static still_status run_call(call *c) {
  const still_attention_options *o = &c->cache->attention->plan->options;
  const size_t most = c->n < PIECE ? c->n : PIECE, heads = (size_t)o->heads;
  still_status status = STILL_ALLOC(&c->host, most * heads * (size_t)o->head_dim, "rows");
  if (!status && c->inputs->scores) status = STILL_ALLOC(&c->scores, most * heads, "scores");
  for (size_t done = 0; done < c->n && !status; done += most) {
    const size_t left = c->n - done;
    status = run_piece(c, done, left < most ? left : most);
    c->cache->damaged = status != STILL_OK;
  }
  still_free(c->host);
  still_free(c->scores);
  return status;
}

static still_status check_content(const still_device_cache *cache) {
  if (!cache->damaged) return STILL_OK;
  return still_fail(STILL_ERROR_DEVICE,
                    "%s: the cache lost its content when an earlier call failed; reset it or load "
                    "a saved one",
                    cache->vulkan->name);
}

static still_status forward(still_device_cache *cache, size_t n,
                            const still_attention_inputs *inputs, float *y, size_t y_head_stride,
                            size_t y_token_stride) {
  STILL_TRY(check_content(cache));
  call c = {.cache = cache,
            .inputs = inputs,
            .y = y,
            .n = n,
            .y_head_stride = y_head_stride,
            .y_token_stride = y_token_stride};
  lock(cache->vulkan);
  const still_status status = run_call(&c);
  unlock(cache->vulkan);
  return status;
}

/* ---- buffers of the application ------------------------------------------------------------------------------ */

static still_status check_sharing(const still_device_cache *cache) {
  if (cache->vulkan->shared) return STILL_OK;
  return still_fail(
      STILL_ERROR_ARGUMENT,
      "%s: the plan's device is the library's own; buffers can be given to plans on a "
      "device of still_share_device",
      cache->vulkan->name);
}

/* n rows of `heads` heads as a buffer of ours. */
static still_status borrow(const still_device_cache *cache, still_vulkan_buffer *to,
                           const still_buffer_rows *from, size_t heads, size_t n) {
  const still_vulkan *vulkan = cache->vulkan;
  const uint64_t unit = vulkan->properties.limits.minStorageBufferOffsetAlignment;
  const uint64_t row = heads * (uint64_t)cache->attention->plan->options.head_dim * sizeof(float);
  if (from->offset % unit)
    return still_fail(STILL_ERROR_ARGUMENT, "buffers: offset %llu, must be a multiple of %llu",
                      (unsigned long long)from->offset, (unsigned long long)unit);
  if (n > vulkan->limits.storage_range / row)
    return still_fail(STILL_ERROR_ARGUMENT, "buffers: %zu rows, the device binds at most %llu", n,
                      (unsigned long long)(vulkan->limits.storage_range / row));
  *to = (still_vulkan_buffer){
      .handle = (VkBuffer)from->buffer, .binding = from->offset, .bytes = n * row};
  return STILL_OK;
}

static still_status run_buffers(still_device_cache *cache, size_t n,
                                const still_attention_buffers *b) {
  const still_attention_options *o = &cache->attention->plan->options;
  const size_t heads = (size_t)o->heads, kv_heads = (size_t)o->kv_heads;
  still_vulkan_buffer q, k, v, gate, q_raw, k_raw, y;
  STILL_TRY(borrow(cache, &q, &b->q, heads, n));
  STILL_TRY(borrow(cache, &k, &b->k, kv_heads, n));
  STILL_TRY(borrow(cache, &v, &b->v, kv_heads, n));
  STILL_TRY(borrow(cache, &gate, &b->gate, heads, n));
  STILL_TRY(borrow(cache, &q_raw, &b->q_raw, heads, n));
  STILL_TRY(borrow(cache, &k_raw, &b->k_raw, kv_heads, n));
  STILL_TRY(borrow(cache, &y, &b->y, heads, n));
  const still_vulkan_rows rows = {&q, &k, &v, b->gate.buffer ? &gate : NULL, &y, &q_raw, &k_raw};
  still_status status = still_vulkan_submit(cache->vulkan); /* the first barrier sees the queue's */
  if (!status) status = still_vulkan_attention_forward(cache->attention, &rows, n, NULL);
  if (!status) status = still_vulkan_finish(cache->vulkan);
  cache->damaged = status != STILL_OK;
  return status;
}

static still_status forward_buffers(still_device_cache *cache, size_t n,
                                    const still_attention_buffers *buffers) {
  STILL_TRY(check_sharing(cache));
  STILL_TRY(check_content(cache));
  lock(cache->vulkan);
  const still_status status = run_buffers(cache, n, buffers);
  unlock(cache->vulkan);
  return status;
}

const still_device_operator *still_vulkan_operator(void) {
  static const still_device_operator table = {
      open_device, close_device, cache_create, cache_destroy,  cache_reset,    cache_usage,
      cache_bytes, cache_kept,   cache_state,  snapshot_bytes, snapshot,       restore,
      save_bytes,  save,         load,         forward,        forward_buffers};
  return &table;
}
