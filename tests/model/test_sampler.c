/* SPDX-License-Identifier: MIT
 * The sampler: values that switch a filter off, the order of filters, seeds, and logits that are no numbers. */
#include "harness/check.h"

#include <still/model.h>

#include <math.h>
#include <string.h>

static still_sampler *make(still_sampler_options options) {
  still_sampler *sampler;
  check_ok(still_sampler_create(&sampler, &options));
  return sampler;
}

/* Everything off but the temperature. */
static still_sampler_options plain(float temperature) {
  still_sampler_options options = STILL_SAMPLER_OPTIONS_INIT;
  options.temperature = temperature;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  options.seed = 1;
  return options;
}

enum { DRAWS = 4000 };

/* How often each of `count` tokens is drawn. */
static void draw(still_sampler_options options, const float *logits, size_t count, int *seen) {
  still_sampler *sampler = make(options);
  memset(seen, 0, count * sizeof *seen);
  for (int i = 0; i < DRAWS; i++) {
    still_token token;
    check_ok(still_sampler_sample(sampler, logits, count, &token));
    assert_in_range(token, 0, count - 1);
    seen[token]++;
  }
  still_sampler_destroy(sampler);
}

static void no_temperature_takes_the_likeliest(void **state) {
  (void)state;
  static const float logits[] = {1, 3, 2, 3, -5};
  static const float temperatures[] = {0, -1, -INFINITY, 1e-30f};
  for (size_t i = 0; i < CHECK_COUNT(temperatures); i++) {
    int seen[5];
    draw(plain(temperatures[i]), logits, 5, seen);
    if (temperatures[i] <= 0)
      assert_int_equal(seen[1], DRAWS); /* the first of equals */
    else
      assert_int_equal(seen[1] + seen[3], DRAWS);
  }
}

static void bad_options_are_refused(void **state) {
  (void)state;
  still_sampler *sampler = NULL;
#define CHECK_OPTION(assignment, sentence)                                                         \
  do {                                                                                             \
    still_sampler_options options = STILL_SAMPLER_OPTIONS_INIT;                                    \
    assignment;                                                                                    \
    check_fails(still_sampler_create(&sampler, &options), STILL_ERROR_ARGUMENT, sentence);         \
    assert_null(sampler);                                                                          \
  } while (0)
  CHECK_OPTION(options.temperature = NAN, "temperature is not a number");
  CHECK_OPTION(options.temperature = INFINITY, "temperature is infinite");
  CHECK_OPTION(options.top_p = NAN, "top_p is not a number");
  CHECK_OPTION(options.min_p = NAN, "min_p is not a number");
  CHECK_OPTION(options.repeat_penalty = 0, "repeat_penalty is 0, must be above 0");
  CHECK_OPTION(options.repeat_last = -1, "repeat_last is -1, must be 0 ..");
  CHECK_OPTION(options.seed = -2, "seed is -2");
  CHECK_OPTION(options.size = 1, "INIT macro");
#undef CHECK_OPTION
}

static void logits_that_are_no_numbers(void **state) {
  (void)state;
  still_sampler *sampler = make(plain(1));
  still_token token;
  float logits[4] = {0, 1, NAN, 2};
  check_fails(still_sampler_sample(sampler, logits, 4, &token), STILL_ERROR_NUMERIC,
              "logit 2 of 4");
  logits[2] = INFINITY;
  check_fails(still_sampler_sample(sampler, logits, 4, &token), STILL_ERROR_NUMERIC,
              "logit 2 of 4");
  for (int i = 0; i < 4; i++) logits[i] = -INFINITY;
  check_fails(still_sampler_sample(sampler, logits, 4, &token), STILL_ERROR_NUMERIC,
              "all 4 logits");
  logits[3] = -1e30f; /* one is enough */
  check_ok(still_sampler_sample(sampler, logits, 4, &token));
  assert_int_equal(token, 3);
  check_ok(still_sampler_sample(sampler, logits + 3, 1, &token)); /* a vocabulary of one */
  assert_int_equal(token, 0);
  check_fails(still_sampler_sample(sampler, logits, 0, &token), STILL_ERROR_ARGUMENT, "0 logits");
  still_sampler_destroy(sampler);
}

static void at_least_one_candidate_stays(void **state) {
  (void)state;
  static const float logits[] = {0, 2, 1}, equal[] = {1, 1, 1};
  int seen[3];
  still_sampler_options options = plain(1);
  options.top_p = 0;
  draw(options, logits, 3, seen);
  assert_int_equal(seen[1], DRAWS);
  options = plain(1);
  options.min_p = 1;
  draw(options, logits, 3, seen);
  assert_int_equal(seen[1], DRAWS);
  draw(options, equal, 3, seen); /* all are as likely as the likeliest */
  for (int i = 0; i < 3; i++) assert_in_range(seen[i], DRAWS / 4, DRAWS / 2);
}

/* ln 4, ln 2, ln 1, ln 1: probabilities 1/2, 1/4, 1/8, 1/8. */
static const float halves[] = {1.3862943611f, 0.6931471806f, 0, 0};

static void frequencies_are_the_probabilities(void **state) {
  (void)state;
  int seen[4];
  draw(plain(1), halves, 4, seen);
  assert_in_range(seen[0], DRAWS / 2 - 150, DRAWS / 2 + 150);
  assert_in_range(seen[1], DRAWS / 4 - 130, DRAWS / 4 + 130);
  assert_in_range(seen[2], DRAWS / 8 - 100, DRAWS / 8 + 100);
  assert_true(seen[3] > 0);
}

static void every_filter_cuts_where_it_says(void **state) {
  (void)state;
  int seen[4];
  still_sampler_options options = plain(1);
  options.top_k = 2;
  draw(options, halves, 4, seen);
  assert_true(seen[0] && seen[1] && !seen[2] && !seen[3]);
  options = plain(1);
  options.top_p = 0.7f; /* 1/2 is not enough, 3/4 is */
  draw(options, halves, 4, seen);
  assert_true(seen[0] && seen[1] && !seen[2] && !seen[3]);
  options = plain(1);
  options.min_p = 0.4f; /* of 1/2: 0.2 */
  draw(options, halves, 4, seen);
  assert_true(seen[0] && seen[1] && !seen[2] && !seen[3]);
  options = plain(100); /* filters come before the temperature, which would make all alike */
  options.min_p = 0.4f;
  draw(options, halves, 4, seen);
  assert_true(!seen[2] && !seen[3]);
  assert_in_range(seen[1], DRAWS / 2 - 150, DRAWS / 2 + 150);
  options = plain(1); /* top-p is of what top-k left: 2/3 and 1/3 */
  options.top_k = 2;
  options.top_p = 0.6f;
  draw(options, halves, 4, seen);
  assert_int_equal(seen[0], DRAWS);
}

/* A filter that is off leaves the others and the chance alone. */
static void values_that_switch_off(void **state) {
  (void)state;
  float logits[500];
  for (int i = 0; i < 500; i++) logits[i] = (float)(i * 37 % 101) / 50;
  int want[500], seen[500];
  draw(plain(1), logits, 500, want);
  static const int top_k[] = {0, -1, 500, 1 << 30};
  static const float top_p[] = {1, 2, INFINITY}, min_p[] = {0, -1};
  for (size_t i = 0; i < CHECK_COUNT(top_k); i++) {
    still_sampler_options options = plain(1);
    options.top_k = top_k[i];
    options.top_p = top_p[i % 3];
    options.min_p = min_p[i % 2];
    options.repeat_last = i % 2 ? 0 : 64;
    draw(options, logits, 500, seen);
    assert_memory_equal(seen, want, sizeof want);
  }
}

static void top_k_takes_the_best(void **state) {
  (void)state;
  enum { N = 777 };
  float logits[N];
  for (int i = 0; i < N; i++) logits[i] = (float)((i * 7919) % N); /* all different */
  for (int k = 1; k < N; k += 97) {
    still_sampler_options options = plain(1e6f); /* all of them about as likely */
    options.top_k = k;
    int seen[N], different = 0;
    draw(options, logits, N, seen);
    for (int i = 0; i < N; i++) {
      different += seen[i] > 0;
      if (seen[i]) assert_true(logits[i] >= (float)(N - k));
    }
    assert_true(different > k / 2);
  }
}

static void seeds(void **state) {
  (void)state;
  static const float logits[50] = {0};
  still_token first[5][20];
  for (int run = 0; run < 5; run++) {
    still_sampler_options options = plain(1);
    options.seed = -1;
    still_sampler *sampler = make(options);
    for (int i = 0; i < 20; i++)
      check_ok(still_sampler_sample(sampler, logits, 50, &first[run][i]));
    const uint64_t seed = still_sampler_seed(sampler);
    still_sampler_destroy(sampler);
    for (int other = 0; other < run; other++)
      assert_memory_not_equal(first[run], first[other], sizeof first[0]);
    options.seed = (int64_t)seed; /* what it tells gives the same again */
    assert_true(options.seed >= 0);
    sampler = make(options);
    for (int i = 0; i < 20; i++) {
      still_token token;
      check_ok(still_sampler_sample(sampler, logits, 50, &token));
      assert_int_equal(token, first[run][i]);
    }
    still_sampler_destroy(sampler);
  }
}

/* The generator and the order are fixed: these ids hold on every machine. */
static void seed_1_gives_these(void **state) {
  (void)state;
  float logits[100];
  for (int i = 0; i < 100; i++) logits[i] = (float)(i % 10);
  still_sampler_options options = STILL_SAMPLER_OPTIONS_INIT;
  options.seed = 1;
  still_sampler *sampler = make(options);
  still_token got[8];
  for (int i = 0; i < 8; i++) check_ok(still_sampler_sample(sampler, logits, 100, &got[i]));
  static const still_token want[8] = {99, 79, 79, 59, 99, 19, 9, 59};
  for (int i = 0; i < 8; i++) assert_int_equal(got[i], want[i]);
  still_sampler_destroy(sampler);
}

static void repetition_is_made_less_likely(void **state) {
  (void)state;
  static const float logits[] = {4, 3.9f, -1, -1.1f};
  still_sampler_options options = plain(0);
  options.repeat_penalty = 2;
  options.repeat_last = 2;
  still_sampler *sampler = make(options);
  still_token token;
  check_ok(still_sampler_sample(sampler, logits, 4, &token));
  assert_int_equal(token, 0);
  check_ok(still_sampler_sample(sampler, logits, 4, &token)); /* 4 / 2 is below 3.9 */
  assert_int_equal(token, 1);
  check_ok(still_sampler_sample(sampler, logits, 4, &token)); /* both halved: 2 above 1.95 */
  assert_int_equal(token, 0);
  still_sampler_accept(sampler, 2); /* now 0 and 2 are the last two */
  check_ok(still_sampler_sample(sampler, logits, 4, &token));
  assert_int_equal(token, 1);
  still_sampler_accept(sampler, 2);
  still_sampler_accept(sampler, 2); /* twice is penalised once: -2, below -1.1 */
  check_ok(still_sampler_sample(sampler, logits + 2, 2, &token));
  still_sampler_accept(sampler, 1 << 30); /* of another vocabulary: ignored */
  check_ok(still_sampler_sample(sampler, logits, 4, &token));
  still_sampler_destroy(sampler);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_temperature_takes_the_likeliest),
      cmocka_unit_test(bad_options_are_refused),
      cmocka_unit_test(logits_that_are_no_numbers),
      cmocka_unit_test(at_least_one_candidate_stays),
      cmocka_unit_test(frequencies_are_the_probabilities),
      cmocka_unit_test(every_filter_cuts_where_it_says),
      cmocka_unit_test(values_that_switch_off),
      cmocka_unit_test(top_k_takes_the_best),
      cmocka_unit_test(seeds),
      cmocka_unit_test(seed_1_gives_these),
      cmocka_unit_test(repetition_is_made_less_likely),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
