/* SPDX-License-Identifier: MIT
 * What the operator says about its linear branch, against the float64 oracle: with values of 1 and
 * a gate of 0, an output is the softmax branch's share of the denominator; what another gate adds
 * is the linear branch's share of the numerator. */
#include "attention/attention_oracle.h"
#include "operator/problem.h"

#include <math.h>
#include <stdlib.h>

typedef struct shares {
  float *mass, *output; /* (H, n) */
} shares;

static shares run_shares(const problem *p, int threads, size_t piece) {
  const size_t rows = p->heads * p->n;
  shares s = {malloc(rows * sizeof(float)), malloc(rows * sizeof(float))};
  float *mass = malloc(rows * sizeof *mass), *output = malloc(rows * sizeof *output);
  float *y = malloc(rows * p->dim * sizeof *y);
  still_attention_options options = p->options;
  still_attention_plan *plan;
  still_attention_cache *cache;
  assert_true(s.mass && s.output && mass && output && y);
  options.threads = threads;
  check_ok(still_attention_plan_create(&plan, &options, &p->weights));
  check_ok(still_attention_cache_create(&cache, plan));
  for (size_t first = 0, n; first < p->n; first += n) {
    n = piece < p->n - first ? piece : p->n - first;
    still_attention_inputs in = problem_inputs(p, first);
    in.linear_mass = mass, in.linear_output = output;
    check_ok(still_attention_forward(plan, cache, n, &in, y, p->n * p->dim, p->dim));
    for (size_t h = 0; h < p->heads; h++)
      for (size_t t = 0; t < n; t++) {
        s.mass[h * p->n + first + t] = mass[h * n + t];
        s.output[h * p->n + first + t] = output[h * n + t];
      }
  }
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  free(mass), free(output), free(y);
  return s;
}

static double *oracle(const problem *p, const float *v, const float *gate) {
  still_attention_inputs in = problem_inputs(p, 0);
  double *y = malloc(p->heads * p->n * p->dim * sizeof *y);
  assert_non_null(y);
  if (v) in.v.data = v;
  in.gate.data = gate;
  check_ok(still_attention_oracle(&p->options, &p->weights, p->n, &in, y, NULL, NULL));
  return y;
}

static double length(const double *a, const double *minus, size_t dim) {
  double sum = 0;
  for (size_t d = 0; d < dim; d++) {
    const double x = a[d] - (minus ? minus[d] : 0);
    sum += x * x;
  }
  return sqrt(sum);
}

static float *constant(size_t n, float value) {
  float *x = malloc(n * sizeof *x);
  assert_non_null(x);
  for (size_t i = 0; i < n; i++) x[i] = value;
  return x;
}

static void compare(const problem *p, const shares *got) {
  const size_t floats = p->heads * p->n * p->dim;
  float *ones = constant(floats, 1), *closed = constant(floats, 0);
  double *softmax_mass = oracle(p, ones, closed);
  double *softmax = oracle(p, NULL, closed), *all = oracle(p, NULL, p->gate);
  for (size_t i = 0; i < p->heads * p->n; i++) {
    const size_t at = i * p->dim;
    const double linear = length(all + at, softmax + at, p->dim);
    const double mass = 1 - softmax_mass[at];
    const double output = linear / (linear + length(softmax + at, NULL, p->dim));
    const bool early = i % p->n < 2 * (size_t)p->options.chunk;
    if (early) assert_true(got->mass[i] == 0 && got->output[i] == 0);
    if (!early) assert_true(got->mass[i] > 0 && got->output[i] > 0);
    if (fabs((double)got->mass[i] - mass) > 1e-5 || fabs((double)got->output[i] - output) > 1e-5)
      fail_msg("row %zu: mass %g, must be %g; output %g, must be %g", i, (double)got->mass[i], mass,
               (double)got->output[i], output);
  }
  free(ones), free(closed), free(softmax_mass), free(softmax), free(all);
}

static void still_as_the_oracle(void **state) {
  (void)state;
  static const size_t pieces[] = {200, 7, 1};
  for (int threads = 1; threads <= 8; threads += 7)
    for (size_t i = 0; i < CHECK_COUNT(pieces); i++) {
      const still_attention_options o = small_options(STILL_ATTENTION_STILL);
      problem p = problem_create(&o, 150, 1);
      const shares got = run_shares(&p, threads, pieces[i]);
      compare(&p, &got);
      free(got.mass), free(got.output);
      problem_free(&p);
    }
}

/* LoLCATs has no gate: the last token's window has values of 1, everything older 0. */
static void lolcats_as_the_oracle(void **state) {
  (void)state;
  const still_attention_options o = small_options(STILL_ATTENTION_LOLCATS);
  problem p = problem_create(&o, 90, 2);
  float *in_window = constant(p.kv_heads * p.n * p.dim, 0);
  for (size_t g = 0; g < p.kv_heads; g++)
    for (size_t t = p.n - (size_t)o.window; t < p.n; t++) in_window[(g * p.n + t) * p.dim] = 1;
  const shares got = run_shares(&p, 1, p.n);
  double *y = oracle(&p, in_window, NULL);
  for (size_t h = 0; h < p.heads; h++) {
    const size_t last = h * p.n + p.n - 1;
    assert_true(fabs((double)got.mass[last] - (1 - y[last * p.dim])) < 1e-5);
    assert_true(got.output[last] > 0 && got.output[last] < 1);
  }
  free(in_window), free(y), free(got.mass), free(got.output);
  problem_free(&p);
}

static void nothing_or_everything(void **state) {
  (void)state;
  static const struct {
    still_attention_kind kind;
    float share;
  } cases[] = {{STILL_ATTENTION_FULL, 0},
               {STILL_ATTENTION_SWA, 0},
               {STILL_ATTENTION_LIGER_GLA, 0},
               {STILL_ATTENTION_HEDGEHOG, 1}};
  for (size_t c = 0; c < CHECK_COUNT(cases); c++) {
    const still_attention_options o = small_options(cases[c].kind);
    problem p = problem_create(&o, 50, 3);
    const shares got = run_shares(&p, 1, 50);
    for (size_t i = 0; i < p.heads * p.n; i++)
      assert_true(got.mass[i] == cases[c].share && got.output[i] == cases[c].share);
    free(got.mass), free(got.output);
    problem_free(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(still_as_the_oracle),
      cmocka_unit_test(lolcats_as_the_oracle),
      cmocka_unit_test(nothing_or_everything),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
