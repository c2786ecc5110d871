/* SPDX-License-Identifier: MIT
 * Matrix products, packed keys, dot products, weight rows times a vector. */
#include "check_kernels.h"

#include "simd/half.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A sum of n rounded products, in any order, with or without fused multiplies: error <= (n + 2)
 * half ulps of the sum of magnitudes, plus the smallest denormal for each product that underflows.
 */
static double sum_bound(size_t n, double magnitudes) {
  return (double)(n + 2) * HALF_ULP * magnitudes * 1.001 + (double)n * 0x1p-149;
}

typedef struct product {
  size_t m, n, k, c_row, a_row, a_col, b_row;
  int accumulate;
  const float *a, *b, *before; /* before: C as it was */
} product;

static void check_product(check *c, const product *p, const float *out) {
  for (size_t i = 0; i < p->m; i++)
    for (size_t j = 0; j < p->n; j++) {
      double sum = 0, size = 0;
      for (size_t q = 0; q < p->k; q++) {
        const double term = (double)p->a[i * p->a_row + q * p->a_col] * p->b[q * p->b_row + j];
        sum += term;
        size += fabs(term);
      }
      if (p->accumulate) sum += p->before[i * p->n + j], size += fabs(p->before[i * p->n + j]);
      check_close(c, "C", i, j, out[i * p->c_row + j], sum, sum_bound(p->k, size));
    }
}

/* Any split of m and n gives the same bits. */
static void check_split(check *c, const product *p, const float *whole) {
  const size_t row = check_below(c, p->m), column = check_below(c, p->n);
  const size_t m = 1 + check_below(c, p->m - row), n = 1 + check_below(c, p->n - column);
  float *part = check_output(c, m, n, n, sizeof *part);
  for (size_t i = 0; i < m && p->accumulate; i++)
    memcpy(part + i * n, p->before + (row + i) * p->n + column, n * sizeof *part);
  c->kernels->matmul(part, n, p->a + row * p->a_row, p->a_row, p->a_col, p->b + column, p->b_row, m,
                     n, p->k, p->accumulate);
  check_padding(c);
  for (size_t i = 0; i < m; i++)
    check_same_bits(c, "a part of C", part + i * n, whole + (row + i) * p->c_row + column,
                    n * sizeof *part);
}

static void one_product(check *c, size_t m, size_t n, size_t k, bool rough) {
  const bool transposed = check_below(c, 2);
  product p = {.m = m, .n = n, .k = k, .accumulate = (int)check_below(c, 2)};
  p.c_row = n + check_below(c, 3);
  p.b_row = check_below(c, 4) ? n + check_below(c, 3) : n + 128;
  p.a_row = transposed ? 1 : k + check_below(c, 3);
  p.a_col = transposed ? m + check_below(c, 3) : 1;
  check_case(c, "m %zu n %zu k %zu%s%s b_row %zu%s", m, n, k, transposed ? " transposed" : "",
             p.accumulate ? " accumulate" : "", p.b_row, rough ? " rough" : "");
  const size_t a_size = (m - 1) * p.a_row + (k - 1) * p.a_col + 1, b_size = (k - 1) * p.b_row + n;
  p.a = rough ? check_rough(c, a_size, 0x1p40f) : check_floats(c, a_size, -1, 1);
  p.b = rough ? check_rough(c, b_size, 0x1p-20f) : check_floats(c, b_size, -1, 1);
  float *before = check_floats(c, m * n, -1, 1), *out = check_output(c, m, n, p.c_row, sizeof *out);
  p.before = before;
  for (size_t i = 0; i < m && p.accumulate; i++)
    memcpy(out + i * p.c_row, before + i * n, n * sizeof *out);
  check_seal(c);
  c->kernels->matmul(out, p.c_row, p.a, p.a_row, p.a_col, p.b, p.b_row, m, n, k, p.accumulate);
  check_padding(c);
  check_product(c, &p, out);
  check_split(c, &p, out);
}

static void check_matmul(check *c) {
  for (size_t m = 1; m <= 14; m++)
    one_product(c, m, 1 + check_below(c, 70), 1 + check_below(c, 40), false);
  for (size_t n = 1; n <= 68; n++)
    one_product(c, 1 + check_below(c, 30), n, 1 + check_below(c, 40), n % 3 == 0);
  for (size_t k = 1; k <= 400; k += 1 + k / 4)
    one_product(c, 1 + check_below(c, 60), 1 + check_below(c, 40), k, false);
  one_product(c, 64, 128, 128, false);
  one_product(c, 64, 32, 128, true);
  one_product(c, 50, 100, 129, true);
}

/* NaN and infinity reach exactly the elements they belong to. */
static void check_matmul_special(check *c) {
  const size_t m = 9, n = 37, k = 11;
  check_case(c, "m 9 n 37 k 11, NaN in A(4, 5), infinity in B(3, 20)");
  float *a = check_floats(c, m * k, 1, 2), *b = check_floats(c, k * n, 1, 2);
  a[4 * k + 5] = NAN;
  b[3 * n + 20] = INFINITY;
  float *out = check_output(c, m, n, n, sizeof *out);
  check_seal(c);
  c->kernels->matmul(out, n, a, k, 1, b, n, m, n, k, 0);
  for (size_t i = 0; i < m; i++)
    for (size_t j = 0; j < n; j++) {
      const bool right = i == 4    ? isnan(out[i * n + j])
                         : j == 20 ? isinf(out[i * n + j])
                                   : isfinite(out[i * n + j]);
      if (!right) check_fail(c, "C(%zu, %zu) is %g", i, j, out[i * n + j]);
    }
}

static void run_matmul(check *c) {
  check_matmul(c);
  check_matmul_special(c);
}

static void call_matmul(const still_kernels *k, float *out, const float *in) {
  k->matmul(out, 128, in, 128, 1, in + 64 * 128, 128, 64, 128, 128, 0);
}

/* Benches of the shapes that attention has: D = 128, F = 256, a chunk of 64 tokens. */
static void call_logits(const still_kernels *k, float *out, const float *in) {
  k->matmul(out, 32, in, 128, 1, in + 64 * 128, 32, 64, 32, 128, 0);
}
static void call_values(const still_kernels *k, float *out, const float *in) {
  k->matmul(out, 128, in, 32, 1, in + 64 * 32, 128, 64, 128, 32, 1);
}
static void call_state(const still_kernels *k, float *out, const float *in) {
  k->matmul(out, 128, in, 1, 256, in + 64 * 256, 128, 256, 128, 64, 1);
}
static void call_one_row(const still_kernels *k, float *out, const float *in) {
  k->matmul(out, 128, in, 256, 1, in + 256, 128, 1, 128, 256, 0);
}

static void run_pack_keys(check *c) {
  for (int round = 0; round < 30; round++) {
    const size_t dim = 1 + check_below(c, 70), n = 1 + check_below(c, 80),
                 first = check_below(c, 70);
    const size_t stride = dim + check_below(c, 5),
                 tiles = (first + n + STILL_KEY_TILE - 1) / STILL_KEY_TILE;
    check_case(c, "first %zu n %zu dim %zu", first, n, dim);
    const float *rows = check_floats(c, (n - 1) * stride + dim, -1, 1);
    const size_t size = tiles * STILL_KEY_TILE * dim;
    float *out = check_output(c, 1, size, size, sizeof *out);
    for (size_t i = 0; i < size; i++) out[i] = 7;
    check_seal(c);
    c->kernels->pack_keys(out, first, rows, stride, n, dim);
    check_padding(c);
    for (size_t slot = 0; slot < tiles * STILL_KEY_TILE; slot++)
      for (size_t d = 0; d < dim; d++) {
        const bool mine = slot >= first && slot < first + n;
        const float got = out[slot / STILL_KEY_TILE * STILL_KEY_TILE * dim + d * STILL_KEY_TILE +
                              slot % STILL_KEY_TILE];
        check_close(c, "key", slot, d, got, mine ? rows[(slot - first) * stride + d] : 7, 0);
      }
  }
}

static void call_pack_keys(const still_kernels *k, float *out, const float *in) {
  k->pack_keys(out, 0, in, 128, 64, 128);
}

static void check_dot_row(check *c, const char *what, size_t row, double got, const float *w,
                          const float *x, size_t n) {
  double sum = 0, size = 0;
  for (size_t i = 0; i < n; i++) sum += (double)w[i] * x[i], size += fabs((double)w[i] * x[i]);
  check_close(c, what, row, 0, got, sum, sum_bound(n, size));
}

static void run_dot(check *c) {
  for (size_t n = 1; n < 300; n += 1 + n / 9) {
    check_case(c, "n %zu", n);
    const float *a = check_rough(c, n, 1e10f), *b = check_rough(c, n, 3);
    check_seal(c);
    check_dot_row(c, "dot", 0, c->kernels->dot(a, b, n), a, b, n);
  }
}

static float dot_result;
static void call_dot(const still_kernels *k, float *out, const float *in) {
  (void)out;
  dot_result = k->dot(in, in + 1024, 1024);
}

typedef enum weight_kind { WEIGHT_F32, WEIGHT_F16, WEIGHT_BF16 } weight_kind;

/* Weights of a kind as an input, and their exact values. */
static void *random_weights(check *c, weight_kind kind, size_t items, float *exact) {
  float *wide = kind == WEIGHT_F32 ? check_input(c, items, sizeof *wide) : NULL;
  uint16_t *half = kind == WEIGHT_F32 ? NULL : check_input(c, items, sizeof *half);
  for (size_t i = 0; i < items; i++) {
    const float value = check_uniform(c, -2, 2);
    if (wide) exact[i] = wide[i] = value;
    if (kind == WEIGHT_F16) exact[i] = still_f16_to_f32(half[i] = still_f32_to_f16(value));
    if (kind == WEIGHT_BF16) exact[i] = still_bf16_to_f32(half[i] = still_f32_to_bf16(value));
  }
  return wide ? (void *)wide : half;
}

static void call_matvec(const still_kernels *k, weight_kind kind, float *out, const void *w,
                        const float *x, size_t rows, size_t dim) {
  switch (kind) {
  case WEIGHT_F32: k->matvec_f32(out, w, x, rows, dim); break;
  case WEIGHT_F16: k->matvec_f16(out, w, x, rows, dim); break;
  case WEIGHT_BF16: k->matvec_bf16(out, w, x, rows, dim); break;
  }
}

static void one_matvec(check *c, weight_kind kind, size_t rows, size_t dim) {
  static float exact[40 * 1001];
  check_case(c, "rows %zu dim %zu", rows, dim);
  const void *w = random_weights(c, kind, rows * dim, exact);
  const float *x = check_rough(c, dim, 100);
  float *out = check_output(c, 1, rows, rows, sizeof *out);
  float *part = check_output(c, 1, rows, rows, sizeof *part);
  check_seal(c);
  call_matvec(c->kernels, kind, out, w, x, rows, dim);
  for (size_t r = 0; r < rows; r++) check_dot_row(c, "row", r, out[r], exact + r * dim, x, dim);
  const size_t first = check_below(c, rows); /* the same bits however rows are grouped */
  const size_t skipped = first * dim * (kind == WEIGHT_F32 ? sizeof(float) : sizeof(uint16_t));
  call_matvec(c->kernels, kind, part, w, x, first + 1, dim);
  call_matvec(c->kernels, kind, part + first, (const char *)w + skipped, x, rows - first, dim);
  check_padding(c);
  check_same_bits(c, "rows in two parts", part, out, rows * sizeof *out);
}

static void run_matvec(check *c, weight_kind kind) {
  for (size_t rows = 1; rows < 14; rows++) one_matvec(c, kind, rows, 1 + check_below(c, 90));
  one_matvec(c, kind, 3, 1001);
  one_matvec(c, kind, 37, 576);
}

static void run_matvec_f32(check *c) {
  run_matvec(c, WEIGHT_F32);
}
static void run_matvec_f16(check *c) {
  run_matvec(c, WEIGHT_F16);
}
static void run_matvec_bf16(check *c) {
  run_matvec(c, WEIGHT_BF16);
}

static void call_matvec_f32(const still_kernels *k, float *out, const float *in) {
  k->matvec_f32(out, in + 2048, in, 1024, 2048);
}
static void call_matvec_f16(const still_kernels *k, float *out, const float *in) {
  k->matvec_f16(out, (const uint16_t *)(in + 2048), in, 1024, 2048);
}
static void call_matvec_bf16(const still_kernels *k, float *out, const float *in) {
  k->matvec_bf16(out, (const uint16_t *)(in + 2048), in, 1024, 2048);
}

const check_test check_products[] = {
    {"matmul", run_matmul, call_matmul, 2. * 64 * 128 * 128, "flop", NULL},
    {"matmul (logits)", NULL, call_logits, 2. * 64 * 32 * 128, "flop", NULL},
    {"matmul (values)", NULL, call_values, 2. * 64 * 128 * 32, "flop", NULL},
    {"matmul (state)", NULL, call_state, 2. * 256 * 128 * 64, "flop", NULL},
    {"matmul (one row)", NULL, call_one_row, 2. * 128 * 256, "flop", NULL},
    {"pack_keys", run_pack_keys, call_pack_keys, 64 * 128 * 4, "B", NULL},
    {"dot", run_dot, call_dot, 2 * 1024 * 4, "B", NULL},
    {"matvec_f32", run_matvec_f32, call_matvec_f32, 1024. * 2048 * 4, "B", NULL},
    {"matvec_f16", run_matvec_f16, call_matvec_f16, 1024. * 2048 * 2, "B", NULL},
    {"matvec_bf16", run_matvec_bf16, call_matvec_bf16, 1024. * 2048 * 2, "B", NULL},
    {0},
};
