/* SPDX-License-Identifier: MIT
 * Every allocation may fail: the error comes back, and nothing is left behind. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scenario {
  still_session_options options;
  const char *model, *saved;
  still_token ids[60];
} scenario;

static void ignore_row(void *user, size_t index, const float *logits) {
  (void)user;
  (void)index;
  (void)logits;
}

/* Load, prefill, decode, checkpoint, roll back, save, load again, sample. */
static still_status use_session(const scenario *s, still_session *session,
                                still_checkpoint **checkpoint, still_sampler **sampler) {
  still_token token;
  const float *scores;
  int64_t first, tokens;
  STILL_TRY(still_session_record_scores(session, s->options.attention == STILL_ATTENTION_STILL));
  STILL_TRY(still_session_evaluate(session, s->ids, 40, NULL, NULL));
  STILL_TRY(still_session_checkpoint(session, checkpoint));
  STILL_TRY(still_session_evaluate(session, s->ids + 40, 1, NULL, NULL));
  STILL_TRY(still_session_evaluate_all(session, s->ids + 41, 9, ignore_row, NULL));
  STILL_TRY(still_session_rollback(session, *checkpoint));
  if (s->options.attention == STILL_ATTENTION_STILL)
    STILL_TRY(still_session_scores(session, 0, &scores, &first, &tokens));
  STILL_TRY(still_session_save(session, s->saved, NULL, NULL));
  STILL_TRY(still_session_load(session, s->saved, NULL, NULL));
  STILL_TRY(still_sampler_create(sampler, NULL));
  return still_sampler_sample(*sampler, still_session_logits(session), 97, &token);
}

static still_status run(void *user) {
  const scenario *s = user;
  still_model *model = NULL;
  still_session *session = NULL;
  still_checkpoint *checkpoint = NULL;
  still_sampler *sampler = NULL;
  still_session_usage usage;
  still_status status = still_model_open(&model, s->model, NULL);
  if (!status) status = still_session_estimate(model, &s->options, 50, &usage);
  if (!status) status = still_session_create(&session, model, &s->options);
  if (!status) status = use_session(s, session, &checkpoint, &sampler);
  still_checkpoint_destroy(checkpoint);
  still_sampler_destroy(sampler);
  still_session_destroy(session);
  still_model_destroy(model);
  return status;
}

static void check_kind(still_attention_kind kind) {
  scenario s = {
      .options = STILL_SESSION_OPTIONS_INIT, .model = small_gguf(), .saved = check_path("saved")};
  s.options.attention = kind;
  s.options.chunk = 8;
  s.options.budget = 40;
  s.options.context = 128;
  s.options.threads = 1;
  random_ids(s.ids, CHECK_COUNT(s.ids), 97, 1);
  const size_t runs = check_failing_allocations(run, &s, false);
  assert_true(runs > 100);
}

static void full(void **state) {
  (void)state;
  check_kind(STILL_ATTENTION_FULL);
}

static void still(void **state) {
  (void)state;
  check_kind(STILL_ATTENTION_STILL);
}

/* An allocation that fails within evaluate or load leaves the session as it was: it goes on with the same bits. */
typedef struct retry {
  still_session *session;
  const still_token *ids;
  long fail_at, count;
} retry;

static void *fail_once(void *user, size_t bytes, size_t alignment) {
  retry *r = user;
  void *block = NULL;
  if (r->count++ == r->fail_at) return NULL;
  return posix_memalign(&block, alignment, bytes) ? NULL : block;
}

static void release(void *user, void *block, size_t bytes) {
  (void)user;
  (void)bytes;
  free(block);
}

static void sessions_survive_failed_allocations(void **state) {
  (void)state;
  still_token ids[60];
  random_ids(ids, 60, 97, 1);
  const char *model_path = small_gguf();
  retry r = {.fail_at = -1};
  const still_allocator allocator = {fail_once, release, &r};
  check_ok(still_set_allocator(&allocator));
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  options.chunk = 8;
  options.budget = 40;
  options.context = 64;
  model_run first = open_run(model_path, &options), control = open_run(model_path, &options);
  check_ok(still_session_evaluate(first.session, ids, 30, NULL, NULL));
  check_ok(still_session_evaluate(control.session, ids, 30, NULL, NULL));
  check_ok(still_session_save(control.session, check_path("saved"), NULL, NULL));
  for (int which = 0; which < 3; which++)
    for (long i = 0;; i++) {
      r.count = 0;
      r.fail_at = i;
      const still_status status =
          which == 0   ? still_session_load(first.session, check_path("saved"), NULL, NULL)
          : which == 1 ? still_session_evaluate_all(first.session, ids, 20, ignore_row, NULL)
                       : still_session_save(first.session, check_path("saved"), NULL, NULL);
      const bool reached = r.count > i;
      r.fail_at = -1;
      if (status == STILL_OK && !reached) break;
      assert_int_equal(status, STILL_ERROR_MEMORY);
      assert_int_equal(still_session_position(first.session), which == 2 ? 50 : 30);
    }
  check_ok(still_session_evaluate(control.session, ids, 20, NULL, NULL));
  check_ok(still_session_evaluate(first.session, ids + 7, 1, NULL, NULL));
  check_ok(still_session_evaluate(control.session, ids + 7, 1, NULL, NULL));
  assert_memory_equal(still_session_logits(first.session), still_session_logits(control.session),
                      97 * sizeof(float));
  close_run(&first);
  close_run(&control);
  check_ok(still_set_allocator(NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(full),
      cmocka_unit_test(still),
      cmocka_unit_test(sessions_survive_failed_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
