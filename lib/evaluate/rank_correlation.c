/* SPDX-License-Identifier: MIT */
#include "base/memory.h"
#include "evaluate/mechanism.h"

#include <math.h>
#include <stdlib.h>

typedef struct ranked {
  float value;
  size_t index;
} ranked;

static int by_value(const void *a, const void *b) {
  const float x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;
  return (x > y) - (x < y);
}

/* ranks[i]: 0 for the smallest; equal values have the mean of theirs. */
static void rank(const float *values, size_t count, ranked *sorted, double *ranks) {
  for (size_t i = 0; i < count; i++) sorted[i] = (ranked){values[i], i};
  qsort(sorted, count, sizeof *sorted, by_value);
  for (size_t first = 0, end; first < count; first = end) {
    for (end = first + 1; end < count && sorted[end].value == sorted[first].value;) end++;
    for (size_t i = first; i < end; i++) ranks[sorted[i].index] = (double)(first + end - 1) / 2;
  }
}

static double correlation(const double *a, const double *b, size_t count) {
  const double mean = (double)(count - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < count; i++) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : NAN;
}

still_status still_rank_correlation(const float *a, const float *b, size_t count, double *result) {
  ranked *sorted = NULL;
  double *ranks = NULL;
  *result = NAN;
  if (count < 2) return STILL_OK;
  still_status status = STILL_ALLOC(&sorted, count, "ranks");
  if (!status) status = STILL_ALLOC(&ranks, 2 * count, "ranks");
  if (!status) {
    rank(a, count, sorted, ranks);
    rank(b, count, sorted, ranks + count);
    *result = correlation(ranks, ranks + count, count);
  }
  still_free(sorted);
  still_free(ranks);
  return status;
}
