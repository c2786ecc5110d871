/* SPDX-License-Identifier: MIT
 * Gradients of both losses through the whole model, for every kind, along random directions. */
#include "tiny_model.h"

#include "base/random.h"
#include "linearize/student.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 150, SEQUENCES = 3 };

typedef struct setting {
  still_model_weights weights;
  still_student *student;
  size_t offsets[SEQUENCES + 1];
  int32_t ids[TOKENS], target[TOKENS];
  float weight[TOKENS];
  still_batch batch;
} setting;

static void set_up(setting *s, still_attention_kind kind, still_feature_map map, bool gate) {
  static const still_attention_kind kinds_of[7][2] = {{0, 0}, {1, 1}, {2, 2}, {3, 3},
                                                      {4, 4}, {5, 5}, {6, 6}};
  still_random random;
  still_random_seed(&random, 3);
  tiny_model_make(&s->weights, 5);
  const size_t offsets[] = {0, 70, 77, TOKENS};
  memcpy(s->offsets, offsets, sizeof offsets);
  for (int t = 0; t < TOKENS; t++) s->ids[t] = (int32_t)still_random_below(&random, 50);
  for (int t = 0; t < TOKENS; t++) {
    s->target[t] = t + 1 < TOKENS ? s->ids[t + 1] : -1;
    s->weight[t] = t % 3 ? 1 : t % 2 ? 0 : 2.5f;
  }
  s->batch = (still_batch){SEQUENCES, TOKENS, s->offsets, s->ids, s->target, s->weight, NULL};
  still_student_options options = {.attention = STILL_ATTENTION_OPTIONS_INIT,
                                   .kinds = kinds_of[kind],
                                   .gate = gate,
                                   .maps = true,
                                   .lora_rank = 3,
                                   .lora_alpha = 6,
                                   .longest = 80,
                                   .most = TOKENS,
                                   .sequences = SEQUENCES,
                                   .threads = 1,
                                   .seed = 9};
  options.attention.chunk = 8, options.attention.window = 10;
  options.attention.schedule = STILL_SCHEDULE_FIXED, options.attention.keep = 2;
  options.attention.budget = 0, options.attention.metric = STILL_METRIC_UNIFORM;
  options.attention.feature_map = map;
  if (still_student_create(&s->student, &s->weights, NULL, &options))
    fail_msg("%s", still_last_error());
  size_t count;
  still_parameter *p = still_student_parameters(s->student, &count);
  for (size_t i = 0; i < count; i++) /* away from the start, where many gradients are 0 */
    for (size_t j = 0; j < p[i].count; j++)
      p[i].value[j] += (float)(0.15 * still_random_normal(&random));
  assert_int_equal(still_student_refresh(s->student), STILL_OK);
}

static void tear_down(setting *s) {
  still_student_destroy(s->student);
  tiny_model_free(&s->weights);
}

static double cross_entropy(setting *s, bool gradients) {
  double loss = 0, weight = 0;
  if (still_student_loss(s->student, &s->batch, gradients, 0.01, &loss, &weight))
    fail_msg("%s", still_last_error());
  return 0.01 * loss;
}

static double transfer(setting *s, bool gradients) {
  still_transfer_error errors[2] = {{0}};
  if (still_student_transfer(s->student, &s->batch, gradients, 1, errors))
    fail_msg("%s", still_last_error());
  double sum = 0;
  for (int i = 0; i < 2; i++)
    if (errors[i].elements > 0) sum += errors[i].squared / errors[i].elements;
  return sum;
}

/* For every parameter array: the slope along its own gradient must be the gradient's squared
 * length. */
static void check_slopes(setting *s, double (*loss)(setting *, bool), bool maps_only) {
  size_t count;
  still_parameter *p = still_student_parameters(s->student, &count);
  still_student_clear_gradients(s->student);
  loss(s, true);
  for (size_t i = 0; i < count; i++) {
    double length = 0;
    for (size_t j = 0; j < p[i].count; j++) length += p[i].gradient[j] * p[i].gradient[j];
    if (maps_only && !p[i].is_map) {
      assert_true(length == 0);
      continue;
    }
    if (length == 0) fail_msg("%s: no gradient", p[i].name);
    const double step = 1e-4 / length; /* a change of 1e-4 of the loss each way: kinks are near */
    float *kept = malloc(p[i].count * sizeof *kept);
    memcpy(kept, p[i].value, p[i].count * sizeof *kept);
    double value[2];
    for (int side = 0; side < 2; side++) {
      for (size_t j = 0; j < p[i].count; j++)
        p[i].value[j] = kept[j] + (float)((side ? -step : step) * p[i].gradient[j]);
      assert_int_equal(still_student_refresh(s->student), STILL_OK);
      value[side] = loss(s, false);
    }
    memcpy(p[i].value, kept, p[i].count * sizeof *kept);
    free(kept);
    assert_int_equal(still_student_refresh(s->student), STILL_OK);
    const double slope = (value[0] - value[1]) / (2 * step), noise = 3e-7 / step;
    if (fabs(slope - length) > 0.01 * length + noise)
      fail_msg("%s: slope %g, gradient squared %g (noise %g)", p[i].name, slope, length, noise);
  }
}

static void try_kind(still_attention_kind kind, still_feature_map map, bool gate, bool stage1) {
  setting s;
  set_up(&s, kind, map, gate);
  check_slopes(&s, cross_entropy, false);
  if (stage1) check_slopes(&s, transfer, true);
  tear_down(&s);
}

static void still_kind(void **state) {
  (void)state;
  try_kind(STILL_ATTENTION_STILL, STILL_FEATURE_NORM_PRESERVED, true, true);
  try_kind(STILL_ATTENTION_STILL, STILL_FEATURE_HEDGEHOG, false, true);
}
static void lolcats_kind(void **state) {
  (void)state;
  try_kind(STILL_ATTENTION_LOLCATS, STILL_FEATURE_NORM_PRESERVED, false, true);
}
static void linear_kinds(void **state) {
  (void)state;
  try_kind(STILL_ATTENTION_HEDGEHOG, STILL_FEATURE_NORM_PRESERVED, false, true);
  try_kind(STILL_ATTENTION_T2R, STILL_FEATURE_NORM_PRESERVED, false, true);
}
static void liger_kind(void **state) {
  (void)state;
  try_kind(STILL_ATTENTION_LIGER_GLA, STILL_FEATURE_NORM_PRESERVED, false, false);
}
/* A row's own budget is the window of kinds that have one. */
static void rows_own_window(void **state) {
  (void)state;
  static const int budgets[][SEQUENCES] = {{10, 10, 10}, {10, 10, 24}};
  static const still_attention_kind kinds[] = {STILL_ATTENTION_LOLCATS, STILL_ATTENTION_LIGER_GLA,
                                               STILL_ATTENTION_SWA};
  for (int i = 0; i < 3; i++) {
    setting s;
    set_up(&s, kinds[i], STILL_FEATURE_NORM_PRESERVED, false);
    const double common = cross_entropy(&s, false);
    s.batch.budget = budgets[0];
    assert_true(cross_entropy(&s, false) == common);
    s.batch.budget = budgets[1];
    assert_true(cross_entropy(&s, false) != common);
    check_slopes(&s, cross_entropy, false);
    tear_down(&s);
  }
}
static void softmax_kinds(void **state) {
  (void)state;
  try_kind(STILL_ATTENTION_FULL, STILL_FEATURE_NORM_PRESERVED, false, false);
  try_kind(STILL_ATTENTION_SWA, STILL_FEATURE_NORM_PRESERVED, false, false);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(still_kind),    cmocka_unit_test(lolcats_kind),
      cmocka_unit_test(linear_kinds),  cmocka_unit_test(liger_kind),
      cmocka_unit_test(softmax_kinds), cmocka_unit_test(rows_own_window)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
