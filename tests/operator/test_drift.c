/* SPDX-License-Identifier: MIT
 * A million tokens, one after the other, through S and z in single precision, beside the same sums in float64: the
 * rounding errors must not add up. Argument: the number of tokens. */
#include "harness/check.h"

#include "base/memory.h"
#include "base/random.h"

#include <still/attention.h>

#include <math.h>
#include <stdlib.h>

enum { HEADS = 2, DIM = 16, FEATURES = 2 * DIM, CHUNK = 64, PIECE = 1000 };

/* Of the largest entry. A single sum of N positive numbers of 24 bits may be off by N / 2^25, which is 3 % here; sums of
 * chunks first, then of these, by N / C / 2^25, which is 5e-4. */
static const double bound = 5e-4;

static int64_t tokens = 1000000;

typedef struct sums {
  double s[HEADS][FEATURES][DIM], z[HEADS][FEATURES];
} sums;

/* phi of the paper: the softmax of u and -u, u being x A at the length of x. */
static void features(const float *x, const float *a, double *phi) {
  double u[DIM] = {0}, length = 0, projected = 0, total[2] = {0}, most = 0;
  for (int e = 0; e < DIM; e++)
    for (int d = 0; d < DIM; d++) u[e] += (double)x[d] * (double)a[d * DIM + e];
  for (int d = 0; d < DIM; d++) {
    length += (double)x[d] * (double)x[d];
    projected += u[d] * u[d];
  }
  const double scale = sqrt(length) / fmax(sqrt(projected), 1e-12);
  for (int d = 0; d < DIM; d++) most = fmax(most, fabs(u[d] *= scale));
  for (int d = 0; d < DIM; d++) {
    total[0] += phi[d] = exp(u[d] - most);
    total[1] += phi[DIM + d] = exp(-u[d] - most);
  }
  for (int f = 0; f < FEATURES; f++) phi[f] = fmax(phi[f] / total[f / DIM], 1e-12);
}

static void add(sums *sum, const float *k, const float *v, const float *a) {
  for (int h = 0; h < HEADS; h++) {
    double phi[FEATURES];
    features(k, a + h * DIM * DIM, phi);
    for (int f = 0; f < FEATURES; f++) {
      sum->z[h][f] += phi[f];
      for (int d = 0; d < DIM; d++) sum->s[h][f][d] += phi[f] * (double)v[d];
    }
  }
}

static double error(const float *got, const double *want, size_t count) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < count; i++) {
    const double off = fabs((double)got[i] - want[i]);
    if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
    if (fabs(want[i]) > largest) largest = fabs(want[i]);
  }
  return worst / largest;
}

/* constant: every token the same, so that every rounding errs to the same side. */
static void check_drift(const char *name, int constant, size_t piece) {
  static float k[PIECE * DIM], v[PIECE * DIM], y[HEADS * PIECE * DIM], q[HEADS * PIECE * DIM];
  static float a[HEADS * DIM * DIM];
  check_normal(a, HEADS * DIM * DIM, 1);
  check_normal(q, HEADS * PIECE * DIM, 2);
  still_attention_options options = STILL_ATTENTION_OPTIONS_INIT;
  options.heads = HEADS;
  options.kv_heads = 1;
  options.head_dim = DIM;
  options.chunk = CHUNK;
  options.schedule = STILL_SCHEDULE_FIXED; /* keeps none: all goes into the state */
  options.keep = 0;
  options.threads = 1;
  still_attention_weights weights = STILL_ATTENTION_WEIGHTS_INIT;
  weights.feature_q = weights.feature_k = a;
  still_attention_plan *plan;
  still_attention_cache *cache;
  check_ok(still_attention_plan_create(&plan, &options, &weights));
  check_ok(still_attention_cache_create(&cache, plan));
  static sums sum;
  sum = (sums){0};
  const uint64_t held = still_allocated_bytes();
  const int64_t routed =
      (tokens - 1) / CHUNK * CHUNK - CHUNK; /* chunk j, when chunk j + 2 begins */
  for (int64_t done = 0; done < tokens; done += (int64_t)piece) {
    if (!constant || !done) {
      check_normal(k, PIECE * DIM, (uint64_t)done + 3);
      check_normal(v, PIECE * DIM, (uint64_t)done + 4);
      for (size_t i = 0; constant && i < PIECE * DIM; i++) k[i] = k[i % DIM], v[i] = v[i % DIM];
    }
    still_attention_inputs inputs = STILL_ATTENTION_INPUTS_INIT;
    inputs.q = (still_rows){q, piece * DIM, DIM};
    inputs.k = (still_rows){k, piece * DIM, DIM};
    inputs.v = (still_rows){v, piece * DIM, DIM};
    check_ok(still_attention_forward(plan, cache, piece, &inputs, y, piece * DIM, DIM));
    for (size_t i = 0; i < piece && done + (int64_t)i < routed; i++)
      add(&sum, k + i * DIM, v + i * DIM, a);
  }
  assert_int_equal(still_allocated_bytes(), held);
  still_attention_usage usage;
  still_attention_cache_usage(cache, &usage);
  assert_int_equal(usage.linear_tokens, routed);
  double worst_s = 0, worst_z = 0;
  for (int h = 0; h < HEADS; h++) {
    float s[FEATURES * DIM], z[FEATURES];
    check_ok(still_attention_cache_state(cache, h, s, z));
    worst_s = fmax(worst_s, error(s, &sum.s[h][0][0], FEATURES * DIM));
    worst_z = fmax(worst_z, error(z, sum.z[h], FEATURES));
  }
  print_message("%s, %lld tokens: S off by %.2g, z by %.2g of the largest\n", name,
                (long long)tokens, worst_s, worst_z);
  assert_true(worst_s <= bound);
  assert_true(worst_z <= bound);
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
}

static void noise(void **state) {
  (void)state;
  check_drift("noise", 0, PIECE);
}

static void equal_tokens(void **state) {
  (void)state;
  check_drift("equal tokens", 1, PIECE);
}

static void token_by_token(void **state) {
  (void)state;
  check_drift("equal tokens, one by one", 1, 1);
}

int main(int argc, char **argv) {
  if (argc > 1) tokens = strtoll(argv[1], NULL, 10) / PIECE * PIECE;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(noise),
      cmocka_unit_test(equal_tokens),
      cmocka_unit_test(token_by_token),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
