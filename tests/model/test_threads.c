/* SPDX-License-Identifier: MIT
 * One model, many sessions, many threads: every session gives the bits that it gives alone, each thread has its own last
 * error, and only its own session is cancelled. Run under ThreadSanitizer, too (.ci/run). */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = 97, THREADS = 6, ROUNDS = 3, TOKENS = 150 };

typedef struct worker {
  const still_model *model;
  still_session_options options;
  still_token ids[TOKENS];
  float logits[VOCABULARY];
  char path[256];
  const char *failure; /* NULL: none */
  pthread_t thread;
} worker;

#define NEED(condition)                                                                            \
  do {                                                                                             \
    if (!(condition)) return #condition;                                                           \
  } while (0)

static const char *use(worker *w, still_session *session) {
  still_checkpoint *checkpoint;
  still_sampler *sampler;
  still_session_usage usage;
  still_token token;
  const still_token bad = VOCABULARY + (still_token)w->options.attention;
  char number[32];
  NEED(!still_session_evaluate(session, w->ids, 60, NULL, NULL));
  NEED(!still_session_checkpoint(session, &checkpoint));
  NEED(!still_session_evaluate(session, w->ids, 20, NULL, NULL));
  NEED(!still_session_rollback(session, checkpoint));
  still_checkpoint_destroy(checkpoint);
  NEED(still_session_evaluate(session, &bad, 1, NULL, NULL) == STILL_ERROR_ARGUMENT);
  for (int i = 60; i < 80; i++) NEED(!still_session_evaluate(session, w->ids + i, 1, NULL, NULL));
  NEED(!still_session_save(session, w->path, NULL, NULL));
  NEED(!still_session_load(session, w->path, NULL, NULL));
  NEED(!still_session_evaluate(session, w->ids + 80, TOKENS - 80, NULL, NULL));
  still_session_get_usage(session, &usage);
  NEED(usage.tokens == TOKENS);
  NEED(!still_sampler_create(&sampler, NULL));
  NEED(!still_sampler_sample(sampler, still_session_logits(session), VOCABULARY, &token));
  still_sampler_destroy(sampler);
  snprintf(number, sizeof number, "token 0 is %d", bad);
  NEED(strstr(still_last_error(), number)); /* nobody else's sentence */
  memcpy(w->logits, still_session_logits(session), sizeof w->logits);
  return NULL;
}

static void *work(void *user) {
  worker *w = user;
  for (int round = 0; round < ROUNDS && !w->failure; round++) {
    still_session *session;
    if (still_session_create(&session, w->model, &w->options)) {
      w->failure = "create";
      return NULL;
    }
    w->failure = use(w, session);
    still_session_destroy(session);
  }
  return NULL;
}

static worker prepare(const still_model *model, int number, const char *name) {
  static const still_attention_kind kinds[] = {STILL_ATTENTION_FULL, STILL_ATTENTION_STILL,
                                               STILL_ATTENTION_SWA, STILL_ATTENTION_LIGER_GLA};
  worker w = {.model = model, .options = STILL_SESSION_OPTIONS_INIT};
  w.options.attention = kinds[number % 4];
  w.options.chunk = 8;
  w.options.budget = 40;
  w.options.window = 16;
  w.options.context = 256;
  w.options.threads = 1 + number % 3;
  w.options.block = 16 + number;
  random_ids(w.ids, TOKENS, VOCABULARY, (uint64_t)number);
  snprintf(w.path, sizeof w.path, "%s", check_path(name));
  return w;
}

static void sessions_share_a_model(void **state) {
  (void)state;
  static worker together[THREADS], alone[THREADS];
  still_model *model;
  check_ok(still_model_open(&model, small_gguf(), NULL));
  for (int i = 0; i < THREADS; i++) {
    char name[32];
    snprintf(name, sizeof name, "together%d", i);
    together[i] = prepare(model, i, name);
    alone[i] = prepare(model, i, "alone");
    work(&alone[i]);
  }
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&together[i].thread, NULL, work, &together[i]), 0);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(together[i].thread, NULL);
    if (together[i].failure) fail_msg("thread %d: %s", i, together[i].failure);
    if (alone[i].failure) fail_msg("alone %d: %s", i, alone[i].failure);
    assert_memory_equal(together[i].logits, alone[i].logits, sizeof alone[i].logits);
  }
  still_model_destroy(model);
}

/* ---- one is cancelled, its neighbour is not ------------------------------------------------------ */

typedef struct victim {
  still_session *session;
  still_token ids[TOKENS];
  atomic_int finished;
  int evaluated, cancelled;
} victim;

static void *evaluate_again_and_again(void *user) {
  victim *v = user;
  for (int i = 0; i < 60; i++) {
    const still_status status = still_session_evaluate(v->session, v->ids, 1 + i % 40, NULL, NULL);
    v->evaluated += !status;
    v->cancelled += status == STILL_ERROR_CANCELLED;
  }
  atomic_store(&v->finished, 1);
  return NULL;
}

static void only_the_cancelled_session_stops(void **state) {
  (void)state;
  static victim victims[2];
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  options.chunk = 8;
  options.budget = 80;
  pthread_t threads[2];
  still_model *model;
  check_ok(still_model_open(&model, small_gguf(), NULL));
  for (int i = 0; i < 2; i++) {
    random_ids(victims[i].ids, TOKENS, VOCABULARY, 1);
    check_ok(still_session_create(&victims[i].session, model, &options));
    assert_int_equal(pthread_create(&threads[i], NULL, evaluate_again_and_again, &victims[i]), 0);
  }
  while (!atomic_load(&victims[0].finished)) still_session_cancel(victims[0].session);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  assert_int_equal(victims[0].evaluated + victims[0].cancelled, 60);
  assert_true(victims[0].cancelled > 0);
  assert_int_equal(victims[1].evaluated, 60);
  for (int i = 0; i < 2; i++) still_session_destroy(victims[i].session);
  still_model_destroy(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sessions_share_a_model),
      cmocka_unit_test(only_the_cancelled_session_stops),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
