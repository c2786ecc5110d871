/* SPDX-License-Identifier: MIT
 * Files and a system that misbehave: reads that are short or interrupted, disks that are full at any byte, files that shrink.
 * Models and saved sessions either work or fail with a sentence, and a failed save leaves the old file. */
#define _GNU_SOURCE
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define MEMORY_SANITIZER
#endif
#endif

enum { VOCABULARY = 97 };

/* ---- a read() that is unwilling ------------------------------------------------------------------ */

static enum { WILLING, SHORT, INTERRUPTED, BROKEN, EMPTY_AFTER } mood;
static long reads, fail_at;

/* MemorySanitizer does not see what a bare system call writes. */
static void now_written(void *data, size_t bytes) {
#ifdef MEMORY_SANITIZER
  __msan_unpoison(data, bytes);
#endif
  (void)data, (void)bytes;
}

/* Takes the place of the C library's, for the library under test as well. */
ssize_t read(int handle, void *data, size_t bytes) {
  const long number = reads++;
  if (mood == SHORT && bytes > 7) bytes = 1 + (size_t)number % 7 * 97;
  if (mood == INTERRUPTED && number % 2 == 0) {
    errno = EINTR;
    return -1;
  }
  if (mood == BROKEN && number == fail_at) {
    errno = EIO;
    return -1;
  }
  if (mood == EMPTY_AFTER && number >= fail_at) return 0;
  const ssize_t got = (ssize_t)syscall(SYS_read, handle, data, bytes);
  if (got > 0) now_written(data, (size_t)got);
  return got;
}

static still_status open_small(still_model **model) {
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.use_mmap = 0;
  options.threads = 1;
  return still_model_open(model, small_gguf(), &options);
}

static void short_and_interrupted_reads(void **state) {
  (void)state;
  small_gguf();
  for (int which = 0; which < 2; which++) {
    still_model *model;
    mood = which ? INTERRUPTED : SHORT;
    reads = 0;
    const still_status status = open_small(&model);
    mood = WILLING;
    check_ok(status);
    assert_true(reads > 1);
    still_model_destroy(model);
  }
}

static void failing_reads_are_told(void **state) {
  (void)state;
  still_model *model;
  for (int which = 0; which < 2; which++)
    for (fail_at = 0;; fail_at++) {
      mood = which ? EMPTY_AFTER : BROKEN;
      reads = 0;
      const still_status status = open_small(&model);
      mood = WILLING;
      if (!status) {
        still_model_destroy(model);
        assert_true(fail_at > 0);
        break;
      }
      assert_int_equal(status, STILL_ERROR_FILE);
      assert_non_null(strstr(still_last_error(), which ? "shrank" : "Input/output error"));
    }
}

/* ---- disks that are full ------------------------------------------------------------------------- */

/* The limit of a file's size fails a write as a full disk does, at any byte. */
static void limit_files(rlim_t bytes) {
  struct rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void full_disks(void **state) {
  (void)state;
  signal(SIGXFSZ, SIG_IGN);
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  options.chunk = 8;
  options.budget = 72;
  still_token ids[60];
  random_ids(ids, 60, VOCABULARY, 1);
  model_run run = open_run(small_gguf(), &options);
  const char *path = check_path("full/session");
  check_ok(still_session_evaluate(run.session, ids, 30, NULL, NULL));
  check_ok(still_session_save(run.session, path, NULL, NULL));
  size_t bytes;
  char *old = check_read(path, &bytes);
  check_ok(still_session_evaluate(run.session, ids + 30, 30, NULL, NULL));
  int failures = 0;
  for (rlim_t most = 0;; most += 1 + most / 3) {
    limit_files(most);
    const still_status status = still_session_save(run.session, path, NULL, NULL);
    limit_files(RLIM_INFINITY);
    if (!status) break;
    failures++;
    assert_int_equal(status, STILL_ERROR_FILE);
    assert_non_null(strstr(still_last_error(), "File too large"));
    size_t now;
    char *left = check_read(path, &now);
    assert_int_equal(now, bytes);
    assert_memory_equal(left, old, bytes);
    free(left);
    assert_int_equal(still_session_position(run.session), 60);
  }
  assert_true(failures > 20);
  check_ok(still_session_load(run.session, path, NULL, NULL));
  assert_int_equal(still_session_position(run.session), 60);
  free(old);
  close_run(&run);
}

/* ---- files that shrink ---------------------------------------------------------- */

static void cut(const char *path, off_t bytes) {
  assert_int_equal(truncate(path, bytes), 0);
}

static const char *copy_of_model(const char *name) {
  size_t bytes;
  char *data = check_read(small_gguf(), &bytes);
  const char *path = check_file(name, data, bytes);
  free(data);
  return path;
}

/* Read into memory, a model does not care. */
static void a_read_model_survives(void **state) {
  (void)state;
  const char *path = copy_of_model("shrinks.gguf");
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.use_mmap = 0;
  still_model *model;
  still_session *session;
  const still_token id = 5;
  check_ok(still_model_open(&model, path, &options));
  cut(path, 100);
  check_ok(still_session_create(&session, model, NULL));
  check_ok(still_session_evaluate(session, &id, 1, NULL, NULL));
  still_session_destroy(session);
  still_model_destroy(model);
}

/* Mapped, the system ends the process: what model.h says of use_mmap. Anything but SIGBUS would be news. */
static void a_mapped_model_is_a_promise(void **state) {
  (void)state;
  const char *path = copy_of_model("mapped.gguf");
  const pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    still_model *model;
    still_session *session;
    const still_token id = 5;
    signal(SIGBUS, SIG_DFL);
    if (still_model_open(&model, path, NULL) || truncate(path, 100) ||
        still_session_create(&session, model, NULL))
      _exit(1);
    _exit(still_session_evaluate(session, &id, 1, NULL, NULL) ? 2 : 3);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(short_and_interrupted_reads),
      cmocka_unit_test(failing_reads_are_told),
      cmocka_unit_test(full_disks),
      cmocka_unit_test(a_read_model_survives),
      cmocka_unit_test(a_mapped_model_is_a_promise),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
