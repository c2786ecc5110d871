/* SPDX-License-Identifier: MIT
 *
 * A cache on paper: snapshots for rolling back, and saved caches for another day.
 *
 * A snapshot is the part that forward overwrites, as it lies in memory. A saved cache is written
 * token by token in order of position, so that neither ring sizes nor threads show:
 *
 *   header    magic, version, shape, N
 *   near      near tokens of each kv head: key, value
 *   sinks     of each kv head
 *   kept      of each selection: positions, then key, value
 *   scores    of the near tokens, for each head
 *   state     S, z
 */
#include "attention/attention_cache.h"

#include <string.h>

/* One walk serves measuring (bytes NULL), writing and reading. */
typedef enum still_direction { WRITE, READ } still_direction;
typedef struct tape {
  char *bytes; /* NULL: only measure */
  size_t at;
  still_direction direction;
} tape;

static void pass(tape *t, void *data, size_t bytes) {
  if (t->bytes && bytes) {
    if (t->direction == WRITE)
      memcpy(t->bytes + t->at, data, bytes);
    else
      memcpy(data, t->bytes + t->at, bytes);
  }
  t->at += bytes;
}

static void pass_state(tape *t, still_attention_cache *cache) {
  const still_attention_plan *plan = cache->plan;
  const size_t rows = (size_t)plan->options.heads * (size_t)plan->features;
  pass(t, cache->state, rows * (size_t)plan->options.head_dim * sizeof(float));
  if (cache->normalizer) pass(t, cache->normalizer, rows * sizeof(float));
}

/* ---- snapshots ---- */

static void pass_snapshot(tape *t, still_attention_cache *cache) {
  const still_attention_plan *plan = cache->plan;
  pass(t, &cache->tokens, sizeof cache->tokens);
  if (plan->near_span)
    for (size_t i = 0; i < still_near_stores(plan); i++) {
      const size_t half = (size_t)still_key_store_bytes(cache->near[i].type, cache->near[i].dim,
                                                        cache->near[i].tiles) /
                          2;
      pass(t, cache->near[i].keys, half);
      pass(t, cache->near[i].values, half);
    }
  if (plan->routes)
    pass(t, cache->scores, (size_t)plan->options.heads * still_score_ring(plan) * sizeof(float));
  pass_state(t, cache);
}

size_t still_attention_cache_snapshot_bytes(const still_attention_cache *cache) {
  if (cache->on_gpu) return cache->plan->gpu->snapshot_bytes(cache->on_gpu);
  return still_attention_plan_snapshot_bytes(cache->plan);
}

still_status still_attention_cache_snapshot(const still_attention_cache *cache, void *snapshot) {
  if (cache->on_gpu) return cache->plan->gpu->snapshot(cache->on_gpu, snapshot);
  tape t = {.bytes = snapshot, .direction = WRITE};
  pass_snapshot(&t, (still_attention_cache *)cache);
  return STILL_OK;
}

still_status still_attention_cache_restore(still_attention_cache *cache, const void *snapshot) {
  if (cache->on_gpu) {
    STILL_TRY(cache->plan->gpu->restore(cache->on_gpu, snapshot));
    memcpy(&cache->tokens, snapshot, sizeof cache->tokens);
    return STILL_OK;
  }
  int64_t tokens;
  memcpy(&tokens, snapshot, sizeof tokens);
  if (tokens < 0 || tokens > cache->tokens)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "snapshot: of %lld tokens, but the cache holds %lld: not taken from it, or "
                      "the cache was reset or restored since",
                      (long long)tokens, (long long)cache->tokens);
  tape t = {.bytes = (char *)snapshot, .direction = READ};
  pass_snapshot(&t, cache);
  return STILL_OK;
}

/* ---- saved caches ---- */

typedef struct saved_header {
  char magic[8];
  uint32_t version, kind, heads, kv_heads, dim, features, type, span, sinks, routes, keep, reserved;
  int64_t most_kept, tokens;
} saved_header;
enum { SAVED_VERSION = 1 };

static saved_header header_of(const still_attention_plan *plan, int64_t tokens) {
  const still_attention_options *o = &plan->options;
  return (saved_header){.magic = "STILLKV",
                        .version = SAVED_VERSION,
                        .kind = (uint32_t)o->kind,
                        .heads = (uint32_t)o->heads,
                        .kv_heads = (uint32_t)o->kv_heads,
                        .dim = (uint32_t)o->head_dim,
                        .features = (uint32_t)plan->features,
                        .type = (uint32_t)o->cache_type,
                        .span = (uint32_t)plan->near_span,
                        .sinks = still_sink_stores(plan) ? (uint32_t)o->sinks : 0,
                        .routes = (uint32_t)plan->routes,
                        .keep = (uint32_t)plan->keep,
                        .most_kept = plan->most_kept,
                        .tokens = tokens};
}

static void pass_key(tape *t, still_key_store *store, int64_t key) {
  const size_t bytes = still_key_bytes(store->type, store->dim);
  if (t->bytes && t->direction == WRITE) still_key_store_save(store, key, t->bytes + t->at);
  if (t->bytes && t->direction == READ) still_key_store_load(store, key, t->bytes + t->at);
  t->at += bytes;
}

/* Keys first .. first+count-1 of each kv head; every unit of a kv head has the same. */
static void pass_keys(tape *t, const still_attention_plan *plan, still_key_store *stores,
                      size_t count, int64_t first, int64_t keys) {
  const size_t kv_heads = (size_t)plan->options.kv_heads;
  const size_t start = t->at;
  for (size_t i = 0; i < count; i++) {
    const size_t kv_head = i * kv_heads / count;
    const size_t bytes = (size_t)keys * still_key_bytes(stores[i].type, stores[i].dim);
    t->at = start + kv_head * bytes;
    for (int64_t key = first; t->bytes && key < first + keys; key++) pass_key(t, &stores[i], key);
    t->at = start + (kv_head + 1) * bytes;
  }
}

static void pass_kept(tape *t, still_attention_cache *cache, int64_t kept) {
  for (int r = 0; r < cache->plan->routes; r++) {
    still_kept *one = &cache->kept[r];
    pass(t, one->positions, (size_t)kept * sizeof(int64_t));
    for (int64_t i = 0; t->bytes && i < kept; i++) pass_key(t, &one->store, i);
    if (!t->bytes) t->at += (size_t)kept * still_key_bytes(one->store.type, one->store.dim);
  }
}

static void pass_scores(tape *t, still_attention_cache *cache, int64_t first, int64_t near) {
  const int64_t ring = (int64_t)still_score_ring(cache->plan);
  for (int h = 0; h < cache->plan->options.heads; h++)
    for (int64_t i = first; i < first + near; i++)
      pass(t, cache->scores ? cache->scores + h * ring + i % ring : NULL, sizeof(float));
}

/* Everything behind the header, of a sequence of `tokens` tokens. */
static void pass_saved(tape *t, still_attention_cache *cache, int64_t tokens) {
  const still_attention_plan *plan = cache->plan;
  const still_census census = still_attention_census(plan, tokens);
  const int64_t near = still_near_stores(plan) ? census.near : 0;
  const int64_t sinks = plan->options.sinks < tokens ? plan->options.sinks : tokens;
  pass_keys(t, plan, cache->near, still_near_stores(plan), tokens - near, near);
  pass_keys(t, plan, cache->sinks, still_sink_stores(plan), 0, sinks);
  pass_kept(t, cache, plan->routes ? census.kept : 0);
  if (plan->routes) pass_scores(t, cache, tokens - near, near);
  pass_state(t, cache);
}

static size_t saved_bytes(const still_attention_cache *cache, int64_t tokens) {
  tape t = {.at = sizeof(saved_header)};
  pass_saved(&t, (still_attention_cache *)cache, tokens);
  return t.at;
}

size_t still_attention_cache_save_bytes(const still_attention_cache *cache) {
  if (cache->on_gpu) return cache->plan->gpu->save_bytes(cache->on_gpu);
  return saved_bytes(cache, cache->tokens);
}

still_status still_attention_cache_save(const still_attention_cache *cache, void *bytes) {
  if (cache->on_gpu) return cache->plan->gpu->save(cache->on_gpu, bytes);
  saved_header header = header_of(cache->plan, cache->tokens);
  tape t = {.bytes = bytes, .direction = WRITE};
  pass(&t, &header, sizeof header);
  pass_saved(&t, (still_attention_cache *)cache, cache->tokens);
  return STILL_OK;
}

/* Where the kept positions of a saved cache must be: ascending, and of routed chunks. */
static still_status check_positions(const still_attention_cache *cache, const char *bytes,
                                    int64_t tokens) {
  const still_attention_plan *plan = cache->plan;
  const still_census census = still_attention_census(plan, tokens);
  const size_t key_bytes =
      still_key_bytes(plan->options.cache_type, (size_t)plan->options.head_dim);
  const char *at = bytes + sizeof(saved_header) +
                   (size_t)plan->options.kv_heads * (size_t)census.near * key_bytes;
  for (int r = 0; r < plan->routes; r++) {
    int64_t before = -1;
    for (int64_t i = 0; i < census.kept; i++) {
      int64_t position;
      memcpy(&position, at + (size_t)i * sizeof position, sizeof position);
      if (position <= before || position >= tokens - census.near)
        return still_fail(STILL_ERROR_FORMAT,
                          "saved cache: kept position %lld of selection %d is not between %lld and "
                          "%lld",
                          (long long)position, r, (long long)before,
                          (long long)(tokens - census.near));
      before = position;
    }
    at += (size_t)census.kept * (sizeof(int64_t) + key_bytes);
  }
  return STILL_OK;
}

static still_status check_header(const still_attention_cache *cache, const void *bytes,
                                 size_t count, int64_t *tokens) {
  saved_header header;
  if (count < sizeof header)
    return still_fail(STILL_ERROR_FORMAT, "saved cache: %zu bytes, needs at least %zu", count,
                      sizeof header);
  memcpy(&header, bytes, sizeof header);
  const saved_header ours = header_of(cache->plan, header.tokens);
  if (memcmp(header.magic, ours.magic, sizeof ours.magic) || header.version != ours.version)
    return still_fail(STILL_ERROR_FORMAT, "saved cache: does not begin with STILLKV, version %d",
                      SAVED_VERSION);
  if (memcmp(&header, &ours, sizeof ours))
    return still_fail(STILL_ERROR_FORMAT,
                      "saved cache: made by a plan of other options (%u heads, %u kv heads, "
                      "dimension %u; this one: %u, %u, %u)",
                      header.heads, header.kv_heads, header.dim, ours.heads, ours.kv_heads,
                      ours.dim);
  if (header.tokens < 0 || header.tokens > INT32_MAX)
    return still_fail(STILL_ERROR_FORMAT, "saved cache: %lld tokens, must be 0 .. %d",
                      (long long)header.tokens, INT32_MAX);
  *tokens = header.tokens;
  return STILL_OK;
}

still_status still_attention_cache_load(still_attention_cache *cache, const void *bytes,
                                        size_t count) {
  if (cache->on_gpu) return cache->plan->gpu->load(cache->on_gpu, bytes, count);
  int64_t tokens = 0;
  STILL_TRY(check_header(cache, bytes, count, &tokens));
  const size_t needed = saved_bytes(cache, tokens);
  if (count != needed)
    return still_fail(STILL_ERROR_FORMAT, "saved cache of %lld tokens: %zu bytes, must be %zu",
                      (long long)tokens, count, needed);
  STILL_TRY(check_positions(cache, bytes, tokens));
  STILL_TRY(still_attention_cache_reserve(cache, tokens));
  tape t = {.bytes = (char *)bytes, .at = sizeof(saved_header), .direction = READ};
  pass_saved(&t, cache, tokens);
  cache->tokens = tokens;
  return STILL_OK;
}
