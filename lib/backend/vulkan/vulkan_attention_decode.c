/* SPDX-License-Identifier: MIT
 * One new token in two dependent steps: parts of its attention side by side, then their merge. A step of a GPU costs about 2 us
 * whatever it does, so nothing else is allowed here; routing, once in a chunk, goes the way of a block. */
#include "backend/vulkan/vulkan_attention.h"

typedef struct decode {
  still_vulkan_attention *attention;
  still_vulkan *vulkan;
  still_vulkan_work *work;
  const still_vulkan_rows *rows;
  attention_push push;
} decode;

bool still_vulkan_can_decode(const still_vulkan_attention *attention) {
  const attention_push *shape = &attention->shape;
  const int64_t at = attention->tokens;
  if (still_vulkan_scans(attention->plan)) return false;
  switch (shape->lower) {
  case STILL_LOWER_ALL: return true;
  case STILL_LOWER_WINDOW: return at >= shape->sinks;
  default: /* the near tokens in one workgroup, which scores the new one; no chunk that has to be routed now */
    return 2 * shape->chunk <= STILL_DECODE_ROWS &&
           (at % shape->chunk || at < 2 * (int64_t)shape->chunk);
  }
}

static uint32_t parts_for(uint32_t rows, uint32_t most) {
  const uint32_t parts = (rows + STILL_DECODE_ROWS - 1) / STILL_DECODE_ROWS;
  return parts < most ? parts : most;
}

static void share_out(const still_vulkan_attention *attention, attention_push *push) {
  const still_census census = still_attention_census(attention->plan, push->start + 1);
  if (push->lower == STILL_LOWER_CHUNK) {
    push->kept_parts =
        parts_for(2 * (uint32_t)census.kept, 16); /* half of the rows: more run at once */
    push->near_parts = 1;
  } else {
    push->kept_parts = push->sinks ? 1 : 0;
    push->near_parts = parts_for((uint32_t)census.near, 64);
  }
}

static still_status run(const decode *d, still_shader shader, still_vulkan_dispatch dispatch) {
  const uint32_t constants[STILL_VULKAN_CONSTANTS] = {
      (uint32_t)d->attention->plan->options.head_dim};
  STILL_TRY(still_vulkan_pipeline_get(d->vulkan, shader, constants, &dispatch.pipeline));
  dispatch.push = &d->push;
  dispatch.push_bytes = sizeof d->push;
  return still_vulkan_run(d->vulkan, &dispatch);
}

static still_status attend(const decode *d) {
  still_vulkan_attention *a = d->attention;
  const double dim = a->plan->options.head_dim, heads = d->push.heads;
  const uint32_t parts = d->push.kept_parts + d->push.near_parts;
  STILL_TRY(
      run(d,
          still_vulkan_reducing(d->vulkan, a->f16 ? STILL_SHADER_decode_softmax_f16
                                                  : STILL_SHADER_decode_softmax_f32),
          (still_vulkan_dispatch){.buffers = {d->rows->q, &a->near_k, &a->near_v, &a->kept_k,
                                              &a->kept_v, d->rows->k, d->rows->v, &d->work->parts},
                                  .writes = 1 << 1 | 1 << 2 | 1 << 7,
                                  .groups = {parts, d->push.heads, 1},
                                  .work = 4.0 * heads * dim * parts * STILL_DECODE_ROWS}));
  if (!(d->push.flags & STILL_FLAG_LINEAR)) return STILL_OK;
  return run(
      d, still_vulkan_reducing(d->vulkan, STILL_SHADER_decode_linear_f32),
      (still_vulkan_dispatch){.buffers = {d->rows->q, &a->map_q, &a->state, &d->work->linear},
                              .writes = 1 << 3,
                              .groups = {STILL_DECODE_LINEAR, d->push.heads, 1},
                              .work = 6.0 * heads * dim * dim});
}

static still_status merge(const decode *d) {
  still_vulkan_attention *a = d->attention;
  return run(
      d, STILL_SHADER_decode_merge_f32,
      (still_vulkan_dispatch){
          .buffers = {&d->work->parts, &d->work->linear, d->rows->gate ? d->rows->gate : d->rows->q,
                      d->rows->out, a->near_scores.handle ? &a->near_scores : &d->work->scores},
          .writes = 1 << 3 | 1 << 4,
          .groups = {d->push.heads, 1, 1},
          .work = 4.0 * d->push.heads * a->plan->options.head_dim});
}

still_status still_vulkan_decode(still_vulkan_attention *attention, const still_vulkan_rows *rows,
                                 uint32_t row0) {
  decode d = {.attention = attention, .vulkan = attention->vulkan, .rows = rows};
  STILL_TRY(still_vulkan_work_get(d.vulkan, &d.work));
  d.push = attention->shape;
  d.push.start = (uint32_t)attention->tokens;
  d.push.count = 1;
  d.push.row0 = row0;
  d.push.rows = attention->near_rows;
  if (rows->gate) d.push.flags |= STILL_FLAG_GATE;
  if (attention->state.handle && d.push.start >= 2 * d.push.chunk)
    d.push.flags |= STILL_FLAG_LINEAR;
  share_out(attention, &d.push);
  const uint64_t dim = (uint64_t)attention->plan->options.head_dim, heads = d.push.heads;
  const uint64_t parts = d.push.kept_parts + d.push.near_parts;
  STILL_TRY(still_vulkan_work_reserve(d.vulkan, &d.work->parts, heads * parts * (dim + 4) * 4));
  STILL_TRY(still_vulkan_work_reserve(d.vulkan, &d.work->linear, heads * (dim + 1) * 4));
  STILL_TRY(still_vulkan_work_reserve(d.vulkan, &d.work->scores, heads * 4));
  STILL_TRY(attend(&d));
  return merge(&d);
}
