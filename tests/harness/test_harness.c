/* SPDX-License-Identifier: MIT
 * The helpers themselves: that they notice what they are there to notice. */
#include "harness/check.h"

#include "base/memory.h"
#include "base/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_files(void **state) {
  (void)state;
  const char *path = check_file("a/b/c.txt", "hello", 5);
  size_t bytes;
  char *text = check_read(path, &bytes);
  assert_string_equal(text, "hello");
  assert_int_equal(bytes, 5);
  free(text);
}

static still_status two_blocks(void *user) {
  int *sum = user;
  int *a, *b;
  STILL_TRY(STILL_ALLOC(&a, 10, "a"));
  const still_status status = STILL_ALLOC(&b, 20, "b");
  if (!status) ++*sum;
  still_free(b);
  still_free(a);
  return status;
}

static int is_enough(void *user, uint64_t done, uint64_t total) {
  (void)done;
  (void)total;
  return ++*(int *)user == 3;
}

/* Zeroing a large block asks the call's progress; a small one does not. */
static void test_stopped_allocation(void **state) {
  (void)state;
  int asked = 0;
  still_progress progress = {.callback = is_enough, .user = &asked, .what = "zeroing"};
  char *block;
  still_progress_begin(&progress);
  check_ok(STILL_ALLOC(&block, 1 << 20, "a small block"));
  assert_int_equal(asked, 0);
  still_free(block);
  check_fails(STILL_ALLOC(&block, 64 << 20, "a large block"), STILL_ERROR_CANCELLED,
              "zeroing was stopped");
  still_progress_end(&progress);
  assert_null(block);
  assert_int_equal(asked, 3);
}

static void test_failing_allocations(void **state) {
  (void)state;
  int whole_runs = 0;
  assert_int_equal(check_failing_allocations(two_blocks, &whole_runs, false), 2);
  assert_int_equal(whole_runs, 1);
}

static void test_row_error(void **state) {
  (void)state;
  const float want[] = {1, -4, 0, 0}, close[] = {1, -3, 0, 0}, small[] = {1, -4, 0.5f, 0};
  const float bad[] = {1, NAN, 0, 0};
  assert_true(check_row_error(want, want, 2, 2) == 0);
  assert_true(check_row_error(close, want, 2, 2) == 0.25);
  assert_true(check_row_error(small, want, 2, 2) == 0.5);
  assert_true(isinf(check_row_error(bad, want, 2, 2)));
}

static void test_run(void **state) {
  (void)state;
  const char *const argv[] = {"sh", "-c", "cat; echo $WORD >&2; exit 3", NULL};
  const char *const environment[] = {"WORD=late", NULL};
  check_run_result result = check_run(argv, "early", environment);
  assert_int_equal(result.code, 3);
  assert_string_equal(result.out, "early");
  assert_string_equal(result.error, "late\n");
  check_run_free(&result);
  const char *const killed[] = {"sh", "-c", "kill -9 $$", NULL};
  result = check_run(killed, NULL, NULL);
  assert_int_equal(result.code, -9);
  check_run_free(&result);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_stopped_allocation),
      cmocka_unit_test(test_failing_allocations),
      cmocka_unit_test(test_row_error),
      cmocka_unit_test(test_run),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
