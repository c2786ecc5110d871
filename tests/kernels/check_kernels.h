/* SPDX-License-Identifier: MIT
 * check_kernels: every kernel of one level against float64, on hostile buffers.
 *
 * A check builds its arrays here: each ends at an unmapped page (or begins after one, by chance),
 * so its pointers are aligned to an element at best and one byte too far is a signal; inputs are
 * sealed read-only; outputs are poisoned with 0xAA, and what a kernel should not touch of them must
 * still be poison. */
#ifndef STILL_TESTS_CHECK_KERNELS_H
#define STILL_TESTS_CHECK_KERNELS_H

#include "base/random.h"
#include "simd/kernels.h"

#include <stdbool.h>

enum { MOST_ARRAYS = 16 };

typedef struct check_array {
  unsigned char *map, *data;
  size_t map_bytes;                            /* without the unmapped page */
  size_t rows, row_bytes, stride_bytes, bytes; /* of an output; rows 0 for an input */
} check_array;

typedef struct check {
  const still_kernels *kernels, *portable;
  still_random random;
  check_array arrays[MOST_ARRAYS];
  int used;
  bool failed;
  char failure[400]; /* the first one */
  char shape[120];   /* of the case at work, for the failure's sentence */
} check;

/* A test of one kernel and, for --bench, one call of it on `in`, `out` (BENCH_FLOATS each, `in`
 * filled once with values in -1 .. 1) at a typical size; work = what one call does, in `unit`
 * (operations or bytes). */
enum { BENCH_FLOATS = 1 << 22 };
typedef struct check_test {
  const char *name;
  void (*run)(check *c); /* NULL: only for the bench */
  void (*call)(const still_kernels *kernels, float *out, const float *in);
  double work;
  const char *unit;
  bool (*has)(const still_kernels *kernels); /* for kernels that a level may lack; else NULL */
} check_test;

/* Each file's tests end with name NULL. */
extern const check_test check_products[], check_attention[], check_dense[], check_convert[],
    check_quantised[];

/* ---- arrays; released by check_case and at the end ---- */

/* Begins a case: releases the arrays of the last one and notes its shape, printf-like. */
void check_case(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An input of n items, to be filled and then sealed by check_seal. */
void *check_input(check *c, size_t n, size_t item_bytes);
/* An output of rows x columns items, rows `stride` items apart (>= columns), all poison. */
void *check_output(check *c, size_t rows, size_t columns, size_t stride, size_t item_bytes);
/* Before the call: inputs become read-only. */
void check_seal(check *c);
/* After the call: poison outside the outputs' rows is still there. */
void check_padding(check *c);

/* ---- values ---- */

size_t check_below(check *c, size_t bound);
float check_uniform(check *c, float low, float high);
void check_fill(check *c, float *x, size_t n, float low, float high);
/* A new sealed-to-be input of values in low .. high. */
float *check_floats(check *c, size_t n, float low, float high);
/* As check_floats, with runs of zeros, extremes, denormals, alternating signs among them. */
float *check_rough(check *c, size_t n, float size);

/* ---- comparisons; a failure is kept once, with the case's shape ---- */

void check_fail(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* |got - want| <= bound; infinities must be equal and NaN must meet NaN. */
void check_close(check *c, const char *what, size_t i, size_t j, double got, double want,
                 double bound);
void check_same_bits(check *c, const char *what, const void *got, const void *want, size_t bytes);

/* Instead of fmax, whose vector reductions crash gcc 12 for AArch64. */
static inline double larger(double a, double b) {
  return a > b ? a : b;
}

/* 2^-24: half a unit in the last place of 1. */
#define HALF_ULP 0x1p-24

#endif
