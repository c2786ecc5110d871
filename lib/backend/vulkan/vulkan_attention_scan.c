/* SPDX-License-Identifier: MIT
 * The linear part of LOLCATS, HEDGEHOG, T2R and LIGER_GLA, whose every token has a linear state of its own: features of all
 * new tokens side by side, then one walk over them in order (linear_scan.comp). */
#include "backend/vulkan/vulkan_attention.h"

#include "shaders/scan_interface.h"

bool still_vulkan_scans(const still_attention_plan *plan) {
  return plan->features && plan->options.kind != STILL_ATTENTION_STILL;
}

/* One block of new tokens. */
typedef struct scan {
  still_vulkan_attention *attention;
  still_vulkan *vulkan;
  still_vulkan_work *work;
  const still_vulkan_rows *rows;
  const attention_push *push;
  still_attention_kind kind;
  uint32_t dim, features;
} scan;

static scan scan_of(still_vulkan_attention *attention, const still_vulkan_rows *rows,
                    const attention_push *push) {
  const still_attention_plan *plan = attention->plan;
  return (scan){.attention = attention,
                .vulkan = attention->vulkan,
                .work = attention->vulkan->work,
                .rows = rows,
                .push = push,
                .kind = plan->options.kind,
                .dim = (uint32_t)plan->options.head_dim,
                .features = (uint32_t)plan->features};
}

static uint32_t map_of(const scan *s) {
  return s->kind == STILL_ATTENTION_LIGER_GLA ? STILL_MAP_SOFTMAX
         : s->kind == STILL_ATTENTION_T2R     ? STILL_MAP_RELU
                                              : STILL_MAP_HEDGEHOG;
}

static still_status run(const scan *s, still_shader f32, const uint32_t constants[3],
                        still_vulkan_dispatch dispatch) {
  const uint32_t all[STILL_VULKAN_CONSTANTS] = {s->dim, constants[0], constants[1], constants[2]};
  const still_shader shader = s->attention->f16 ? (still_shader)(f32 + 1) : f32;
  STILL_TRY(still_vulkan_pipeline_get(s->vulkan, shader, all, &dispatch.pipeline));
  dispatch.push = s->push;
  dispatch.push_bytes = sizeof *s->push;
  return still_vulkan_run(s->vulkan, &dispatch);
}

static still_status reserve(const scan *s) {
  still_vulkan_work *w = s->work;
  const uint64_t rows = s->push->rows, heads = s->push->heads;
  STILL_TRY(still_vulkan_work_reserve(s->vulkan, &w->features, heads * rows * s->features * 4));
  STILL_TRY(still_vulkan_work_reserve(s->vulkan, &w->key_features, heads * rows * s->features * 4));
  STILL_TRY(still_vulkan_work_reserve(s->vulkan, &w->linear, heads * rows * (s->dim + 1) * 4));
  return still_vulkan_work_reserve(
      s->vulkan, &w->decays,
      s->kind == STILL_ATTENTION_LIGER_GLA ? s->push->kv_heads * rows * s->dim * 4 : 16);
}

static still_status features(const scan *s, uint32_t side) {
  still_vulkan_attention *a = s->attention;
  const bool query = side == STILL_SIDE_QUERY, raw = s->kind == STILL_ATTENTION_LIGER_GLA;
  const uint32_t tokens = side == STILL_SIDE_LEAVING
                              ? s->push->start + s->push->count - s->push->chunk - s->push->base
                              : s->push->count;
  const uint32_t heads = raw && !query ? s->push->kv_heads : s->push->heads;
  still_vulkan_buffer *inputs =
      query ? (raw ? s->rows->q_raw : s->rows->q) : (raw ? s->rows->k_raw : s->rows->k);
  still_vulkan_buffer *phi = query ? &s->work->features : &s->work->key_features;
  still_vulkan_buffer *map = query ? &a->map_q : &a->map_k, *bias = query ? &a->bias_q : &a->bias_k;
  return run(s, STILL_SHADER_scan_features_f32, (uint32_t[]){map_of(s), side, 0},
             (still_vulkan_dispatch){
                 .buffers = {inputs, side == STILL_SIDE_LEAVING ? &s->work->keys : inputs,
                             map->handle ? map : inputs, bias->handle ? bias : inputs, phi,
                             raw && !query ? &s->work->decays : phi},
                 .writes = 1 << 4 | 1 << 5,
                 .groups = {(tokens + STILL_SCAN_ROWS - 1) / STILL_SCAN_ROWS, heads, 1},
                 .work = 2.0 * tokens * heads * s->dim * s->dim});
}

still_status still_vulkan_scan(still_vulkan_attention *attention, const still_vulkan_rows *rows,
                               const attention_push *push) {
  const scan scan_ = scan_of(attention, rows, push), *s = &scan_;
  const bool window = s->kind == STILL_ATTENTION_LOLCATS;
  const bool decay = s->kind == STILL_ATTENTION_LIGER_GLA;
  still_vulkan_work *w = s->work;
  STILL_TRY(reserve(s));
  STILL_TRY(features(s, STILL_SIDE_QUERY));
  STILL_TRY(features(s, window ? STILL_SIDE_LEAVING : STILL_SIDE_KEY));
  still_vulkan_buffer *factors = window ? &attention->window_factor : &w->features;
  return run(s, STILL_SHADER_linear_scan_f32, (uint32_t[]){s->features, window, decay},
             (still_vulkan_dispatch){
                 .buffers = {&w->features, &w->key_features, &w->decays, rows->v,
                             window ? &w->values : rows->v, &attention->state, &w->linear, factors},
                 .writes = 1 << 5 | 1 << 6,
                 .groups = {s->dim / 4 + (decay ? 0 : 1), push->heads, 1},
                 .work = 6.0 * push->count * push->heads * s->features * s->dim});
}

still_status still_vulkan_scan_merge(still_vulkan_attention *attention,
                                     const still_vulkan_rows *rows, const attention_push *push) {
  const scan scan_ = scan_of(attention, rows, push), *s = &scan_;
  const bool halves = s->kind == STILL_ATTENTION_LIGER_GLA;
  return run(s, STILL_SHADER_scan_merge_f32,
             (uint32_t[]){halves ? STILL_MERGE_HALVES : STILL_MERGE_RATIO, 0, 0},
             (still_vulkan_dispatch){.buffers = {&s->work->linear, rows->out},
                                     .writes = 1 << 1,
                                     .groups = {push->count, push->heads, 1},
                                     .work = 12.0 * push->count * push->heads * s->dim});
}
