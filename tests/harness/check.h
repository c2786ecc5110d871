/* SPDX-License-Identifier: MIT
 * What tests of every room share: CMocka, files that vanish, failing allocations, float comparison,
 * running programs. Everything here ends the running test by CMocka's means when it cannot do its
 * work.
 */
#ifndef STILL_TESTS_CHECK_H
#define STILL_TESTS_CHECK_H

#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define CHECK_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- results */

/* The call succeeds; otherwise the sentence is shown. */
#define check_ok(call) check_status_((call), #call, __FILE__, __LINE__)
/* The call fails with this status and a sentence that holds this text. */
#define check_fails(call, status, text)                                                            \
  check_failure_((call), (status), (text), #call, __FILE__, __LINE__)

void check_status_(still_status got, const char *call, const char *file, int line);
void check_failure_(still_status got, still_status status, const char *text, const char *call,
                    const char *file, int line);

/* For CMocka's group teardown: the library holds no memory any more. */
int check_nothing_allocated(void **state);

/* ---- files */

/* A path inside a folder of this process, which is removed with all that is in it at exit. The
 * string lives until then. name may hold '/': folders are made. */
const char *check_path(const char *name);
/* Writes a file at check_path(name) and returns that path. */
const char *check_file(const char *name, const void *data, size_t bytes);
/* The whole content, NUL-terminated, to be freed with free(). bytes may be NULL. */
char *check_read(const char *path, size_t *bytes);
/* A path below the shared folder beside the source tree (environment STILL_SHARED, set by Meson),
 * living until exit. Skips the test where it is absent. */
const char *check_shared(const char *name);

/* ---- memory */

/* Runs `scenario` once as it is (it must succeed), then again and again with the i-th allocation
 * failing, for every i. Each such run must return STILL_ERROR_MEMORY - or STILL_OK where
 * `may_succeed`, for code that can do without - and must free everything. The library must hold no
 * memory before. Returns the number of runs. */
typedef still_status check_scenario(void *user);
size_t check_failing_allocations(check_scenario *scenario, void *user, bool may_succeed);

/* ---- numbers */

/* The largest |got - want| of each row over that row's largest |want| (1 for a row of zeros), and
 * of these the largest. Not-a-number and infinity anywhere in got, or where want differs, give
 * infinity. */
double check_row_error(const float *got, const float *want, size_t rows, size_t columns);
/* Fails the test when that error is above the bound; `what` names it. */
void check_rows_close(const char *what, const float *got, const float *want, size_t rows,
                      size_t columns, double bound);
/* n values of a normal distribution, the same for the same seed. */
void check_normal(float *out, size_t n, uint64_t seed);

/* ---- programs */

typedef struct check_run_result {
  int code;          /* exit status, or -signal */
  char *out, *error; /* what it wrote, NUL-terminated */
  size_t out_bytes, error_bytes;
} check_run_result;

/* Runs argv (NULL-terminated, argv[0] a path or a name in PATH) with `input` (NULL: none) as its
 * standard input, for at most 60 seconds. environment: NULL, or NULL-terminated "NAME=value" that
 * are added. */
check_run_result check_run(const char *const *argv, const char *input,
                           const char *const *environment);
void check_run_free(check_run_result *result);

#endif
