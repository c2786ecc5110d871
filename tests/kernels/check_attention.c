/* SPDX-License-Identifier: MIT
 * The stages of attention. */
#include "check_kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* exp(x) by a kernel errs by 2 ulp of itself (portable: libm's; SIMD: vec_math.h states 1), and by
 * what its argument's roundings, each half an ulp of the argument's parts, do to it. */
static double exp_bound(double value, double argument_parts) {
  return value * HALF_ULP * (4 + 2 * argument_parts) + FLT_MIN;
}

typedef struct soft_row { /* what float64 says of one row */
  double max, sum, rescale, sum_bound;
} soft_row;

/* Columns begin .. end-1 of logits, after max and sum so far. */
static soft_row soft_reference(const float *s, int begin, int end, float scale, float max,
                               float sum) {
  soft_row r = {.max = max, .sum = sum, .rescale = 1};
  for (int j = begin; j < end; j++) r.max = larger(r.max, (double)scale * s[j]);
  if (r.max == -INFINITY) return r;
  r.rescale = exp(max - r.max);
  r.sum = sum * r.rescale;
  r.sum_bound = r.sum * 8 * HALF_ULP * (1 + fabs(r.max) + (isfinite(max) ? fabs(max) : 0));
  for (int j = begin; j < end; j++) {
    if (s[j] == -INFINITY) continue;
    const double e = exp((double)scale * s[j] - r.max);
    r.sum += e;
    r.sum_bound +=
        exp_bound(e, fabs(r.max) + fabs((double)scale * s[j])) + (end - begin) * HALF_ULP * e;
  }
  return r;
}

static void one_softmax(check *c, size_t rows, size_t columns, float size, bool with_begin) {
  const size_t s_row = columns + check_below(c, 9);
  const float scale = check_uniform(c, 0.05f, 0.3f);
  check_case(c, "rows %zu columns %zu size %g%s", rows, columns, size, with_begin ? " begin" : "");
  float *logits = check_floats(c, rows * columns, -size, size);
  int *begin = check_input(c, rows, sizeof *begin), *end = check_input(c, rows, sizeof *end);
  float *max = check_output(c, 1, rows, rows, sizeof *max),
        *sum = check_output(c, 1, rows, rows, sizeof *sum);
  float *rescale = check_output(c, 1, rows, rows, sizeof *rescale),
        *s = check_output(c, rows, columns, s_row, sizeof *s);
  float max_before[64], sum_before[64];
  for (size_t i = 0; i < rows; i++) {
    begin[i] = with_begin ? (int)check_below(c, columns + 1) : 0;
    end[i] = (int)check_below(c, columns + 1); /* before begin at times: an empty range */
    const bool seen = check_below(c, 3);
    max[i] = max_before[i] = seen ? check_uniform(c, -size, size) * scale : -INFINITY;
    sum[i] = sum_before[i] = seen ? check_uniform(c, 1, 50) : 0;
    float *row = logits + i * columns;
    if (check_below(c, 8) == 0)
      for (size_t j = 0; j < columns; j++) row[j] = -INFINITY;
    if (check_below(c, 4) == 0) row[check_below(c, columns)] = -INFINITY;
    memcpy(s + i * s_row, row, columns * sizeof *s);
    for (int j = 0; j < (int)columns; j++) /* what must not be looked at */
      if (j < begin[i] || j >= end[i]) s[i * s_row + (size_t)j] = NAN;
  }
  check_seal(c);
  c->kernels->softmax_rows(s, s_row, rows, columns, with_begin ? begin : NULL, end, scale, max, sum,
                           rescale);
  check_padding(c);
  for (size_t i = 0; i < rows; i++) {
    const float *row = logits + i * columns;
    const soft_row r = soft_reference(row, begin[i], end[i], scale, max_before[i], sum_before[i]);
    check_close(c, "max", i, 0, max[i], r.max, HALF_ULP * fabs(r.max));
    check_close(c, "sum", i, 0, sum[i], r.sum, r.sum_bound);
    if (max_before[i] > -INFINITY || r.max == -INFINITY)
      check_close(
          c, "rescale", i, 0, rescale[i], r.rescale,
          exp_bound(r.rescale, fabs(r.max) + (isfinite(max_before[i]) ? fabs(max_before[i]) : 0)));
    for (int j = 0; j < (int)columns; j++) {
      const bool in = j >= begin[i] && j < end[i] && row[j] > -INFINITY;
      const double want = in ? exp((double)scale * row[j] - r.max) : 0;
      check_close(c, "weight", i, (size_t)j, s[i * s_row + (size_t)j], want,
                  in ? exp_bound(want, fabs(r.max) + fabs(scale * row[j])) : 0);
    }
  }
}

/* exp itself, over all arguments that matter: a row whose maximum is 0, scale 1. */
static void check_exp(check *c) {
  enum { COLUMNS = 1000 };
  for (int round = 0; round < 40; round++) {
    check_case(c, "exp, round %d", round);
    float *s = check_output(c, 1, COLUMNS, COLUMNS, sizeof *s), x[COLUMNS], max = -INFINITY,
          sum = 0, rescale;
    check_fill(c, x, COLUMNS, round < 20 ? -1 : -110, 0);
    x[0] = 0;
    memcpy(s, x, sizeof x);
    const int end = COLUMNS;
    c->kernels->softmax_rows(s, COLUMNS, 1, COLUMNS, NULL, &end, 1, &max, &sum, &rescale);
    for (size_t j = 0; j < COLUMNS; j++)
      check_close(c, "exp", 0, j, s[j], exp(x[j]), exp(x[j]) * 2.2 * HALF_ULP + FLT_MIN);
  }
}

static void run_softmax_rows(check *c) {
  for (size_t columns = 1; columns < 80; columns += 1 + columns / 8)
    for (size_t rows = 1; rows < 20; rows += 3)
      one_softmax(c, rows, columns, 30, check_below(c, 2));
  one_softmax(c, 64, 32, 5, false);
  one_softmax(c, 33, 300, 1e5f, true); /* differences that overflow exp without the maximum */
  check_exp(c);
}

static void call_softmax_rows(const still_kernels *k, float *out, const float *in) {
  static int end[64];
  float max[64], sum[64] = {0}, rescale[64];
  memcpy(out, in, 64 * 128 * sizeof *out);
  for (int i = 0; i < 64; i++) end[i] = 65 + i, max[i] = -INFINITY;
  k->softmax_rows(out, 128, 64, 128, NULL, end, 0.125f, max, sum, rescale);
}

/* Spec section 2 as it is written, from weights e_j > 0 that may have any scale. */
static double saliency_reference(const double *e, int window) {
  const double eps = 1e-8;
  double all = 0, others = 0, score = 0;
  for (int j = 0; j < window; j++) all += e[j], others += j < window - 1 ? e[j] : 0;
  for (int j = 0; j < window; j++) {
    const double a = e[j] / all, b = j < window - 1 && others > 0 ? e[j] / others : 0;
    score += a * log((a + eps) / (b + eps));
  }
  return score;
}

static double saliency_bound(double score) {
  return 1e-5 * fabs(score) + 2e-6; /* the contract */
}

static void one_saliency(check *c, size_t rows, size_t columns, float size, bool own_high) {
  const size_t s_row = columns + check_below(c, 5);
  const float scale = 0.125f;
  check_case(c, "rows %zu columns %zu size %g%s", rows, columns, size, own_high ? " own high" : "");
  float *s = check_floats(c, rows * s_row, -size, size),
        *score = check_output(c, 1, rows, rows, sizeof *score);
  float *weights = check_floats(c, rows * s_row, 0, 0),
        *second = check_output(c, 1, rows, rows, sizeof *second);
  int *end = check_input(c, rows, sizeof *end), *window = check_input(c, rows, sizeof *window);
  for (size_t i = 0; i < rows; i++) {
    end[i] = 1 + (int)check_below(c, columns);
    window[i] = 1 + (int)check_below(c, (size_t)end[i]);
    if (own_high) s[i * s_row + (size_t)end[i] - 1] += check_uniform(c, 0, 25) / scale;
    for (int j = 0; j < end[i]; j++) /* as softmax_rows leaves them */
      weights[i * s_row + (size_t)j] = expf((s[i * s_row + (size_t)j] - size) * scale);
  }
  check_seal(c);
  c->kernels->saliency_rows(score, s, s_row, rows, end, window, scale);
  c->kernels->saliency_from_weights(second, weights, s_row, rows, end, window);
  check_padding(c);
  for (size_t i = 0; i < rows; i++) {
    double exact[600], rounded[600], max = -INFINITY, sum = 0;
    const size_t at = i * s_row + (size_t)(end[i] - window[i]);
    for (int j = 0; j < window[i]; j++) max = larger(max, s[at + (size_t)j]);
    for (int j = 0; j < window[i]; j++) {
      exact[j] = exp(((double)s[at + (size_t)j] - max) * scale);
      sum += rounded[j] = weights[at + (size_t)j];
    }
    double want = saliency_reference(exact, window[i]);
    check_close(c, "score", i, (size_t)window[i], score[i], want, saliency_bound(want));
    want = sum < 1e-20 ? NAN : saliency_reference(rounded, window[i]);
    check_close(c, "score from weights", i, (size_t)window[i], second[i], want,
                saliency_bound(want));
  }
}

static void run_saliency_rows(check *c) {
  for (size_t rows = 1; rows < 24; rows += 4) {
    one_saliency(c, rows, 1 + check_below(c, 70), 8, false);
    one_saliency(c, rows, 64, 40, true);
    one_saliency(c, rows, 127, 0, true);
  }
  one_saliency(c, 65, 500, 20, false);
}

/* The first token, one that dwarfs its window, and weights too small to use. */
static void run_saliency_from_weights(check *c) {
  run_saliency_rows(c);
  check_case(c, "window 1; own weight 1 among 1e-30; all 1e-25");
  float *w = check_floats(c, 3 * 40, 1e-30f, 1e-30f),
        *score = check_output(c, 1, 3, 3, sizeof *score);
  int *end = check_input(c, 3, sizeof *end), *window = check_input(c, 3, sizeof *window);
  for (int i = 0; i < 3; i++) end[i] = 40, window[i] = i ? 40 : 1;
  w[39] = w[79] = 1;
  for (int j = 80; j < 120; j++) w[j] = 1e-25f;
  check_seal(c);
  c->kernels->saliency_from_weights(score, w, 40, 3, end, window);
  check_padding(c);
  const double most = log((1 + 1e-8) / 1e-8);
  check_close(c, "score", 0, 0, score[0], most, 2e-6 * most);
  check_close(c, "score", 1, 0, score[1], most, 2e-6 * most);
  check_close(c, "score", 2, 0, score[2], NAN, 0);
}

static void call_saliency(const still_kernels *k, float *out, const float *in, bool from_weights) {
  static int end[64], window[64];
  for (int i = 0; i < 64; i++) end[i] = 65 + i, window[i] = 64;
  if (from_weights)
    k->saliency_from_weights(out, in, 128, 64, end, window);
  else
    k->saliency_rows(out, in, 128, 64, end, window, 0.125f);
}

static void call_saliency_rows(const still_kernels *k, float *out, const float *in) {
  call_saliency(k, out, in, false);
}

static void call_saliency_from_weights(const still_kernels *k, float *out, const float *in) {
  static float weights[64 * 128];
  if (!weights[0])
    for (int i = 0; i < 64 * 128; i++) weights[i] = in[i] + 1.5f;
  call_saliency(k, out, weights, true);
}

/* softmax(factor * x), floored, and how far a float kernel may be from it: the factor (a norm over
 * a norm) errs by dim/2 + 4 half ulps, which moves the argument's parts by that much; the sum adds
 * dim half ulps. */
static void check_softmax_of(check *c, const char *what, size_t row, const float *got,
                             const float *x, double factor, size_t dim, double floor, bool normed) {
  double max = -INFINITY, sum = 0, top = 0;
  for (size_t j = 0; j < dim; j++)
    max = larger(max, factor * x[j]), top = larger(top, fabs(factor * x[j]));
  for (size_t j = 0; j < dim; j++) sum += exp(factor * x[j] - max);
  for (size_t j = 0; j < dim; j++) {
    const double share = exp(factor * x[j] - max) / sum, want = larger(share, floor);
    const double argument = 2 * top * (normed ? (double)dim / 2 + 6 : 2);
    const double bound =
        share * HALF_ULP * (2 * argument + (double)dim + 12) + 2 * FLT_MIN + want * HALF_ULP;
    check_close(c, what, row, j, got[j], want, bound);
  }
}

static void one_feature(check *c, size_t rows, size_t dim, float size, bool normed) {
  const size_t y_row = dim + check_below(c, 4), out_row = 2 * dim + check_below(c, 4);
  check_case(c, "rows %zu dim %zu size %g%s", rows, dim, size, normed ? " norm" : "");
  float *y = check_floats(c, rows * y_row, -size, size),
        *out = check_output(c, rows, 2 * dim, out_row, sizeof *out);
  const float *norm = check_floats(c, rows, 0, 20);
  if (rows > 2) memset(y + y_row, 0, dim * sizeof *y); /* a zero row */
  check_seal(c);
  c->kernels->feature_rows(out, out_row, y, y_row, normed ? norm : NULL, rows, dim);
  check_padding(c);
  for (size_t i = 0; i < rows; i++) {
    const float *row = y + i * y_row;
    double own = 0;
    for (size_t j = 0; j < dim; j++) own += (double)row[j] * row[j];
    const double factor = normed ? norm[i] / larger(sqrt(own), 1e-12) : 1;
    check_softmax_of(c, "phi+", i, out + i * out_row, row, factor, dim, (double)1e-12f, normed);
    check_softmax_of(c, "phi-", i, out + i * out_row + dim, row, -factor, dim, (double)1e-12f,
                     normed);
  }
}

static void run_feature_rows(check *c) {
  for (size_t dim = 1; dim < 140; dim += 1 + dim / 5) {
    one_feature(c, 1 + check_below(c, 6), dim, 2, true);
    one_feature(c, 1 + check_below(c, 6), dim, 12, false);
  }
  one_feature(c, 5, 128, 1e-13f, true); /* below the smallest norm */
  one_feature(c, 5, 64, 1e4f, true);
}

static void call_feature_rows(const still_kernels *k, float *out, const float *in) {
  k->feature_rows(out, 256, in, 128, in + 64 * 128, 64, 128);
}

static void run_softmax_features(check *c) {
  for (size_t dim = 1; dim < 140; dim += 1 + dim / 5) {
    const size_t rows = 1 + check_below(c, 6), x_row = dim + check_below(c, 4),
                 out_row = dim + check_below(c, 4);
    check_case(c, "rows %zu dim %zu", rows, dim);
    const float *x = check_floats(c, rows * x_row, -90, 90);
    float *out = check_output(c, rows, dim, out_row, sizeof *out);
    check_seal(c);
    c->kernels->softmax_features(out, out_row, x, x_row, rows, dim);
    check_padding(c);
    for (size_t i = 0; i < rows; i++)
      check_softmax_of(c, "phi", i, out + i * out_row, x + i * x_row, 1, dim, 0, false);
  }
}

static void call_softmax_features(const still_kernels *k, float *out, const float *in) {
  k->softmax_features(out, 128, in, 128, 64, 128);
}

static void one_merge(check *c, size_t rows, size_t dim, bool linear, bool gated, bool empty) {
  check_case(c, "rows %zu dim %zu%s%s%s", rows, dim, linear ? " linear" : "", gated ? " gate" : "",
             empty ? " empty" : "");
  const size_t s_row = dim + check_below(c, 3), y_row = dim + check_below(c, 3);
  const float *part =
      empty ? check_floats(c, rows * s_row, 0, 0) : check_rough(c, rows * s_row, 40);
  const float *sum = check_floats(c, rows, empty ? 0 : 1, empty ? 0 : 90),
              *other = check_rough(c, rows * dim, 30);
  const float *gate = check_floats(c, rows * dim, 0, 1),
              *other_sum = check_floats(c, rows, 0.1f, 50);
  float *y = check_output(c, rows, dim, y_row, sizeof *y);
  check_seal(c);
  c->kernels->merge_rows(y, y_row, part, s_row, linear ? other : NULL, dim, gated ? gate : NULL,
                         dim, sum, linear ? other_sum : NULL, rows, dim);
  check_padding(c);
  for (size_t i = 0; i < rows; i++)
    for (size_t d = 0; d < dim; d++) {
      const double first = part[i * s_row + d];
      const double second =
          linear ? (double)other[i * dim + d] * (gated ? gate[i * dim + d] : 1) : 0;
      const double below = sum[i] + (linear ? (double)other_sum[i] : 0);
      const double want = below == 0 ? 0 : (first + second) / below;
      const double bound =
          below == 0 ? 0 : 6 * HALF_ULP * (fabs(first) + fabs(second)) / below + 0x1p-148;
      check_close(c, "y", i, d, y[i * y_row + d], want, bound);
    }
}

static void run_merge_rows(check *c) {
  for (size_t dim = 1; dim < 140; dim += 1 + dim / 5)
    for (int kind = 0; kind < 4; kind++)
      one_merge(c, 1 + check_below(c, 5), dim, kind & 1, kind & 2, false);
  one_merge(c, 3, 80, true, true, true); /* nothing in the softmax branch */
  one_merge(c, 3, 80, false, false, true);
}

static void call_merge_rows(const still_kernels *k, float *out, const float *in) {
  k->merge_rows(out, 128, in, 128, in + 8192, 128, in + 16384, 128, in + 24576, in + 24700, 64,
                128);
}

const check_test check_attention[] = {
    {"softmax_rows", run_softmax_rows, call_softmax_rows, 64 * 97, "exp", NULL},
    {"saliency_rows", run_saliency_rows, call_saliency_rows, 64 * 64, "exp", NULL},
    {"saliency_from_weights", run_saliency_from_weights, call_saliency_from_weights, 64 * 64,
     "weight", NULL},
    {"feature_rows", run_feature_rows, call_feature_rows, 64 * 256, "exp", NULL},
    {"softmax_features", run_softmax_features, call_softmax_features, 64 * 128, "exp", NULL},
    {"merge_rows", run_merge_rows, call_merge_rows, 64 * 128, "value", NULL},
    {0},
};
