/* SPDX-License-Identifier: MIT
 * Quantised weights: each type decoded here value by value, from its definition. */
#include "check_kernels.h"

#include "simd/half.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* A value is scale * q + minimum, its parts rounded to float as the types' definition rounds them.
 */
typedef struct parts {
  float scale, minimum;
  int q;
} parts;

typedef struct weight_type {
  size_t items, bytes;
  size_t halves[2]; /* where the block's half floats lie */
  int half_count;
  parts (*value)(const uint8_t *block, size_t i);
  size_t matvec, pack, unpack; /* of the kernels, by offset in the table */
  size_t lanes, pack_lanes;    /* 0: the type has none */
} weight_type;

static float half_at(const uint8_t *at) {
  return still_f16_to_f32((uint16_t)(at[0] | at[1] << 8));
}

static int nibble(const uint8_t *pairs, size_t i) { /* 16 bytes of 32 values */
  return i < 16 ? pairs[i] & 15 : pairs[i - 16] >> 4;
}

static parts q8_0_value(const uint8_t *block, size_t i) {
  return (parts){half_at(block), 0, (int8_t)block[2 + i]};
}
static parts q4_0_value(const uint8_t *block, size_t i) {
  return (parts){half_at(block), 0, nibble(block + 2, i) - 8};
}
static parts q4_1_value(const uint8_t *block, size_t i) {
  return (parts){half_at(block), half_at(block + 2), nibble(block + 4, i)};
}

/* Scale and minimum of the j-th 32, of 6 bits each in 12 bytes. */
static parts k_parts(const uint8_t *block, size_t j) {
  const uint8_t *six = block + 4;
  const int scale = j < 4 ? six[j] % 64 : six[j + 4] % 16 + six[j - 4] / 64 * 16;
  const int minimum = j < 4 ? six[j + 4] % 64 : six[j + 4] / 16 + six[j] / 64 * 16;
  return (parts){half_at(block) * (float)scale, -(half_at(block + 2) * (float)minimum), 0};
}

static parts q4_k_value(const uint8_t *block, size_t i) {
  parts value = k_parts(block, i / 32);
  const uint8_t pair = block[16 + i / 64 * 32 + i % 32];
  value.q = i / 32 % 2 ? pair / 16 : pair % 16;
  return value;
}
static parts q5_k_value(const uint8_t *block, size_t i) {
  parts value = k_parts(block, i / 32);
  const uint8_t pair = block[48 + i / 64 * 32 + i % 32];
  value.q = (i / 32 % 2 ? pair / 16 : pair % 16) + (block[16 + i % 32] >> i / 32) % 2 * 16;
  return value;
}
static parts q6_k_value(const uint8_t *block, size_t i) {
  const size_t half = i / 128, k = i % 128 / 32;
  const uint8_t pair = block[half * 64 + k % 2 * 32 + i % 32];
  const int low = k < 2 ? pair % 16 : pair / 16,
            high = block[128 + half * 32 + i % 32] >> 2 * k & 3;
  return (parts){half_at(block + 208) * (float)(int8_t)block[192 + i / 16], 0,
                 low + high * 16 - 32};
}

#define NO_LANES(name) 0, 0
#define WITH_LANES(name)                                                                           \
  offsetof(still_kernels, lanes_##name), offsetof(still_kernels, pack_lanes_##name)
#define TYPE(name, with_lanes, items, bytes, count, ...)                                           \
  static const weight_type name = {items,                                                          \
                                   bytes,                                                          \
                                   {__VA_ARGS__},                                                  \
                                   count,                                                          \
                                   name##_value,                                                   \
                                   offsetof(still_kernels, matvec_##name),                         \
                                   offsetof(still_kernels, pack_##name),                           \
                                   offsetof(still_kernels, name##_to_f32),                         \
                                   with_lanes(name)};
TYPE(q8_0, NO_LANES, 32, 34, 1, 0)
TYPE(q4_0, WITH_LANES, 32, 18, 1, 0)
TYPE(q4_1, WITH_LANES, 32, 20, 2, 0, 2)
TYPE(q4_k, WITH_LANES, 256, 144, 2, 0, 2)
TYPE(q5_k, WITH_LANES, 256, 176, 2, 0, 2)
TYPE(q6_k, WITH_LANES, 256, 210, 1, 208)

static still_matvec *matvec_at(const still_kernels *kernels, size_t offset) {
  still_matvec *function;
  memcpy(&function, (const char *)kernels + offset, sizeof function);
  return function;
}

static still_matvec *matvec_of(const still_kernels *kernels, const weight_type *type) {
  return matvec_at(kernels, type->matvec);
}

/* NULL: the level has none of the type. */
static still_matvec *lanes_of(const still_kernels *kernels, const weight_type *type) {
  return type->lanes ? matvec_at(kernels, type->lanes) : NULL;
}

static still_pack *pack_at(const still_kernels *kernels, size_t offset) {
  still_pack *function;
  memcpy(&function, (const char *)kernels + offset, sizeof function);
  return function;
}

static still_unpack *unpack_of(const still_kernels *kernels, const weight_type *type) {
  still_unpack *function;
  memcpy(&function, (const char *)kernels + type->unpack, sizeof function);
  return function;
}

/* Random bits with half floats that are finite. */
static uint8_t *random_blocks(check *c, const weight_type *type, size_t blocks) {
  uint8_t *data = check_input(c, blocks, type->bytes);
  for (size_t b = 0; b < blocks; b++) {
    uint8_t *block = data + b * type->bytes;
    for (size_t i = 0; i < type->bytes; i++) block[i] = (uint8_t)still_random_u64(&c->random);
    for (int h = 0; h < type->half_count; h++) {
      const uint16_t bits = still_f32_to_f16(check_uniform(c, -0.1f, 0.1f));
      block[type->halves[h]] = (uint8_t)bits;
      block[type->halves[h] + 1] = (uint8_t)(bits >> 8);
    }
  }
  return data;
}

/* The same rows side by side. */
static uint8_t *side_by_side(check *c, const weight_type *type, const uint8_t *w, size_t rows,
                             size_t row_bytes) {
  const size_t groups = (rows + STILL_LANES - 1) / STILL_LANES;
  const size_t half = type->bytes % 4, words = type->bytes - half;
  const size_t first = half && !type->halves[0] ? half : 0; /* the half float comes first or last */
  uint8_t *out = check_input(c, groups * STILL_LANES, row_bytes);
  memset(out, 0, groups * STILL_LANES * row_bytes);
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < row_bytes; i++) {
      const size_t block = i / type->bytes, byte = i % type->bytes, lane = r % STILL_LANES;
      const size_t word = byte - first;
      const bool in_words = byte >= first && word < words;
      const size_t at = in_words ? word / 4 * 4 * STILL_LANES + lane * 4 + word % 4
                                 : STILL_LANES * words + lane * half + byte - type->halves[0];
      out[r / STILL_LANES * STILL_LANES * row_bytes + block * STILL_LANES * type->bytes + at] =
          w[r * row_bytes + i];
    }
  return out;
}

static void run_unpack(check *c, const weight_type *type) {
  for (size_t blocks = 1; blocks < 8; blocks++) {
    const size_t n = blocks * type->items;
    check_case(c, "n %zu", n);
    const uint8_t *data = random_blocks(c, type, blocks);
    float *out = check_output(c, 1, n, n, sizeof *out);
    check_seal(c);
    unpack_of(c->kernels, type)(out, data, n);
    check_padding(c);
    for (size_t i = 0; i < n; i++) {
      const parts p = type->value(data + i / type->items * type->bytes, i % type->items);
      check_close(c, "value", i / type->items, i % type->items, out[i],
                  p.scale * (float)p.q + p.minimum, 0);
    }
  }
}

/* What the largest activation of 32 becomes, at least. */
enum { MOST = 127 * 256 };

/* One row against float64. Activations as integers with a scale for each 32 err by at most half of
 * largest / MOST each, and each is multiplied by a weight's parts; all else is float
 * rounding, of some items / 8 sums of products. */
static void check_row(check *c, const weight_type *type, size_t r, double got, const uint8_t *row,
                      const float *x, size_t dim) {
  double sum = 0, bound = 0;
  for (size_t i = 0; i < dim; i += 32) {
    double largest = 0, size = 0, weights = 0;
    for (size_t j = i; j < i + 32; j++) {
      const parts p = type->value(row + j / type->items * type->bytes, j % type->items);
      sum += ((double)p.scale * p.q + (double)p.minimum) * x[j];
      const double weight = fabs((double)p.scale * p.q) + fabs((double)p.minimum);
      weights += weight;
      size += weight * fabs(x[j]);
      largest = larger(largest, fabs(x[j]));
    }
    bound += weights * largest / MOST * 0.51 + size * HALF_ULP * (double)(dim / 8 + 16) +
             weights * 0x1p-100;
  }
  check_close(c, "row", r, 0, got, sum, bound);
}

static still_integers row_of(const still_integers *x, size_t row, size_t dim) {
  const size_t scales = dim / 32;
  return (still_integers){x->values + row * dim, x->scales + row * scales, x->sums + row * scales,
                          x->totals + row * STILL_PART_TOTALS * scales};
}

/* Activations (rows x dim) as integers. */
static still_integers integers_of(check *c, const float *x, size_t rows, size_t dim) {
  const size_t scales = dim / 32;
  const still_integers out = {check_output(c, rows, dim, dim, sizeof(int16_t)),
                              check_output(c, rows, scales, scales, sizeof(float)),
                              check_output(c, rows, scales, scales, sizeof(float)),
                              check_output(c, rows, STILL_PART_TOTALS * scales,
                                           STILL_PART_TOTALS * scales, sizeof(int32_t))};
  for (size_t r = 0; r < rows; r++) {
    const still_integers row = row_of(&out, r, dim);
    c->kernels->to_integers(&row, x + r * dim, dim);
  }
  return out;
}

/* And with the rows side by side, of which the first ones alone give the same bits. */
static void one_lanes(check *c, const weight_type *type, const uint8_t *w, const float *x,
                      size_t rows, size_t dim) {
  still_matvec *const lanes = lanes_of(c->kernels, type);
  if (!lanes) return;
  const size_t row_bytes = dim / type->items * type->bytes, some = 1 + check_below(c, rows);
  const uint8_t *beside = side_by_side(c, type, w, rows, row_bytes);
  float *out = check_output(c, 1, rows, rows, sizeof *out);
  float *part = check_output(c, 1, some, some, sizeof *part);
  check_seal(c);
  const still_integers whole = integers_of(c, x, 1, dim);
  lanes(out, beside, &whole, rows, dim);
  lanes(part, beside, &whole, some, dim);
  check_padding(c);
  for (size_t r = 0; r < rows; r++) check_row(c, type, r, out[r], w + r * row_bytes, x, dim);
  check_same_bits(c, "the first rows side by side", part, out, some * sizeof *out);
}

static void one_matvec(check *c, const weight_type *type, size_t rows, size_t dim) {
  check_case(c, "rows %zu dim %zu", rows, dim);
  const size_t row_bytes = dim / type->items * type->bytes;
  const uint8_t *w = random_blocks(c, type, rows * dim / type->items);
  const float *x = check_rough(c, dim, 100);
  float *out = check_output(c, 1, rows, rows, sizeof *out);
  float *part = check_output(c, 1, rows, rows, sizeof *part);
  check_seal(c);
  const still_integers whole = integers_of(c, x, 1, dim);
  still_matvec *matvec = matvec_of(c->kernels, type);
  matvec(out, w, &whole, rows, dim);
  for (size_t r = 0; r < rows; r++) check_row(c, type, r, out[r], w + r * row_bytes, x, dim);
  const size_t first = check_below(c, rows); /* the same bits however rows are grouped */
  matvec(part, w, &whole, first + 1, dim);
  matvec(part + first, w + first * row_bytes, &whole, rows - first, dim);
  check_padding(c);
  check_same_bits(c, "rows in two parts", part, out, rows * sizeof *out);
  one_lanes(c, type, w, x, rows, dim);
}

/* Activations that are not finite may not come out as numbers. */
static void one_not_finite(check *c, const weight_type *type, float value) {
  check_case(c, "rows 1 dim %zu, x(20) %g", type->items, value);
  const uint8_t *w = random_blocks(c, type, 1);
  float *x = check_floats(c, type->items, 1, 2), *out = check_output(c, 1, 1, 1, sizeof *out);
  x[20] = value;
  check_seal(c);
  const still_integers whole = integers_of(c, x, 1, type->items);
  matvec_of(c->kernels, type)(out, w, &whole, 1, type->items);
  if (isfinite(*out)) check_fail(c, "the result is %g", *out);
  if (!lanes_of(c->kernels, type)) return;
  lanes_of(c->kernels, type)(out, side_by_side(c, type, w, 1, type->bytes), &whole, 1, type->items);
  if (isfinite(*out)) check_fail(c, "the result of rows side by side is %g", *out);
}

static void run_matvec(check *c, const weight_type *type) {
  const size_t most = type->items == 32 ? 90 : 12;
  for (size_t rows = 1; rows < 14; rows++)
    one_matvec(c, type, rows, type->items * (1 + check_below(c, most)));
  one_matvec(c, type, 35, type->items * (1 + check_below(c, most)));
  one_matvec(c, type, 9, 4096 + type->items); /* so wide that some levels take rows together */
  one_not_finite(c, type, NAN);
  one_not_finite(c, type, INFINITY);
}

/* Columns first .. first + depth - 1 of n rows of W with m rows of activations. */
static void one_panel(check *c, const weight_type *type, size_t m, size_t n, size_t depth,
                      bool lanes) {
  check_case(c, "m %zu n %zu depth %zu%s", m, n, depth, lanes ? ", rows side by side" : "");
  const size_t row_bytes = depth / type->items * type->bytes, c_row = n + check_below(c, 3);
  const uint8_t *w = random_blocks(c, type, n * depth / type->items);
  const uint8_t *from = lanes ? side_by_side(c, type, w, n, row_bytes) : w;
  const float *x = check_rough(c, m * depth, 100);
  still_panel *panel = check_output(c, 1, 1, 1, sizeof *panel);
  float *out = check_output(c, m, n, c_row, sizeof *out);
  float *row = check_output(c, 1, n, n, sizeof *row);
  check_seal(c);
  const still_integers whole = integers_of(c, x, m, depth);
  pack_at(c->kernels, lanes ? type->pack_lanes : type->pack)(panel, from, row_bytes, n, depth);
  c->kernels->matmul_panel(out, c_row, &whole, depth, 0, panel, m, n, depth, 0);
  check_padding(c);
  for (size_t i = 0; i < m; i++)
    for (size_t r = 0; r < n; r++)
      check_row(c, type, r, out[i * c_row + r], w + r * row_bytes, x + i * depth, depth);
  const size_t i = check_below(c, m); /* the same bits in any company, and twice that when added */
  const still_integers one = row_of(&whole, i, depth);
  c->kernels->matmul_panel(row, n, &one, depth, 0, panel, 1, n, depth, 0);
  check_same_bits(c, "one row", row, out + i * c_row, n * sizeof *row);
  c->kernels->matmul_panel(row, n, &one, depth, 0, panel, 1, n, depth, 1);
  for (size_t r = 0; r < n; r++) check_close(c, "added", i, r, row[r], 2 * out[i * c_row + r], 0);
}

static void run_panel(check *c, const weight_type *type) {
  const size_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 33, 48};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const size_t n = i % 4 == 3 ? STILL_PANEL_ROWS : 1 + check_below(c, STILL_PANEL_ROWS);
    const size_t depth = type->items * (1 + check_below(c, STILL_PANEL_DEPTH / type->items));
    one_panel(c, type, rows[i], n, depth, false);
    if (lanes_of(c->kernels, type)) one_panel(c, type, rows[i], n, depth, true);
  }
}

/* ---- pairs of bf16 ---- */

/* Half an ulp of a low (2^-18 of the value) on either side and the product of two lows (2^-18), and of
 * the sums of floats. */
static void check_pairs_row(check *c, size_t i, size_t r, double got, const float *x,
                            const float *w, size_t depth) {
  double sum = 0, size = 0;
  for (size_t p = 0; p < depth; p++) {
    sum += (double)x[p] * w[p];
    size += fabs((double)x[p] * w[p]);
  }
  const double bound = size * (3 * 0x1p-18 + HALF_ULP * (double)(depth + 16)) + 0x1p-100;
  check_close(c, "row", i, r, got, sum, bound);
}

static void one_pairs(check *c, size_t m, size_t n, size_t depth) {
  check_case(c, "m %zu n %zu depth %zu", m, n, depth);
  const size_t c_row = n + check_below(c, 3), x_row = depth + 32 * check_below(c, 3);
  const size_t first = x_row - depth, panels = (n + STILL_PANEL_ROWS - 1) / STILL_PANEL_ROWS;
  const float *w = check_rough(c, n * depth, 1), *x = check_rough(c, m * x_row, 100);
  const size_t across = x_row / STILL_PAIR_COLUMNS,
               down = (m + STILL_PAIR_ROWS - 1) / STILL_PAIR_ROWS;
  still_pair_tile *pairs = check_output(c, down, across, across, sizeof *pairs);
  still_pair_panel *panel = check_output(c, panels, 1, 1, sizeof *panel);
  float *out = check_output(c, m, n, c_row, sizeof *out);
  float *row = check_output(c, 1, n, n, sizeof *row);
  check_seal(c);
  for (size_t i = 0; i < m; i += STILL_PAIR_ROWS)
    c->kernels->to_pairs(pairs + i / STILL_PAIR_ROWS * across, x + i * x_row, x_row,
                         m - i < STILL_PAIR_ROWS ? m - i : STILL_PAIR_ROWS, x_row);
  for (size_t r = 0; r < n; r += STILL_PANEL_ROWS)
    c->kernels->pack_pairs(panel + r / STILL_PANEL_ROWS, w + r * depth, depth,
                           n - r < STILL_PANEL_ROWS ? n - r : STILL_PANEL_ROWS, depth);
  c->kernels->matmul_pairs(out, c_row, pairs, across, first, panel, m, n, depth, 0);
  check_padding(c);
  for (size_t i = 0; i < m; i++)
    for (size_t r = 0; r < n; r++)
      check_pairs_row(c, i, r, out[i * c_row + r], x + i * x_row + first, w + r * depth, depth);
  const size_t i = check_below(c, m); /* the same bits in any company, and twice that when added */
  still_pair_tile *one = check_output(c, 1, across, across, sizeof *one);
  c->kernels->to_pairs(one, x + i * x_row, x_row, 1, x_row);
  c->kernels->matmul_pairs(row, n, one, across, first, panel, 1, n, depth, 0);
  check_same_bits(c, "one row", row, out + i * c_row, n * sizeof *row);
  c->kernels->matmul_pairs(row, n, one, across, first, panel, 1, n, depth, 1);
  for (size_t r = 0; r < n; r++)
    check_pairs_row(c, i, r, row[r] / 2, x + i * x_row + first, w + r * depth, depth);
}

static void run_pairs(check *c) {
  for (size_t m = 1; m < 70; m += 1 + m / 4)
    one_pairs(c, m, m % 2 ? STILL_PANEL_ROWS : 1 + check_below(c, 3 * STILL_PANEL_ROWS),
              32 * (1 + check_below(c, STILL_PAIR_DEPTH / 32)));
}

enum { BENCH_DEPTH = 256, BENCH_ROWS = 504 };

/* A panel from the start of `in` with rows of integers that lie behind it: any bits will do. */
static void call_panel(const still_kernels *k, float *out, const float *in, still_pack *pack,
                       size_t row_bytes) {
  static still_panel panel;
  const still_integers x = {(int16_t *)(uintptr_t)(in + (1 << 16)), (float *)(uintptr_t)in,
                            (float *)(uintptr_t)in, (int32_t *)(uintptr_t)in};
  pack(&panel, in, row_bytes, STILL_PANEL_ROWS, BENCH_DEPTH);
  k->matmul_panel(out, STILL_PANEL_ROWS, &x, BENCH_DEPTH, 0, &panel, BENCH_ROWS, STILL_PANEL_ROWS,
                  BENCH_DEPTH, 0);
}

static void call_pairs(const still_kernels *k, float *out, const float *in) {
  static still_pair_panel panel;
  k->pack_pairs(&panel, in, BENCH_DEPTH, STILL_PANEL_ROWS, BENCH_DEPTH);
  k->matmul_pairs(out, STILL_PANEL_ROWS, (const still_pair_tile *)(in + (1 << 16)),
                  BENCH_DEPTH / STILL_PAIR_COLUMNS, 0, &panel, BENCH_ROWS, STILL_PANEL_ROWS,
                  BENCH_DEPTH, 0);
}

static bool has_pairs(const still_kernels *k) {
  return k->to_pairs && k->pack_pairs && k->matmul_pairs;
}

#define TEST(name)                                                                                 \
  static void run_matvec_##name(check *c) {                                                        \
    run_matvec(c, &name);                                                                          \
  }                                                                                                \
  static void run_##name##_to_f32(check *c) {                                                      \
    run_unpack(c, &name);                                                                          \
  }                                                                                                \
  static void call_matvec_##name(const still_kernels *k, float *out, const float *in) {            \
    const still_integers x = {(int16_t *)(uintptr_t)in, (float *)(uintptr_t)in,                    \
                              (float *)(uintptr_t)in, (int32_t *)(uintptr_t)in};                   \
    k->matvec_##name(out, in + 2048, &x, 1024, 2048);                                              \
  }                                                                                                \
  static void run_panel_##name(check *c) {                                                         \
    run_panel(c, &name);                                                                           \
  }                                                                                                \
  static void call_panel_##name(const still_kernels *k, float *out, const float *in) {             \
    call_panel(k, out, in, k->pack_##name, BENCH_DEPTH / name.items * name.bytes);                 \
  }                                                                                                \
  static void call_##name##_to_f32(const still_kernels *k, float *out, const float *in) {          \
    k->name##_to_f32(out, in, 4096);                                                               \
  }                                                                                                \
  static bool has_##name(const still_kernels *k) {                                                 \
    return k->matvec_##name && k->name##_to_f32;                                                   \
  }                                                                                                \
  static bool has_panel_##name(const still_kernels *k) {                                           \
    return k->pack_##name && k->matmul_panel;                                                      \
  }
#define LANES_TEST(name)                                                                           \
  static void call_lanes_##name(const still_kernels *k, float *out, const float *in) {             \
    const still_integers x = {(int16_t *)(uintptr_t)in, (float *)(uintptr_t)in,                    \
                              (float *)(uintptr_t)in, (int32_t *)(uintptr_t)in};                   \
    k->lanes_##name(out, in + 2048, &x, 1024, 2048);                                               \
  }                                                                                                \
  static bool has_lanes_##name(const still_kernels *k) {                                           \
    return k->lanes_##name;                                                                        \
  }
LANES_TEST(q4_0)
LANES_TEST(q4_1)
LANES_TEST(q4_k)
LANES_TEST(q5_k)
LANES_TEST(q6_k)
TEST(q8_0)
TEST(q4_0)
TEST(q4_1)
TEST(q4_k)
TEST(q5_k)
TEST(q6_k)

#define ROW(name, items, bytes)                                                                    \
  {"matvec_" #name, run_matvec_##name, call_matvec_##name, 1024. * 2048 / (items) * (bytes), "B",  \
   has_##name},                                                                                    \
      {"panel_" #name,                                                                             \
       run_panel_##name,                                                                           \
       call_panel_##name,                                                                          \
       2. * BENCH_ROWS * STILL_PANEL_ROWS * BENCH_DEPTH,                                           \
       "flop",                                                                                     \
       has_panel_##name},                                                                          \
  {                                                                                                \
#name "_to_f32", run_##name##_to_f32, call_##name##_to_f32, 4096, "value", has_##name          \
  }
/* Checked with the type's matvec. */
#define LANES_ROW(name, items, bytes)                                                              \
  {                                                                                                \
    "lanes_" #name, NULL, call_lanes_##name, 1024. * 2048 / (items) * (bytes), "B",                \
        has_lanes_##name                                                                           \
  }
const check_test check_quantised[] = {
    ROW(q8_0, 32, 34),
    ROW(q4_0, 32, 18),
    ROW(q4_1, 32, 20),
    ROW(q4_k, 256, 144),
    ROW(q5_k, 256, 176),
    ROW(q6_k, 256, 210),
    LANES_ROW(q4_0, 32, 18),
    LANES_ROW(q4_1, 32, 20),
    LANES_ROW(q4_k, 256, 144),
    LANES_ROW(q5_k, 256, 176),
    LANES_ROW(q6_k, 256, 210),
    {"matmul_pairs", run_pairs, call_pairs, 2. * BENCH_ROWS *STILL_PANEL_ROWS *BENCH_DEPTH, "flop",
     has_pairs},
    {0},
};
