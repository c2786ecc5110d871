/* SPDX-License-Identifier: MIT
 * Making samples when memory runs out: every failure is passed on and nothing leaks. */
#include "../tokenizer/small_vocabulary.h"
#include "evaluate/choice_items.h"
#include "evaluate/tasks.h"

#include <stdlib.h>
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples),
                                     cmocka_unit_test(test_documents),
                                     cmocka_unit_test(test_items)};
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
