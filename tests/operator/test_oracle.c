/* SPDX-License-Identifier: MIT
 * The operator against the float64 oracle: every kind, many shapes, lengths around every border. */
#include "operator/problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const still_attention_kind kinds[] = {STILL_ATTENTION_FULL,      STILL_ATTENTION_SWA,
                                             STILL_ATTENTION_STILL,     STILL_ATTENTION_LOLCATS,
                                             STILL_ATTENTION_LIGER_GLA, STILL_ATTENTION_HEDGEHOG,
                                             STILL_ATTENTION_T2R};

/* A row's error is measured by its largest value; of few channels that may be small by chance. */
static void compare(const problem *p) {
  answer got = run_pieces(p, NULL, 0), want = run_oracle(p);
  check_same_answer(&got, &want, false, p->dim < 8 ? 2e-4 : 2e-5);
  answer_free(&got);
  answer_free(&want);
}

static void compare_options(const still_attention_options *o, size_t n, uint64_t seed) {
  problem p = problem_create(o, n, seed);
  compare(&p);
  problem_free(&p);
}

static void every_kind_at_awkward_lengths(void **state) {
  (void)state;
  static const size_t lengths[] = {1, 2, 8, 15, 16, 17, 31, 32, 33, 63, 65, 129, 255, 257};
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
    for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
      const still_attention_options o = small_options(kinds[k]);
      compare_options(&o, lengths[i], 100 * k + i);
    }
}

static void long_sequence_with_common_chunks(void **state) {
  (void)state;
  static const int chunks[] = {64, 256};
  static const size_t lengths[] = {63, 65, 255, 257, 913};
  for (size_t c = 0; c < CHECK_COUNT(chunks); c++)
    for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
      still_attention_options o = small_options(STILL_ATTENTION_STILL);
      o.chunk = chunks[c];
      compare_options(&o, lengths[i], 1000 + 10 * c + i);
    }
}

static void every_head_dimension(void **state) {
  (void)state;
  static const int dims[] = {1, 2, 3, 7, 8, 15, 17, 33, 64, 80, 96, 112, 128};
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
    for (size_t i = 0; i < CHECK_COUNT(dims); i++) {
      still_attention_options o = small_options(kinds[k]);
      o.head_dim = dims[i];
      o.heads = 2;
      o.kv_heads = 1;
      compare_options(&o, 70, 2000 + 100 * k + i);
    }
}

static void every_chunk_and_window_length(void **state) {
  (void)state;
  static const int lengths[] = {1, 2, 3, 5, 15, 31, 32, 33, 40, 63, 100};
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
    for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
      still_attention_options o = small_options(kinds[k]);
      o.chunk = o.window = lengths[i];
      o.keep = lengths[i] < 3 ? lengths[i] : 3;
      compare_options(&o, 230, 3000 + 100 * k + i);
    }
}

static void every_grouping(void **state) {
  (void)state;
  static const int pairs[][2] = {{1, 1}, {3, 3}, {6, 2}, {8, 1}, {32, 8}, {70, 1}};
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
    for (size_t i = 0; i < CHECK_COUNT(pairs); i++) {
      still_attention_options o = small_options(kinds[k]);
      o.heads = pairs[i][0];
      o.kv_heads = pairs[i][1];
      o.head_dim = 8;
      compare_options(&o, 75, 4000 + 100 * k + i);
    }
}

static void every_metric_and_routing(void **state) {
  (void)state;
  for (int metric = 0; metric <= STILL_METRIC_RANDOM; metric++)
    for (int routing = 0; routing < 2; routing++)
      for (int map = 0; map < 2; map++) {
        still_attention_options o = small_options(STILL_ATTENTION_STILL);
        o.metric = (still_metric)metric;
        o.routing = (still_routing)routing;
        o.feature_map = (still_feature_map)map;
        o.seed = 7;
        compare_options(&o, 150, 5000 + (uint64_t)metric);
      }
}

static void every_schedule(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_STILL);
  o.schedule = STILL_SCHEDULE_BUDGET;
  o.context = 128;
  o.budget = 16 + 20; /* lambda 2, and full before the end */
  compare_options(&o, 300, 1);
  o.schedule = STILL_SCHEDULE_FIXED;
  o.keep = 5;
  o.budget = 16 + 12; /* the third chunk keeps two of its five */
  compare_options(&o, 150, 2);
  o.budget = 16;
  compare_options(&o, 150, 3);
  o.schedule = STILL_SCHEDULE_RATIO;
  o.keep_ratio = 0.2f;
  compare_options(&o, 150, 4);
  o.keep_ratio = 1;
  compare_options(&o, 150, 5);
}

static void sinks(void **state) {
  (void)state;
  static const int counts[] = {1, 4, 15, 16, 17, 40, 500};
  for (size_t i = 0; i < CHECK_COUNT(counts); i++) {
    still_attention_options o = small_options(STILL_ATTENTION_SWA);
    o.sinks = counts[i];
    compare_options(&o, 150, 6000 + i);
  }
}

static void salient_only(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_STILL);
  problem p = problem_create(&o, 150, 7);
  p.weights = (still_attention_weights)STILL_ATTENTION_WEIGHTS_INIT;
  compare(&p);
  problem_free(&p);
}

static void no_gate_is_gate_one(void **state) {
  (void)state;
  const still_attention_options o = small_options(STILL_ATTENTION_STILL);
  problem p = problem_create(&o, 100, 8);
  for (size_t i = 0; i < p.heads * p.n * p.dim; i++) p.gate[i] = 1;
  answer want = run_pieces(&p, NULL, 0), got = answer_create(&p);
  still_attention_plan *plan;
  still_attention_cache *cache;
  check_ok(still_attention_plan_create(&plan, &p.options, &p.weights));
  check_ok(still_attention_cache_create(&cache, plan));
  still_attention_inputs in = problem_inputs(&p, 0);
  in.gate.data = NULL;
  check_ok(still_attention_forward(plan, cache, p.n, &in, got.y, p.n * p.dim, p.dim));
  assert_memory_equal(got.y, want.y, p.heads * p.n * p.dim * sizeof *got.y);
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  answer_free(&got);
  answer_free(&want);
  problem_free(&p);
}

static void keeping_everything_is_full_attention(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_STILL);
  o.keep = o.chunk;
  problem p = problem_create(&o, 200, 9);
  answer got = run_pieces(&p, NULL, 0);
  p.options = small_options(STILL_ATTENTION_FULL);
  p.weights = (still_attention_weights)STILL_ATTENTION_WEIGHTS_INIT;
  answer want = run_pieces(&p, NULL, 0);
  check_rows_close("keep all", got.y, want.y, p.heads * p.n, p.dim, 2e-6);
  answer_free(&got);
  answer_free(&want);
  problem_free(&p);
}

static void token_major_strides(void **state) {
  (void)state;
  const still_attention_options o = small_options(STILL_ATTENTION_STILL);
  problem p = problem_create(&o, 60, 10);
  answer want = run_pieces(&p, NULL, 0);
  const size_t wide = p.heads * p.dim, count = p.n * wide;
  float *rows = malloc(4 * count * sizeof *rows), *y = malloc(count * sizeof *y);
  assert_true(rows && y);
  const float *const from[] = {p.q, p.k, p.v, p.gate};
  for (size_t a = 0; a < 4; a++)
    for (size_t h = 0; h < (a % 3 ? p.kv_heads : p.heads); h++)
      for (size_t t = 0; t < p.n; t++)
        memcpy(rows + a * count + t * wide + h * p.dim, from[a] + (h * p.n + t) * p.dim,
               p.dim * sizeof *rows);
  still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
  in.q = (still_rows){rows, p.dim, wide};
  in.k = (still_rows){rows + count, p.dim, wide};
  in.v = (still_rows){rows + 2 * count, p.dim, wide};
  in.gate = (still_rows){rows + 3 * count, p.dim, wide};
  still_attention_plan *plan;
  still_attention_cache *cache;
  check_ok(still_attention_plan_create(&plan, &p.options, &p.weights));
  check_ok(still_attention_cache_create(&cache, plan));
  check_ok(still_attention_forward(plan, cache, p.n, &in, y, p.dim, wide));
  for (size_t h = 0; h < p.heads; h++)
    for (size_t t = 0; t < p.n; t++)
      assert_memory_equal(y + t * wide + h * p.dim, want.y + (h * p.n + t) * p.dim,
                          p.dim * sizeof *y);
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  free(rows);
  free(y);
  answer_free(&want);
  problem_free(&p);
}

/* Masks go by index, never by value: zero scores are real scores. */
static void zero_and_huge_logits(void **state) {
  (void)state;
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++) {
    const still_attention_options o = small_options(kinds[k]);
    problem p = problem_create(&o, 90, 300 + k);
    memset(p.q, 0, p.n * p.dim * sizeof *p.q); /* head 0: all-zero queries */
    for (size_t i = 0; i < p.n * p.dim; i++) p.q[p.n * p.dim + i] *= 300; /* head 1: +-1e5 logits */
    answer got = run_pieces(&p, NULL, 0), want = run_oracle(&p);
    check_rows_close("zero and huge", got.y, want.y, p.heads * p.n, p.dim, 1e-3);
    answer_free(&got);
    answer_free(&want);
    problem_free(&p);
  }
}

/* Decays from none to total, over far more tokens than any product of them could bear. */
static void liger_with_extreme_decays(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_LIGER_GLA);
  o.heads = o.kv_heads = 1;
  o.head_dim = 8;
  static const float biases[] = {-1000, -100, -60, -20, 0, 20, 1000};
  for (size_t b = 0; b < CHECK_COUNT(biases); b++) {
    problem p = problem_create(&o, 3000, 400 + b);
    for (size_t i = 0; i < p.n * p.dim; i++)
      if (i % p.dim < 4) p.k_raw[i] += biases[b];
    compare(&p);
    problem_free(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_at_awkward_lengths),
      cmocka_unit_test(long_sequence_with_common_chunks),
      cmocka_unit_test(every_head_dimension),
      cmocka_unit_test(every_chunk_and_window_length),
      cmocka_unit_test(every_grouping),
      cmocka_unit_test(every_metric_and_routing),
      cmocka_unit_test(every_schedule),
      cmocka_unit_test(sinks),
      cmocka_unit_test(salient_only),
      cmocka_unit_test(no_gate_is_gate_one),
      cmocka_unit_test(keeping_everything_is_full_attention),
      cmocka_unit_test(token_major_strides),
      cmocka_unit_test(zero_and_huge_logits),
      cmocka_unit_test(liger_with_extreme_decays),
  };
  return cmocka_run_group_tests_name("oracle", tests, NULL, check_nothing_allocated);
}
