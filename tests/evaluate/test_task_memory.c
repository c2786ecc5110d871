/* SPDX-License-Identifier: MIT
 * Making samples when memory runs out: every failure is passed on and nothing leaks. */
#include "../tokenizer/small_vocabulary.h"
#include "evaluate/choice_items.h"
#include "evaluate/tasks.h"

#include "byte_model.h"

#include <stdlib.h>
#include <still/evaluate.h>
#include <string.h>

typedef struct scenario {
  const char *path, *task;
  size_t length;
} scenario;

static still_status make_with(const scenario *s, still_task_material *material) {
  const still_task *task = still_task_find(s->task);
  still_task_order order = {.material = material, .length = s->length, .depth = -1};
  still_sample sample = {0};
  still_random_seed(&order.random, 3);
  const still_status status = task->make(task, &order, &sample);
  still_sample_free(&sample);
  return status;
}

static still_status make_sample(void *user) {
  const scenario *s = user;
  still_tokenizer *tokenizer;
  still_wording wording;
  STILL_TRY(still_tokenizer_open(&tokenizer, s->path, NULL, NULL));
  still_status status = still_wording_open(&wording, NULL, NULL);
  still_task_material material = {.tokenizer = tokenizer, .wording = &wording};
  if (!status) status = still_passage_add(&material.noise, tokenizer, "On we walk.", 11);
  if (!status)
    status = still_passage_from_text(&material.prose, tokenizer, "One here. Two there.", 20);
  if (!status) status = still_passage_select(&material.background, &material.prose, 1);
  if (!status) status = make_with(s, &material);
  still_passage_free(&material.prose);
  still_passage_free(&material.background);
  still_passage_free(&material.noise);
  still_wording_close(&wording);
  still_tokenizer_destroy(tokenizer);
  return status;
}

static void test_samples(void **state) {
  (void)state;
  static const char *const merges[] = {NULL};
  char *json = small_byte_level(SMALL_LLAMA3, merges, false, "", "");
  const char *path = check_file("tokenizer.json", json, strlen(json));
  free(json);
  const scenario scenarios[] = {{path, "multiquery", 1000},    {path, "multikey_dense", 600},
                                {path, "tracking", 1200},      {path, "common_words", 2150},
                                {path, "frequent_words", 900}, {path, "qa3", 2000}};
  for (size_t i = 0; i < CHECK_COUNT(scenarios); i++)
    check_failing_allocations(make_sample, (void *)&scenarios[i], true);
}

static still_status read_items(void *user) {
  still_choice_items items;
  STILL_TRY(still_choice_items_read(&items, user, STILL_CHOICES_AS_FILE));
  still_choice_items_free(&items);
  return STILL_OK;
}

static still_status ask_document(void *user) {
  const scenario *s = user;
  still_questions questions;
  still_tokenizer *tokenizer;
  still_wording wording;
  STILL_TRY(still_questions_read(&questions, s->task));
  still_status status = still_tokenizer_open(&tokenizer, s->path, NULL, NULL);
  if (!status) {
    status = still_wording_open(&wording, NULL, NULL);
    still_task_material material = {
        .tokenizer = tokenizer, .wording = &wording, .questions = &questions};
    const scenario made = {s->path, "documents", s->length};
    if (!status) status = make_with(&made, &material);
    still_wording_close(&wording);
    still_tokenizer_destroy(tokenizer);
  }
  still_questions_free(&questions);
  return status;
}

static void test_documents(void **state) {
  (void)state;
  static const char lines[] = "{\"title\": \"t\", \"question\": \"q\", \"context\": [\"aa\", "
                              "\"bb\"], \"answers\": [\"a\", \"b\"]}\n"
                              "{\"question\": \"r\", \"context\": \"cc\", \"answer\": \"c\"}\n";
  const scenario s = {check_path("tokenizer.json"),
                      strdup(check_file("documents.jsonl", lines, sizeof lines - 1)), 900};
  check_failing_allocations(ask_document, (void *)&s, true);
  free((char *)s.task);
}

static void test_items(void **state) {
  (void)state;
  static const char lines[] = "{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}\n"
                              "{\"sentence\": \"a _ b\", \"option1\": \"x\", \"option2\": \"y\", "
                              "\"answer\": \"1\"}\n";
  check_failing_allocations(read_items, (void *)check_file("q.jsonl", lines, sizeof lines - 1),
                            false);
}

/* ---- whole evaluations of a small model */

static char *small_model; /* its folder */

static still_status with_model(still_status (*evaluate)(const still_evaluation_run *run,
                                                        const char *results),
                               const char *results) {
  still_session_options session = STILL_SESSION_OPTIONS_INIT;
  still_model *model;
  session.threads = 1;
  STILL_TRY(still_model_open(&model, small_model, NULL));
  const still_evaluation_run run = {"full", model, session};
  const still_status status = evaluate(&run, results);
  still_model_destroy(model);
  return status;
}

static still_status predict(const still_evaluation_run *run, const char *results) {
  static const char text[] = "A text that has two rows, or rather that has three of them.";
  still_language_options options = STILL_LANGUAGE_OPTIONS_INIT;
  still_language_result result;
  options.length = 20;
  options.results = results;
  options.resume = results != NULL;
  return still_evaluate_language(run, run, text, sizeof text - 1, &options, &result);
}

static still_status choose(const still_evaluation_run *run, const char *results) {
  still_choice_options options = STILL_CHOICE_OPTIONS_INIT;
  still_choice_result result;
  options.examples = 1;
  options.results = results;
  options.resume = results != NULL;
  return still_evaluate_choices(run, check_path("choices.jsonl"), &options, &result);
}

static still_status evaluate_task(const still_evaluation_run *run, const char *results) {
  const char *task = "babi1";
  const int length = 700;
  still_evaluation_options options = STILL_EVALUATION_OPTIONS_INIT;
  still_evaluation_report *report;
  options.tasks = &task, options.task_count = 1;
  options.lengths = &length, options.length_count = 1;
  options.samples = 1;
  options.babi = check_path("babi");
  options.haystack = check_path("babi/prose.txt");
  options.scoring = STILL_SCORING_EXACT;
  options.results = results;
  options.resume = results != NULL;
  STILL_TRY(still_evaluate(run, 1, &options, &report));
  still_evaluation_report_destroy(report);
  return STILL_OK;
}

static still_status predict_with_model(void *user) {
  return with_model(predict, user);
}

static still_status choose_with_model(void *user) {
  return with_model(choose, user);
}

static still_status evaluate_with_model(void *user) {
  return with_model(evaluate_task, user);
}

/* Without results, then with results that are complete: those are read. */
static void test_evaluations(void **state) {
  (void)state;
  static const char lines[] =
      "{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}\n"
      "{\"question\": \"r\", \"subject\": \"s\", \"choices\": [\"a\", \"b\"], \"answer\": 1}\n";
  static const char story[] = "1 Mary moved to the attic.\n2 Where is Mary?\tattic\t1\n";
  static const char prose[] = "A sentence of more than ten tokens stands here.";
  static still_status (*const scenarios[])(void *user) = {predict_with_model, choose_with_model,
                                                          evaluate_with_model};
  static const char *const names[] = {"predicted.jsonl", "chosen.jsonl", "evaluated.jsonl"};
  small_model = strdup(byte_model());
  check_file("choices.jsonl", lines, sizeof lines - 1);
  check_file("babi/qa1_x_test.txt", story, sizeof story - 1);
  check_file("babi/prose.txt", prose, sizeof prose - 1);
  for (int i = 0; i < 3; i++) {
    char *results = strdup(check_path(names[i]));
    if (scenarios[i] != evaluate_with_model) /* it takes long, and its samples are made above */
      check_failing_allocations(scenarios[i], NULL, true);
    check_failing_allocations(scenarios[i], results, true);
    free(results);
  }
  free(small_model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_samples), cmocka_unit_test(test_documents),
      cmocka_unit_test(test_evaluations), cmocka_unit_test(test_items)};
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
