/* SPDX-License-Identifier: MIT */
#include "operator/problem.h"

#include "attention/attention_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

still_attention_options small_options(still_attention_kind kind) {
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.kind = kind;
  o.heads = 4;
  o.kv_heads = 2;
  o.head_dim = 16;
  o.chunk = 16;
  o.window = 16;
  o.schedule = STILL_SCHEDULE_FIXED;
  o.keep = 3;
  o.budget = 0;
  o.context = 64;
  o.threads = 1;
  return o;
}

static float *normal(size_t n, uint64_t seed) {
  float *x = malloc(n * sizeof *x);
  assert_non_null(x);
  check_normal(x, n, seed);
  return x;
}

/* The identity and some noise: what training leaves. */
static float *maps(size_t heads, size_t dim, uint64_t seed) {
  float *a = normal(heads * dim * dim, seed);
  for (size_t i = 0; i < heads * dim * dim; i++)
    a[i] = 0.3f * a[i] / sqrtf((float)dim) + (i / dim % dim == i % dim ? 1.0f : 0.0f);
  return a;
}

static void squash(float *x, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] = 1 / (1 + expf(-x[i]));
}

problem problem_create(const still_attention_options *options, size_t n, uint64_t seed) {
  problem p = {.options = *options, .weights = STILL_ATTENTION_WEIGHTS_INIT, .n = n};
  p.heads = (size_t)options->heads;
  p.kv_heads = options->kv_heads ? (size_t)options->kv_heads : p.heads;
  p.dim = (size_t)options->head_dim;
  const size_t row = n * p.dim;
  p.q = normal(p.heads * row, 16 * seed);
  p.k = normal(p.kv_heads * row, 16 * seed + 1);
  p.v = normal(p.kv_heads * row, 16 * seed + 2);
  p.gate = normal(p.heads * row, 16 * seed + 3);
  squash(p.gate, p.heads * row);
  p.q_raw = normal(p.heads * row, 16 * seed + 4);
  p.k_raw = normal(p.kv_heads * row, 16 * seed + 5);
  p.feature_q = maps(p.heads, p.dim, 16 * seed + 6);
  p.feature_k = maps(p.heads, p.dim, 16 * seed + 7);
  p.bias_q = normal(p.heads * p.dim, 16 * seed + 8);
  p.bias_k = normal(p.heads * p.dim, 16 * seed + 9);
  p.window_factor = normal(p.heads, 16 * seed + 10);
  squash(p.window_factor, p.heads);
  const still_attention_kind kind = options->kind;
  if (kind == STILL_ATTENTION_STILL || kind == STILL_ATTENTION_LOLCATS ||
      kind == STILL_ATTENTION_HEDGEHOG || kind == STILL_ATTENTION_T2R) {
    p.weights.feature_q = p.feature_q;
    p.weights.feature_k = p.feature_k;
  }
  if (kind == STILL_ATTENTION_T2R) p.weights.bias_q = p.bias_q, p.weights.bias_k = p.bias_k;
  if (kind == STILL_ATTENTION_LOLCATS) p.weights.window_factor = p.window_factor;
  return p;
}

void problem_free(problem *p) {
  float *const all[] = {p->q,         p->k,         p->v,      p->gate,   p->q_raw,        p->k_raw,
                        p->feature_q, p->feature_k, p->bias_q, p->bias_k, p->window_factor};
  for (size_t i = 0; i < CHECK_COUNT(all); i++) free(all[i]);
}

still_attention_inputs problem_inputs(const problem *p, size_t first) {
  still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
  const size_t head = p->n * p->dim, at = first * p->dim;
  in.q = (still_rows){p->q + at, head, p->dim};
  in.k = (still_rows){p->k + at, head, p->dim};
  in.v = (still_rows){p->v + at, head, p->dim};
  in.gate = (still_rows){p->gate + at, head, p->dim};
  in.q_raw = (still_rows){p->q_raw + at, head, p->dim};
  in.k_raw = (still_rows){p->k_raw + at, head, p->dim};
  return in;
}

answer answer_create(const problem *p) {
  answer a = {.n = p->n, .heads = p->heads, .dim = p->dim};
  const size_t rows = p->heads * p->n;
  a.y = malloc(rows * p->dim * sizeof *a.y);
  a.scores = malloc(rows * sizeof *a.scores);
  a.kept = malloc(rows * sizeof *a.kept);
  assert_true(a.y && a.scores && a.kept);
  for (size_t i = 0; i < rows * p->dim; i++) a.y[i] = NAN;
  for (size_t i = 0; i < rows; i++) a.scores[i] = 0;
  memset(a.kept, 0xff, rows * sizeof *a.kept);
  return a;
}

void answer_free(answer *a) {
  free(a->y);
  free(a->scores);
  free(a->kept);
}

void run_tokens(const problem *p, const still_attention_plan *plan, still_attention_cache *cache,
                size_t first, size_t count, answer *a) {
  still_attention_inputs in = problem_inputs(p, first);
  float *scores = malloc(p->heads * count * sizeof *scores);
  assert_non_null(scores);
  const bool routed = p->options.kind == STILL_ATTENTION_STILL;
  if (routed) in.scores = scores;
  check_ok(still_attention_forward(plan, cache, count, &in, a->y + first * p->dim, p->n * p->dim,
                                   p->dim));
  for (size_t h = 0; routed && h < p->heads; h++)
    memcpy(a->scores + h * p->n + first, scores + h * count, count * sizeof *scores);
  free(scores);
}

void read_kept(const still_attention_cache *cache, answer *a) {
  for (size_t h = 0; h < a->heads; h++) {
    const size_t count = still_attention_cache_kept(cache, (int)h, a->kept + h * a->n, a->n);
    assert_true(count <= a->n);
  }
}

answer run_pieces(const problem *p, const size_t *lengths, size_t count) {
  still_attention_plan *plan;
  still_attention_cache *cache;
  answer a = answer_create(p);
  check_ok(still_attention_plan_create(&plan, &p->options, &p->weights));
  check_ok(still_attention_cache_create(&cache, plan));
  for (size_t done = 0, i = 0, n; done < p->n; done += n, i++) {
    const size_t wanted = !lengths ? p->n : lengths[i < count ? i : count - 1];
    n = wanted < p->n - done ? wanted : p->n - done;
    run_tokens(p, plan, cache, done, n, &a);
  }
  read_kept(cache, &a);
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  return a;
}

/* Tokens of chunks that have been routed by the end. */
static size_t routed_tokens(const problem *p) {
  const size_t chunk = (size_t)p->options.chunk, last = (p->n - 1) / chunk;
  return last < 2 ? 0 : (last - 1) * chunk;
}

answer run_oracle(const problem *p) {
  answer a = answer_create(p);
  const size_t rows = p->heads * p->n;
  double *y = malloc(rows * p->dim * sizeof *y), *scores = calloc(rows, sizeof *scores);
  unsigned char *kept = calloc(rows, 1);
  assert_true(y && scores && kept);
  const still_attention_inputs in = problem_inputs(p, 0);
  check_ok(still_attention_oracle(&p->options, &p->weights, p->n, &in, y, scores, kept));
  for (size_t i = 0; i < rows * p->dim; i++) a.y[i] = (float)y[i];
  for (size_t i = 0; i < rows; i++) a.scores[i] = (float)scores[i];
  for (size_t h = 0; h < p->heads; h++)
    for (size_t t = 0, count = 0; t < routed_tokens(p); t++)
      if (kept[h * p->n + t]) a.kept[h * p->n + count++] = (int64_t)t;
  free(y);
  free(scores);
  free(kept);
  return a;
}

void check_same_answer(const answer *got, const answer *want, bool same_bits, double bound) {
  const size_t rows = got->heads * got->n;
  assert_memory_equal(got->kept, want->kept, rows * sizeof *got->kept);
  if (same_bits) {
    assert_memory_equal(got->scores, want->scores, rows * sizeof *got->scores);
    assert_memory_equal(got->y, want->y, rows * got->dim * sizeof *got->y);
    return;
  }
  for (size_t i = 0; i < rows; i++)
    if (!(fabsf(got->scores[i] - want->scores[i]) <= 1e-4f))
      fail_msg("score %zu is %g, must be %g", i, (double)got->scores[i], (double)want->scores[i]);
  check_rows_close("y", got->y, want->y, rows, got->dim, bound);
}
