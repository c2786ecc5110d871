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
  size_t matvec, unpack; /* of the kernels, by offset in the table */
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

#define TYPE(name, items, bytes, count, ...)                                                       \
  static const weight_type name = {items,                                                          \
                                   bytes,                                                          \
                                   {__VA_ARGS__},                                                  \
                                   count,                                                          \
                                   name##_value,                                                   \
                                   offsetof(still_kernels, matvec_##name),                         \
                                   offsetof(still_kernels, name##_to_f32)};
TYPE(q8_0, 32, 34, 1, 0)
TYPE(q4_0, 32, 18, 1, 0)
TYPE(q4_1, 32, 20, 2, 0, 2)
TYPE(q4_k, 256, 144, 2, 0, 2)
TYPE(q5_k, 256, 176, 2, 0, 2)
TYPE(q6_k, 256, 210, 1, 208)

static still_matvec *matvec_of(const still_kernels *kernels, const weight_type *type) {
  still_matvec *function;
  memcpy(&function, (const char *)kernels + type->matvec, sizeof function);
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

/* One row against float64. Activations as 16-bit integers with a scale for each 32 err by at most
 * half of largest / 32767 each, and each is multiplied by a weight's parts; all else is float
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
    bound += weights * largest / 32767 * 0.51 + size * HALF_ULP * (double)(dim / 8 + 16) +
             weights * 0x1p-100;
  }
  check_close(c, "row", r, 0, got, sum, bound);
}

static void one_matvec(check *c, const weight_type *type, size_t rows, size_t dim) {
  check_case(c, "rows %zu dim %zu", rows, dim);
  const size_t row_bytes = dim / type->items * type->bytes;
  const uint8_t *w = random_blocks(c, type, rows * dim / type->items);
  const float *x = check_rough(c, dim, 100);
  float *out = check_output(c, 1, rows, rows, sizeof *out);
  float *part = check_output(c, 1, rows, rows, sizeof *part);
  check_seal(c);
  still_matvec *matvec = matvec_of(c->kernels, type);
  matvec(out, w, x, rows, dim);
  for (size_t r = 0; r < rows; r++) check_row(c, type, r, out[r], w + r * row_bytes, x, dim);
  const size_t first = check_below(c, rows); /* the same bits however rows are grouped */
  matvec(part, w, x, first + 1, dim);
  matvec(part + first, w + first * row_bytes, x, rows - first, dim);
  check_padding(c);
  check_same_bits(c, "rows in two parts", part, out, rows * sizeof *out);
}

/* Activations that are not finite may not come out as numbers. */
static void one_not_finite(check *c, const weight_type *type, float value) {
  check_case(c, "rows 1 dim %zu, x(20) %g", type->items, value);
  const uint8_t *w = random_blocks(c, type, 1);
  float *x = check_floats(c, type->items, 1, 2), *out = check_output(c, 1, 1, 1, sizeof *out);
  x[20] = value;
  check_seal(c);
  matvec_of(c->kernels, type)(out, w, x, 1, type->items);
  if (isfinite(*out)) check_fail(c, "the result is %g", *out);
}

static void run_matvec(check *c, const weight_type *type) {
  const size_t most = type->items == 32 ? 90 : 12;
  for (size_t rows = 1; rows < 14; rows++)
    one_matvec(c, type, rows, type->items * (1 + check_below(c, most)));
  one_matvec(c, type, 3, type->items == 32 ? 8992 : 9216); /* several spans of activations */
  one_not_finite(c, type, NAN);
  one_not_finite(c, type, INFINITY);
}

#define TEST(name)                                                                                 \
  static void run_matvec_##name(check *c) {                                                        \
    run_matvec(c, &name);                                                                          \
  }                                                                                                \
  static void run_##name##_to_f32(check *c) {                                                      \
    run_unpack(c, &name);                                                                          \
  }                                                                                                \
  static void call_matvec_##name(const still_kernels *k, float *out, const float *in) {            \
    k->matvec_##name(out, in + 2048, in, 1024, 2048);                                              \
  }                                                                                                \
  static void call_##name##_to_f32(const still_kernels *k, float *out, const float *in) {          \
    k->name##_to_f32(out, in, 4096);                                                               \
  }                                                                                                \
  static bool has_##name(const still_kernels *k) {                                                 \
    return k->matvec_##name && k->name##_to_f32;                                                   \
  }
TEST(q8_0)
TEST(q4_0)
TEST(q4_1)
TEST(q4_k)
TEST(q5_k)
TEST(q6_k)

#define ROW(name, items, bytes)                                                                    \
  {"matvec_" #name, run_matvec_##name, call_matvec_##name, 1024. * 2048 / (items) * (bytes), "B",  \
   has_##name},                                                                                    \
  {                                                                                                \
#name "_to_f32", run_##name##_to_f32, call_##name##_to_f32, 4096, "value", has_##name          \
  }
const check_test check_quantised[] = {
    ROW(q8_0, 32, 34),
    ROW(q4_0, 32, 18),
    ROW(q4_1, 32, 20),
    ROW(q4_k, 256, 144),
    ROW(q5_k, 256, 176),
    ROW(q6_k, 256, 210),
    {0},
};
