/* SPDX-License-Identifier: MIT */
#include "backend/vulkan/vulkan_attention.h"

#include "backend/vulkan/vulkan_check.h"
#include "base/memory.h"
#include "formats/tensor.h"

#include <math.h>
#include <string.h>

enum { MOST_DIM = 256, MOST_ROWS_UNBOUNDED = 1 << 30 };

/* ---- what there are shaders for ------------------------------------------------------------------------- */

/* Bytes of shared memory of saliency.comp. */
static uint32_t saliency_bytes(uint32_t chunk) {
  const uint32_t keys = (32 + chunk - 1 + 63) / 64 * 64;
  const uint32_t step = keys % 128 ? 64 : 128;
  return 32 * (keys + 1) * 4 + (32 + step) * 5 * 16 + 2 * STILL_GROUP * 4;
}

static still_status check_still(const still_vulkan *vulkan, const still_attention_options *o) {
  if (o->metric == STILL_METRIC_RANDOM)
    return still_fail(STILL_ERROR_UNSUPPORTED, "%s: metric 'random' runs on the CPU only",
                      vulkan->name);
  if (saliency_bytes((uint32_t)o->chunk) > vulkan->limits.shared_bytes)
    return still_fail(
        STILL_ERROR_UNSUPPORTED, "%s: chunk %d needs %u bytes of shared memory, the device has %u",
        vulkan->name, o->chunk, saliency_bytes((uint32_t)o->chunk), vulkan->limits.shared_bytes);
  return STILL_OK;
}

/* The linear part is divided by the window's factor. */
static still_status check_factors(const still_vulkan *vulkan, const still_attention_plan *plan) {
  for (int h = 0; h < plan->options.heads; h++)
    if (!(plan->window_factor[h] > 1e-6f))
      return still_fail(STILL_ERROR_UNSUPPORTED, "%s: a window factor of %g, on a GPU above 1e-6",
                        vulkan->name, (double)plan->window_factor[h]);
  return STILL_OK;
}

still_status still_vulkan_attention_check(const still_vulkan *vulkan,
                                          const still_attention_plan *plan) {
  const still_attention_options *o = &plan->options;
  if (o->head_dim % 4 || o->head_dim > MOST_DIM)
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "%s: head_dim %d, must be a multiple of 4 and at most %d on a GPU",
                      vulkan->name, o->head_dim, MOST_DIM);
  if (o->cache_type == STILL_BF16)
    return still_fail(STILL_ERROR_UNSUPPORTED, "%s: cache type bf16 runs on the CPU only",
                      vulkan->name);
  if (o->cache_type == STILL_F16 && !(vulkan->features & STILL_VULKAN_F16))
    return still_fail(STILL_ERROR_UNSUPPORTED, "%s: no 16-bit storage for cache type f16",
                      vulkan->name);
  switch (o->kind) {
  case STILL_ATTENTION_STILL: return check_still(vulkan, o);
  case STILL_ATTENTION_LOLCATS: return check_factors(vulkan, plan);
  default: return STILL_OK;
  }
}

/* What the *_coopmat shaders are written for. */
bool still_vulkan_fits_coopmat(const still_vulkan *vulkan, const still_attention_options *o) {
  const bool known = o->kind == STILL_ATTENTION_FULL || o->kind == STILL_ATTENTION_SWA ||
                     (o->kind == STILL_ATTENTION_STILL && o->chunk == 64);
  return known && vulkan->features & STILL_VULKAN_COOPMAT &&
         (o->head_dim == 64 || o->head_dim == 128);
}

/* ---- create ------------------------------------------------------------------------------------------- */

static uint32_t lower_of(still_attention_kind kind) {
  switch (kind) {
  case STILL_ATTENTION_FULL: return STILL_LOWER_ALL;
  case STILL_ATTENTION_STILL: return STILL_LOWER_CHUNK;
  case STILL_ATTENTION_HEDGEHOG:
  case STILL_ATTENTION_T2R: return STILL_LOWER_NONE;
  default: return STILL_LOWER_WINDOW;
  }
}

static attention_push shape_of(const still_attention_plan *plan) {
  const still_attention_options *o = &plan->options;
  const bool still = o->kind == STILL_ATTENTION_STILL;
  return (attention_push){
      .heads = (uint32_t)o->heads,
      .kv_heads = (uint32_t)o->kv_heads,
      .route_heads = still ? (uint32_t)plan->routes : (uint32_t)o->kv_heads,
      .chunk = (uint32_t)(still ? o->chunk : o->window),
      .keep = (uint32_t)plan->keep,
      .cap = plan->most_kept < 0 ? MOST_ROWS_UNBOUNDED : (uint32_t)plan->most_kept,
      .lower = lower_of(o->kind),
      .sinks = o->kind == STILL_ATTENTION_SWA ? (uint32_t)o->sinks : 0,
      .metric = (uint32_t)o->metric,
      .flags = o->feature_map == STILL_FEATURE_NORM_PRESERVED ? STILL_FLAG_NORM : 0,
      .scale = 1 / sqrtf((float)o->head_dim)};
}

/* Rows of a growing array that needs `needed`: half as much again until they fit, a function of the length alone. */
static uint32_t grown(uint32_t at_first, uint32_t needed) {
  uint32_t rows = at_first;
  while (rows < needed) rows += rows / 2 + 32;
  return rows;
}

/* Rows of each head once the sequence is `tokens` long. */
static uint32_t near_rows_for(const still_attention_plan *plan, int64_t tokens) {
  const still_attention_options *o = &plan->options;
  if (o->kind == STILL_ATTENTION_FULL) return grown((uint32_t)o->context, (uint32_t)tokens);
  if (lower_of(o->kind) == STILL_LOWER_NONE) return 0;
  return 2 * (uint32_t)(o->kind == STILL_ATTENTION_STILL ? o->chunk : o->window);
}

static uint32_t kept_after(const still_attention_plan *plan, int64_t tokens) {
  return (uint32_t)still_kept_after(plan, still_routed_chunks(plan, tokens));
}

static uint32_t kept_rows_for(const still_attention_plan *plan, int64_t tokens) {
  if (plan->options.kind == STILL_ATTENTION_SWA) return (uint32_t)plan->options.sinks;
  if (plan->options.kind != STILL_ATTENTION_STILL) return 0;
  if (plan->most_kept >= 0) return (uint32_t)plan->most_kept;
  return grown(kept_after(plan, plan->options.context), kept_after(plan, tokens));
}

/* A copy of a plan's array, if it has it. */
static still_status create_copy(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                const float *data, size_t count) {
  if (!data) return STILL_OK;
  STILL_TRY(still_vulkan_buffer_create(vulkan, buffer, count * sizeof *data, STILL_VULKAN_DEVICE));
  return still_vulkan_write(vulkan, buffer, 0, data, count * sizeof *data);
}

/* A map as f16 in the order of the registers of its tiles as second factors: shaders/tile_rows.glsl, its rows in that of
 * shaders/dim_order.glsl. */
static void tile_map(const float *map, size_t dim, float *tiles) {
  for (size_t i = 0; i < dim * dim; i++) {
    const size_t e = i % 8, lane = i / 8 % 32, column0 = i / 256 * 16 % dim;
    const size_t row = i / (16 * dim) * 16 + 4 * (lane % 4) + e % 4;
    tiles[i] = map[row * dim + column0 + lane / 4 + 8 * (e / 4)];
  }
}

static still_status create_map_tiles(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                     const float *maps, const still_attention_options *o) {
  const size_t dim = (size_t)o->head_dim, count = (size_t)o->heads * dim * dim;
  float *tiles;
  STILL_TRY(STILL_ALLOC(&tiles, count + count / 2, "feature map"));
  uint16_t *halves = (uint16_t *)(tiles + count);
  for (size_t h = 0; h < (size_t)o->heads; h++)
    tile_map(maps + h * dim * dim, dim, tiles + h * dim * dim);
  still_type_from_f32(STILL_TENSOR_F16)(halves, tiles, count);
  still_status status =
      still_vulkan_buffer_create(vulkan, buffer, count * sizeof *halves, STILL_VULKAN_DEVICE);
  if (!status) status = still_vulkan_write(vulkan, buffer, 0, halves, count * sizeof *halves);
  still_free(tiles);
  return status;
}

/* At least 16 bytes stand for an array of no rows, so that every binding has a buffer. */
static uint64_t bytes_of(uint64_t heads, uint64_t rows, uint64_t row_bytes) {
  const uint64_t bytes = (heads * rows * row_bytes + 15) / 16 * 16;
  return bytes ? bytes : 16;
}

static still_status create_rows(still_vulkan *vulkan, still_vulkan_buffer *buffer, size_t heads,
                                size_t rows, size_t row_bytes) {
  return still_vulkan_buffer_create(vulkan, buffer, bytes_of(heads, rows, row_bytes),
                                    STILL_VULKAN_DEVICE);
}

/* Biases that are not given are 0. */
static still_status create_biases(still_vulkan_attention *attention) {
  still_vulkan *vulkan = attention->vulkan;
  const still_attention_plan *plan = attention->plan;
  const size_t heads = (size_t)plan->options.heads, dim = (size_t)plan->options.head_dim;
  still_vulkan_buffer *const buffers[] = {&attention->bias_q, &attention->bias_k};
  const float *const biases[] = {plan->bias_q, plan->bias_k};
  for (int i = 0; i < 2; i++) {
    STILL_TRY(create_copy(vulkan, buffers[i], biases[i], heads * dim));
    if (biases[i]) continue;
    STILL_TRY(create_rows(vulkan, buffers[i], heads, dim, sizeof(float)));
    STILL_TRY(still_vulkan_zero(vulkan, buffers[i]));
  }
  return STILL_OK;
}

static still_status create_buffers(still_vulkan_attention *attention) {
  still_vulkan *vulkan = attention->vulkan;
  const still_attention_plan *plan = attention->plan;
  const still_attention_options *o = &plan->options;
  const size_t heads = (size_t)o->heads, kv_heads = (size_t)o->kv_heads, dim = (size_t)o->head_dim;
  const size_t row = dim * still_vulkan_element(attention);
  const size_t routes = attention->shape.route_heads, kept = attention->shape.kept_rows;
  STILL_TRY(create_rows(vulkan, &attention->near_k, kv_heads, attention->near_rows, row));
  STILL_TRY(create_rows(vulkan, &attention->near_v, kv_heads, attention->near_rows, row));
  STILL_TRY(create_rows(vulkan, &attention->kept_k, routes, kept, row));
  STILL_TRY(create_rows(vulkan, &attention->kept_v, routes, kept, row));
  if (o->kind == STILL_ATTENTION_STILL) {
    STILL_TRY(create_rows(vulkan, &attention->kept_positions, routes, kept, 4));
    STILL_TRY(create_rows(vulkan, &attention->near_scores, heads, attention->near_rows, 4));
  }
  if (!plan->features) return STILL_OK;
  STILL_TRY(create_rows(vulkan, &attention->state, heads, (size_t)plan->features, 4 * (dim + 1)));
  STILL_TRY(create_copy(vulkan, &attention->map_q, plan->feature_q, heads * dim * dim));
  STILL_TRY(create_copy(vulkan, &attention->map_k, plan->feature_k, heads * dim * dim));
  STILL_TRY(create_copy(vulkan, &attention->window_factor, plan->window_factor, heads));
  if (o->kind == STILL_ATTENTION_T2R) STILL_TRY(create_biases(attention));
  if (!attention->coopmat) return STILL_OK;
  STILL_TRY(create_map_tiles(vulkan, &attention->map_q_tiles, plan->feature_q, o));
  return create_map_tiles(vulkan, &attention->map_k_tiles, plan->feature_k, o);
}

still_status still_vulkan_attention_create(still_vulkan_attention **attention, still_vulkan *vulkan,
                                           const still_attention_plan *plan) {
  *attention = NULL;
  STILL_TRY(still_vulkan_attention_check(vulkan, plan));
  STILL_TRY(still_vulkan_check_attention(vulkan, plan));
  return still_vulkan_attention_create_unchecked(attention, vulkan, plan);
}

still_status still_vulkan_attention_create_unchecked(still_vulkan_attention **out,
                                                     still_vulkan *vulkan,
                                                     const still_attention_plan *plan) {
  *out = NULL;
  still_vulkan_attention *attention;
  STILL_TRY(STILL_ALLOC(&attention, 1, "a layer's cache"));
  attention->vulkan = vulkan;
  attention->plan = plan;
  attention->f16 = plan->options.cache_type == STILL_F16;
  attention->coopmat = attention->f16 && still_vulkan_fits_coopmat(vulkan, &plan->options);
  attention->shape = shape_of(plan);
  attention->shape.kept_rows = kept_rows_for(plan, plan->options.context);
  attention->near_rows = near_rows_for(plan, plan->options.context);
  still_status status = create_buffers(attention);
  if (!status) status = still_vulkan_attention_reset(attention);
  if (status) {
    still_vulkan_attention_destroy(attention);
    return status;
  }
  *out = attention;
  return STILL_OK;
}

void still_vulkan_attention_destroy(still_vulkan_attention *attention) {
  if (!attention) return;
  still_vulkan_buffer *const buffers[] = {
      &attention->near_k, &attention->near_v,         &attention->near_scores, &attention->kept_k,
      &attention->kept_v, &attention->kept_positions, &attention->state,       &attention->map_q,
      &attention->map_k,  &attention->map_q_tiles,    &attention->map_k_tiles, &attention->bias_q,
      &attention->bias_k, &attention->window_factor};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
    still_vulkan_discard(attention->vulkan, buffers[i]);
  still_free(attention);
}

still_status still_vulkan_attention_reset(still_vulkan_attention *attention) {
  attention->tokens = 0;
  return attention->state.handle ? still_vulkan_zero(attention->vulkan, &attention->state)
                                 : STILL_OK;
}

/* ---- growth --------------------------------------------------------------------------------------------- */

/* An array (heads, rows, row_bytes) that gets more rows; the content moves along. */
typedef struct growing {
  still_vulkan_buffer *buffer, bigger;
  size_t heads, row_bytes;
} growing;

static still_status copy_rows(still_vulkan *vulkan, growing *array, size_t had, size_t rows) {
  STILL_TRY(create_rows(vulkan, &array->bigger, array->heads, rows, array->row_bytes));
  for (size_t h = 0; h < array->heads; h++)
    STILL_TRY(still_vulkan_copy(vulkan, &array->bigger, h * rows * array->row_bytes, array->buffer,
                                h * had * array->row_bytes, had * array->row_bytes));
  return STILL_OK;
}

/* All arrays or none. */
static still_status grow(still_vulkan *vulkan, growing *arrays, size_t count, uint32_t *had,
                         uint32_t rows) {
  still_status status = STILL_OK;
  for (size_t i = 0; i < count && !status; i++) status = copy_rows(vulkan, &arrays[i], *had, rows);
  for (size_t i = 0; i < count; i++) {
    still_vulkan_discard(vulkan, status ? &arrays[i].bigger : arrays[i].buffer);
    if (!status) *arrays[i].buffer = arrays[i].bigger;
  }
  if (!status) *had = rows;
  return status;
}

still_status still_vulkan_attention_reserve(still_vulkan_attention *attention, int64_t tokens) {
  attention_push *shape = &attention->shape;
  const size_t row = (size_t)attention->plan->options.head_dim * still_vulkan_element(attention);
  const uint32_t near = near_rows_for(attention->plan, tokens);
  const uint32_t kept = kept_rows_for(attention->plan, tokens);
  if (near > attention->near_rows) {
    growing arrays[] = {{.buffer = &attention->near_k, .heads = shape->kv_heads, .row_bytes = row},
                        {.buffer = &attention->near_v, .heads = shape->kv_heads, .row_bytes = row}};
    STILL_TRY(grow(attention->vulkan, arrays, 2, &attention->near_rows, near));
  }
  if (kept <= shape->kept_rows) return STILL_OK;
  growing arrays[] = {
      {.buffer = &attention->kept_k, .heads = shape->route_heads, .row_bytes = row},
      {.buffer = &attention->kept_v, .heads = shape->route_heads, .row_bytes = row},
      {.buffer = &attention->kept_positions, .heads = shape->route_heads, .row_bytes = 4}};
  return grow(attention->vulkan, arrays, 3, &shape->kept_rows, kept);
}

/* ---- forward ------------------------------------------------------------------------------------------------ */

/* Scores of the block that was just recorded, into columns done .. of (H, n). */
static still_status read_scores(still_vulkan_attention *attention, uint32_t count, size_t done,
                                size_t n, float *scores) {
  still_vulkan *vulkan = attention->vulkan;
  const size_t rows = attention->shape.rows, heads = attention->shape.heads;
  const size_t first = attention->shape.start - attention->shape.base;
  float *all;
  STILL_TRY(STILL_ALLOC(&all, heads * rows, "routing scores"));
  const still_status status =
      still_vulkan_read(vulkan, &vulkan->work->scores, 0, all, heads * rows * sizeof *all);
  for (size_t h = 0; h < heads && !status; h++)
    memcpy(scores + h * n + done, all + h * rows + first, count * sizeof *all);
  still_free(all);
  return status;
}

still_status still_vulkan_attention_forward(still_vulkan_attention *attention,
                                            const still_vulkan_rows *rows, size_t n,
                                            float *scores) {
  if (scores && attention->shape.lower != STILL_LOWER_CHUNK)
    return still_fail(STILL_ERROR_UNSUPPORTED, "attention of kind '%s' has no routing scores",
                      still_attention_kind_name(attention->plan->options.kind));
  STILL_TRY(still_vulkan_attention_reserve(attention, attention->tokens + (int64_t)n));
  if (n == 1 && !scores && still_vulkan_can_decode(attention)) {
    STILL_TRY(still_vulkan_decode(attention, rows, 0));
    attention->tokens++;
    return STILL_OK;
  }
  for (size_t done = 0; done < n;) {
    const uint32_t most = still_vulkan_block_tokens(attention);
    /* Blocks end where chunks end, so that all but the first begin with a whole one. */
    const uint32_t unit =
        attention->shape.lower == STILL_LOWER_CHUNK ? attention->shape.chunk : STILL_TILE;
    const uint32_t over = (uint32_t)(attention->tokens % unit);
    /* cooperative matrices want the block to begin there, too */
    uint32_t count = attention->coopmat && over ? unit - over : most - over;
    if (count > n - done) count = (uint32_t)(n - done);
    STILL_TRY(still_vulkan_prefill_block(attention, rows, (uint32_t)done, count));
    if (scores) STILL_TRY(read_scores(attention, count, done, n, scores));
    attention->tokens += count;
    done += count;
    STILL_TRY(still_vulkan_checkpoint(attention->vulkan));
  }
  return STILL_OK;
}

/* ---- usage -------------------------------------------------------------------------------------------------- */

/* What create_buffers takes for the sequence. */
uint64_t still_vulkan_attention_bytes_at(const still_attention_plan *plan, int64_t tokens) {
  const attention_push s = shape_of(plan);
  const uint64_t dim = (uint64_t)plan->options.head_dim;
  const uint64_t row = dim * (plan->options.cache_type == STILL_F16 ? 2 : 4);
  const int64_t most = tokens > plan->options.context ? tokens : plan->options.context;
  const uint64_t near = near_rows_for(plan, most), kept = kept_rows_for(plan, most);
  uint64_t bytes = 2 * bytes_of(s.kv_heads, near, row) + 2 * bytes_of(s.route_heads, kept, row);
  if (s.lower == STILL_LOWER_CHUNK)
    bytes += bytes_of(s.heads, near, 4) + bytes_of(s.route_heads, kept, 4);
  if (plan->features) bytes += bytes_of(s.heads, (uint64_t)plan->features, 4 * (dim + 1));
  return bytes;
}

static uint64_t bytes_now(const still_vulkan_attention *attention) {
  return attention->near_k.bytes + attention->near_v.bytes + attention->near_scores.bytes +
         attention->kept_k.bytes + attention->kept_v.bytes + attention->kept_positions.bytes +
         attention->state.bytes;
}

void still_vulkan_attention_usage(const still_vulkan_attention *attention,
                                  still_attention_usage *usage) {
  const still_attention_plan *plan = attention->plan;
  *usage = still_attention_usage_of(plan, attention->tokens);
  usage->bytes = bytes_now(attention);
  usage->work_bytes = still_vulkan_work_bytes(attention->vulkan->work);
}
