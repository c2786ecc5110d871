/* SPDX-License-Identifier: MIT
 * The stages of attention for a block of new tokens, one shader run each (shaders/). Every chunk and head of the block runs
 * side by side: how many tokens earlier chunks keep follows from their number, and the linear state of every chunk is the
 * running sum of what the chunks add; by cooperative matrices a few segments of the chunks are walked over side by side. */
#include "backend/vulkan/vulkan_attention.h"

#include "base/memory.h"

#include <math.h>

/* The largest array of a block's work space takes this much at most, and this part of the device's memory. */
static const uint64_t most_work_bytes = 512u << 20, work_part = 32;
/* A submission of up to 50 ms may get one more block. */
static const double block_seconds = 0.02;
/* The shortest guaranteed maxComputeWorkGroupCount. */
enum { MOST_GROUPS = 65535 };

/* ---- work space ----------------------------------------------------------------------------------------- */

still_status still_vulkan_work_get(still_vulkan *vulkan, still_vulkan_work **work) {
  if (!vulkan->work) STILL_TRY(STILL_ALLOC(&vulkan->work, 1, "work space"));
  *work = vulkan->work;
  return STILL_OK;
}

enum { WORK_BUFFERS = sizeof(still_vulkan_work) / sizeof(still_vulkan_buffer) };

void still_vulkan_work_destroy(still_vulkan *vulkan) {
  still_vulkan_buffer *buffers = (still_vulkan_buffer *)vulkan->work;
  for (int i = 0; buffers && i < WORK_BUFFERS; i++)
    still_vulkan_buffer_destroy(vulkan, &buffers[i]);
  still_free(buffers);
}

uint64_t still_vulkan_work_bytes(const still_vulkan_work *work) {
  const still_vulkan_buffer *buffers = (const still_vulkan_buffer *)work;
  uint64_t bytes = 0;
  for (int i = 0; buffers && i < WORK_BUFFERS; i++) bytes += buffers[i].bytes;
  return bytes;
}

still_status still_vulkan_work_reserve(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                       uint64_t bytes) {
  if (buffer->bytes >= bytes && buffer->handle) return STILL_OK;
  still_vulkan_discard(vulkan, buffer);
  return still_vulkan_buffer_create(vulkan, buffer, bytes ? bytes : 16, STILL_VULKAN_DEVICE);
}

/* ---- the size of a block ---------------------------------------------------------------------------------- */

static uint64_t smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static uint64_t work_limit(const still_vulkan *vulkan) {
  const VkPhysicalDeviceMemoryProperties *memory = &vulkan->memory.properties;
  uint64_t heap = 0;
  for (uint32_t i = 0; i < memory->memoryHeapCount; i++)
    if (memory->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT &&
        memory->memoryHeaps[i].size > heap)
      heap = memory->memoryHeaps[i].size;
  heap = smaller(heap, vulkan->limits.heap) / work_part;
  return smaller(smaller(most_work_bytes, heap), vulkan->limits.storage_range);
}

/* Operations of the softmax branch for each new token, the longest shader of a block. */
static double softmax_work(const still_vulkan_attention *attention, double tokens) {
  const attention_push *shape = &attention->shape;
  const double keys = shape->lower == STILL_LOWER_ALL
                          ? tokens
                          : (double)shape->kept_rows + 2.0 * (double)shape->chunk;
  const double features = still_vulkan_scans(attention->plan) ? attention->plan->features : 0;
  return 4.0 * (double)shape->heads * (double)attention->plan->options.head_dim *
         (keys + 2 * features);
}

/* Tokens whose softmax branch takes a block's time. Under full attention the block itself adds to the keys: the root of
 * n (tokens + n) per_key = work. */
static double tokens_by_time(const still_vulkan_attention *attention) {
  const double gain = attention->coopmat ? STILL_VULKAN_COOPMAT_GAIN : 1;
  const double work = gain * still_vulkan_work_of(attention->vulkan, block_seconds);
  const double tokens = (double)attention->tokens, per_key = softmax_work(attention, 1);
  if (attention->shape.lower != STILL_LOWER_ALL) return work / per_key;
  return (sqrt(tokens * tokens + 4 * work / per_key) - tokens) / 2;
}

/* Whether the next block's stages are done by cooperative matrices. */
static bool begins_tile(const still_vulkan_attention *attention) {
  return attention->coopmat && attention->tokens % STILL_TILE == 0;
}

uint32_t still_vulkan_block_tokens(const still_vulkan_attention *attention) {
  const still_vulkan *vulkan = attention->vulkan;
  const attention_push *shape = &attention->shape;
  const uint64_t dim = (uint64_t)attention->plan->options.head_dim, heads = shape->heads;
  const uint64_t most = work_limit(vulkan);
  const uint64_t unit = shape->lower == STILL_LOWER_CHUNK ? shape->chunk : STILL_TILE;
  const bool coopmat = begins_tile(attention);
  const uint64_t feature = coopmat ? sizeof(uint16_t) : sizeof(float);
  uint64_t units = MOST_GROUPS / (unit * shape->kv_heads * dim / 4 / STILL_GROUP + 1);
  units = smaller(units, most / (unit * heads * 2 * dim * feature));
  if (attention->state.handle && !coopmat)
    units = smaller(units, most / (heads * (2 * dim * dim + 2 * dim) * sizeof(float)));
  units = units > 4 ? units - 3 : 1; /* room for the near tokens and one more state */
  const double by_time = tokens_by_time(attention) / (double)unit;
  if (by_time < (double)units) units = by_time > 1 ? (uint64_t)by_time : 1;
  return (uint32_t)(units * unit);
}

/* ---- stages --------------------------------------------------------------------------------------------------- */

typedef struct block {
  still_vulkan_attention *attention;
  still_vulkan *vulkan;
  still_vulkan_work *work;
  const still_vulkan_rows *rows;
  attention_push push;
  bool coopmat; /* stages by cooperative matrices: the block begins with a tile */
} block;

static uint32_t groups_of(uint64_t items) {
  return (uint32_t)((items + STILL_GROUP - 1) / STILL_GROUP);
}

static uint32_t tiles_of(uint32_t rows, uint32_t tile) {
  return (rows + tile - 1) / tile;
}

/* variant: the second specialisation constant, after the head dimension. */
static still_status run_as(const block *b, still_shader shader, uint32_t variant,
                           still_vulkan_dispatch dispatch) {
  const uint32_t constants[STILL_VULKAN_CONSTANTS] = {
      (uint32_t)b->attention->plan->options.head_dim, variant};
  STILL_TRY(still_vulkan_pipeline_get(b->vulkan, shader, constants, &dispatch.pipeline));
  dispatch.push = &b->push;
  dispatch.push_bytes = sizeof b->push;
  return still_vulkan_run(b->vulkan, &dispatch);
}

/* Runs a stage in the variant of the cache's type: the variant table lists f16 right after f32. */
static still_status run(const block *b, still_shader f32, uint32_t variant,
                        still_vulkan_dispatch dispatch) {
  return run_as(b, b->attention->f16 ? (still_shader)(f32 + 1) : f32, variant, dispatch);
}

/* The same by cooperative matrices, in the variant of the head dimension. */
static still_status run_coopmat(const block *b, still_shader d64, still_vulkan_dispatch dispatch) {
  const bool d128 = b->attention->plan->options.head_dim == 128;
  dispatch.gain = STILL_VULKAN_COOPMAT_GAIN;
  return run_as(b, d128 ? (still_shader)(d64 + 1) : d64, 0, dispatch);
}

static double work_of(const block *b, double tokens, double per_token) {
  return (double)b->push.heads * tokens * per_token * (double)b->attention->plan->options.head_dim;
}

/* Keys and values, scores or both. */
static still_status gather_some(const block *b, bool rows, bool scores) {
  still_vulkan_attention *a = b->attention;
  const uint32_t dim4 = (uint32_t)a->plan->options.head_dim / 4;
  const uint32_t used = b->push.start + b->push.count - b->push.base;
  const uint32_t old = b->push.start - b->push.base;
  const bool full = b->push.lower == STILL_LOWER_ALL;
  const uint64_t row_items = rows ? (uint64_t)used * b->push.kv_heads * dim4 : 0;
  const uint64_t score_items = scores ? (uint64_t)old * b->push.heads : 0;
  const uint64_t items = row_items > score_items ? row_items : score_items;
  return run(b, STILL_SHADER_gather_f32, !rows,
             (still_vulkan_dispatch){
                 .buffers = {full ? &b->work->mask : &a->near_k, full ? &b->work->mask : &a->near_v,
                             b->rows->k, b->rows->v, full ? &a->near_k : &b->work->keys,
                             full ? &a->near_v : &b->work->values,
                             scores ? &a->near_scores : &b->work->mask, &b->work->scores},
                 .writes = (rows ? 1 << 4 | 1 << 5 : 0) | 1 << 7,
                 .groups = {groups_of(items), rows && scores ? 2 : 1, 1},
                 .work = 8.0 * (double)items});
}

static bool gathers_scores(const block *b) {
  return b->attention->near_scores.handle && b->push.start > b->push.base;
}

static still_status gather(const block *b) {
  return gather_some(b, true, gathers_scores(b));
}

static still_status scatter(const block *b) {
  still_vulkan_attention *a = b->attention;
  const uint32_t dim4 = (uint32_t)a->plan->options.head_dim / 4;
  const uint64_t fresh = smaller(b->push.count, 2ull * b->push.chunk);
  const uint64_t items = fresh * b->push.kv_heads * dim4, scores = fresh * b->push.heads;
  const bool routed = a->near_scores.handle != VK_NULL_HANDLE;
  return run(b, STILL_SHADER_scatter_f32, 0,
             (still_vulkan_dispatch){
                 .buffers = {&a->near_k, &a->near_v, &b->work->keys, &b->work->values,
                             routed ? &a->near_scores : &b->work->mask, &b->work->scores},
                 .writes = 1 << 0 | 1 << 1 | 1 << 4,
                 .groups = {groups_of(items > scores ? items : scores), routed ? 2 : 1, 1},
                 .work = 8.0 * (double)items});
}

/* Blocks of 16 rows: shaders/register_tiles.glsl. */
static uint32_t blocks_of(uint32_t rows) {
  return tiles_of(rows, STILL_TILE) * (STILL_TILE / 16);
}

/* Workgroups that stride over the tiles of a head. */
static uint32_t tile_groups(const block *b, uint32_t rows) {
  const uint64_t dim = (uint64_t)b->attention->plan->options.head_dim;
  return (uint32_t)smaller((uint64_t)blocks_of(rows) * dim / 64, MOST_GROUPS);
}

/* Tiles of the block's queries. */
static still_status make_query_tiles(const block *b) {
  return run_as(b, STILL_SHADER_query_tiles_f16, 0,
                (still_vulkan_dispatch){.buffers = {b->rows->q, &b->work->query_tiles},
                                        .writes = 1 << 1,
                                        .groups = {tile_groups(b, b->push.count), b->push.heads, 1},
                                        .work = work_of(b, b->push.count, 4)});
}

static still_status saliency(const block *b) {
  still_vulkan_dispatch dispatch = {.buffers = {b->rows->q, &b->work->keys, &b->work->scores},
                                    .writes = 1 << 2,
                                    .groups = {(b->push.count + 31) / 32, b->push.heads, 1},
                                    .work = work_of(b, b->push.count, 4.0 * b->push.chunk)};
  if (!b->coopmat) return run(b, STILL_SHADER_saliency_f32, b->push.chunk, dispatch);
  if (b->push.metric > STILL_METRIC_QK) { /* the matrices' shader knows the first three */
    STILL_TRY(run(b, STILL_SHADER_saliency_f32, b->push.chunk, dispatch));
    return make_query_tiles(b);
  }
  dispatch.buffers[1] = &b->work->key_tiles;
  dispatch.buffers[3] = &b->work->query_tiles;
  dispatch.writes = 1 << 2 | 1 << 3;
  dispatch.groups[0] = b->push.heads;
  dispatch.groups[1] = tiles_of(b->push.count, STILL_TILE);
  return run_coopmat(b, STILL_SHADER_saliency_coopmat_d64, dispatch);
}

static still_status route(const block *b) {
  still_vulkan_attention *a = b->attention;
  return run(
      b, STILL_SHADER_route_f32, b->push.chunk,
      (still_vulkan_dispatch){
          .buffers = {&b->work->scores, &b->work->keys, &b->work->values, &a->kept_k, &a->kept_v,
                      &a->kept_positions, &b->work->mask},
          .writes = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6,
          .groups = {b->push.route_count, b->push.route_heads, 1},
          .work = 8.0 * b->push.route_count * b->push.route_heads * b->push.chunk * b->push.chunk});
}

static still_status feature_map(const block *b, bool keys) {
  still_vulkan_attention *a = b->attention;
  const uint32_t tokens = keys ? b->push.route_count * b->push.chunk : b->push.count;
  return run(
      b, STILL_SHADER_feature_map_f32, keys,
      (still_vulkan_dispatch){.buffers = {b->rows->q, &b->work->keys, keys ? &a->map_k : &a->map_q,
                                          &b->work->mask, &b->work->features},
                              .writes = 1 << 4,
                              .groups = {(tokens + STILL_TILE - 1) / STILL_TILE, b->push.heads, 1},
                              .work = work_of(b, tokens, 2.0 * a->plan->options.head_dim)});
}

/* The states before each routed chunk, and the cache's after all of them. */
static still_status linear_state(const block *b) {
  still_vulkan_attention *a = b->attention;
  const uint32_t features = 2 * (uint32_t)a->plan->options.head_dim;
  const uint64_t size = (uint64_t)b->push.heads * features * (features / 2 + 1) / 4;
  if (!b->push.route_count) return STILL_OK;
  STILL_TRY(feature_map(b, true));
  STILL_TRY(run(
      b, STILL_SHADER_linear_state_f32, 0,
      (still_vulkan_dispatch){
          .buffers = {&b->work->features, &b->work->values, &b->work->states},
          .writes = 1 << 2,
          .groups = {b->push.route_count, b->push.heads, (features + STILL_TILE - 1) / STILL_TILE},
          .work = work_of(b, b->push.route_count * b->push.chunk, 2.0 * features)}));
  return run_as(b, STILL_SHADER_linear_prefix_f32, 0,
                (still_vulkan_dispatch){.buffers = {&b->work->states, &a->state},
                                        .writes = 3,
                                        .groups = {groups_of(size), 1, 1},
                                        .work = 32.0 * (double)size * (b->push.route_count + 1)});
}

static still_status linear_branch(const block *b) {
  still_vulkan_attention *a = b->attention;
  const uint32_t chunk = b->push.chunk, features = 2 * (uint32_t)a->plan->options.head_dim;
  const uint32_t chunks = (b->push.start + b->push.count - 1) / chunk - b->push.start / chunk + 1;
  STILL_TRY(feature_map(b, false));
  return run(b, STILL_SHADER_linear_branch_f32, 0,
             (still_vulkan_dispatch){
                 .buffers = {&b->work->features, b->push.route_count ? &b->work->states : &a->state,
                             &b->work->linear},
                 .writes = 1 << 2,
                 .groups = {chunks * ((chunk + STILL_TILE - 1) / STILL_TILE), b->push.heads, 1},
                 .work = work_of(b, b->push.count, 2.0 * features)});
}

static still_vulkan_dispatch softmax_dispatch(const block *b) {
  still_vulkan_attention *a = b->attention;
  const bool full = b->push.lower == STILL_LOWER_ALL;
  const uint32_t last = b->push.start + b->push.count - 1;
  return (still_vulkan_dispatch){
      .buffers = {b->rows->q, &a->kept_k, &a->kept_v, full ? &a->near_k : &b->work->keys,
                  full ? &a->near_v : &b->work->values,
                  b->push.flags & STILL_FLAG_LINEAR ? &b->work->linear : &b->work->mask,
                  b->rows->gate ? b->rows->gate : b->rows->q, b->rows->out},
      .writes = 1 << 7,
      .groups = {last / STILL_TILE - b->push.start / STILL_TILE + 1, b->push.heads, 1},
      .work = softmax_work(a, last) * b->push.count};
}

static still_status softmax_branch(const block *b) {
  return run(b, STILL_SHADER_softmax_branch_f32, 0, softmax_dispatch(b));
}

/* ---- stages by cooperative matrices ------------------------------------------------------------------------ */

/* Tiles of the near cache, or of the kept tokens. */
static still_status make_tiles(const block *b, bool kept) {
  still_vulkan_attention *a = b->attention;
  const uint32_t rows = kept ? b->push.kept_rows : b->push.start + b->push.count - b->push.base;
  const uint32_t heads = kept ? b->push.route_heads : b->push.kv_heads;
  const uint32_t dim = (uint32_t)a->plan->options.head_dim;
  return run_as(b, STILL_SHADER_tiles_f16, kept,
                (still_vulkan_dispatch){.buffers = {kept ? &a->kept_k : &a->near_k,
                                                    kept ? &a->kept_v : &a->near_v,
                                                    &b->work->key_tiles, &b->work->value_tiles},
                                        .writes = 1 << 2 | 1 << 3,
                                        .groups = {tile_groups(b, rows), heads, 1},
                                        .work = 8.0 * rows * heads * dim});
}

/* gather, and the tiles of the near and new tokens. */
static still_status gather_tiles(const block *b) {
  still_vulkan_attention *a = b->attention;
  still_vulkan_work *w = b->work;
  const uint32_t rows = b->push.start + b->push.count - b->push.base;
  const uint32_t dim = (uint32_t)a->plan->options.head_dim;
  STILL_TRY(run_as(
      b, STILL_SHADER_gather_tiles_f16, 0,
      (still_vulkan_dispatch){.buffers = {&a->near_k, &a->near_v, b->rows->k, b->rows->v, &w->keys,
                                          &w->values, &w->key_tiles, &w->value_tiles},
                              .writes = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7,
                              .groups = {tile_groups(b, rows), b->push.kv_heads, 1},
                              .work = 8.0 * rows * b->push.kv_heads * dim}));
  return gathers_scores(b) ? gather_some(b, false, true) : STILL_OK;
}

/* Of the routed keys with their sums, or of the queries that see a state with their denominators. */
static still_status features_coopmat(const block *b, bool keys) {
  still_vulkan_attention *a = b->attention;
  still_vulkan_work *w = b->work;
  return run_coopmat(
      b, keys ? STILL_SHADER_key_features_coopmat_d64 : STILL_SHADER_query_features_coopmat_d64,
      (still_vulkan_dispatch){
          .buffers = {keys ? &a->map_k_tiles : &a->map_q_tiles,
                      keys ? &w->key_features : &w->features,
                      keys ? &w->key_tiles : &w->query_tiles, &w->feature_sums,
                      keys ? &w->mask : &w->normalizers},
          .writes = keys ? 1 << 1 | 1 << 3 : 1 << 1 | 1 << 4,
          .groups = {b->push.route_count, b->push.heads, 1},
          .work = work_of(b, b->push.route_count * STILL_TILE, 2.0 * a->plan->options.head_dim)});
}

/* What each segment of the routed chunks adds to the state, or what queries take from it. */
static still_status walk_segments(const block *b, bool totals) {
  const double features = 2.0 * b->attention->plan->options.head_dim;
  return run_coopmat(
      b, totals ? STILL_SHADER_linear_totals_coopmat_d64 : STILL_SHADER_linear_branch_coopmat_d64,
      (still_vulkan_dispatch){
          .buffers = {&b->work->key_features, &b->work->value_tiles, &b->work->states,
                      &b->work->features, &b->work->linear},
          .writes = totals ? 1 << 2 : 1 << 4,
          .groups = {b->push.segments, b->push.heads, 1},
          .work = work_of(b, b->push.route_count * STILL_TILE, (totals ? 2.0 : 4.0) * features)});
}

static still_status linear_branch_coopmat(const block *b) {
  still_vulkan_attention *a = b->attention;
  const uint64_t dim = (uint64_t)a->plan->options.head_dim, size = 2 * dim * dim;
  STILL_TRY(features_coopmat(b, true));
  STILL_TRY(walk_segments(b, true));
  STILL_TRY(run_as(b, STILL_SHADER_linear_prefix_coopmat_f32, 0,
                   (still_vulkan_dispatch){
                       .buffers = {&b->work->states, &b->work->feature_sums, &a->state},
                       .writes = 7,
                       .groups = {groups_of(2 * dim * 8) + groups_of(size / 8), b->push.heads, 1},
                       .work = 8.0 * (double)size * b->push.heads * b->push.segments}));
  STILL_TRY(features_coopmat(b, false));
  return walk_segments(b, false);
}

/* With the merge where there is a linear branch. */
static still_status softmax_branch_coopmat(const block *b) {
  still_vulkan_attention *a = b->attention;
  const uint32_t last = b->push.start + b->push.count - 1;
  still_vulkan_dispatch dispatch = {
      .buffers = {&b->work->query_tiles, &b->work->key_tiles, &b->work->value_tiles, b->rows->out},
      .writes = 1 << 3,
      .groups = {tiles_of(b->push.count, STILL_TILE), b->push.heads, 1},
      .work = softmax_work(a, last) * b->push.count};
  if (!(b->push.flags & STILL_FLAG_LINEAR))
    return run_coopmat(b, STILL_SHADER_softmax_branch_coopmat_d64, dispatch);
  dispatch.buffers[4] = &b->work->linear;
  dispatch.buffers[5] = &b->work->normalizers;
  dispatch.buffers[6] = b->rows->gate ? b->rows->gate : b->rows->q;
  dispatch.groups[1] = dispatch.groups[0];
  dispatch.groups[0] = b->push.heads;
  return run_coopmat(b, STILL_SHADER_hybrid_branch_coopmat_d64, dispatch);
}

/* The first tokens of a sliding window's sequence stay visible. */
static still_status keep_sinks(const block *b) {
  still_vulkan_attention *a = b->attention;
  if (b->push.start >= b->push.sinks) return STILL_OK;
  const size_t row = (size_t)a->plan->options.head_dim * still_vulkan_element(a);
  const uint32_t end = (uint32_t)smaller(b->push.sinks, b->push.start + b->push.count);
  for (uint32_t g = 0; g < b->push.kv_heads; g++) {
    const size_t to = ((size_t)g * b->push.kept_rows + b->push.start) * row;
    const size_t from = ((size_t)g * b->push.rows + b->push.start - b->push.base) * row;
    const size_t bytes = (end - b->push.start) * row;
    STILL_TRY(still_vulkan_copy(b->vulkan, &a->kept_k, to, &b->work->keys, from, bytes));
    STILL_TRY(still_vulkan_copy(b->vulkan, &a->kept_v, to, &b->work->values, from, bytes));
  }
  return STILL_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------------------- */

/* Which chunks are routed while these tokens come in: chunk c - 2 when chunk c begins. */
static void plan_routing(attention_push *push) {
  const uint32_t begins = (push->start + push->chunk - 1) / push->chunk;
  const uint32_t first = begins > 2 ? begins : 2;
  const uint32_t last = (push->start + push->count - 1) / push->chunk;
  push->route_first = first - 2;
  push->route_count = last >= first ? last - first + 1 : 0;
}

/* Segments that walk over the routed chunks side by side (linear_branch_coopmat.comp): as many as it takes to occupy a large
 * device. */
static void plan_segments(attention_push *push, uint32_t dim) {
  enum { CHANNELS = 128 * 128 }; /* of all heads and segments */
  const uint32_t wanted = tiles_of(CHANNELS, push->heads * dim);
  push->segments = (uint32_t)smaller(wanted, push->route_count);
}

/* Position of the oldest token in the near cache. */
static uint32_t near_base(const attention_push *push) {
  if (!push->start || push->lower == STILL_LOWER_NONE) return push->start;
  if (push->lower == STILL_LOWER_WINDOW)
    return push->start > push->chunk ? push->start - push->chunk : 0;
  const uint32_t chunk = (push->start - 1) / push->chunk;
  return (chunk ? chunk - 1 : 0) * push->chunk;
}

static still_status reserve_tiles(const block *b) {
  const attention_push *push = &b->push;
  const uint64_t dim = (uint64_t)b->attention->plan->options.head_dim;
  const uint64_t blocks = (uint64_t)push->kv_heads * blocks_of(push->rows) +
                          (uint64_t)push->route_heads * blocks_of(push->kept_rows);
  STILL_TRY(
      still_vulkan_work_reserve(b->vulkan, &b->work->query_tiles,
                                (uint64_t)push->heads * blocks_of(push->count) * 16 * dim * 2));
  STILL_TRY(still_vulkan_work_reserve(b->vulkan, &b->work->key_tiles, blocks * 16 * dim * 2));
  return still_vulkan_work_reserve(b->vulkan, &b->work->value_tiles, blocks * 16 * dim * 2);
}

static still_status reserve_linear_tiles(const block *b) {
  still_vulkan_work *w = b->work;
  const uint64_t dim = (uint64_t)b->attention->plan->options.head_dim, heads = b->push.heads;
  const uint64_t rows = heads * b->push.route_count * STILL_TILE;
  STILL_TRY(still_vulkan_work_reserve(b->vulkan, &w->features, rows * 2 * dim * 2));
  STILL_TRY(still_vulkan_work_reserve(b->vulkan, &w->key_features, rows * 2 * dim * 2));
  STILL_TRY(still_vulkan_work_reserve(b->vulkan, &w->linear, rows * dim * 2));
  STILL_TRY(still_vulkan_work_reserve(b->vulkan, &w->normalizers, rows * 4));
  STILL_TRY(still_vulkan_work_reserve(b->vulkan, &w->feature_sums,
                                      heads * b->push.route_count * 2 * dim * 4));
  return still_vulkan_work_reserve(b->vulkan, &w->states,
                                   b->push.segments * heads * 2 * dim * dim * 4);
}

static still_status reserve_work(block *b) {
  const still_vulkan_attention *a = b->attention;
  still_vulkan *vulkan = b->vulkan;
  still_vulkan_work *w = b->work;
  const uint64_t dim = (uint64_t)a->plan->options.head_dim, element = still_vulkan_element(a);
  const uint64_t heads = b->push.heads, rows = b->push.rows;
  STILL_TRY(still_vulkan_work_reserve(vulkan, &w->mask, heads * rows * 4));
  STILL_TRY(still_vulkan_work_reserve(vulkan, &w->scores, heads * rows * 4));
  if (b->push.lower == STILL_LOWER_ALL || b->push.lower == STILL_LOWER_NONE) return STILL_OK;
  STILL_TRY(still_vulkan_work_reserve(vulkan, &w->keys, b->push.kv_heads * rows * dim * element));
  STILL_TRY(still_vulkan_work_reserve(vulkan, &w->values, b->push.kv_heads * rows * dim * element));
  if (b->coopmat) STILL_TRY(reserve_tiles(b));
  if (!(b->push.flags & STILL_FLAG_LINEAR) || still_vulkan_scans(a->plan)) return STILL_OK;
  if (b->coopmat) return reserve_linear_tiles(b);
  STILL_TRY(still_vulkan_work_reserve(vulkan, &w->linear, heads * rows * (dim + 1) * 4));
  STILL_TRY(still_vulkan_work_reserve(vulkan, &w->features, heads * rows * 2 * dim * element));
  return still_vulkan_work_reserve(vulkan, &w->states,
                                   (b->push.route_count + 1) * heads * 2 * dim * (dim + 1) * 4);
}

static still_status full_block(block *b) {
  b->push.rows = b->attention->near_rows;
  b->push.base = b->push.start; /* gather writes behind what is there */
  b->push.work_row0 = b->push.start;
  STILL_TRY(gather(b));
  b->push.base = 0;
  if (!b->coopmat) return softmax_branch(b);
  STILL_TRY(reserve_tiles(b));
  STILL_TRY(make_query_tiles(b));
  STILL_TRY(make_tiles(b, false));
  return softmax_branch_coopmat(b);
}

/* Kinds whose linear part is a scan. LOLCATS has one denominator with it, the others add it up afterwards. */
static still_status scan_block(block *b) {
  still_vulkan_attention *a = b->attention;
  const bool one_sum = a->plan->options.kind == STILL_ATTENTION_LOLCATS;
  const bool window = b->push.lower == STILL_LOWER_WINDOW;
  if (window) STILL_TRY(gather(b));
  if (!one_sum || b->push.flags & STILL_FLAG_LINEAR)
    STILL_TRY(still_vulkan_scan(a, b->rows, &b->push));
  if (window) STILL_TRY(softmax_branch(b));
  if (!one_sum) STILL_TRY(still_vulkan_scan_merge(a, b->rows, &b->push));
  return window ? scatter(b) : STILL_OK;
}

/* Tokens before the first that is summed up for the softmax branch to merge. */
static uint32_t linear_begin(const still_vulkan_attention *attention) {
  switch (attention->plan->options.kind) {
  case STILL_ATTENTION_STILL: return 2 * attention->shape.chunk;
  case STILL_ATTENTION_LOLCATS: return attention->shape.chunk;
  default: return UINT32_MAX;
  }
}

static still_status still_block_coopmat(block *b) {
  STILL_TRY(gather_tiles(b));
  STILL_TRY(saliency(b));
  if (b->push.route_count) STILL_TRY(route(b));
  if (b->push.kept_rows) STILL_TRY(make_tiles(b, true));
  if (b->push.flags & STILL_FLAG_LINEAR) STILL_TRY(linear_branch_coopmat(b));
  STILL_TRY(softmax_branch_coopmat(b));
  return scatter(b);
}

static still_status still_block(block *b) {
  STILL_TRY(gather(b));
  STILL_TRY(saliency(b));
  if (b->push.route_count) STILL_TRY(route(b));
  if (b->push.flags & STILL_FLAG_LINEAR) {
    STILL_TRY(linear_state(b));
    STILL_TRY(linear_branch(b));
  }
  STILL_TRY(softmax_branch(b));
  return scatter(b);
}

static still_status window_block(block *b) {
  STILL_TRY(b->coopmat ? gather_tiles(b) : gather(b));
  STILL_TRY(keep_sinks(b));
  if (!b->coopmat) {
    STILL_TRY(softmax_branch(b));
    return scatter(b);
  }
  STILL_TRY(make_query_tiles(b));
  if (b->push.kept_rows) STILL_TRY(make_tiles(b, true));
  STILL_TRY(softmax_branch_coopmat(b));
  return scatter(b);
}

still_status still_vulkan_prefill_block(still_vulkan_attention *attention,
                                        const still_vulkan_rows *rows, uint32_t row0,
                                        uint32_t count) {
  block b = {.attention = attention, .vulkan = attention->vulkan, .rows = rows};
  STILL_TRY(still_vulkan_work_get(attention->vulkan, &b.work));
  b.push = attention->shape;
  b.push.start = (uint32_t)attention->tokens;
  b.push.count = count;
  b.push.row0 = row0;
  if (rows->gate && attention->plan->options.kind == STILL_ATTENTION_STILL)
    b.push.flags |= STILL_FLAG_GATE;
  b.push.base = b.push.lower == STILL_LOWER_ALL ? 0 : near_base(&b.push);
  b.push.rows = b.push.start + count - b.push.base;
  if (b.push.lower == STILL_LOWER_CHUNK) {
    plan_routing(&b.push);
    plan_segments(&b.push, (uint32_t)attention->plan->options.head_dim);
  }
  b.coopmat = begins_tile(attention);
  if (attention->state.handle && b.push.start + count > linear_begin(attention))
    b.push.flags |= STILL_FLAG_LINEAR;
  STILL_TRY(reserve_work(&b));
  attention->shape.start = b.push.start;
  attention->shape.base = b.push.base;
  attention->shape.rows = b.push.rows;
  if (still_vulkan_scans(attention->plan)) return scan_block(&b);
  switch (b.push.lower) {
  case STILL_LOWER_ALL: return full_block(&b);
  case STILL_LOWER_WINDOW: return window_block(&b);
  default: return b.coopmat ? still_block_coopmat(&b) : still_block(&b);
  }
}
