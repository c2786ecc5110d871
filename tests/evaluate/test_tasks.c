/* SPDX-License-Identifier: MIT
 * Samples: exactly as long as asked, needles where they should be, answers that the text holds,
 * equal seeds equal samples. */
#include "../tokenizer/small_vocabulary.h"
#include "evaluate/tasks.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char prose[] =
    "The first sentence is short. The second one is a little longer than the first!\n\nIs this the "
    "third? \"It is the fourth.\"  Then comes\na fifth, which is broken over two lines. The last";

static still_tokenizer *tokenizer;
static still_wording wording;
static still_task_material material;

static still_babi babi[5];

static int set_up(void **state) {
  (void)state;
  static const char *const merges[] = {"\xc4\xa0 t", "t h", "h e", NULL};
  char *json = small_byte_level(SMALL_LLAMA3, merges, false, "", "");
  tokenizer = small_open("tokenizer.json", json, strlen(json));
  free(json);
  check_ok(still_wording_open(&wording, NULL, NULL));
  material = (still_task_material){.tokenizer = tokenizer, .wording = &wording};
  static const char stories[] =
      "1 Mary moved to the attic.\n2 John went to the hall.\n3 Where is Mary? "
      "\tattic\t1\n1 Sandra sat down.\n2 Where is Sandra?\tattic\t1\n";
  for (int i = 0; i < 5; i++) {
    char name[32];
    snprintf(name, sizeof name, "babi/qa%d_x_test.txt", i + 1);
    check_file(name, stories, strlen(stories));
    check_ok(still_babi_open(&babi[i], check_path("babi"), i + 1));
  }
  material.babi = babi;
  for (size_t i = 0; i < wording.noise.count; i++)
    check_ok(still_passage_add(&material.noise, tokenizer, wording.noise.items[i],
                               strlen(wording.noise.items[i])));
  check_ok(still_passage_from_text(&material.prose, tokenizer, prose, strlen(prose)));
  return 0;
}

static int tear_down(void **state) {
  still_passage_free(&material.prose);
  still_passage_free(&material.noise);
  still_wording_close(&wording);
  for (int i = 0; i < 5; i++) still_babi_free(&babi[i]);
  still_tokenizer_destroy(tokenizer);
  return check_nothing_allocated(state);
}

/* The text of tokens from .. to-1, to be freed. */
static char *text_of(const still_sample *sample, size_t from, size_t to) {
  char *text = calloc(16, to - from + 1);
  size_t at = 0;
  assert_non_null(text);
  for (size_t i = from; i < to; i++)
    at += still_token_text(tokenizer, sample->ids[i], 1, text + at, 16);
  return text;
}

static still_status make(const char *name, size_t length, double depth, uint64_t seed,
                         still_sample *sample) {
  const still_task *task = still_task_find(name);
  still_task_order order = {.material = &material, .length = length, .depth = depth};
  assert_non_null(task);
  still_random_seed(&order.random, seed);
  memset(sample, 0, sizeof *sample);
  return task->make(task, &order, sample);
}

static void test_passage(void **state) {
  (void)state;
  assert_int_equal(material.prose.count, 6);
  for (size_t tokens = 0; tokens < 1200; tokens += 37) {
    const still_slice slice = still_passage_slice(&material.prose, tokens, tokens);
    still_token *ids = calloc(tokens + 1, sizeof *ids);
    still_slice_copy(&slice, 0, tokens, ids);
    if (tokens) {
      char end[16];
      const size_t bytes = still_token_text(tokenizer, ids[tokens - 1], 0, end, 16);
      assert_non_null(strchr(".!?\"t", end[bytes - 1])); /* the last sentence has no full stop */
    }
    const size_t place = still_slice_nearest(&slice, (double)tokens / 2);
    assert_true(place <= tokens);
    if (place < tokens) assert_int_equal(ids[place] == ' ' || ids[place] == 256, 1);
    free(ids);
  }
}

/* Every task: as long as asked, every part of the answer in the text. */
static void test_all_tasks(void **state) {
  (void)state;
  for (size_t t = 0; still_task_get(t); t++) {
    const still_task *task = still_task_get(t);
    const bool dense =
        !strcmp(task->name, "multikey_dense") || !strcmp(task->name, "multikey_uuid");
    for (uint64_t seed = 0; seed < 20; seed++) {
      still_sample sample;
      const size_t length = 2500 + seed;
      check_ok(make(task->name, length, -1, seed, &sample));
      assert_true(dense ? sample.count <= length && sample.count + 120 > length
                        : sample.count == length);
      assert_true(sample.prompt > 0 && sample.prompt < sample.count);
      assert_true(sample.depth >= 0 && sample.depth <= 1);
      char *text = text_of(&sample, 0, sample.prompt);
      char *answer = text_of(&sample, sample.prompt, sample.count);
      assert_int_equal(answer[0], ' ');
      for (char *part = strtok(answer, ", "); part; part = strtok(NULL, ", ")) {
        const size_t bytes = strlen(part);
        if (part[bytes - 1] == ':') part[bytes - 1] = 0;
        if (!strstr(text, part) && !task->babi)
          fail_msg("%s: '%s' is not in the text", task->name, part);
      }
      assert_null(strchr(text, '{'));
      free(text);
      free(answer);
      still_sample_free(&sample);
    }
  }
}

static void test_babi(void **state) {
  (void)state;
  assert_int_equal(babi[0].question_count, 2);
  assert_string_equal(babi[0].questions[0].question, "Where is Mary?");
  assert_string_equal(babi[0].questions[0].answer, "attic");
  assert_int_equal(babi[0].questions[0].end - babi[0].questions[0].first, 2);
  assert_int_equal(babi[0].questions[1].end - babi[0].questions[1].first, 1);
  assert_string_equal(babi[0].facts[babi[0].questions[1].first], "Sandra sat down.");
  still_babi bad;
  static const char text[] = "1 Mary moved.\nno number\n";
  check_file("bad/qa1_x_test.txt", text, strlen(text));
  check_fails(still_babi_open(&bad, check_path("bad"), 1), STILL_ERROR_FORMAT,
              "qa1_x_test.txt, line 2: a number and a space must come first");
  check_fails(still_babi_open(&bad, check_path("bad"), 2), STILL_ERROR_FILE,
              "holds no qa2_..._test.txt");
}

static void test_depths(void **state) {
  (void)state;
  double before = -1;
  for (int i = 0; i <= 10; i++) {
    still_sample sample;
    check_ok(make("sniah1", 3000, i / 10.0, 5, &sample));
    assert_true(sample.depth >= i / 10.0 - 0.05 && sample.depth <= i / 10.0 + 0.05);
    assert_true(sample.depth > before);
    before = sample.depth;
    char *text = text_of(&sample, 0, sample.prompt);
    const double found = (double)(strstr(text, "One of the") - text) / (double)strlen(text);
    if (found < i / 10.0 * 0.8 - 0.02 || found > i / 10.0 * 0.8 + 0.15)
      fail_msg("depth %d/10: the needle is at %.2f of the prompt", i, found);
    free(text);
    still_sample_free(&sample);
  }
}

static void test_seeds(void **state) {
  (void)state;
  still_sample a, b, c;
  check_ok(make("multikey", 2000, -1, 1, &a));
  check_ok(make("multikey", 2000, -1, 1, &b));
  check_ok(make("multikey", 2000, -1, 2, &c));
  assert_memory_equal(a.ids, b.ids, a.count * sizeof *a.ids);
  assert_true(memcmp(a.ids, c.ids, a.count * sizeof *a.ids) != 0);
  still_sample_free(&a);
  still_sample_free(&b);
  still_sample_free(&c);
}

static void test_too_short(void **state) {
  (void)state;
  still_sample sample;
  check_fails(make("sniah1", 100, -1, 1, &sample), STILL_ERROR_ARGUMENT, "the length is 100");
  still_sample_free(&sample);
  check_fails(make("multikey_dense", 200, -1, 1, &sample), STILL_ERROR_ARGUMENT,
              "two needles do not fit into 200 tokens");
  still_sample_free(&sample);
}

static const char *file_of(const char *name, const char *text) {
  return check_file(name, text, strlen(text));
}

static void test_wording(void **state) {
  (void)state;
  still_wording own;
  const char *templates =
      file_of("t.json", "{\"needle\": {\"needle\": \"{key} has {value}.\"}, \"noise\": [\"Hm.\"]}");
  check_ok(still_wording_open(&own, templates, file_of("k.json", "{\"evaluation\": [\"w\"]}")));
  assert_string_equal(own.needle, "{key} has {value}.");
  assert_string_equal(own.question, wording.question);
  assert_int_equal(own.keys.count, 1);
  assert_string_equal(own.noise.items[0], "Hm.");
  still_wording_close(&own);
  check_fails(still_wording_open(&own, file_of("bad.json", "{\"noise\": [7]}"), NULL),
              STILL_ERROR_FORMAT, "'noise' is a number (7), must be a string");
  char *text;
  check_fails(still_fill_in(&text, "{x} {y}", (const still_field[]){{"x", "1"}, {NULL, NULL}}),
              STILL_ERROR_FORMAT, "'{x} {y}' has a field");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_passage), cmocka_unit_test(test_all_tasks),
      cmocka_unit_test(test_babi),    cmocka_unit_test(test_depths),
      cmocka_unit_test(test_seeds),   cmocka_unit_test(test_too_short),
      cmocka_unit_test(test_wording),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
