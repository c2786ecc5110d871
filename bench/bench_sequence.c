/* SPDX-License-Identifier: MIT
 * A sequence of random tokens, and the work that the mathematics needs for it. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>

void bench_check(still_status status) {
  if (!status) return;
  fprintf(stderr, "still-bench: %s\n", still_last_error());
  exit(1);
}

/* About normal: the sum of four uniform numbers, variance 1. */
static void fill_random(float *x, size_t n) {
  static uint64_t state = 88172645463325252u;
  for (size_t i = 0; i < n; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    float sum = 0;
    for (int part = 0; part < 4; part++) sum += (float)(state >> (16 * part) & 0xffff);
    x[i] = (sum / 65536 - 2) * 1.7320508f;
  }
}

static bool takes_features(still_attention_kind kind) {
  return kind != STILL_ATTENTION_FULL && kind != STILL_ATTENTION_SWA &&
         kind != STILL_ATTENTION_LIGER_GLA;
}

/* The next `floats` floats of a piece of memory, filled. */
static float *take(float **at, size_t floats) {
  float *x = *at;
  fill_random(x, floats);
  *at += floats;
  return x;
}

void bench_sequence_open(bench_sequence *s, const still_attention_options *options, size_t block) {
  const size_t heads = (size_t)options->heads, dim = (size_t)options->head_dim;
  const size_t kv_heads = options->kv_heads ? (size_t)options->kv_heads : heads;
  const size_t row = block * dim, map = heads * dim * dim;
  *s = (bench_sequence){.inputs = STILL_ATTENTION_INPUTS_INIT, .block = block};
  s->memory = malloc((4 * heads * row + 3 * kv_heads * row + 2 * map) * sizeof(float));
  if (!s->memory) bench_check(STILL_ERROR_MEMORY);
  float *at = s->memory;
  s->inputs.q = (still_rows){take(&at, heads * row), row, dim};
  s->inputs.k = (still_rows){take(&at, kv_heads * row), row, dim};
  s->inputs.v = (still_rows){take(&at, kv_heads * row), row, dim};
  s->inputs.gate = (still_rows){take(&at, heads * row), row, dim};
  s->inputs.q_raw = (still_rows){take(&at, heads * row), row, dim};
  s->inputs.k_raw = (still_rows){take(&at, kv_heads * row), row, dim};
  still_attention_weights weights = STILL_ATTENTION_WEIGHTS_INIT;
  float *maps = take(&at, 2 * map);
  for (size_t i = 0; i < 2 * map; i++) maps[i] /= sqrtf((float)dim);
  if (takes_features(options->kind)) {
    weights.feature_q = maps;
    weights.feature_k = maps + map;
  }
  s->y = at;
  bench_check(still_attention_plan_create(&s->plan, options, &weights));
  bench_check(still_attention_cache_create(&s->cache, s->plan));
  s->options = *still_attention_plan_options(s->plan);
}

void bench_sequence_close(bench_sequence *s) {
  still_attention_cache_destroy(s->cache);
  still_attention_plan_destroy(s->plan);
  free(s->memory);
}

double bench_sequence_run(bench_sequence *s, int64_t tokens, size_t step) {
  const size_t dim = (size_t)s->options.head_dim;
  const double start = bench_now();
  for (int64_t n; tokens > 0; tokens -= n) {
    n = (int64_t)(step ? step : s->block);
    if (n > tokens) n = tokens;
    bench_check(still_attention_forward(s->plan, s->cache, (size_t)n, &s->inputs, s->y,
                                        s->block * dim, dim));
  }
  return bench_now() - start;
}

/* ---- useful work, in multiplications and additions of one query head and D channels */

typedef struct work {
  double exact_pairs; /* query x key under softmax: a logit and a weighted value */
  double queries;     /* rows through the linear branch */
  double absorbed;    /* tokens into the state */
} work;

static work work_of_token(const bench_sequence *s, int64_t t) {
  const still_attention_options *o = &s->options;
  const double past = (double)t + 1, window = fmin(past, o->window);
  switch (o->kind) {
  case STILL_ATTENTION_FULL: return (work){past, 0, 0};
  case STILL_ATTENTION_SWA: return (work){fmin(past, window + o->sinks), 0, 0};
  case STILL_ATTENTION_LOLCATS: return (work){window, past > window, past > window};
  case STILL_ATTENTION_LIGER_GLA: return (work){window, 1, 1};
  case STILL_ATTENTION_HEDGEHOG:
  case STILL_ATTENTION_T2R: return (work){0, 1, 1};
  case STILL_ATTENTION_STILL: break;
  }
  const int64_t chunk = t / o->chunk, routed = chunk < 2 ? 0 : chunk - 1;
  double kept = (double)routed * still_attention_plan_keep(s->plan);
  const bool bounded =
      o->schedule == STILL_SCHEDULE_BUDGET || (o->schedule == STILL_SCHEDULE_FIXED && o->budget);
  if (bounded) kept = fmin(kept, o->budget - o->chunk);
  const double near = (double)(t - (chunk ? chunk - 1 : 0) * o->chunk + 1);
  const double left = 1 - (double)still_attention_plan_keep(s->plan) / o->chunk;
  return (work){kept + near, chunk >= 2, chunk >= 2 ? left : 0};
}

double bench_useful_flops(const bench_sequence *s, int64_t first, int64_t last) {
  const still_attention_options *o = &s->options;
  const double dim = o->head_dim;
  const bool single = o->kind == STILL_ATTENTION_LIGER_GLA || o->kind == STILL_ATTENTION_T2R;
  const double features = single ? dim : 2 * dim;
  const double map = o->kind == STILL_ATTENTION_LIGER_GLA ? 0 : 2 * dim * dim;
  double sum = 0;
  for (int64_t t = first; t < last; t++) {
    const work w = work_of_token(s, t);
    sum += w.exact_pairs * 4 * dim + (w.queries + w.absorbed) * (map + 2 * features * dim);
  }
  return sum * o->heads;
}
