/* SPDX-License-Identifier: MIT
 * Text in, text out: the same tokens as tokenizer, sampler, decoder and session give one by one. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 12, ROOM = 2048 };
static const char prompt[] = "The river is wide. The road is long. The hills are";

/* What a callback was given, and after how many pieces it says stop. */
typedef struct answer {
  char text[ROOM];
  size_t bytes;
  int pieces, stop_after;
} answer;

static int take(void *user, const char *text, size_t bytes) {
  answer *a = user;
  assert_true(bytes > 0 && strlen(text) == bytes && a->bytes + bytes < ROOM);
  memcpy(a->text + a->bytes, text, bytes + 1);
  a->bytes += bytes;
  return ++a->pieces == a->stop_after;
}

/* The same by hand: `most` likeliest tokens after the ids, or fewer when one ends the answer. Returns how many tokens
 * the session then holds; text (ROOM) gets what they say. */
static size_t by_hand(const model_run *run, const still_token *ids, size_t count, int most,
                      char *text) {
  const still_tokenizer *tokenizer = still_model_tokenizer(run->model);
  const int size = still_tokenizer_size(tokenizer);
  size_t length = 0;
  check_ok(still_session_evaluate(run->session, ids, count, NULL, NULL));
  for (int i = 0; i < most; i++) {
    const float *logits = still_session_logits(run->session);
    still_token best = 0;
    for (int t = 1; t < size; t++)
      if (logits[t] > logits[best]) best = t;
    check_ok(still_session_evaluate(run->session, &best, 1, NULL, NULL));
    if (still_tokenizer_is_end(tokenizer, best)) break;
    length += still_token_text(tokenizer, best, 0, text + length, ROOM - length);
  }
  text[length] = 0;
  return (size_t)still_session_position(run->session);
}

static void same_tokens(const model_run *a, const model_run *b) {
  const size_t count = (size_t)still_session_position(a->session);
  assert_int_equal(still_session_position(b->session), count);
  assert_memory_equal(still_session_tokens(a->session), still_session_tokens(b->session),
                      count * sizeof(still_token));
}

static void answers_as_its_parts_do(void **state) {
  (void)state;
  char text[ROOM];
  still_token ids[64];
  size_t count;
  answer got = {.bytes = 0};
  int64_t said;
  model_run run = open_run(needle_folder(), NULL), parts = open_run(needle_folder(), NULL);
  check_ok(still_session_evaluate_text(run.session, prompt, strlen(prompt), STILL_TOKENIZE_ADD_BOS,
                                       NULL, NULL));
  check_ok(still_session_generate(run.session, NULL, MOST, take, &got, &said));
  check_ok(still_tokenize(still_model_tokenizer(parts.model), prompt, strlen(prompt),
                          STILL_TOKENIZE_ADD_BOS, ids, 64, &count));
  assert_int_equal(by_hand(&parts, ids, count, MOST, text), still_session_position(run.session));
  same_tokens(&run, &parts);
  assert_string_equal(got.text, text);
  assert_true(said > 0 && said <= MOST);
  close_run(&run);
  close_run(&parts);
}

static void a_sampler_chooses(void **state) {
  (void)state;
  still_token first[2][MOST];
  for (int i = 0; i < 2; i++) {
    still_sampler_options options = STILL_SAMPLER_OPTIONS_INIT;
    options.seed = 7;
    options.temperature = 10;
    options.top_p = 1;
    options.min_p = 0;
    options.top_k = 0;
    still_sampler *sampler;
    int64_t said;
    check_ok(still_sampler_create(&sampler, &options));
    model_run run = open_run(needle_folder(), NULL), greedy = open_run(needle_folder(), NULL);
    check_ok(still_session_evaluate_text(run.session, prompt, strlen(prompt), 0, NULL, NULL));
    check_ok(still_session_evaluate_text(greedy.session, prompt, strlen(prompt), 0, NULL, NULL));
    const int64_t begin = still_session_position(run.session);
    check_ok(still_session_generate(run.session, sampler, 4, NULL, NULL, &said));
    check_ok(still_session_generate(greedy.session, NULL, 4, NULL, NULL, NULL));
    assert_int_equal(said, 4);
    memcpy(first[i], still_session_tokens(run.session) + begin, 4 * sizeof(still_token));
    assert_memory_not_equal(first[i], still_session_tokens(greedy.session) + begin,
                            4 * sizeof(still_token));
    still_sampler_destroy(sampler);
    close_run(&run);
    close_run(&greedy);
  }
  assert_memory_equal(first[0], first[1], 4 * sizeof(still_token));
}

static void the_callback_ends_an_answer(void **state) {
  (void)state;
  answer got = {.stop_after = 2};
  int64_t said;
  model_run run = open_run(needle_folder(), NULL);
  check_ok(still_session_evaluate_text(run.session, prompt, strlen(prompt), 0, NULL, NULL));
  const int64_t begin = still_session_position(run.session);
  check_ok(still_session_generate(run.session, NULL, -1, take, &got, &said));
  assert_int_equal(got.pieces, 2);
  assert_int_equal(still_session_position(run.session), begin + said);
  check_ok(still_session_generate(run.session, NULL, 0, take, &got, &said)); /* nothing more */
  assert_int_equal(said, 0);
  assert_int_equal(got.pieces, 2);
  close_run(&run);
}

static void a_full_context_is_said(void **state) {
  (void)state;
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.context = 16;
  answer got = {.bytes = 0};
  int64_t said;
  model_run run = open_run(needle_folder(), &options);
  check_ok(still_session_evaluate_text(run.session, "The river", 9, 0, NULL, NULL));
  check_fails(still_session_generate(run.session, NULL, -1, take, &got, &said), STILL_ERROR_LIMIT,
              "16");
  assert_true(said > 0 && got.bytes > 0);
  assert_int_equal(still_session_position(run.session), 16);
  close_run(&run);
}

static void what_is_missing_is_named(void **state) {
  (void)state;
  const still_message message = {"user", "Hello"};
  model_run run = open_run(small_gguf(), NULL), needle = open_run(needle_folder(), NULL);
  check_fails(still_session_evaluate_text(run.session, "x", 1, 0, NULL, NULL),
              STILL_ERROR_UNSUPPORTED, "no vocabulary");
  check_fails(still_session_evaluate_chat(run.session, &message, 1, 0, NULL, NULL),
              STILL_ERROR_UNSUPPORTED, "no vocabulary");
  check_fails(still_session_generate(run.session, NULL, 1, NULL, NULL, NULL),
              STILL_ERROR_UNSUPPORTED, "no vocabulary");
  check_ok(still_session_evaluate_text(needle.session, "", 0, 0, NULL, NULL));
  check_fails(still_session_generate(needle.session, NULL, 1, NULL, NULL, NULL),
              STILL_ERROR_ARGUMENT, "nothing has been evaluated");
  check_fails(still_session_evaluate_chat(needle.session, &message, 1, 0, NULL, NULL),
              STILL_ERROR_UNSUPPORTED, "chat template");
  close_run(&run);
  close_run(&needle);
}

/* needle with a chat template. */
static const char *chat_folder(void) {
  static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
  static const char config[] = "{\"bos_token\": \"<|begin_of_text|>\", \"eos_token\": "
                               "\"<|end_of_text|>\", \"chat_template\": "
                               "\"{{ bos_token }}{% for message in messages %}[INST] {{ "
                               "message.content }} [/INST]{% endfor %}\"}";
  const char *path = check_file("chat/tokenizer_config.json", config, strlen(config));
  for (size_t i = 0; i < CHECK_COUNT(files); i++) {
    char name[64];
    snprintf(name, sizeof name, "chat/%s", files[i]);
    assert_int_equal(symlink(needle_file(files[i]), check_path(name)), 0);
  }
  static char folder[4096];
  snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
  return folder;
}

/* Two turns; the first answer is cut after `most` tokens. */
static void check_chat(const char *folder, int most) {
  const still_message messages[] = {
      {"user", "The river"}, {"assistant", "is wide"}, {"user", "The road"}};
  char text[ROOM];
  still_token ids[64];
  size_t count;
  model_run run = open_run(folder, NULL), parts = open_run(folder, NULL);
  const still_tokenizer *tokenizer = still_model_tokenizer(run.model);
  check_ok(still_session_evaluate_chat(run.session, messages, 1, 0, NULL, NULL));
  check_ok(still_session_generate(run.session, NULL, most, NULL, NULL, NULL));
  check_ok(still_format_chat(tokenizer, messages, 1, 0, 1, ids, 64, &count));
  by_hand(&parts, ids, count, most, text);
  same_tokens(&run, &parts);
  const int64_t position = still_session_position(run.session);
  ids[0] = still_tokenizer_eos(tokenizer);
  if (still_session_tokens(run.session)[position - 1] != ids[0])
    check_ok(still_session_evaluate(parts.session, ids, 1, NULL, NULL));
  check_ok(still_session_evaluate_chat(run.session, messages, 3, 2, NULL, NULL));
  check_ok(still_session_generate(run.session, NULL, most, NULL, NULL, NULL));
  check_ok(still_format_chat(tokenizer, messages, 3, 2, 1, ids, 64, &count));
  by_hand(&parts, ids, count, most, text);
  same_tokens(&run, &parts);
  close_run(&run);
  close_run(&parts);
}

static void a_chat_goes_on(void **state) {
  (void)state;
  const char *folder = chat_folder();
  check_chat(folder, 2);
  check_chat(folder, 200);
}

static still_status answer_once(void *user) {
  still_session *session = user;
  still_session_reset(session);
  STILL_TRY(still_session_evaluate_text(session, "The river", 9, 0, NULL, NULL));
  return still_session_generate(session, NULL, 2, NULL, NULL, NULL);
}

static still_status open_and_answer(void *user) {
  still_model *model = NULL;
  still_session *session = NULL;
  still_status status = still_model_open(&model, user, NULL);
  if (!status) status = still_session_create(&session, model, NULL);
  if (!status) status = answer_once(session);
  still_session_destroy(session);
  still_model_destroy(model);
  return status;
}

static void memory_may_run_out(void **state) {
  (void)state;
  assert_true(check_failing_allocations(open_and_answer, (void *)(uintptr_t)needle_folder(), true) >
              10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_as_its_parts_do),     cmocka_unit_test(a_sampler_chooses),
      cmocka_unit_test(the_callback_ends_an_answer), cmocka_unit_test(a_full_context_is_said),
      cmocka_unit_test(what_is_missing_is_named),    cmocka_unit_test(a_chat_goes_on),
      cmocka_unit_test(memory_may_run_out),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
