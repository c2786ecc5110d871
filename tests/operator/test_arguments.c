/* SPDX-License-Identifier: MIT
 * Bad options and inputs: the sentence names the thing and its range. */
#include "operator/problem.h"

#include <math.h>
#include <string.h>

static still_attention_plan *made;

static still_status make(const still_attention_options *o, const still_attention_weights *w) {
  return still_attention_plan_create(&made, o, w);
}

static void options_out_of_range(void **state) {
  (void)state;
  static const struct {
    size_t offset;
    int value;
    const char *sentence;
  } cases[] = {
#define AT(field) offsetof(still_attention_options, field)
      {AT(heads), 0, "heads is 0, must be 1 .. 4096"},
      {AT(heads), -1, "heads is -1, must be 1 .. 4096"},
      {AT(heads), 5000, "heads is 5000, must be 1 .. 4096"},
      {AT(kv_heads), 3, "kv_heads is 3, must divide heads (4)"},
      {AT(kv_heads), 5, "kv_heads is 5, must be 1 .. 4"},
      {AT(head_dim), 0, "head_dim is 0, must be 1 .. 1024"},
      {AT(head_dim), 1025, "head_dim is 1025, must be 1 .. 1024"},
      {AT(chunk), 0, "chunk is 0, must be 1 .. 1048576"},
      {AT(budget), 15, "budget is 15, must be 16 .. "},
      {AT(keep), 17, "keep is 17, must be 0 .. 16"},
      {AT(keep), -1, "keep is -1, must be 0 .. 16"},
      {AT(context), 0, "context is 0, must be 1 .. 2147483647"},
      {AT(threads), -1, "threads is -1, must be 0 .. "},
      {AT(metric), 6, "metric is 6, must be 0 .. 5"},
      {AT(routing), 2, "routing is 2, must be 0 .. 1"},
      {AT(schedule), 3, "schedule is 3, must be 0 .. 2"},
      {AT(feature_map), 2, "feature_map is 2, must be 0 .. 1"},
      {AT(cache_type), 3, "cache_type is 3, must be 0 .. 2"},
      {AT(kind), 7, "kind is 7, must be 0 .. 6"},
#undef AT
  };
  for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
    still_attention_options o = small_options(STILL_ATTENTION_STILL);
    memcpy((char *)&o + cases[i].offset, &cases[i].value, sizeof(int));
    check_fails(make(&o, NULL), STILL_ERROR_ARGUMENT, cases[i].sentence);
    assert_null(made);
  }
  still_attention_options o = small_options(STILL_ATTENTION_SWA);
  o.window = 0;
  check_fails(make(&o, NULL), STILL_ERROR_ARGUMENT, "window is 0, must be 1 .. ");
  o = small_options(STILL_ATTENTION_SWA);
  o.sinks = -1;
  check_fails(make(&o, NULL), STILL_ERROR_ARGUMENT, "sinks is -1, must be 0 .. ");
  o = small_options(STILL_ATTENTION_STILL);
  o.schedule = STILL_SCHEDULE_RATIO;
  o.keep_ratio = NAN;
  check_fails(make(&o, NULL), STILL_ERROR_ARGUMENT, "keep_ratio is nan, must be 0 .. 1");
  o = small_options(STILL_ATTENTION_STILL);
  o.size = 8;
  check_fails(make(&o, NULL), STILL_ERROR_ARGUMENT, "INIT macro");
  check_fails(make(NULL, NULL), STILL_ERROR_ARGUMENT, "options: NULL");
}

static void a_small_budget_names_the_smallest(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_STILL);
  o.schedule = STILL_SCHEDULE_BUDGET;
  o.context = 1000; /* 63 chunks of 16 */
  o.budget = 78;
  check_fails(make(&o, NULL), STILL_ERROR_ARGUMENT, "the smallest that works is 79");
  o.budget = 79;
  check_ok(make(&o, NULL));
  assert_int_equal(still_attention_plan_keep(made), 1);
  still_attention_plan_destroy(made);
  assert_int_equal(still_attention_keep_for_length(896, 64, 16384), 3);
  assert_int_equal(still_attention_keep_for_length(64, 64, 16384), 0);
  assert_int_equal(still_attention_keep_for_length(100, 64, 0), 0);
}

static void weights_that_do_not_fit(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_STILL);
  problem p = problem_create(&o, 1, 1);
  still_attention_weights w = p.weights;
  w.feature_k = NULL;
  check_fails(make(&o, &w), STILL_ERROR_ARGUMENT, "feature_q and feature_k");
  p.feature_k[5] = INFINITY;
  check_fails(make(&o, &p.weights), STILL_ERROR_NUMERIC, "feature_k[5] is inf");
  p.feature_k[5] = 0;
  static const still_attention_kind needing[] = {STILL_ATTENTION_LOLCATS, STILL_ATTENTION_HEDGEHOG,
                                                 STILL_ATTENTION_T2R};
  for (size_t i = 0; i < CHECK_COUNT(needing); i++) {
    o = small_options(needing[i]);
    check_fails(make(&o, NULL), STILL_ERROR_ARGUMENT, "needs feature_q and feature_k (4, 16, 16)");
  }
  o = small_options(STILL_ATTENTION_FULL);
  check_fails(make(&o, &p.weights), STILL_ERROR_ARGUMENT, "'full' takes no feature maps");
  w.size = 1;
  check_fails(make(&o, &w), STILL_ERROR_ARGUMENT, "INIT macro");
  problem_free(&p);
}

static void inputs_that_do_not_fit(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_LIGER_GLA);
  problem p = problem_create(&o, 4, 2);
  still_attention_cache *cache;
  float y[4 * 4 * 16];
  check_ok(make(&o, NULL));
  still_attention_plan *plan = made, *other;
  check_ok(still_attention_plan_create(&other, &o, NULL));
  check_ok(still_attention_cache_create(&cache, plan));
  still_attention_inputs in = problem_inputs(&p, 0);
  check_fails(still_attention_forward(plan, cache, 0, &in, y, 64, 16), STILL_ERROR_ARGUMENT,
              "n is 0, must be 1 .. ");
  check_fails(still_attention_forward(other, cache, 4, &in, y, 64, 16), STILL_ERROR_ARGUMENT,
              "another plan");
  check_fails(still_attention_forward(plan, cache, 4, NULL, y, 64, 16), STILL_ERROR_ARGUMENT,
              "inputs is NULL");
  check_fails(still_attention_forward(plan, cache, 4, &in, NULL, 64, 16), STILL_ERROR_ARGUMENT,
              "y is NULL");
  still_rows *const rows[] = {&in.q, &in.k, &in.v, &in.q_raw, &in.k_raw};
  static const char *const names[] = {"inputs.q.data", "inputs.k.data", "inputs.v.data",
                                      "inputs.q_raw.data", "inputs.k_raw.data"};
  for (size_t i = 0; i < CHECK_COUNT(rows); i++) {
    const float *data = rows[i]->data;
    rows[i]->data = NULL;
    check_fails(still_attention_forward(plan, cache, 4, &in, y, 64, 16), STILL_ERROR_ARGUMENT,
                names[i]);
    rows[i]->data = data;
  }
  still_attention_usage usage;
  still_attention_cache_usage(cache, &usage);
  assert_int_equal(usage.tokens, 0);
  check_ok(still_attention_forward(plan, cache, 4, &in, y, 64, 16));
  check_fails(still_attention_cache_state(cache, 4, y, NULL), STILL_ERROR_ARGUMENT,
              "head is 4, must be 0 .. 3");
  check_fails(still_attention_cache_state(cache, 0, NULL, y), STILL_ERROR_ARGUMENT,
              "has no normalizer");
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  still_attention_plan_destroy(other);
  problem_free(&p);
}

static void a_later_snapshot_is_refused(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_SWA);
  problem p = problem_create(&o, 20, 3);
  still_attention_cache *cache;
  answer a = answer_create(&p);
  check_ok(make(&o, NULL));
  check_ok(still_attention_cache_create(&cache, made));
  run_tokens(&p, made, cache, 0, 20, &a);
  char snapshot[1 << 17];
  assert_true(still_attention_cache_snapshot_bytes(cache) <= sizeof snapshot);
  check_ok(still_attention_cache_snapshot(cache, snapshot));
  still_attention_cache_reset(cache);
  check_fails(still_attention_cache_restore(cache, snapshot), STILL_ERROR_ARGUMENT,
              "of 20 tokens, but the cache holds 0");
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(made);
  answer_free(&a);
  problem_free(&p);
}

static void names_go_both_ways(void **state) {
  (void)state;
  for (int i = 0; i <= STILL_ATTENTION_T2R; i++) {
    still_attention_kind kind;
    check_ok(still_attention_kind_parse(still_attention_kind_name((still_attention_kind)i), &kind));
    assert_int_equal(kind, i);
  }
  for (int i = 0; i <= STILL_METRIC_RANDOM; i++) {
    still_metric metric;
    check_ok(still_metric_parse(still_metric_name((still_metric)i), &metric));
    assert_int_equal(metric, i);
  }
  still_attention_kind kind;
  still_metric metric;
  check_fails(still_attention_kind_parse("flash", &kind), STILL_ERROR_ARGUMENT,
              "'flash': unknown; one of: full, swa, still");
  check_fails(still_attention_kind_parse(NULL, &kind), STILL_ERROR_ARGUMENT, "'(none)'");
  check_fails(still_metric_parse("salient", &metric), STILL_ERROR_ARGUMENT,
              "one of: saliency, diagonal");
  assert_null(still_attention_kind_name((still_attention_kind)7));
  assert_null(still_metric_name((still_metric)-1));
}

static void a_gpu_is_another_room(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_STILL);
  o.device = "cpu";
  check_ok(make(&o, NULL));
  still_attention_plan_destroy(made);
  o.device = "abacus:0";
  assert_true(make(&o, NULL)); /* which error depends on what the build knows */
  assert_non_null(strstr(still_last_error(), "device 'abacus:0'"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(options_out_of_range),
      cmocka_unit_test(a_small_budget_names_the_smallest),
      cmocka_unit_test(weights_that_do_not_fit),
      cmocka_unit_test(inputs_that_do_not_fit),
      cmocka_unit_test(a_later_snapshot_is_refused),
      cmocka_unit_test(names_go_both_ways),
      cmocka_unit_test(a_gpu_is_another_room),
  };
  return cmocka_run_group_tests_name("arguments", tests, NULL, check_nothing_allocated);
}
