/* SPDX-License-Identifier: MIT
 * Arrays against unmapped pages, fills and comparisons. */
#define _GNU_SOURCE
#include "check_kernels.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POISON = 0xAA };

static void release(check *c) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < c->used; i++)
    munmap(c->arrays[i].map - page, c->arrays[i].map_bytes + 2 * page);
  c->used = 0;
}

void check_case(check *c, const char *format, ...) {
  release(c);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(c->shape, sizeof c->shape, format, arguments);
  va_end(arguments);
}

/* `bytes` bytes, all poison, with an unmapped page right behind or right before them. */
static check_array *new_array(check *c, size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = (bytes + page) / page * page;
  if (c->used == MOST_ARRAYS) abort();
  unsigned char *map = mmap(NULL, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED || mprotect(map + page, inside, PROT_READ | PROT_WRITE)) {
    perror("check_kernels: mmap");
    exit(1);
  }
  check_array *array = &c->arrays[c->used++];
  *array = (check_array){.map = map + page, .map_bytes = inside, .bytes = bytes};
  array->data = array->map + (check_below(c, 4) ? inside - bytes : 0);
  memset(array->map, POISON, inside);
  return array;
}

void *check_input(check *c, size_t n, size_t item_bytes) {
  return new_array(c, n * item_bytes)->data;
}

void *check_output(check *c, size_t rows, size_t columns, size_t stride, size_t item_bytes) {
  check_array *array = new_array(c, ((rows - 1) * stride + columns) * item_bytes);
  array->rows = rows;
  array->row_bytes = columns * item_bytes;
  array->stride_bytes = stride * item_bytes;
  return array->data;
}

void check_seal(check *c) {
  for (int i = 0; i < c->used; i++)
    if (!c->arrays[i].rows) mprotect(c->arrays[i].map, c->arrays[i].map_bytes, PROT_READ);
}

void check_padding(check *c) {
  for (int i = 0; i < c->used; i++) {
    const check_array *a = &c->arrays[i];
    if (!a->rows) continue;
    const size_t start = (size_t)(a->data - a->map);
    for (size_t b = 0; b < a->map_bytes; b++) {
      const size_t at = b - start; /* wraps before the data: a large number */
      const size_t row = at / a->stride_bytes;
      const bool owned = at < a->bytes && row < a->rows && at % a->stride_bytes < a->row_bytes;
      if (owned || a->map[b] == POISON) continue;
      check_fail(c, "byte %td of output %d (%zu bytes) was overwritten", (ptrdiff_t)at, i,
                 a->bytes);
      return;
    }
  }
}

size_t check_below(check *c, size_t bound) {
  return (size_t)still_random_below(&c->random, bound);
}

float check_uniform(check *c, float low, float high) {
  return low + (high - low) * still_random_float(&c->random);
}

void check_fill(check *c, float *x, size_t n, float low, float high) {
  for (size_t i = 0; i < n; i++) x[i] = check_uniform(c, low, high);
}

float *check_floats(check *c, size_t n, float low, float high) {
  float *x = check_input(c, n, sizeof *x);
  check_fill(c, x, n, low, high);
  return x;
}

float *check_rough(check *c, size_t n, float size) {
  float *x = check_floats(c, n, -size, size);
  for (size_t i = 0; i < n;) {
    const size_t left = n - i, most = check_below(c, 24) + 1, run = left < most ? left : most;
    const size_t kind = check_below(c, 6);
    for (size_t j = i; j < i + run; j++) {
      if (kind == 0) x[j] = j & 1 ? -0.f : 0.f;
      if (kind == 1) x[j] = j & 1 ? -size : size;
      if (kind == 2) x[j] = 0x1p-140f * (float)(j % 7);
    }
    i += run;
  }
  return x;
}

void check_fail(check *c, const char *format, ...) {
  if (c->failed) return;
  c->failed = true;
  int n = snprintf(c->failure, sizeof c->failure, "%s: ", c->shape);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(c->failure + n, sizeof c->failure - (size_t)n, format, arguments);
  va_end(arguments);
}

void check_close(check *c, const char *what, size_t i, size_t j, double got, double want,
                 double bound) {
  const bool same = isnan(want) ? isnan(got) : got == want || fabs(got - want) <= bound;
  if (!same)
    check_fail(c, "%s(%zu, %zu) is %.9g, should be %.9g; error %.3g, bound %.3g", what, i, j, got,
               want, fabs(got - want), bound);
}

void check_same_bits(check *c, const char *what, const void *got, const void *want, size_t bytes) {
  const unsigned char *a = got, *b = want;
  size_t at = 0;
  while (at < bytes && a[at] == b[at]) at++;
  if (at < bytes) check_fail(c, "%s differs from byte %zu of %zu on", what, at, bytes);
}
