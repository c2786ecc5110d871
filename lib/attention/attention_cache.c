/* SPDX-License-Identifier: MIT
 * The cache: its layout, its size as a function of the plan and the length, and what it says about
 * itself. */
#include "attention/attention_cache.h"

#include "attention/attention_stages.h"
#include "attention/attention_work.h"
#include "base/memory.h"

#include <string.h>

/* Tokens that a growing store has room for once the sequence is `tokens` long: those of the
 * context, then half as much again until it fits. A function of the length alone, so that bytes can
 * be told beforehand. */
static int64_t grown(int64_t at_first, int64_t needed) {
  int64_t room = at_first;
  while (room < needed) room += room / 2 + STILL_KEY_TILE;
  return room;
}

static int64_t most_tokens(const still_attention_plan *plan, int64_t tokens) {
  return tokens > plan->options.context ? tokens : plan->options.context;
}

/* Tiles of the near ring of a plan without passes. */
static size_t shortest_ring(const still_attention_plan *plan) {
  const still_attention_options *o = &plan->options;
  if (o->kind == STILL_ATTENTION_STILL) return still_ring_tiles(plan->near_span, o->chunk);
  /* a block of new tokens joins before its first query looks W - 1 tokens back */
  return plan->near_span ? still_ring_tiles((int64_t)plan->near_span + STILL_BLOCK_ROWS - 1, 1) : 0;
}

static size_t near_tiles(const still_attention_plan *plan, int64_t tokens) {
  const still_attention_options *o = &plan->options;
  if (o->kind == STILL_ATTENTION_FULL) return still_list_tiles(grown(o->context, tokens));
  const size_t shortest = shortest_ring(plan);
  if (!plan->pass_chunks) return shortest;
  return still_round_up(still_ring_tiles((int64_t)still_score_ring(plan), o->chunk), shortest);
}

static int64_t kept_room(const still_attention_plan *plan, int64_t tokens) {
  const int64_t at_first = still_kept_after(plan, still_routed_chunks(plan, plan->options.context));
  if (plan->most_kept < 0)
    return grown(at_first, still_kept_after(plan, still_routed_chunks(plan, tokens)));
  /* bounded: all that will ever be kept; a FIXED budget may be filled beyond `context` */
  return plan->keep ? plan->most_kept : 0;
}

static size_t state_floats(const still_attention_plan *plan) {
  return (size_t)plan->options.heads * (size_t)plan->features * (size_t)plan->options.head_dim;
}

static size_t normalizer_floats(const still_attention_plan *plan) {
  const bool has = plan->options.kind != STILL_ATTENTION_LIGER_GLA;
  return has ? (size_t)plan->options.heads * (size_t)plan->features : 0;
}

static size_t score_floats(const still_attention_plan *plan) {
  return plan->routes ? (size_t)plan->options.heads * still_score_ring(plan) : 0;
}

uint64_t still_attention_cache_bytes(const still_attention_plan *plan, int64_t tokens) {
  const still_attention_options *o = &plan->options;
  const size_t dim = (size_t)o->head_dim;
  if (plan->gpu) return plan->gpu->cache_bytes(plan->gpu_device, plan, tokens);
  const int64_t length = most_tokens(plan, tokens);
  uint64_t bytes = sizeof(still_attention_cache);
  bytes += still_near_stores(plan) *
           (sizeof(still_key_store) +
            still_key_store_bytes(o->cache_type, dim, near_tiles(plan, length)));
  bytes += still_sink_stores(plan) *
           (sizeof(still_key_store) +
            still_key_store_bytes(o->cache_type, dim, still_list_tiles(o->sinks)));
  if (plan->routes) {
    const int64_t room = kept_room(plan, length);
    bytes +=
        (size_t)plan->routes * (sizeof(still_kept) + (uint64_t)room * sizeof(int64_t) +
                                still_key_store_bytes(o->cache_type, dim, still_list_tiles(room)));
  }
  const uint64_t floats = state_floats(plan) + normalizer_floats(plan) + score_floats(plan);
  return bytes + floats * sizeof(float);
}

size_t still_attention_plan_snapshot_bytes(const still_attention_plan *plan) {
  const still_attention_options *o = &plan->options;
  const size_t near =
      plan->near_span
          ? (size_t)still_key_store_bytes(o->cache_type, (size_t)o->head_dim, near_tiles(plan, 0))
          : 0;
  const size_t floats = state_floats(plan) + normalizer_floats(plan) + score_floats(plan);
  return sizeof(int64_t) + still_near_stores(plan) * near + floats * sizeof(float);
}

static still_status create_stores(still_key_store **stores, size_t count, size_t tiles,
                                  const still_attention_plan *plan) {
  STILL_TRY(STILL_ALLOC(stores, count, "attention cache"));
  for (size_t i = 0; i < count; i++)
    STILL_TRY(still_key_store_create(&(*stores)[i], plan->options.cache_type,
                                     (size_t)plan->options.head_dim, tiles, "attention cache"));
  return STILL_OK;
}

static still_status grow_kept(still_attention_cache *cache, int64_t room) {
  for (int r = 0; r < cache->plan->routes; r++) {
    still_kept *kept = &cache->kept[r];
    STILL_TRY(still_key_store_grow(&kept->store, still_list_tiles(room)));
    STILL_TRY(STILL_REALLOC(&kept->positions, (size_t)room, "kept positions"));
  }
  return STILL_OK;
}

static still_status create_kept(still_attention_cache *cache) {
  const still_attention_plan *plan = cache->plan;
  STILL_TRY(STILL_ALLOC(&cache->kept, (size_t)plan->routes, "attention cache"));
  for (int r = 0; r < plan->routes; r++)
    STILL_TRY(still_key_store_create(&cache->kept[r].store, plan->options.cache_type,
                                     (size_t)plan->options.head_dim, 0, "attention cache"));
  cache->reserved = plan->options.context;
  return plan->routes ? grow_kept(cache, kept_room(plan, plan->options.context)) : STILL_OK;
}

static still_status fill(still_attention_cache *cache) {
  const still_attention_plan *plan = cache->plan;
  STILL_TRY(create_stores(&cache->near, still_near_stores(plan),
                          near_tiles(plan, plan->options.context), plan));
  for (size_t i = 0; i < still_near_stores(plan); i++) cache->near[i].cut = shortest_ring(plan);
  STILL_TRY(create_stores(&cache->sinks, still_sink_stores(plan),
                          still_list_tiles(plan->options.sinks), plan));
  STILL_TRY(create_kept(cache));
  STILL_TRY(STILL_ALLOC(&cache->scores, score_floats(plan), "routing scores"));
  STILL_TRY(STILL_ALLOC(&cache->state, state_floats(plan), "linear state"));
  STILL_TRY(STILL_ALLOC(&cache->normalizer, normalizer_floats(plan), "linear state"));
  STILL_TRY(still_work_reserve(still_forward_work_bytes(plan)));
  cache->has_work = true;
  return STILL_OK;
}

still_status still_attention_cache_create(still_attention_cache **cache,
                                          const still_attention_plan *plan) {
  *cache = NULL;
  still_attention_cache *c;
  STILL_TRY(STILL_ALLOC(&c, 1, "attention cache"));
  c->plan = plan;
  const still_status status =
      plan->gpu ? plan->gpu->cache_create(&c->on_gpu, plan->gpu_device, plan) : fill(c);
  if (status)
    still_attention_cache_destroy(c);
  else
    *cache = c;
  return status;
}

static void destroy_stores(still_key_store *stores, size_t count) {
  for (size_t i = 0; stores && i < count; i++) still_key_store_destroy(&stores[i]);
  still_free(stores);
}

void still_attention_cache_destroy(still_attention_cache *cache) {
  if (!cache) return;
  if (cache->plan->gpu) cache->plan->gpu->cache_destroy(cache->on_gpu);
  destroy_stores(cache->near, still_near_stores(cache->plan));
  destroy_stores(cache->sinks, still_sink_stores(cache->plan));
  for (int r = 0; cache->kept && r < cache->plan->routes; r++) {
    still_key_store_destroy(&cache->kept[r].store);
    still_free(cache->kept[r].positions);
  }
  still_free(cache->kept);
  still_free(cache->scores);
  still_free(cache->state);
  still_free(cache->normalizer);
  if (cache->has_work) still_work_unreserve();
  still_free(cache);
}

void still_attention_cache_reset(still_attention_cache *cache) {
  cache->tokens = 0;
  if (cache->on_gpu) cache->plan->gpu->cache_reset(cache->on_gpu);
  if (cache->state) memset(cache->state, 0, state_floats(cache->plan) * sizeof(float));
  if (cache->normalizer)
    memset(cache->normalizer, 0, normalizer_floats(cache->plan) * sizeof(float));
}

still_status still_attention_cache_reserve(still_attention_cache *cache, int64_t tokens) {
  const still_attention_plan *plan = cache->plan;
  if (tokens <= cache->reserved) return STILL_OK;
  if (plan->options.kind == STILL_ATTENTION_FULL)
    for (size_t i = 0; i < still_near_stores(plan); i++)
      STILL_TRY(still_key_store_grow(&cache->near[i], near_tiles(plan, tokens)));
  if (plan->routes && plan->most_kept < 0) STILL_TRY(grow_kept(cache, kept_room(plan, tokens)));
  cache->reserved = tokens;
  return STILL_OK;
}

void still_attention_cache_usage(const still_attention_cache *cache, still_attention_usage *usage) {
  const still_attention_plan *plan = cache->plan;
  if (cache->on_gpu) {
    plan->gpu->cache_usage(cache->on_gpu, usage);
    return;
  }
  *usage = still_attention_usage_of(plan, cache->tokens);
  usage->bytes = still_attention_cache_bytes(plan, cache->reserved);
  usage->work_bytes = still_forward_work_bytes(plan);
}

size_t still_attention_cache_kept(const still_attention_cache *cache, int head, int64_t *positions,
                                  size_t capacity) {
  const still_attention_plan *plan = cache->plan;
  if (!plan->routes || head < 0 || head >= plan->options.heads) return 0;
  if (cache->on_gpu) return plan->gpu->cache_kept(cache->on_gpu, head, positions, capacity);
  const size_t count = (size_t)still_attention_census(plan, cache->tokens).kept;
  const size_t written = count < capacity ? count : capacity;
  if (written)
    memcpy(positions, cache->kept[head / plan->route_heads].positions, written * sizeof *positions);
  return count;
}

still_status still_attention_cache_state(const still_attention_cache *cache, int head, float *state,
                                         float *normalizer) {
  const still_attention_plan *plan = cache->plan;
  const char *kind = still_attention_kind_name(plan->options.kind);
  if (!plan->features)
    return still_fail(STILL_ERROR_ARGUMENT, "kind '%s' has no linear state%s", kind,
                      plan->routes ? " without feature maps" : "");
  if (head < 0 || head >= plan->options.heads)
    return still_fail(STILL_ERROR_ARGUMENT, "head is %d, must be 0 .. %d", head,
                      plan->options.heads - 1);
  if (normalizer && plan->options.kind == STILL_ATTENTION_LIGER_GLA)
    return still_fail(STILL_ERROR_ARGUMENT, "kind '%s' has no normalizer", kind);
  if (cache->on_gpu) return plan->gpu->cache_state(cache->on_gpu, head, state, normalizer);
  const size_t features = (size_t)plan->features, dim = (size_t)plan->options.head_dim;
  if (state)
    memcpy(state, cache->state + (size_t)head * features * dim, features * dim * sizeof *state);
  if (normalizer)
    memcpy(normalizer, cache->normalizer + (size_t)head * features, features * sizeof *normalizer);
  return STILL_OK;
}
