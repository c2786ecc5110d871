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
static still_questions questions;

static const char question_lines[] =
    "{\"question\": \"Who sells bread?\", \"context\": \"Ada sells bread.\", \"answers\": "
    "{\"text\": [\"Ada\", \"bread.\"]}}\n\n"
    "{\"question\": \"Who sells tea?\", \"context\": [\"Bo sells tea.\", \"Tea is hot.\"], "
    "\"answers\": [\"Bo\"]}\n"
    "{\"question\": \"Who sells ink?\", \"context\": \"Cy sells ink.\", \"answer\": \"Cy\"}\n"
    "{\"question\": \"What is sold?\", \"context\": \"Ada sells bread.\", \"answer\": "
    "\"bread\"}\n";

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
  check_file("questions.jsonl", question_lines, strlen(question_lines));
  check_ok(still_questions_read(&questions, check_path("questions.jsonl")));
  material.questions = &questions;
  for (size_t i = 0; i < wording.noise.count; i++)
    check_ok(still_passage_add(&material.noise, tokenizer, wording.noise.items[i],
                               strlen(wording.noise.items[i])));
  check_ok(still_passage_from_text(&material.prose, tokenizer, prose, strlen(prose)));
  check_ok(still_passage_select(&material.background, &material.prose, STILL_BACKGROUND_TOKENS));
  return 0;
}

static int tear_down(void **state) {
  still_passage_free(&material.prose);
  still_passage_free(&material.background);
  still_passage_free(&material.noise);
  still_wording_close(&wording);
  for (int i = 0; i < 5; i++) still_babi_free(&babi[i]);
  still_questions_free(&questions);
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

static still_task_order order_of(size_t length, double depth, uint64_t seed) {
  still_task_order order = {.material = &material,
                            .length = length,
                            .depth = depth,
                            .index = (size_t)seed,
                            .item_seed = 1};
  still_random_seed(&order.random, seed);
  return order;
}

static still_status make(const char *name, size_t length, double depth, uint64_t seed,
                         still_sample *sample) {
  const still_task *task = still_task_find(name);
  still_task_order order = order_of(length, depth, seed);
  assert_non_null(task);
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

/* Stories stand among sentences of 10 tokens and more, their facts in order at any place between
 * them; of those that are there the first alone may be cut. */
static void test_background(void **state) {
  (void)state;
  static const char mixed[] = "Oh no. A sentence that has many more tokens than ten. It is. "
                              "Another one that is long enough.";
  static const char *const pieces[] = {" A sentence that has many more tokens than ten.",
                                       " Another one that is long enough."};
  const still_task_material usual = material;
  memset(&material.prose, 0, sizeof material.prose);
  memset(&material.background, 0, sizeof material.background);
  check_ok(still_passage_from_text(&material.prose, tokenizer, mixed, strlen(mixed)));
  check_ok(still_passage_select(&material.background, &material.prose, STILL_BACKGROUND_TOKENS));
  assert_int_equal(material.prose.count, 4);
  assert_int_equal(material.background.count, 2);
  bool together = false, first = false, last = false;
  for (uint64_t seed = 0; seed < 200; seed += 2) {
    still_sample sample;
    check_ok(make("babi1", 800, -1, seed, &sample));
    char *text = text_of(&sample, 0, sample.prompt);
    assert_null(strstr(text, "Oh no."));
    assert_null(strstr(text, "It is."));
    char *at = strstr(text, "Example:");
    at = strchr(strchr(at, '\n') + 1, '\n') + 1; /* after the introduction and its empty line */
    char *mary = strstr(at, " Mary moved to the attic."), *john = strstr(at, " John went to the ");
    if (mary) {
      assert_true(john && mary < john);
      together = together || john == mary + strlen(" Mary moved to the attic.");
      last = last || !strncmp(john, " John went to the hall.\n", 24);
      while (*at && strncmp(at, pieces[0], strlen(pieces[0])) &&
             strncmp(at, pieces[1], strlen(pieces[1])) && at != mary)
        at++;
      first = first || at == mary;
      while (*at != '\n') { /* whole sentences and facts */
        const char *const all[] = {pieces[0], pieces[1], " Mary moved to the attic.",
                                   " John went to the hall."};
        size_t i = 0;
        while (i < 4 && strncmp(at, all[i], strlen(all[i]))) i++;
        if (i == 4) fail_msg("'%.40s' is no whole sentence", at);
        at += strlen(all[i]);
      }
    }
    free(text);
    still_sample_free(&sample);
  }
  assert_true(together && first && last);
  still_sample sample;
  check_ok(make("sniah2", 800, -1, 1, &sample)); /* needles stand in all of the prose */
  char *text = text_of(&sample, 0, sample.prompt);
  assert_non_null(strstr(text, "Oh no."));
  free(text);
  still_sample_free(&sample);
  still_passage_free(&material.background);
  check_fails(make("qa1", 800, -1, 1, &sample), STILL_ERROR_FORMAT,
              "qa1: the haystack has no sentence of 10 tokens");
  still_sample_free(&sample);
  still_passage_free(&material.prose);
  material = usual;
}

/* Every task: as long as asked, every part of the answer in the text. */
static void test_all_tasks(void **state) {
  (void)state;
  for (size_t t = 0; still_task_get(t); t++) {
    const still_task *task = still_task_get(t);
    const bool dense = !strcmp(task->name, "multikey_dense") ||
                       !strcmp(task->name, "multikey_uuid") || task->traits & STILL_TASK_FREE;
    for (uint64_t seed = 0; seed < 20; seed++) {
      still_sample sample;
      const size_t length = 2500 + seed;
      check_ok(make(task->name, length, -1, seed, &sample));
      if (task->traits & STILL_TASK_QUESTIONS)
        assert_true(sample.count <= length); /* there are not that many paragraphs */
      else
        assert_true(dense ? sample.count <= length && sample.count + 120 > length
                          : sample.count == length);
      assert_true(sample.answer_count > 0);
      assert_true(sample.prompt > 0 && sample.prompt < sample.count);
      assert_true(sample.depth >= 0 && sample.depth <= 1);
      char *text = text_of(&sample, 0, sample.prompt);
      char *answer = text_of(&sample, sample.prompt, sample.count);
      assert_int_equal(answer[0], ' ');
      for (char *part = strtok(answer, ", "); part; part = strtok(NULL, ", ")) {
        const size_t bytes = strlen(part);
        if (part[bytes - 1] == ':') part[bytes - 1] = 0;
        if (!strstr(text, part) && !(task->traits & STILL_TASK_BABI))
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
  static const char blank[] = "1 Mary moved.\n2 Where is Mary?\t \t1\n";
  check_file("bad/qa3_x_test.txt", blank, strlen(blank));
  check_fails(still_babi_open(&bad, check_path("bad"), 3), STILL_ERROR_FORMAT,
              "qa3_x_test.txt, line 2: a question without an answer");
  check_fails(still_babi_open(&bad, check_path("bad"), 2), STILL_ERROR_FILE,
              "holds no qa2_..._test.txt");
}

/* The prompt leaves as many tokens free as an answer may have. */
static void test_answer_room(void **state) {
  (void)state;
  for (size_t t = 0; still_task_get(t); t++) {
    const still_task *task = still_task_get(t);
    const size_t length = 3000, room = (size_t)task->generate;
    const bool exact = !(task->traits & STILL_TASK_FREE) && strncmp(task->name, "multikey_", 9);
    still_task_order order = order_of(length, -1, 9);
    still_sample sample = {0};
    order.answer = room;
    check_ok(task->make(task, &order, &sample));
    const size_t given = sample.count - sample.prompt;
    const size_t tokens = sample.prompt + (given > room ? given : room);
    if (exact)
      assert_int_equal(tokens, length);
    else
      assert_true(tokens <= length);
    still_sample_free(&sample);
  }
}

/* Length 0: facts and question, nothing else. */
static void test_bare_facts(void **state) {
  (void)state;
  still_sample sample;
  check_ok(make("babi1", 0, -1, 0, &sample));
  char *text = text_of(&sample, 0, sample.prompt);
  assert_null(strstr(text, "sentence"));
  const bool two = strstr(text, "Mary moved to the attic. John went to the hall.\nQuestion: Where "
                                "is Mary? Answer:") != NULL;
  const bool one = strstr(text, "\nSandra sat down.\nQuestion: Where is Sandra? Answer:") != NULL;
  assert_true(one != two);
  free(text);
  still_sample_free(&sample);
}

/* ---- words */

typedef struct word_count {
  char word[64];
  int times;
} word_count;

/* Counts the words of a text, after "1. ", "2. " ... where it is numbered; returns how many
 * differ. */
static size_t count_words(char *text, bool numbered, word_count *counts, size_t room) {
  size_t different = 0;
  int number = 0;
  for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
    if (numbered) {
      char expected[24];
      snprintf(expected, sizeof expected, "%d.", ++number);
      assert_string_equal(word, expected);
      word = strtok(NULL, " ");
      assert_non_null(word);
    }
    size_t i = 0;
    while (i < different && strcmp(counts[i].word, word)) i++;
    assert_true(i < room && strlen(word) < sizeof counts[i].word);
    if (i == different) strcpy(counts[different++].word, word);
    counts[i].times++;
  }
  return different;
}

static bool is_among(char *const *answers, size_t count, const char *word) {
  for (size_t i = 0; i < count; i++)
    if (!strcmp(answers[i], word)) return true;
  return false;
}

/* Between the last `begin` and the next `end`. */
static char *part_of(const char *text, const char *begin, const char *end) {
  const char *from = NULL;
  for (const char *at = text; (at = strstr(at, begin)); at++) from = at + strlen(begin);
  assert_non_null(from);
  const char *to = strstr(from, end);
  assert_non_null(to);
  return strndup(from, (size_t)(to - from));
}

static void check_common_words(size_t length, int often, int rarely) {
  still_sample sample;
  word_count counts[512] = {{"", 0}};
  check_ok(make("cwe", length, -1, 4, &sample));
  char *text = text_of(&sample, 0, sample.prompt);
  char *list = part_of(text, "most frequent ones.\n", "\nQuestion:");
  const size_t different = count_words(list, true, counts, 512);
  assert_int_equal(sample.answer_count, 10);
  assert_true(different > 11);
  for (size_t i = 0; i < different; i++)
    assert_int_equal(counts[i].times,
                     is_among(sample.answers, 10, counts[i].word) ? often : rarely);
  free(list);
  char *example = part_of(text, "words in the list are: 1. ", "\n"); /* an answered one before it */
  assert_non_null(strstr(example, " 10. "));
  free(example);
  free(text);
  still_sample_free(&sample);
}

static void test_common_words(void **state) {
  (void)state;
  check_common_words(3000, 6, 1);
  check_common_words(9000, 30, 3);
}

static void test_frequent_words(void **state) {
  (void)state;
  still_sample sample;
  word_count counts[512] = {{"", 0}};
  check_ok(make("fwe", 6000, -1, 4, &sample));
  char *text = text_of(&sample, 0, sample.prompt);
  char *list = part_of(text, "comes after the text. ", "\nQuestion:");
  const size_t different = count_words(list, false, counts, 512);
  int times[4] = {0}, total = 0;
  assert_int_equal(sample.answer_count, 3);
  for (size_t i = 0; i < different; i++) {
    total += counts[i].times;
    if (!strcmp(counts[i].word, "...")) times[0] = counts[i].times;
    for (int k = 0; k < 3; k++)
      if (!strcmp(counts[i].word, sample.answers[k])) times[k + 1] = counts[i].times;
  }
  const double words = times[0] * 1.6449340668482264; /* n / zeta(2) for the first, then 1 / k^2 */
  for (int k = 1; k < 4; k++)
    assert_true(abs(times[k] - (int)(words / 1.6449340668482264 / ((k + 1) * (k + 1)))) <= 1);
  assert_true(total <= words + 2 && total > 0.8 * words);
  for (size_t i = 0; i < different; i++)
    if (strcmp(counts[i].word, "...") && !is_among(sample.answers, 3, counts[i].word))
      assert_true(counts[i].times < times[3]);
  free(list);
  free(text);
  still_sample_free(&sample);
}

/* ---- documents */

static size_t times_in(const char *text, const char *part) {
  size_t count = 0;
  for (const char *at = text; (at = strstr(at, part)); at++) count++;
  return count;
}

static void test_documents(void **state) {
  (void)state;
  static const char *const paragraphs[] = {"Ada sells bread.", "Bo sells tea.", "Tea is hot.",
                                           "Cy sells ink."};
  bool asked[4] = {false};
  assert_int_equal(questions.paragraphs.count, 4);
  for (size_t index = 0; index < 4; index++) {
    still_sample all, few;
    check_ok(make("qa", 2000, -1, index, &all));
    char *text = text_of(&all, 0, all.prompt);
    for (int i = 0; i < 4; i++) assert_int_equal(times_in(text, paragraphs[i]), 1);
    for (size_t i = 0; i < 4; i++) {
      char question[64];
      snprintf(question, sizeof question, "Question: %s Answer:", questions.items[i].text);
      if (!strstr(text, question)) continue;
      asked[i] = true;
      assert_int_equal(all.answer_count, questions.items[i].answer_count);
      const still_question *q = &questions.items[i];
      check_ok(make("qa", all.count - 1, -1, index, &few)); /* one paragraph fewer */
      char *less = text_of(&few, 0, few.prompt);
      for (size_t k = q->first; k < q->end; k++)
        assert_int_equal(
            times_in(less, still_name_table_get(&questions.paragraphs, questions.needed[k])), 1);
      assert_int_equal(times_in(less, "Document "), 3);
      free(less);
      still_sample_free(&few);
    }
    assert_non_null(strstr(text, "Document 4:\n"));
    free(text);
    still_sample_free(&all);
  }
  assert_true(asked[0] && asked[1] && asked[2] && asked[3]); /* each once, in some order */
  still_sample sample;
  check_fails(make("qa", 100, -1, 0, &sample), STILL_ERROR_ARGUMENT, "the length is 100");
  still_sample_free(&sample);
}

/* The other paragraphs of a question's article come before those of others. */
static void test_articles(void **state) {
  (void)state;
  char lines[2048] = "";
  for (int i = 0; i < 9; i++)
    snprintf(lines + strlen(lines), sizeof lines - strlen(lines),
             "{\"title\": \"%c\", \"question\": \"q%d\", \"context\": \"<%c%d>\", "
             "\"answer\": \"a\"}\n",
             'A' + i % 3, i, 'A' + i % 3, i);
  strcat(lines, "{\"question\": \"none\", \"context\": \"<N>\", \"answer\": \"a\"}\n");
  check_file("articles.jsonl", lines, strlen(lines));
  still_questions articles;
  check_ok(still_questions_read(&articles, check_path("articles.jsonl")));
  material.questions = &articles;
  const still_task *find = still_task_find("documents");
  bool strangers[10] = {false};
  for (size_t index = 0; index < 10; index++) {
    for (size_t length = 700;; length -= 20) {
      still_task_order order = order_of(length, -1, index);
      still_sample sample = {0};
      const still_status status = find->make(find, &order, &sample);
      if (status) {
        still_sample_free(&sample);
        break;
      }
      char *text = text_of(&sample, 0, sample.prompt);
      const char *question = strstr(text, "Question: q");
      if (question) {
        const int number = question[11] - '0';
        char kin[4] = {'<', (char)('A' + number % 3), 0, 0}, own[8];
        snprintf(own, sizeof own, "<%c%d>", kin[1], number);
        assert_int_equal(times_in(text, own), 1);
        const size_t documents = times_in(text, "Document "), same = times_in(text, kin);
        assert_int_equal(same, documents < 3 ? documents : 3);
        for (int i = 0; i < 9 && documents == 4; i++) {
          char other[8];
          snprintf(other, sizeof other, "<%c%d>", 'A' + i % 3, i);
          if (i % 3 != number % 3 && strstr(text, other)) strangers[i] = true;
        }
      }
      free(text);
      still_sample_free(&sample);
    }
  }
  size_t different = 0;
  for (int i = 0; i < 9; i++) different += strangers[i];
  assert_true(different >= 4); /* those of other articles are drawn at random */
  material.questions = &questions;
  still_questions_free(&articles);
}

static void refuse_questions(const char *lines, const char *sentence) {
  still_questions bad;
  check_file("bad.jsonl", lines, strlen(lines));
  check_fails(still_questions_read(&bad, check_path("bad.jsonl")), STILL_ERROR_FORMAT, sentence);
}

static void test_bad_questions(void **state) {
  (void)state;
  refuse_questions("", "bad.jsonl: holds no question");
  refuse_questions("\n{\"question\": \"q\"", "bad.jsonl, line 2");
  refuse_questions("{\"question\": \"q\", \"context\": \"c\"}", "line 1: 'answers'");
  refuse_questions("{\"question\": \"q\", \"context\": \"c\", \"answers\": []}",
                   "'answers' has no entries");
  refuse_questions("{\"question\": \"q\", \"context\": \"c\", \"answers\": [\" \"]}",
                   "an answer is empty");
  refuse_questions("{\"question\": \"q\", \"context\": [], \"answers\": \"a\"}",
                   "'context' has no entries");
  refuse_questions("{\"question\": \"q\", \"context\": 7, \"answers\": \"a\"}", "'context'");
}

/* ---- labels and scores */

static void test_labels(void **state) {
  (void)state;
  still_sample sample;
  check_ok(make("qa3", 2500, -1, 3, &sample));
  assert_int_equal(sample.answer_count, 1);
  char *text = text_of(&sample, 0, sample.prompt);
  const char *question = strstr(text, "Where was the ");
  assert_non_null(question);
  for (size_t i = 0; i < wording.places.count; i++) {
    const char *place = wording.places.items[i];
    const bool allowed = !strcmp(place, sample.answers[0]) || strstr(question, place);
    assert_int_equal(is_among(sample.others, sample.other_count, place), !allowed);
  }
  free(text);
  still_sample_free(&sample);
}

static double score(still_rule rule, const char *text) {
  static const char *const answers[] = {"Kitchen", "garden"}, *const others[] = {"hallway",
                                                                                 "office"};
  const still_expectation e = {rule, answers, others, rule == STILL_RULE_LABEL ? 1 : 2, 2};
  return still_score(&e, text);
}

static bool is_final(still_rule rule, const char *text) {
  static const char *const answers[] = {"Kitchen", "garden"}, *const others[] = {"hallway",
                                                                                 "office"};
  const still_expectation e = {rule, answers, others, rule == STILL_RULE_LABEL ? 1 : 2, 2};
  return still_score_is_final(&e, text);
}

static void test_scores(void **state) {
  (void)state;
  assert_true(score(STILL_RULE_ALL, "") == 0);
  assert_true(score(STILL_RULE_ALL, "the KITCHEN") == 0.5);
  assert_true(score(STILL_RULE_ALL, "gardens, and the kitchen") == 1);
  assert_true(score(STILL_RULE_ANY, "garden") == 1 && score(STILL_RULE_ANY, "gard en") == 0);
  assert_true(score(STILL_RULE_LABEL, " Kitchen") == 1);
  assert_true(score(STILL_RULE_LABEL, "In the kitchen, not the Office") == 0);
  assert_true(score(STILL_RULE_LABEL, "In the kitchen. Not the office") == 1);
  assert_true(score(STILL_RULE_LABEL, "kitchen <Example> office") == 1);
  assert_true(score(STILL_RULE_LABEL, "kitchen <context> office") == 1);
  assert_true(score(STILL_RULE_LABEL, "kitchen Question: office") == 0);
  assert_true(score(STILL_RULE_LABEL, ". kitchen") == 0);
  assert_true(is_final(STILL_RULE_ALL, "garden kitchen") && !is_final(STILL_RULE_ALL, "garden"));
  assert_true(is_final(STILL_RULE_ANY, "garden") && !is_final(STILL_RULE_ANY, "x. "));
  assert_true(is_final(STILL_RULE_LABEL, "x.") && !is_final(STILL_RULE_LABEL, "kitchen"));
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

/* Every task: the same sample for a seed, another for another. */
static void test_seeds(void **state) {
  (void)state;
  for (size_t t = 0; still_task_get(t); t++) {
    const char *name = still_task_get(t)->name;
    still_sample a, b, c;
    check_ok(make(name, 2500, -1, 1, &a));
    check_ok(make(name, 2500, -1, 1, &b));
    check_ok(make(name, 2500, -1, 2, &c));
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.ids, b.ids, a.count * sizeof *a.ids);
    assert_true(a.count != c.count || memcmp(a.ids, c.ids, a.count * sizeof *a.ids) != 0);
    still_sample_free(&a);
    still_sample_free(&b);
    still_sample_free(&c);
  }
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
      cmocka_unit_test(test_passage),        cmocka_unit_test(test_all_tasks),
      cmocka_unit_test(test_babi),           cmocka_unit_test(test_depths),
      cmocka_unit_test(test_seeds),          cmocka_unit_test(test_too_short),
      cmocka_unit_test(test_wording),        cmocka_unit_test(test_answer_room),
      cmocka_unit_test(test_bare_facts),     cmocka_unit_test(test_common_words),
      cmocka_unit_test(test_frequent_words), cmocka_unit_test(test_documents),
      cmocka_unit_test(test_background),     cmocka_unit_test(test_articles),
      cmocka_unit_test(test_bad_questions),  cmocka_unit_test(test_labels),
      cmocka_unit_test(test_scores),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
