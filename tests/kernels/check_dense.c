/* SPDX-License-Identifier: MIT
 * Norms, sums, rotation, activations. */
#include "check_kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

static void run_row_norms(check *c) {
  for (size_t dim = 1; dim < 300; dim += 1 + dim / 5) {
    const size_t rows = 1 + check_below(c, 6), x_row = dim + check_below(c, 4);
    check_case(c, "rows %zu dim %zu", rows, dim);
    const float *x = check_rough(c, rows * x_row, 1e15f);
    float *out = check_output(c, 1, rows, rows, sizeof *out);
    check_seal(c);
    c->kernels->row_norms(out, x, x_row, rows, dim);
    check_padding(c);
    for (size_t i = 0; i < rows; i++) {
      double sum = 0;
      for (size_t d = 0; d < dim; d++) sum += (double)x[i * x_row + d] * x[i * x_row + d];
      /* squares below 2^-149 vanish: dim of them are a norm of dim 2^-75 at most */
      check_close(c, "norm", i, 0, out[i], sqrt(sum),
                  sqrt(sum) * HALF_ULP * ((double)dim / 2 + 3) + (double)dim * 0x1p-74);
    }
  }
}

static void call_row_norms(const still_kernels *k, float *out, const float *in) {
  k->row_norms(out, in, 128, 64, 128);
}

static void run_column_sums(check *c) {
  for (size_t dim = 1; dim < 140; dim += 1 + dim / 5) {
    const size_t rows = 1 + check_below(c, 70), x_row = dim + check_below(c, 4);
    check_case(c, "rows %zu dim %zu", rows, dim);
    const float *x = check_rough(c, rows * x_row, 5), *before = check_floats(c, dim, -9, 9);
    float *out = check_output(c, 1, dim, dim, sizeof *out);
    memcpy(out, before, dim * sizeof *out);
    check_seal(c);
    c->kernels->column_sums(out, x, x_row, rows, dim);
    check_padding(c);
    for (size_t d = 0; d < dim; d++) {
      double sum = before[d], size = fabs(before[d]);
      for (size_t i = 0; i < rows; i++) sum += x[i * x_row + d], size += fabs(x[i * x_row + d]);
      check_close(c, "sum", 0, d, out[d], sum, size * HALF_ULP * (double)(rows + 1));
    }
  }
}

static void call_column_sums(const still_kernels *k, float *out, const float *in) {
  k->column_sums(out, in, 256, 64, 256);
}

static void run_scale_rows(check *c) {
  for (size_t dim = 1; dim < 140; dim += 1 + dim / 5) {
    const size_t rows = 1 + check_below(c, 9), x_row = dim + check_below(c, 4);
    check_case(c, "rows %zu dim %zu", rows, dim);
    const float *before = check_rough(c, rows * dim, 5), *factor = check_rough(c, rows, 2);
    float *x = check_output(c, rows, dim, x_row, sizeof *x);
    for (size_t i = 0; i < rows; i++) memcpy(x + i * x_row, before + i * dim, dim * sizeof *x);
    check_seal(c);
    c->kernels->scale_rows(x, x_row, factor, rows, dim);
    check_padding(c);
    for (size_t i = 0; i < rows; i++)
      for (size_t d = 0; d < dim; d++)
        check_close(c, "x", i, d, x[i * x_row + d], before[i * dim + d] * factor[i], 0);
  }
}

static void call_scale_rows(const still_kernels *k, float *out, const float *in) {
  k->scale_rows(out, 128, in, 64, 128);
}

static void run_rms_norm(check *c) {
  for (size_t dim = 1; dim < 700; dim += 1 + dim / 4) {
    const size_t rows = 1 + check_below(c, 5);
    const bool in_place = check_below(c, 2);
    check_case(c, "rows %zu dim %zu%s", rows, dim, in_place ? " in place" : "");
    const float *x = check_rough(c, rows * dim, 50), *weight = check_floats(c, dim, -2, 2);
    float *out = check_output(c, rows, dim, dim, sizeof *out);
    if (in_place) memcpy(out, x, rows * dim * sizeof *out);
    check_seal(c);
    c->kernels->rms_norm(out, in_place ? out : x, weight, 1e-5f, rows, dim);
    check_padding(c);
    for (size_t i = 0; i < rows; i++) {
      double sum = 0;
      for (size_t d = 0; d < dim; d++) sum += (double)x[i * dim + d] * x[i * dim + d];
      const double inverse = 1 / sqrt(sum / (double)dim + (double)1e-5f);
      for (size_t d = 0; d < dim; d++) {
        const double want = x[i * dim + d] * inverse * weight[d];
        check_close(c, "out", i, d, out[i * dim + d], want,
                    fabs(want) * HALF_ULP * ((double)dim / 2 + 8) + 0x1p-147);
      }
    }
  }
}

static void call_rms_norm(const still_kernels *k, float *out, const float *in) {
  k->rms_norm(out, in, in + 8192, 1e-5f, 8, 1024);
}

static void one_rotary(check *c, size_t rows, size_t heads, size_t dim, size_t half) {
  const size_t width = heads * dim, x_row = width + check_below(c, 5);
  check_case(c, "rows %zu heads %zu dim %zu half %zu", rows, heads, dim, half);
  const float *before = check_rough(c, rows * width, 3);
  const float *cosine = check_floats(c, rows * half, -1, 1),
              *sine = check_floats(c, rows * half, -1, 1);
  float *x = check_output(c, rows, width, x_row, sizeof *x);
  for (size_t i = 0; i < rows; i++) memcpy(x + i * x_row, before + i * width, width * sizeof *x);
  check_seal(c);
  c->kernels->rotary(x, x_row, cosine, sine, rows, heads, dim, half);
  check_padding(c);
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < width; j++) {
      const size_t d = j % dim;
      const float *old = before + i * width + j;
      double want = *old, bound = 0;
      if (d < 2 * half) {
        const size_t pair = d % half;
        const double own = (double)*old * cosine[i * half + pair];
        const double other = d < half ? -(double)old[half] * sine[i * half + pair]
                                      : (double)*(old - half) * sine[i * half + pair];
        want = own + other;
        bound = 3 * HALF_ULP * (fabs(own) + fabs(other)) + 0x1p-148;
      }
      check_close(c, "x", i, j, x[i * x_row + j], want, bound);
    }
}

static void run_rotary(check *c) {
  for (size_t half = 1; half < 70; half += 1 + half / 4)
    one_rotary(c, 1 + check_below(c, 4), 1 + check_below(c, 4), 2 * half + check_below(c, 2) * 3,
               half);
}

static void call_rotary(const still_kernels *k, float *out, const float *in) {
  k->rotary(out, 1024, in, in + 1024, 8, 8, 128, 64);
}

/* exp errs by 2 ulp, the sum and the division by one each. Where exp(-x) overflows the result is 0
 * or, beyond that, below FLT_MIN. */
static void check_activation(check *c, size_t n, const float *x, const float *up,
                             const float *out) {
  for (size_t i = 0; i < n; i++) {
    const double share = 1 / (1 + exp(-(double)x[i])), factor = up ? (double)x[i] * up[i] : 1;
    check_close(c, "out", 0, i, out[i], share * factor,
                fabs(factor) * (share * 10 * HALF_ULP + 2 * FLT_MIN) + 0x1p-148);
  }
}

static void run_swiglu(check *c) {
  for (size_t n = 1; n < 300; n += 1 + n / 6) {
    const size_t place = check_below(c, 3);
    check_case(c, "n %zu%s", n, place == 1 ? " out = gate" : place == 2 ? " out = up" : "");
    const float *gate = check_rough(c, n, n % 2 ? 9 : 200), *up = check_rough(c, n, 9);
    float *out = check_output(c, 1, n, n, sizeof *out);
    if (place) memcpy(out, place == 1 ? gate : up, n * sizeof *out);
    check_seal(c);
    c->kernels->swiglu(out, place == 1 ? out : gate, place == 2 ? out : up, n);
    check_padding(c);
    check_activation(c, n, gate, up, out);
  }
}

static void call_swiglu(const still_kernels *k, float *out, const float *in) {
  k->swiglu(out, in, in + 4096, 4096);
}

static void run_sigmoid(check *c) {
  for (size_t n = 1; n < 300; n += 1 + n / 6) {
    const bool in_place = check_below(c, 2);
    check_case(c, "n %zu%s", n, in_place ? " in place" : "");
    float *x = check_rough(c, n, n % 2 ? 9 : 200), *out = check_output(c, 1, n, n, sizeof *out);
    x[n / 2] = n % 3 ? INFINITY : -INFINITY;
    if (in_place) memcpy(out, x, n * sizeof *out);
    check_seal(c);
    c->kernels->sigmoid(out, in_place ? out : x, n);
    check_padding(c);
    check_activation(c, n, x, NULL, out);
  }
  check_case(c, "NaN");
  const float nan = NAN;
  float out;
  c->kernels->sigmoid(&out, &nan, 1);
  check_close(c, "out", 0, 0, out, NAN, 0);
}

static void call_sigmoid(const still_kernels *k, float *out, const float *in) {
  k->sigmoid(out, in, 4096);
}

static void run_add(check *c) {
  for (size_t n = 1; n < 100; n++) {
    check_case(c, "n %zu", n);
    const float *before = check_rough(c, n, 9), *y = check_rough(c, n, 9);
    float *x = check_output(c, 1, n, n, sizeof *x);
    memcpy(x, before, n * sizeof *x);
    check_seal(c);
    c->kernels->add(x, y, n);
    check_padding(c);
    for (size_t i = 0; i < n; i++) check_close(c, "x", 0, i, x[i], before[i] + y[i], 0);
  }
}

static void call_add(const still_kernels *k, float *out, const float *in) {
  k->add(out, in, 4096);
}

const check_test check_dense[] = {
    {"row_norms", run_row_norms, call_row_norms, 64 * 128 * 4, "B", NULL},
    {"column_sums", run_column_sums, call_column_sums, 64 * 256 * 4, "B", NULL},
    {"scale_rows", run_scale_rows, call_scale_rows, 64 * 128 * 4, "B", NULL},
    {"rms_norm", run_rms_norm, call_rms_norm, 8192, "value", NULL},
    {"rotary", run_rotary, call_rotary, 8192, "value", NULL},
    {"swiglu", run_swiglu, call_swiglu, 4096, "exp", NULL},
    {"sigmoid", run_sigmoid, call_sigmoid, 4096, "exp", NULL},
    {"add", run_add, call_add, 4096 * 4, "B", NULL},
    {0},
};
