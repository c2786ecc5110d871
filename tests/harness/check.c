/* SPDX-License-Identifier: MIT
 * Results, memory and numbers. */
#include "harness/check.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void check_status_(still_status got, const char *call, const char *file, int line) {
  if (!got) return;
  print_error("%s: %s: %s\n", call, still_status_text(got), still_last_error());
  _fail(file, line);
}

void check_failure_(still_status got, still_status status, const char *text, const char *call,
                    const char *file, int line) {
  if (got == status && strstr(still_last_error(), text)) return;
  print_error("%s: got '%s' (%s), expected '%s' and a sentence with '%s'\n", call,
              still_status_text(got), got ? still_last_error() : "", still_status_text(status),
              text);
  _fail(file, line);
}

int check_nothing_allocated(void **state) {
  (void)state;
  if (!still_allocated_bytes()) return 0;
  print_error("the library still holds %llu bytes\n", (unsigned long long)still_allocated_bytes());
  return 1;
}

/* ---- failing allocations */

/* The allocation that finds 0 here fails; a negative number never gets there. */
static void *allocate_but_one(void *user, size_t bytes, size_t alignment) {
  atomic_long *countdown = user;
  void *block = NULL;
  if (!atomic_fetch_sub(countdown, 1)) return NULL;
  return posix_memalign(&block, alignment, bytes) ? NULL : block;
}

static void release(void *user, void *block, size_t bytes) {
  (void)user;
  (void)bytes;
  free(block);
}

size_t check_failing_allocations(check_scenario *scenario, void *user, bool may_succeed) {
  atomic_long countdown = -1;
  const still_allocator allocator = {allocate_but_one, release, &countdown};
  check_ok(still_set_allocator(&allocator));
  check_ok(scenario(user));
  const long total = -1 - atomic_load(&countdown);
  for (long i = 0; i < total; i++) {
    atomic_store(&countdown, i);
    const still_status status = scenario(user);
    if (status != STILL_ERROR_MEMORY && !(may_succeed && status == STILL_OK))
      fail_msg("allocation %ld of %ld fails: got '%s' (%s)", i, total, still_status_text(status),
               still_last_error());
    if (still_allocated_bytes())
      fail_msg("allocation %ld of %ld fails: %llu bytes leak", i, total,
               (unsigned long long)still_allocated_bytes());
  }
  check_ok(still_set_allocator(NULL));
  return (size_t)total;
}

/* ---- numbers */

double check_row_error(const float *got, const float *want, size_t rows, size_t columns) {
  double worst = 0;
  for (size_t r = 0; r < rows; r++, got += columns, want += columns) {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < columns; i++) {
      if (!isfinite(got[i]) || !isfinite(want[i])) return INFINITY;
      largest = fmax(largest, fabs((double)want[i]));
      difference = fmax(difference, fabs((double)got[i] - (double)want[i]));
    }
    worst = fmax(worst, difference / (largest > 0 ? largest : 1));
  }
  return worst;
}

void check_rows_close(const char *what, const float *got, const float *want, size_t rows,
                      size_t columns, double bound) {
  const double error = check_row_error(got, want, rows, columns);
  if (!(error <= bound))
    fail_msg("%s: error %.3g of the row's largest, bound %.3g", what, error, bound);
}

void check_normal(float *out, size_t n, uint64_t seed) {
  still_random random;
  still_random_seed(&random, seed);
  for (size_t i = 0; i < n; i++) out[i] = (float)still_random_normal(&random);
}
