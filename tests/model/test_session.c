/* SPDX-License-Identifier: MIT
 * Sessions: any split gives the same, any number of threads the same bits; limits, failures and what they leave. */
#include "harness/check.h"
#include "model/model_fixtures.h"
#include "model/session.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = 97, CHUNK = 8 };

/* The kinds that need no training, small enough that 200 tokens use every part of them. */
static still_session_options kind_options(still_attention_kind kind) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = kind;
  options.chunk = CHUNK;
  options.budget = 40;
  options.context = 256;
  options.window = 12;
  options.sinks = 2;
  return options;
}
static const still_attention_kind kinds[] = {STILL_ATTENTION_FULL, STILL_ATTENTION_SWA,
                                             STILL_ATTENTION_STILL, STILL_ATTENTION_LIGER_GLA};

/* ---- splits and threads ------------------------------------------------------------------------- */

typedef struct row_store {
  float *logits;
} row_store;

static void store_row(void *user, size_t index, const float *logits) {
  row_store *store = user;
  memcpy(store->logits + index * VOCABULARY, logits, VOCABULARY * sizeof *logits);
}

/* Logits after every token when the ids go in by pieces of these sizes, again and again. */
static void run_pieces(const still_session_options *options, const still_token *ids, size_t n,
                       const size_t *pieces, size_t piece_count, float *logits) {
  model_run run = open_run(small_gguf(), options);
  for (size_t done = 0, i = 0; done < n; i++) {
    const size_t piece = pieces[i % piece_count] < n - done ? pieces[i % piece_count] : n - done;
    row_store store = {logits + done * VOCABULARY};
    check_ok(still_session_evaluate_all(run.session, ids + done, piece, store_row, &store));
    done += piece;
  }
  assert_int_equal(still_session_position(run.session), n);
  assert_memory_equal(still_session_tokens(run.session), ids, n * sizeof *ids);
  close_run(&run);
}

static void any_split_gives_the_same(void **state) {
  (void)state;
  enum { N = 200 };
  static const size_t splits[][4] = {{1, 1, 1, 1},
                                     {CHUNK - 1, CHUNK, CHUNK + 1, 1},
                                     {13, 1, 29, 2},
                                     {17, 17, 17, 17},
                                     {100, 1, 1, 98}};
  still_token ids[N];
  random_ids(ids, N, VOCABULARY, 11);
  float *whole = malloc(N * VOCABULARY * sizeof *whole),
        *pieces = malloc(N * VOCABULARY * sizeof *pieces);
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++) {
    const still_session_options options = kind_options(kinds[k]);
    run_pieces(&options, ids, N, (size_t[]){N}, 1, whole);
    for (size_t i = 0; i < CHECK_COUNT(splits); i++) {
      run_pieces(&options, ids, N, splits[i], 4, pieces);
      check_rows_close(still_attention_kind_name(kinds[k]), pieces, whole, N, VOCABULARY, 1e-5);
    }
  }
  free(whole);
  free(pieces);
}

static void any_block_gives_the_same(void **state) {
  (void)state;
  enum { N = 150 };
  static const int blocks[] = {1, 2, 7, 32, 65536};
  still_token ids[N];
  random_ids(ids, N, VOCABULARY, 12);
  float *whole = malloc(N * VOCABULARY * sizeof *whole),
        *other = malloc(N * VOCABULARY * sizeof *other);
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++) {
    still_session_options options = kind_options(kinds[k]);
    run_pieces(&options, ids, N, (size_t[]){N}, 1, whole);
    for (size_t i = 0; i < CHECK_COUNT(blocks); i++) {
      options.block = blocks[i];
      run_pieces(&options, ids, N, (size_t[]){N}, 1, other);
      check_rows_close(still_attention_kind_name(kinds[k]), other, whole, N, VOCABULARY, 1e-5);
    }
  }
  free(whole);
  free(other);
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
  (void)state;
  enum { N = 120 };
  still_token ids[N];
  random_ids(ids, N, VOCABULARY, 13);
  float *one = malloc(N * VOCABULARY * sizeof *one), *more = malloc(N * VOCABULARY * sizeof *more);
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
    for (int threads = 1; threads <= 3; threads++) {
      still_session_options options = kind_options(kinds[k]);
      options.threads = threads;
      run_pieces(&options, ids, N, (size_t[]){70, 1, 40, 9}, 4, threads == 1 ? one : more);
      if (threads > 1) assert_memory_equal(one, more, N * VOCABULARY * sizeof *one);
    }
  free(one);
  free(more);
}

/* Products of a size that is shared out between threads, which those of the small model are not. */
static void large_products_give_the_same_bits(void **state) {
  (void)state;
  made_model model = made_shape();
  model.layers = 1;
  model.width = 320;
  model.feed_forward = 1056;
  model.vocabulary = 700;
  static const still_tensor_type types[] = {STILL_TENSOR_F32, STILL_TENSOR_F16, STILL_TENSOR_BF16,
                                            STILL_TENSOR_Q8_0};
  made_fill(&model, 2);
  still_token ids[40];
  random_ids(ids, 40, model.vocabulary, 14);
  float logits[3][2][700];
  for (size_t t = 0; t < CHECK_COUNT(types); t++) {
    const char *path = made_gguf(&model, "wide.gguf", types[t]);
    for (int threads = 1; threads <= 3; threads++) {
      still_session_options options = STILL_SESSION_OPTIONS_INIT;
      options.threads = threads;
      model_run run = open_run(path, &options);
      check_ok(still_session_evaluate(run.session, ids, 39, NULL, NULL));
      memcpy(logits[threads - 1][0], still_session_logits(run.session), sizeof logits[0][0]);
      check_ok(still_session_evaluate(run.session, ids + 39, 1, NULL, NULL));
      memcpy(logits[threads - 1][1], still_session_logits(run.session), sizeof logits[0][0]);
      close_run(&run);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    assert_memory_equal(logits[0], logits[2], sizeof logits[0]);
  }
  made_free(&model);
}

/* A model may be shared by threads, each with a session of its own. */
typedef struct thread_work {
  const still_model *model;
  still_attention_kind kind;
  const still_token *ids;
  size_t count;
  float logits[VOCABULARY];
  bool failed;
} thread_work;

static void *run_alone(void *user) {
  thread_work *work = user;
  still_session_options options = kind_options(work->kind);
  options.threads = 2;
  still_session *session;
  work->failed = still_session_create(&session, work->model, &options) != STILL_OK;
  for (size_t i = 0; i < work->count && !work->failed; i += 20)
    work->failed = still_session_evaluate(session, work->ids + i, 20, NULL, NULL) != STILL_OK;
  if (!work->failed) memcpy(work->logits, still_session_logits(session), sizeof work->logits);
  still_session_destroy(session);
  return NULL;
}

static void sessions_run_side_by_side(void **state) {
  (void)state;
  enum { N = 100, THREADS = 4 };
  still_token ids[N];
  random_ids(ids, N, VOCABULARY, 15);
  still_model *model;
  check_ok(still_model_open(&model, small_gguf(), NULL));
  thread_work alone[THREADS], together[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    alone[i] = (thread_work){.model = model, .kind = kinds[i], .ids = ids, .count = N};
    together[i] = alone[i];
    run_alone(&alone[i]);
  }
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, run_alone, &together[i]), 0);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    assert_false(alone[i].failed || together[i].failed);
    assert_memory_equal(alone[i].logits, together[i].logits, sizeof alone[i].logits);
  }
  still_model_destroy(model);
}

/* ---- memory ------------------------------------------------------------------------------------- */

static const char *long_model(void) {
  made_model model = made_shape();
  model.context = 65536;
  made_fill(&model, 1);
  const char *path = made_gguf(&model, "long.gguf", STILL_TENSOR_F32);
  made_free(&model);
  return path;
}

static void extend(still_session *session, int64_t tokens) {
  enum { PIECE = 1024 };
  still_token ids[PIECE];
  for (size_t n; still_session_position(session) < tokens;) {
    const int64_t left = tokens - still_session_position(session);
    n = left < PIECE ? (size_t)left : PIECE;
    random_ids(ids, n, VOCABULARY, (uint64_t)still_session_position(session));
    check_ok(still_session_evaluate(session, ids, n, NULL, NULL));
  }
}

static void cache_of_still_does_not_grow(void **state) {
  (void)state;
  still_session_options options = kind_options(STILL_ATTENTION_STILL);
  options.context = 65536;
  options.chunk = 64;
  options.budget = 64 + 1024;
  model_run run = open_run(long_model(), &options);
  static const int64_t lengths[] = {4096, 16384, 65536};
  uint64_t first = 0;
  for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
    extend(run.session, lengths[i]);
    still_session_usage now, before;
    still_session_get_usage(run.session, &now);
    check_ok(still_session_estimate(run.model, &options, lengths[i], &before));
    if (!first) first = now.cache_bytes;
    assert_int_equal(now.cache_bytes, first);
    assert_int_equal(before.cache_bytes, first);
    assert_int_equal(now.tokens, lengths[i]);
    assert_true(now.softmax_tokens <= 1024 + 128);
    assert_int_equal(now.softmax_tokens + now.forgotten_tokens, lengths[i]);
  }
  close_run(&run);
}

static void cache_of_full_grows_as_predicted(void **state) {
  (void)state;
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  model_run run = open_run(long_model(), &options);
  uint64_t last = 0;
  static const int64_t lengths[] = {1000, 4096, 4097, 6000};
  for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
    extend(run.session, lengths[i]);
    still_session_usage now, before;
    still_session_get_usage(run.session, &now);
    check_ok(still_session_estimate(run.model, &options, lengths[i], &before));
    assert_int_equal(now.cache_bytes, before.cache_bytes);
    assert_int_equal(now.softmax_tokens, lengths[i]);
    if (i == 2) assert_true(now.cache_bytes > last);
    last = now.cache_bytes;
  }
  close_run(&run);
}

/* ---- limits ------------------------------------------------------------------------------------- */

static void context_of_full_attention_is_a_limit(void **state) {
  (void)state;
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.context = 32;
  still_token ids[40];
  random_ids(ids, 40, VOCABULARY, 1);
  model_run run = open_run(small_gguf(), &options);
  check_fails(still_session_evaluate(run.session, ids, 33, NULL, NULL), STILL_ERROR_LIMIT,
              "33 tokens do not fit: the context of 32 tokens has room for 32");
  assert_int_equal(still_session_position(run.session), 0);
  assert_null(still_session_logits(run.session));
  check_ok(still_session_evaluate(run.session, ids, 31, NULL, NULL));
  check_fails(still_session_evaluate(run.session, ids, 2, NULL, NULL), STILL_ERROR_LIMIT,
              "room for 1");
  check_ok(still_session_evaluate(run.session, ids, 1, NULL, NULL));
  check_fails(still_session_evaluate(run.session, ids, 1, NULL, NULL), STILL_ERROR_LIMIT,
              "room for 0");
  check_fails(still_session_evaluate_all(run.session, ids, 1, store_row, NULL), STILL_ERROR_LIMIT,
              "room for 0");
  assert_int_equal(still_session_position(run.session), 32);
  close_run(&run);
}

static void still_goes_on_beyond_its_context(void **state) {
  (void)state;
  still_session_options options = kind_options(STILL_ATTENTION_STILL);
  options.context = 64;
  still_token ids[300];
  random_ids(ids, 300, VOCABULARY, 1);
  model_run run = open_run(small_gguf(), &options);
  still_session_usage before, after;
  still_session_get_usage(run.session, &before);
  check_ok(still_session_evaluate(run.session, ids, 300, NULL, NULL));
  still_session_get_usage(run.session, &after);
  assert_int_equal(before.cache_bytes, after.cache_bytes);
  close_run(&run);
}

static void options_out_of_range_are_named(void **state) {
  (void)state;
  still_model *model;
  still_session *session = NULL;
  check_ok(still_model_open(&model, small_gguf(), NULL));
#define CHECK_OPTION(assignment, sentence)                                                         \
  do {                                                                                             \
    still_session_options options = kind_options(STILL_ATTENTION_STILL);                           \
    assignment;                                                                                    \
    check_fails(still_session_create(&session, model, &options), STILL_ERROR_ARGUMENT, sentence);  \
    assert_null(session);                                                                          \
  } while (0)
  CHECK_OPTION(options.context = -1, "context is -1, must be 0 .. 2147483647");
  CHECK_OPTION(options.block = -1, "block is -1, must be 0 .. 65536");
  CHECK_OPTION(options.block = 65537, "block is 65537, must be 0 .. 65536");
  CHECK_OPTION(options.threads = -1, "threads is -1");
  CHECK_OPTION(options.chunk = 0, "chunk");
  CHECK_OPTION(options.budget = CHUNK, "budget"); /* nothing left for salient tokens */
  CHECK_OPTION(options.size = 7, "INIT macro");
  CHECK_OPTION(options.attention = 99, "99 is no kind");
  CHECK_OPTION(options.attention = STILL_ATTENTION_LOLCATS, "layer 0: ");
#undef CHECK_OPTION
  still_session_options options = STILL_SESSION_OPTIONS_INIT; /* the smallest and the largest */
  options.context = 1;
  check_ok(still_session_create(&session, model, &options));
  still_session_destroy(session);
  options.context = INT32_MAX;
  check_ok(still_session_create(&session, model, &options));
  still_session_destroy(session);
  still_model_destroy(model);
}

static void wrong_tokens_are_named(void **state) {
  (void)state;
  model_run run = open_run(small_gguf(), NULL);
  check_fails(still_session_evaluate(run.session, (still_token[]){1, 97}, 2, NULL, NULL),
              STILL_ERROR_ARGUMENT, "token 1 is 97, must be 0 .. 96");
  check_fails(still_session_evaluate(run.session, (still_token[]){-1}, 1, NULL, NULL),
              STILL_ERROR_ARGUMENT, "token 0 is -1");
  check_fails(still_session_evaluate(run.session, (still_token[]){1}, 0, NULL, NULL),
              STILL_ERROR_ARGUMENT, "no tokens");
  assert_int_equal(still_session_position(run.session), 0);
  close_run(&run);
}

static void count_warnings(void *user, still_log_level level, const char *message) {
  if (level == STILL_LOG_WARNING && strstr(message, "beyond the 512 tokens")) ++*(int *)user;
}

static void warned_once_beyond_the_trained_context(void **state) {
  (void)state;
  int warnings = 0;
  still_set_log(count_warnings, &warnings, STILL_LOG_WARNING);
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.context = 1024;
  model_run run = open_run(small_gguf(), &options);
  extend(run.session, 512);
  assert_int_equal(warnings, 0);
  extend(run.session, 513);
  assert_int_equal(warnings, 1);
  extend(run.session, 520);
  assert_int_equal(warnings, 1);
  still_set_log(NULL, NULL, STILL_LOG_ERROR);
  close_run(&run);
}

/* ---- failures leave the session as it was ------------------------------------------------------- */

/* The small model, but token 96 is infinite: reading it makes everything after it so. */
static const char *poisoned_model(void) {
  made_model model = made_shape();
  model.tied = false; /* the output must stay finite for the other tokens */
  made_fill(&model, 1);
  model.embedding[96 * model.width + 5] = INFINITY;
  const char *path = made_gguf(&model, "poisoned.gguf", STILL_TENSOR_F32);
  made_free(&model);
  return path;
}

typedef struct stopper {
  still_session *session;
  uint64_t at;
  bool by_cancel;
} stopper;

static int stop_at(void *user, uint64_t done, uint64_t total) {
  stopper *stop = user;
  assert_true(done <= total);
  if (done < stop->at) return 0;
  if (!stop->by_cancel) return 1;
  still_session_cancel(stop->session);
  return 0;
}

/* A session to which failures happen continues like one that never saw them. */
static void check_failures_leave_no_trace(still_attention_kind kind) {
  still_session_options options = kind_options(kind);
  options.block = 16;
  still_token ids[180], bad[60];
  random_ids(ids, 180, 96, 5);
  memcpy(bad, ids, sizeof bad);
  bad[41] = 96;
  model_run run = open_run(poisoned_model(), &options),
            control = open_run(poisoned_model(), &options);
  int64_t at = 0;
  for (int round = 0; at < 100; round++) {
    const size_t n = round % 3 ? 1 : 20;
    check_ok(still_session_evaluate(run.session, ids + at, n, NULL, NULL));
    check_ok(still_session_evaluate(control.session, ids + at, n, NULL, NULL));
    at += (int64_t)n;
    char sentence[80];
    snprintf(sentence, sizeof sentence, "position %d in layer 0 of 2", (int)at + 41);
    check_fails(still_session_evaluate(run.session, bad, 60, NULL, NULL), STILL_ERROR_NUMERIC,
                sentence);
    snprintf(sentence, sizeof sentence, "position %d in layer 0", (int)at);
    check_fails(still_session_evaluate(run.session, bad + 41, 1, NULL, NULL), STILL_ERROR_NUMERIC,
                sentence);
    stopper stop = {run.session, 33, round % 2};
    check_fails(still_session_evaluate(run.session, ids, 60, stop_at, &stop), STILL_ERROR_CANCELLED,
                round % 2 ? "cancelled" : "stopped");
    assert_int_equal(still_session_position(run.session), at);
    assert_memory_equal(still_session_tokens(run.session), ids, (size_t)at * sizeof *ids);
    assert_memory_equal(still_session_logits(run.session), still_session_logits(control.session),
                        VOCABULARY * sizeof(float));
  }
  check_ok(still_session_evaluate(run.session, ids + at, 50, NULL, NULL));
  check_ok(still_session_evaluate(control.session, ids + at, 50, NULL, NULL));
  assert_memory_equal(still_session_logits(run.session), still_session_logits(control.session),
                      VOCABULARY * sizeof(float));
  close_run(&run);
  close_run(&control);
}

static void failures_leave_the_session_as_it_was(void **state) {
  (void)state;
  for (size_t i = 0; i < CHECK_COUNT(kinds); i++) check_failures_leave_no_trace(kinds[i]);
}

/* Going back after a failure replays tokens from before a checkpoint: the checkpoint must survive that. */
static void checkpoints_survive_failures(void **state) {
  (void)state;
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++) {
    const still_session_options options = kind_options(kinds[k]);
    const still_token bad = 96;
    still_token ids[100];
    random_ids(ids, 100, 96, 5);
    model_run run = open_run(poisoned_model(), &options),
              control = open_run(poisoned_model(), &options);
    still_checkpoint *checkpoint;
    for (int i = 0; i < 40; i++) {
      if (i == 27) check_ok(still_session_checkpoint(run.session, &checkpoint));
      check_ok(still_session_evaluate(run.session, ids + i, 1, NULL, NULL));
      if (i < 27) check_ok(still_session_evaluate(control.session, ids + i, 1, NULL, NULL));
    }
    check_fails(still_session_evaluate(run.session, &bad, 1, NULL, NULL), STILL_ERROR_NUMERIC,
                "position 40 in layer 0");
    check_ok(still_session_rollback(run.session, checkpoint));
    check_fails(still_session_evaluate(run.session, &bad, 1, NULL, NULL), STILL_ERROR_NUMERIC,
                "position 27 in layer 0");
    check_ok(still_session_evaluate(run.session, ids + 50, 30, NULL, NULL));
    check_ok(still_session_evaluate(control.session, ids + 50, 30, NULL, NULL));
    assert_memory_equal(still_session_logits(run.session), still_session_logits(control.session),
                        VOCABULARY * sizeof(float));
    still_checkpoint_destroy(checkpoint);
    close_run(&run);
    close_run(&control);
  }
}

static int count_calls(void *user, uint64_t done, uint64_t total) {
  uint64_t *last = user;
  assert_true(done >= *last && total == 200);
  *last = done;
  return 0;
}

static void progress_rises_to_the_end(void **state) {
  (void)state;
  still_token ids[200];
  random_ids(ids, 200, VOCABULARY, 1);
  uint64_t last = 0;
  model_run run = open_run(small_gguf(), NULL);
  check_ok(still_session_evaluate(run.session, ids, 200, count_calls, &last));
  assert_int_equal(last, 200);
  close_run(&run);
}

/* ---- memory ------------------------------------------------------------------------------------- */

/* What fits takes no more than it may, the next larger would, and a session takes just that. */
static void check_fit(still_attention_kind kind, const char *layers, uint64_t bytes) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = kind;
  options.layer_kinds = layers;
  options.chunk = 8;
  options.context = 512;
  options.threads = 1;
  still_model *model;
  check_ok(still_model_open(&model, small_gguf(), NULL));
  check_ok(still_session_fit(model, &options, bytes));
  still_session *session;
  still_session_usage usage;
  check_ok(still_session_create(&session, model, &options));
  still_token ids[512];
  random_ids(ids, 512, VOCABULARY, 1);
  const size_t n = (size_t)(options.context < 512 ? options.context : 512);
  check_ok(still_session_evaluate(session, ids, n, NULL, NULL));
  still_session_get_usage(session, &usage);
  assert_true(usage.cache_bytes + usage.work_bytes <= bytes);
  int *const value = layers || kind == STILL_ATTENTION_STILL ? &options.budget
                     : kind == STILL_ATTENTION_SWA           ? &options.window
                                                             : &options.context;
  const int enough = kind == STILL_ATTENTION_STILL ? 512 + 8
                     : kind == STILL_ATTENTION_SWA ? 1 << 20
                                                   : 512;
  if (*value < enough) {
    ++*value;
    check_ok(still_session_estimate(model, &options, options.context, &usage));
    assert_true(usage.cache_bytes + usage.work_bytes > bytes);
  }
  still_session_destroy(session);
  still_model_destroy(model);
}

static void sessions_fit_into_bytes(void **state) {
  (void)state;
  for (uint64_t bytes = 1400000; bytes < 4000000; bytes += 377777) {
    check_fit(STILL_ATTENTION_STILL, NULL, bytes);
    check_fit(STILL_ATTENTION_STILL, "1:full", bytes);
    check_fit(STILL_ATTENTION_SWA, NULL, bytes);
    check_fit(STILL_ATTENTION_FULL, NULL, bytes);
  }
  model_run run = open_run(small_gguf(), NULL);
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  check_fails(still_session_fit(run.model, &options, 1000), STILL_ERROR_ARGUMENT,
              "1000 bytes are too few for a session");
  assert_int_equal(options.budget, 512); /* unchanged */
  options.layer_kinds = "9:full";
  check_fails(still_session_fit(run.model, &options, 1 << 24), STILL_ERROR_ARGUMENT, "layer_kinds");
  close_run(&run);
}

/* ---- kinds of single layers --------------------------------------------------------------------- */

static void layer_kinds_are_read(void **state) {
  (void)state;
  still_attention_kind got[10];
  for (int i = 0; i < 10; i++) got[i] = STILL_ATTENTION_STILL;
  check_ok(still_parse_layer_kinds("0-3,7:full;4:swa;9:liger-gla", got, 10));
  static const still_attention_kind want[10] = {0, 0, 0, 0, 1, 2, 2, 0, 2, 4};
  assert_memory_equal(got, want, sizeof want);
  check_ok(still_parse_layer_kinds("", got, 10));
  check_fails(still_parse_layer_kinds("10:full", got, 10), STILL_ERROR_ARGUMENT, "0 .. 9");
  check_fails(still_parse_layer_kinds("3-1:full", got, 10), STILL_ERROR_ARGUMENT, "backwards");
  check_fails(still_parse_layer_kinds("3", got, 10), STILL_ERROR_ARGUMENT, "':' and a kind");
  check_fails(still_parse_layer_kinds("3:half", got, 10), STILL_ERROR_ARGUMENT, "half");
  check_fails(still_parse_layer_kinds(":full", got, 10), STILL_ERROR_ARGUMENT, "a layer");
  check_fails(still_parse_layer_kinds("1,:full", got, 10), STILL_ERROR_ARGUMENT, "a layer");
  check_fails(still_parse_layer_kinds("-1:full", got, 10), STILL_ERROR_ARGUMENT, "a layer");
  check_fails(still_parse_layer_kinds("99999999999999999999:full", got, 10), STILL_ERROR_ARGUMENT,
              "a layer");
}

/* One full layer is enough for the session to have a limit. */
static void mixed_kinds(void **state) {
  (void)state;
  still_session_options options = kind_options(STILL_ATTENTION_STILL);
  options.layer_kinds = "1:full";
  options.context = 100;
  still_token ids[101];
  random_ids(ids, 101, VOCABULARY, 1);
  model_run run = open_run(small_gguf(), &options);
  check_fails(still_session_evaluate(run.session, ids, 101, NULL, NULL), STILL_ERROR_LIMIT, "100");
  check_ok(still_session_evaluate(run.session, ids, 100, NULL, NULL));
  assert_true(still_session_kept(run.session, 0, 0, NULL, 0) > 0);
  assert_int_equal(still_session_kept(run.session, 1, 0, NULL, 0), 0);
  close_run(&run);
}

/* ---- scores ------------------------------------------------------------------------------------- */

static void scores_are_recorded(void **state) {
  (void)state;
  enum { N = 90, BEFORE = 10 };
  const still_session_options options = kind_options(STILL_ATTENTION_STILL);
  still_token ids[N];
  random_ids(ids, N, VOCABULARY, 4);
  float *kept = malloc(4 * (N - BEFORE) * sizeof *kept);
  for (int split = 0; split < 2; split++) {
    model_run run = open_run(small_gguf(), &options);
    const float *scores;
    int64_t first, tokens;
    check_fails(still_session_scores(run.session, 0, &scores, &first, &tokens),
                STILL_ERROR_ARGUMENT, "record_scores");
    check_ok(still_session_evaluate(run.session, ids, BEFORE, NULL, NULL));
    check_ok(still_session_record_scores(run.session, 1));
    for (size_t done = BEFORE, piece; done < N; done += piece) {
      piece = split ? (done % 3 ? 1 : 7) : N - BEFORE;
      if (piece > N - done) piece = N - done;
      check_ok(still_session_evaluate(run.session, ids + done, piece, NULL, NULL));
    }
    check_ok(still_session_scores(run.session, 1, &scores, &first, &tokens));
    assert_int_equal(first, BEFORE);
    assert_int_equal(tokens, N - BEFORE);
    if (split)
      check_rows_close("scores", scores, kept, 4, N - BEFORE, 1e-4);
    else
      memcpy(kept, scores, 4 * (N - BEFORE) * sizeof *kept);
    assert_true(scores[0] > 0);
    check_fails(still_session_scores(run.session, 2, &scores, &first, &tokens),
                STILL_ERROR_ARGUMENT, "layer is 2, must be 0 .. 1");
    check_ok(still_session_record_scores(run.session, 0));
    close_run(&run);
  }
  free(kept);
}

static void reset_begins_anew(void **state) {
  (void)state;
  still_token ids[60];
  random_ids(ids, 60, VOCABULARY, 6);
  for (size_t i = 0; i < CHECK_COUNT(kinds); i++) {
    const still_session_options options = kind_options(kinds[i]);
    model_run run = open_run(small_gguf(), &options);
    float first[VOCABULARY];
    check_ok(still_session_evaluate(run.session, ids, 60, NULL, NULL));
    memcpy(first, still_session_logits(run.session), sizeof first);
    still_session_reset(run.session);
    assert_int_equal(still_session_position(run.session), 0);
    assert_null(still_session_logits(run.session));
    check_ok(still_session_evaluate(run.session, ids, 60, NULL, NULL));
    assert_memory_equal(first, still_session_logits(run.session), sizeof first);
    close_run(&run);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_split_gives_the_same),
      cmocka_unit_test(any_block_gives_the_same),
      cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
      cmocka_unit_test(large_products_give_the_same_bits),
      cmocka_unit_test(sessions_run_side_by_side),
      cmocka_unit_test(cache_of_still_does_not_grow),
      cmocka_unit_test(cache_of_full_grows_as_predicted),
      cmocka_unit_test(context_of_full_attention_is_a_limit),
      cmocka_unit_test(still_goes_on_beyond_its_context),
      cmocka_unit_test(options_out_of_range_are_named),
      cmocka_unit_test(wrong_tokens_are_named),
      cmocka_unit_test(warned_once_beyond_the_trained_context),
      cmocka_unit_test(failures_leave_the_session_as_it_was),
      cmocka_unit_test(checkpoints_survive_failures),
      cmocka_unit_test(progress_rises_to_the_end),
      cmocka_unit_test(sessions_fit_into_bytes),
      cmocka_unit_test(layer_kinds_are_read),
      cmocka_unit_test(mixed_kinds),
      cmocka_unit_test(scores_are_recorded),
      cmocka_unit_test(reset_begins_anew),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
