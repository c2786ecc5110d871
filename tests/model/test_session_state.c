/* SPDX-License-Identifier: MIT
 * Sessions in files and checkpoints: the continuation is bit for bit the same, and what is damaged changes nothing. */
#include "base/random.h"
#include "harness/check.h"
#include "model/model_fixtures.h"
#include "model/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = 97, CHUNK = 8, NEXT = 16 };

static still_session_options kind_options(still_attention_kind kind) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = kind;
  options.chunk = CHUNK;
  options.budget = 40;
  options.context = 256;
  options.window = CHUNK;
  options.sinks = 2;
  return options;
}
static const still_attention_kind kinds[] = {STILL_ATTENTION_FULL, STILL_ATTENTION_SWA,
                                             STILL_ATTENTION_STILL, STILL_ATTENTION_LIGER_GLA};

static void feed(still_session *session, const still_token *ids, size_t n) {
  check_ok(still_session_evaluate(session, ids, n, NULL, NULL));
}

/* Both sessions answer the same to the same next tokens. */
static void check_same_future(still_session *a, still_session *b, const still_token *ids) {
  assert_int_equal(still_session_position(a), still_session_position(b));
  for (int i = 0; i < NEXT; i++) {
    feed(a, ids + i, 1);
    feed(b, ids + i, 1);
    assert_memory_equal(still_session_logits(a), still_session_logits(b),
                        VOCABULARY * sizeof(float));
  }
}

/* ---- files -------------------------------------------------------------------------------------- */

static void saved_and_loaded_goes_on_the_same(void **state) {
  (void)state;
  static const size_t lengths[] = {1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3, 100};
  still_token ids[100 + NEXT];
  random_ids(ids, CHECK_COUNT(ids), VOCABULARY, 3);
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
    for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
      const still_session_options options = kind_options(kinds[k]);
      model_run run = open_run(small_gguf(), &options);
      still_session *loaded;
      feed(run.session, ids, lengths[i]);
      check_ok(still_session_save(run.session, check_path("session"), NULL, NULL));
      check_ok(still_session_create(&loaded, run.model, &options));
      feed(loaded, ids + 7, 13); /* what is there is replaced */
      check_ok(still_session_load(loaded, check_path("session"), NULL, NULL));
      assert_memory_equal(still_session_tokens(loaded), ids, lengths[i] * sizeof *ids);
      assert_memory_equal(still_session_logits(loaded), still_session_logits(run.session),
                          VOCABULARY * sizeof(float));
      check_same_future(run.session, loaded, ids + 100);
      still_session_destroy(loaded);
      close_run(&run);
    }
}

static void threads_do_not_matter_to_a_file(void **state) {
  (void)state;
  still_session_options options = kind_options(STILL_ATTENTION_STILL);
  still_token ids[90 + NEXT];
  random_ids(ids, CHECK_COUNT(ids), VOCABULARY, 3);
  options.threads = 1;
  model_run run = open_run(small_gguf(), &options);
  feed(run.session, ids, 90);
  check_ok(still_session_save(run.session, check_path("session"), NULL, NULL));
  options.threads = 3;
  still_session *loaded;
  check_ok(still_session_create(&loaded, run.model, &options));
  check_ok(still_session_load(loaded, check_path("session"), NULL, NULL));
  check_same_future(run.session, loaded, ids + 90);
  still_session_destroy(loaded);
  close_run(&run);
}

static void empty_session_can_be_saved(void **state) {
  (void)state;
  still_token ids[NEXT];
  random_ids(ids, NEXT, VOCABULARY, 3);
  model_run run = open_run(small_gguf(), NULL), other = open_run(small_gguf(), NULL);
  check_ok(still_session_save(run.session, check_path("empty"), NULL, NULL));
  feed(other.session, ids, 5);
  check_ok(still_session_load(other.session, check_path("empty"), NULL, NULL));
  assert_null(still_session_logits(other.session));
  check_same_future(run.session, other.session, ids);
  close_run(&run);
  close_run(&other);
}

static void damaged_file_leaves_the_old_state(void **state) {
  (void)state;
  still_token ids[40 + NEXT];
  random_ids(ids, CHECK_COUNT(ids), VOCABULARY, 3);
  const still_session_options options = kind_options(STILL_ATTENTION_STILL);
  model_run run = open_run(small_gguf(), &options), control = open_run(small_gguf(), &options);
  feed(run.session, ids, 40);
  check_ok(still_session_save(run.session, check_path("whole"), NULL, NULL));
  still_session_reset(run.session);
  feed(run.session, ids, 21);
  feed(control.session, ids, 21);
  size_t bytes;
  char *data = check_read(check_path("whole"), &bytes);
  still_random random;
  still_random_seed(&random, 9);
  for (int i = 0; i < 200; i++) {
    const size_t at = i < 40 ? (size_t)i * 8 : still_random_below(&random, bytes);
    data[at] ^= 0x10;
    const still_status status = still_session_load_bytes(run.session, data, bytes);
    if (status != STILL_ERROR_FORMAT && status != STILL_ERROR_UNSUPPORTED)
      fail_msg("byte %zu of %zu: got '%s'", at, bytes, still_status_text(status));
    data[at] ^= 0x10;
  }
  for (size_t left = 0; left < bytes; left += bytes / 50)
    check_fails(still_session_load_bytes(run.session, data, left), STILL_ERROR_FORMAT,
                "session file");
  check_same_future(run.session, control.session, ids + 40);
  check_ok(still_session_load_bytes(run.session, data, bytes)); /* it was the damage */
  free(data);
  close_run(&run);
  close_run(&control);
}

/* Damage that a right checksum covers up must be found by what it means. */
static void lies_with_a_right_checksum_are_found(void **state) {
  (void)state;
  still_token ids[41 + NEXT];
  random_ids(ids, CHECK_COUNT(ids), VOCABULARY, 3);
  const still_session_options options = kind_options(STILL_ATTENTION_STILL);
  model_run run = open_run(small_gguf(), &options), control = open_run(small_gguf(), &options);
  feed(run.session, ids, 41);
  feed(control.session, ids, 41);
  check_ok(still_session_save(run.session, check_path("whole"), NULL, NULL));
  size_t bytes;
  char *data = check_read(check_path("whole"), &bytes);
  const size_t head =
      3 + 16 + 2 * 2; /* the words before the counts of tokens and of forgotten ids */
  static const uint64_t values[] = {0, 1, 7, 39, 41, 1u << 20, UINT64_MAX / 8, UINT64_MAX};
  for (size_t word = 3; word < head + 3; word++)
    for (size_t i = 0; i < CHECK_COUNT(values); i++) {
      uint64_t old;
      memcpy(&old, data + word * 8, 8);
      if (old == values[i] || word == head + 2) continue; /* whether there are logits */
      memcpy(data + word * 8, &values[i], 8);
      const uint64_t sum = still_hash_bytes(0, data, bytes - 8);
      memcpy(data + bytes - 8, &sum, 8);
      check_fails(still_session_load_bytes(run.session, data, bytes), STILL_ERROR_FORMAT,
                  "session file");
      memcpy(data + word * 8, &old, 8);
    }
  free(data);
  check_same_future(run.session, control.session, ids + 41);
  close_run(&run);
  close_run(&control);
}

static void file_of_other_options_says_which(void **state) {
  (void)state;
  still_token ids[20];
  random_ids(ids, 20, VOCABULARY, 3);
  still_session_options options = kind_options(STILL_ATTENTION_STILL);
  model_run run = open_run(small_gguf(), &options);
  feed(run.session, ids, 20);
  check_ok(still_session_save(run.session, check_path("session"), NULL, NULL));
  still_session *other;
  options.chunk = 16;
  check_ok(still_session_create(&other, run.model, &options));
  check_fails(still_session_load(other, check_path("session"), NULL, NULL), STILL_ERROR_FORMAT,
              "session file of another chunk: 8 there, 16 here");
  still_session_destroy(other);
  options = kind_options(STILL_ATTENTION_STILL);
  options.layer_kinds = "1:full";
  check_ok(still_session_create(&other, run.model, &options));
  check_fails(still_session_load(other, check_path("session"), NULL, NULL), STILL_ERROR_FORMAT,
              "another kind of attention in layer 1");
  still_session_destroy(other);
  close_run(&run);

  made_model model = made_shape();
  made_fill(&model, 2);
  options = kind_options(STILL_ATTENTION_STILL);
  run = open_run(made_gguf(&model, "another.gguf", STILL_TENSOR_F32), &options);
  check_fails(still_session_load(run.session, check_path("session"), NULL, NULL),
              STILL_ERROR_FORMAT, "session file of another model");
  check_fails(still_session_load(run.session, check_path("nothing"), NULL, NULL), STILL_ERROR_FILE,
              "nothing");
  made_free(&model);
  close_run(&run);
}

typedef struct watch {
  uint64_t done, total;
  int calls, stop_at; /* 0: never */
} watch;

static int watched(void *user, uint64_t done, uint64_t total) {
  watch *w = user;
  assert_true(done >= w->done && done <= total);
  w->done = done, w->total = total;
  return ++w->calls == w->stop_at;
}

static void progress_is_told_and_stops(void **state) {
  (void)state;
  still_token ids[60];
  random_ids(ids, 60, VOCABULARY, 5);
  const still_session_options options = kind_options(STILL_ATTENTION_STILL);
  model_run run = open_run(small_gguf(), &options), control = open_run(small_gguf(), &options);
  char path[512];
  snprintf(path, sizeof path, "%s", check_path("watched"));
  feed(run.session, ids, 20);
  watch saving = {0}, loading = {0};
  check_ok(still_session_save(run.session, path, watched, &saving));
  check_ok(still_session_load(run.session, path, watched, &loading));
  size_t bytes, now;
  char *before = check_read(path, &bytes);
  assert_true(saving.done == bytes && saving.total == bytes);
  assert_true(loading.total == 3 * bytes && loading.done > 2 * bytes);
  feed(run.session, ids + 20, 20);
  feed(control.session, ids, 40);
  for (int i = 1; i <= saving.calls; i++) {
    watch stop = {.stop_at = i};
    check_fails(still_session_save(run.session, path, watched, &stop), STILL_ERROR_CANCELLED,
                "saving the session was stopped");
    char *after = check_read(path, &now);
    assert_true(now == bytes && !memcmp(before, after, bytes));
    free(after);
  }
  for (int i = 1; i <= loading.calls; i++) {
    watch stop = {.stop_at = i};
    check_fails(still_session_load(run.session, path, watched, &stop), STILL_ERROR_CANCELLED,
                "loading the session was stopped");
  }
  check_same_future(run.session, control.session, ids + 40);
  free(before);
  close_run(&run);
  close_run(&control);
}

static void unwritable_place_is_an_error(void **state) {
  (void)state;
  model_run run = open_run(small_gguf(), NULL);
  check_fails(still_session_save(run.session, "/nonexistent folder/session", NULL, NULL),
              STILL_ERROR_FILE, "folder");
  close_run(&run);
}

/* ---- tokens that are remembered ----------------------------------------------------------------- */

/* However the tokens come, the last 1024 at least are there, in memory that does not grow. */
static void bounded_history(void **state) {
  (void)state;
  enum { N = 6000 };
  static still_token ids[N];
  random_ids(ids, N, VOCABULARY, 3);
  still_session_options options = kind_options(STILL_ATTENTION_STILL);
  options.history = 1;
  model_run run = open_run(small_gguf(), &options);
  static const size_t pieces[] = {1, 900, 15, 3000, 1023, 40, 1, 1000, 16};
  int64_t at = 0;
  uint64_t bytes = 0;
  still_checkpoint *checkpoint = NULL;
  for (size_t i = 0; i < CHECK_COUNT(pieces); at += (int64_t)pieces[i++]) {
    feed(run.session, ids + at, pieces[i]);
    const int64_t first = still_session_first_token(run.session), end = at + (int64_t)pieces[i];
    assert_int_equal(still_session_position(run.session), end);
    assert_true(first <= (end > 1024 ? end - 1024 : 0));
    assert_true(end - first <= 2048);
    assert_memory_equal(still_session_tokens(run.session), ids + first,
                        (size_t)(end - first) * sizeof *ids);
    still_session_usage usage;
    still_session_get_usage(run.session, &usage);
    if (bytes) assert_int_equal(usage.cache_bytes + usage.work_bytes, bytes);
    bytes = usage.cache_bytes + usage.work_bytes;
    if (i == 1) check_ok(still_session_checkpoint(run.session, &checkpoint));
  }
  /* A file holds what is remembered; what goes on is the same. */
  check_ok(still_session_save(run.session, check_path("history"), NULL, NULL));
  still_session *loaded;
  check_ok(still_session_create(&loaded, run.model, &options));
  check_ok(still_session_load(loaded, check_path("history"), NULL, NULL));
  const int64_t kept = still_session_first_token(loaded);
  assert_true(kept <= at - 1024);
  assert_memory_equal(still_session_tokens(loaded), ids + kept, (size_t)(at - kept) * sizeof *ids);
  check_same_future(run.session, loaded, ids);
  still_session_destroy(loaded);
  options.history = 0; /* into a session that remembers all from then on */
  check_ok(still_session_create(&loaded, run.model, &options));
  check_ok(still_session_load(loaded, check_path("history"), NULL, NULL));
  feed(loaded, ids, 3000);
  const int64_t first = still_session_first_token(loaded);
  assert_true(first > 0);
  assert_memory_equal(still_session_tokens(loaded), ids + first,
                      (size_t)(at - first) * sizeof *ids);
  assert_memory_equal(still_session_tokens(loaded) + (at - first), ids, 3000 * sizeof *ids);
  still_session_destroy(loaded);
  /* Back to where nothing is remembered any more. */
  check_ok(still_session_rollback(run.session, checkpoint));
  assert_int_equal(still_session_position(run.session), 901);
  assert_true(still_session_first_token(run.session) <= 901);
  feed(run.session, ids + 901, 50);
  assert_memory_equal(still_session_tokens(run.session) +
                          (901 - still_session_first_token(run.session)),
                      ids + 901, 50 * sizeof *ids);
  still_checkpoint_destroy(checkpoint);
  close_run(&run);
}

/* ---- checkpoints -------------------------------------------------------------------------------- */

static void rollback_goes_back_bit_for_bit(void **state) {
  (void)state;
  still_token ids[120 + NEXT];
  random_ids(ids, CHECK_COUNT(ids), VOCABULARY, 8);
  static const size_t lengths[] = {1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3, 60};
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
    for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
      const still_session_options options = kind_options(kinds[k]);
      model_run run = open_run(small_gguf(), &options), control = open_run(small_gguf(), &options);
      feed(run.session, ids, lengths[i]);
      feed(control.session, ids, lengths[i]);
      still_checkpoint *checkpoint;
      check_ok(still_session_checkpoint(run.session, &checkpoint));
      feed(run.session, ids + 50, 70);
      check_ok(still_session_rollback(run.session, checkpoint));
      feed(run.session, ids + 30, 9); /* more than once */
      check_ok(still_session_rollback(run.session, checkpoint));
      assert_memory_equal(still_session_logits(run.session), still_session_logits(control.session),
                          VOCABULARY * sizeof(float));
      check_same_future(run.session, control.session, ids + 120);
      still_checkpoint_destroy(checkpoint);
      close_run(&run);
      close_run(&control);
    }
}

static void checkpoint_costs_the_same_at_any_length(void **state) {
  (void)state;
  still_token ids[200];
  random_ids(ids, 200, VOCABULARY, 8);
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++) {
    const still_session_options options = kind_options(kinds[k]);
    model_run run = open_run(small_gguf(), &options);
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
      feed(run.session, ids, i ? 190 : 5);
      still_checkpoint *checkpoint;
      check_ok(still_session_checkpoint(run.session, &checkpoint));
      bytes[i] = still_checkpoint_bytes(checkpoint);
      still_checkpoint_destroy(checkpoint);
    }
    assert_int_equal(bytes[0], bytes[1]);
    close_run(&run);
  }
}

static void checkpoints_that_were_passed_are_refused(void **state) {
  (void)state;
  still_token ids[60];
  random_ids(ids, 60, VOCABULARY, 8);
  const still_session_options options = kind_options(STILL_ATTENTION_STILL);
  model_run run = open_run(small_gguf(), &options), other = open_run(small_gguf(), &options);
  still_checkpoint *early, *late, *later;
  feed(run.session, ids, 20);
  check_ok(still_session_checkpoint(run.session, &early));
  feed(run.session, ids, 20);
  check_ok(still_session_checkpoint(run.session, &late));
  check_fails(still_session_rollback(other.session, late), STILL_ERROR_ARGUMENT, "another session");
  check_ok(still_session_rollback(run.session, early));
  check_fails(still_session_rollback(run.session, late), STILL_ERROR_ARGUMENT, "checkpoint");
  feed(run.session, ids, 20);
  check_ok(still_session_checkpoint(run.session, &later));
  check_fails(still_session_rollback(run.session, late), STILL_ERROR_ARGUMENT, "checkpoint");
  check_ok(still_session_rollback(run.session, later));
  check_ok(still_session_rollback(run.session, early));
  assert_int_equal(still_session_position(run.session), 20);
  still_session_reset(run.session);
  check_fails(still_session_rollback(run.session, early), STILL_ERROR_ARGUMENT, "reset");
  close_run(&run);
  close_run(&other);
  still_checkpoint_destroy(early); /* may outlive the session */
  still_checkpoint_destroy(late);
  still_checkpoint_destroy(later);
  still_checkpoint_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(saved_and_loaded_goes_on_the_same),
      cmocka_unit_test(threads_do_not_matter_to_a_file),
      cmocka_unit_test(empty_session_can_be_saved),
      cmocka_unit_test(damaged_file_leaves_the_old_state),
      cmocka_unit_test(lies_with_a_right_checksum_are_found),
      cmocka_unit_test(file_of_other_options_says_which),
      cmocka_unit_test(progress_is_told_and_stops),
      cmocka_unit_test(unwritable_place_is_an_error),
      cmocka_unit_test(bounded_history),
      cmocka_unit_test(rollback_goes_back_bit_for_bit),
      cmocka_unit_test(checkpoint_costs_the_same_at_any_length),
      cmocka_unit_test(checkpoints_that_were_passed_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
