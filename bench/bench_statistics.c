/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

#include <stdlib.h>
#include <time.h>

double bench_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t count, double share) {
  const double at = share * (double)(count - 1);
  const size_t low = (size_t)at;
  const double high = sorted[low + 1 < count ? low + 1 : low];
  return sorted[low] + (at - (double)low) * (high - sorted[low]);
}

bench_times bench_summary(double *seconds, size_t count) {
  qsort(seconds, count, sizeof *seconds, ascending);
  return (bench_times){quantile(seconds, count, 0.5), quantile(seconds, count, 0.1),
                       quantile(seconds, count, 0.9)};
}
