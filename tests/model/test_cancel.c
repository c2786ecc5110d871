/* SPDX-License-Identifier: MIT
 * Cancelling from another thread: how long it takes on a model whose every layer takes seconds, and that nothing is lost
 * by it. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The promise is 50 ms; a busy machine or a sanitizer may take longer, and now and then much longer, so the median counts.
 * Between layers alone it would be seconds. */
enum { MOST_MILLISECONDS = 2500, ROUNDS = 5, LOADS = 4 * ROUNDS, BLOCK = 2048 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* 103 M parameters in 2 layers, all 0: it is the time that counts. */
static const char *large_gguf(void) {
  static const char *path;
  if (path) return path;
  made_model m = made_shape();
  m.heads = 32;
  m.kv_heads = 8;
  m.head_dim = 64;
  m.width = 2048;
  m.feed_forward = 6656;
  m.vocabulary = 512;
  m.context = 8192;
  float *zeros = calloc((size_t)m.width * (size_t)m.feed_forward, sizeof *zeros);
  assert_non_null(zeros);
  m.embedding = m.output_norm = zeros;
  for (int i = 0; i < m.layers; i++)
    m.layer[i] = (made_layer){.attention_norm = zeros,
                              .q = zeros,
                              .k = zeros,
                              .v = zeros,
                              .o = zeros,
                              .feed_norm = zeros,
                              .gate = zeros,
                              .up = zeros,
                              .down = zeros};
  path = made_gguf(&m, "large.gguf", STILL_TENSOR_F16);
  free(zeros);
  return path;
}

/* ---- the thread that cancels -------------------------------------------------------------------- */

typedef struct canceller {
  still_session *session; /* NULL: only the flag is set */
  int milliseconds;
  atomic_int said;
  double when;
  pthread_t thread;
} canceller;

static void *cancel_later(void *user) {
  canceller *c = user;
  const struct timespec wait = {c->milliseconds / 1000, c->milliseconds % 1000 * 1000000L};
  nanosleep(&wait, NULL);
  c->when = now();
  atomic_store(&c->said, 1);
  if (c->session) still_session_cancel(c->session);
  return NULL;
}

static void begin(canceller *c, still_session *session, int milliseconds) {
  *c = (canceller){.session = session, .milliseconds = milliseconds};
  assert_int_equal(pthread_create(&c->thread, NULL, cancel_later, c), 0);
}

/* Milliseconds from the wish to now. */
static double end(canceller *c) {
  const double returned = now();
  pthread_join(c->thread, NULL);
  return 1e3 * (returned - c->when);
}

static int flag_is_set(void *user, uint64_t done, uint64_t total) {
  canceller *c = user;
  (void)done;
  (void)total;
  return atomic_load(&c->said);
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void judge(const char *what, double *took, size_t count) {
  qsort(took, count, sizeof *took, compare);
  print_message("%s: cancelled within %.1f ms, %.1f at worst\n", what, took[count / 2],
                took[count - 1]);
  if (took[count / 2] > MOST_MILLISECONDS) fail_msg("%s: more than %d ms", what, MOST_MILLISECONDS);
}

/* ---- tests -------------------------------------------------------------------------------------- */

static void loading(void **state) {
  (void)state;
  const char *path = large_gguf();
  double took[LOADS];
  size_t cancelled = 0;
  for (int round = 0; round < LOADS; round++) {
    canceller c;
    still_model *model = NULL;
    still_model_options options = STILL_MODEL_OPTIONS_INIT;
    options.use_mmap = 0;
    options.progress = flag_is_set;
    options.progress_user = &c;
    begin(&c, NULL, 3 * round);
    const still_status status = still_model_open(&model, path, &options);
    const double now_took = end(&c);
    if (status == STILL_ERROR_CANCELLED) {
      took[cancelled++] = now_took;
    } else {
      check_ok(status); /* it was faster */
      still_model_destroy(model);
    }
  }
  assert_true(cancelled > 0);
  judge("load", took, cancelled);
}

static void reading(void **state) {
  (void)state;
  static const still_attention_kind kinds[] = {STILL_ATTENTION_FULL, STILL_ATTENTION_STILL};
  still_token ids[BLOCK];
  random_ids(ids, BLOCK, 512, 1);
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++) {
    still_session_options options = STILL_SESSION_OPTIONS_INIT;
    options.attention = kinds[k];
    options.block = BLOCK;
    model_run run = open_run(large_gguf(), &options);
    double took[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
      canceller c;
      begin(&c, run.session, 10 + 60 * round);
      check_fails(still_session_evaluate(run.session, ids, BLOCK, NULL, NULL),
                  STILL_ERROR_CANCELLED, "");
      took[round] = end(&c);
      assert_int_equal(still_session_position(run.session), 0);
    }
    judge(still_attention_kind_name(kinds[k]), took, ROUNDS);
    close_run(&run);
  }
}

static void answering(void **state) {
  (void)state;
  const still_token id = 3;
  model_run run = open_run(large_gguf(), NULL);
  double took[ROUNDS];
  int64_t position = 0;
  for (int round = 0; round < ROUNDS; round++) {
    canceller c;
    still_status status;
    begin(&c, run.session, 30 + 7 * round);
    while (!(status = still_session_evaluate(run.session, &id, 1, NULL, NULL))) {
      position++;
      if (atomic_load(&c.said)) break; /* it came between two tokens */
    }
    took[round] = end(&c);
    if (status) assert_int_equal(status, STILL_ERROR_CANCELLED);
    assert_int_equal(still_session_position(run.session), position);
  }
  judge("decode", took, ROUNDS);
  close_run(&run);
}

/* ---- nothing is lost ---------------------------------------------------------------------------- */

enum { VOCABULARY = 97 };

typedef struct countdown {
  int left;
} countdown;

static int stop_when_counted(void *user, uint64_t done, uint64_t total) {
  countdown *c = user;
  assert_true(done <= total);
  return c->left-- <= 0;
}

/* After evaluations of every size were stopped at every place, what follows is what it would have been: be it another
 * evaluation, a checkpoint, a roll-back, a file or the figures. */
static void check_stops(still_attention_kind kind, size_t n) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = kind;
  options.chunk = 8;
  options.budget = 40;
  options.window = 8;
  options.block = 16;
  options.context = 256;
  model_run run = open_run(small_gguf(), &options), control = open_run(small_gguf(), &options);
  still_token ids[300];
  random_ids(ids, CHECK_COUNT(ids), VOCABULARY, 5);
  still_checkpoint *checkpoint = NULL;
  int64_t at = 0;
  for (int round = 0; at + (int64_t)n <= 200; round++) {
    countdown c = {round};
    const still_status status =
        still_session_evaluate(run.session, ids + 50, n, stop_when_counted, &c);
    if (!status) break; /* more stops than places */
    assert_int_equal(status, STILL_ERROR_CANCELLED);
    still_session_usage a, b;
    switch (round % 5) {
    case 0:
      still_session_get_usage(run.session, &a);
      still_session_get_usage(control.session, &b);
      assert_memory_equal(&a, &b, sizeof a);
      break;
    case 1:
      check_ok(still_session_checkpoint(run.session, &checkpoint));
      check_ok(still_session_evaluate(run.session, ids, 3, NULL, NULL));
      c.left = 2;
      check_fails(still_session_evaluate(run.session, ids, n, stop_when_counted, &c),
                  STILL_ERROR_CANCELLED, "stopped");
      check_ok(still_session_rollback(run.session, checkpoint));
      still_checkpoint_destroy(checkpoint);
      break;
    case 2:
      check_ok(still_session_save(run.session, check_path("stopped"), NULL, NULL));
      check_ok(still_session_load(run.session, check_path("stopped"), NULL, NULL));
      break;
    case 3: /* going back can be stopped, too */
      c.left = 0;
      check_fails(still_session_evaluate(run.session, ids, n, stop_when_counted, &c),
                  STILL_ERROR_CANCELLED, "stopped");
      break;
    default: break;
    }
    const size_t next = round % 2 ? 1 : n;
    check_ok(still_session_evaluate(run.session, ids + at, next, NULL, NULL));
    check_ok(still_session_evaluate(control.session, ids + at, next, NULL, NULL));
    at += (int64_t)next;
    assert_int_equal(still_session_position(run.session), at);
    assert_memory_equal(still_session_logits(run.session), still_session_logits(control.session),
                        VOCABULARY * sizeof(float));
  }
  assert_true(at > 4 * (int64_t)n);
  close_run(&run);
  close_run(&control);
}

static void stops_leave_no_trace(void **state) {
  (void)state;
  static const still_attention_kind kinds[] = {STILL_ATTENTION_FULL, STILL_ATTENTION_SWA,
                                               STILL_ATTENTION_STILL, STILL_ATTENTION_LIGER_GLA};
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
    for (size_t n = 1; n <= 25; n += 12) check_stops(kinds[k], n);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loading),
      cmocka_unit_test(reading),
      cmocka_unit_test(answering),
      cmocka_unit_test(stops_leave_no_trace),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
