/* SPDX-License-Identifier: MIT
 * still_evaluate: the same numbers every time, results that go on where they were, shared
 * beginnings, intervals. */
#include "byte_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <still/evaluate.h>
#include <string.h>
#include <unistd.h>

/* ---- intervals */

static void test_wilson(void **state) {
  (void)state;
  double low, high;
  still_wilson_interval(0, 0, &low, &high);
  assert_true(low == 0 && high == 1);
  still_wilson_interval(0, 10, &low, &high);
  assert_true(low == 0 && fabs(high - 0.27753) < 1e-4);
  still_wilson_interval(10, 10, &low, &high);
  assert_true(high == 1 && fabs(low - 0.72247) < 1e-4);
  still_wilson_interval(81, 263, &low, &high); /* Newcombe 1998, table I: 0.2553 to 0.3662 */
  assert_true(fabs(low - 0.2553) < 1e-4 && fabs(high - 0.3662) < 1e-4);
}

/* ---- two runs of a small random model */

typedef struct fixture {
  still_model *model;
  still_evaluation_run runs[2];
  still_evaluation_options options;
} fixture;

static const char *const task_list[] = {"sniah1", "tracking"};
static const int length_list[] = {800, 960};

static fixture open_fixture(const char *path) {
  fixture f = {.options = STILL_EVALUATION_OPTIONS_INIT};
  still_session_options session = STILL_SESSION_OPTIONS_INIT;
  session.threads = 1;
  check_ok(still_model_open(&f.model, path, NULL));
  f.runs[0] = (still_evaluation_run){"full", f.model, session};
  f.runs[1] = (still_evaluation_run){"still:128", f.model, session};
  f.runs[1].session.attention = STILL_ATTENTION_STILL;
  f.runs[1].session.budget = 128;
  f.options.tasks = task_list, f.options.task_count = 2;
  f.options.lengths = length_list, f.options.length_count = 2;
  f.options.samples = 3;
  f.options.scoring = STILL_SCORING_EXACT; /* quicker */
  return f;
}

static still_evaluation_report *evaluate(fixture *f) {
  still_evaluation_report *report;
  check_ok(still_evaluate(f->runs, 2, &f->options, &report));
  return report;
}

static size_t lines_of(const char *path) {
  char *text = check_read(path, NULL);
  size_t count = 0;
  for (const char *at = text; (at = strchr(at, '\n')); at++) count++;
  free(text);
  return count;
}

static int stop_after(void *user, uint64_t done, uint64_t total) {
  assert_true(done <= total);
  return done >= *(uint64_t *)user;
}

static void test_cells(void **state) {
  (void)state;
  fixture f = open_fixture(byte_model());
  f.options.scoring = STILL_SCORING_TASK;
  still_evaluation_report *report = evaluate(&f);
  size_t count;
  const still_evaluation_cell *cells = still_evaluation_report_cells(report, &count);
  assert_int_equal(count, 8);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(cells[i].count, 3);
    assert_int_equal(cells[i].length, length_list[i / 4]);
    assert_string_equal(cells[i].run, f.runs[i / 2 % 2].name);
    assert_string_equal(cells[i].task, task_list[i % 2]);
    assert_true(cells[i].depth < 0 && cells[i].seconds > 0);
    assert_true(cells[i].low <= cells[i].right / 3 && cells[i].high >= cells[i].right / 3);
  }
  still_evaluation_report_destroy(report);
  still_model_destroy(f.model);
}

/* A long sample need not end first. */
static void test_stop_within(void **state) {
  (void)state;
  fixture f = open_fixture(byte_model());
  uint64_t stop = 0;
  still_evaluation_report *report;
  f.options.results = check_path("within.jsonl");
  f.options.progress = stop_after;
  f.options.progress_user = &stop;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_CANCELLED, "stopped");
  assert_int_equal(lines_of(f.options.results), 1);
  still_model_destroy(f.model);
}

/* Stopped, then resumed: the file has each sample once, those of the run without a break. */
static void test_resume(void **state) {
  (void)state;
  fixture f = open_fixture(byte_model());
  uint64_t stop = 5;
  still_evaluation_report *report;
  f.options.results = check_path("whole.jsonl");
  f.options.command = "a \"test\"";
  still_evaluation_report_destroy(evaluate(&f));
  assert_int_equal(lines_of(f.options.results), 1 + 24);

  f.options.results = check_path("parts.jsonl");
  f.options.progress = stop_after;
  f.options.progress_user = &stop;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_CANCELLED,
              "stopped after 5 of 24 samples");
  FILE *file = fopen(f.options.results, "a"); /* a line that was not finished */
  fputs("{\"run\": \"fu", file);
  fclose(file);
  f.options.progress = NULL;
  f.options.resume = 1;
  still_evaluation_report_destroy(evaluate(&f));
  assert_int_equal(lines_of(f.options.results), 2 + 24);
  report = evaluate(&f); /* nothing is left to ask */
  assert_int_equal(lines_of(f.options.results), 3 + 24);
  size_t count;
  const still_evaluation_cell *cells = still_evaluation_report_cells(report, &count);
  for (size_t i = 0; i < count; i++) assert_true(cells[i].count == 3 && cells[i].seconds == 0);
  still_evaluation_report_destroy(report);

  f.options.seed++;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "parts.jsonl, line 1: these results are of 'seed 7,");
  still_model_destroy(f.model);
}

static void test_damaged_results(void **state) {
  (void)state;
  fixture f = open_fixture(byte_model());
  still_evaluation_report *report;
  static const char bad[] =
      "{\"run\":\"a\",\"task\":\"b\",\"length\":1,\"depth_index\":-1,\"index\":0,\"depth\":0,"
      "\"right\":1}\n{\"run\": \"a\"}\n";
  f.options.results = check_file("bad.jsonl", bad, sizeof bad - 1);
  f.options.resume = 1;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_FORMAT,
              "bad.jsonl, line 2: 'task' is missing");
  f.options.results = check_file("worse.jsonl", "{\n", 2);
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_FORMAT,
              "worse.jsonl, line 1");
  static const char *const lines[][2] = {
      {"\"depth_index\": 2147483647, \"depth\": 0, \"right\": 1",
       "must be an integer from -1 to 100"},
      {"\"depth_index\": -1, \"depth\": 7, \"right\": 1", "'depth' is 7, must be 0 .. 1"},
      {"\"depth_index\": -1, \"depth\": 0, \"right\": 1e300", "must be 0 .. 1"}};
  for (size_t i = 0; i < CHECK_COUNT(lines); i++) {
    char text[512];
    snprintf(text, sizeof text,
             "{\"still_evaluation\": 1, \"settings\": \"s\", \"runs\": []}\n{\"run\": \"a\", "
             "\"task\": \"b\", \"length\": 1, \"index\": 0, %s}\n",
             lines[i][0]);
    const char *path = check_file("wrong.jsonl", text, strlen(text));
    check_fails(still_evaluation_report_read(&path, 1, &report), STILL_ERROR_FORMAT, lines[i][1]);
  }
  still_model_destroy(f.model);
}

static void test_refusals(void **state) {
  (void)state;
  fixture f = open_fixture(byte_model());
  still_evaluation_report *report;
  const char *unknown = "niah9", *needs_prose = "sniah2", *several = "tracking";
  const int tiny = 50, large = 4096;
  f.options.task_count = f.options.length_count = 1;
  f.options.tasks = &unknown;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "task 'niah9' is unknown; known are sniah1");
  f.options.tasks = &needs_prose;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "task 'sniah2' needs a text");
  f.options.tasks = &several;
  f.options.depths = 3;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "'tracking' has no grid of depths");
  f.options.depths = 0;
  f.options.lengths = &tiny;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "the length is 50");
  f.options.lengths = &large;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "tracking: 4096 tokens are more than the 2048");
  f.options.skip_long = 1;
  report = evaluate(&f);
  still_evaluation_report_destroy(report);
  f.runs[1].name = "full";
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "two runs are named 'full'");
  char name[600];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = 0;
  f.runs[1].name = name; /* its samples could not be told apart */
  f.options.results = check_path("name.jsonl");
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "has 599 bytes, a name has at most 512");
  const int twice[] = {800, 960, 800};
  f.options.lengths = twice, f.options.length_count = 3;
  check_fails(still_evaluate(f.runs, 1, &f.options, &report), STILL_ERROR_ARGUMENT,
              "length 800 is given twice");
  still_model_destroy(f.model);
}

/* What only some tasks can be asked. */
static void test_refused_combinations(void **state) {
  (void)state;
  fixture f = open_fixture(byte_model());
  still_evaluation_report *report;
  const char *words = "cwe", *qa = "documents", *one = "niah_single_1";
  const char *const twice[] = {"sniah1", "niah_single_1"};
  const int zero = 0;
  f.options.task_count = f.options.length_count = 1;
  f.options.tasks = &words;
  f.options.scoring = STILL_SCORING_EXACT;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "'common_words' has no exact answer");
  f.options.scoring = STILL_SCORING_TASK;
  f.options.tasks = &qa;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "'documents' needs a file of questions");
  f.options.tasks = &one;
  f.options.lengths = &zero;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "'sniah1' has no length 0");
  f.options.lengths = length_list;
  f.options.tasks = twice;
  f.options.task_count = 2;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "'sniah1' is given twice");
  still_model_destroy(f.model);
}

/* A file of questions of which one is too long: an error, or (skip_long) that one alone left out. */
static void test_long_items(void **state) {
  (void)state;
  fixture f = open_fixture(byte_model());
  still_evaluation_report *report;
  char lines[4096], long_paragraph[1200];
  const char *qa = "documents";
  const int length = 800;
  f.options.scoring = STILL_SCORING_TASK;
  memset(long_paragraph, 'x', sizeof long_paragraph - 1);
  long_paragraph[sizeof long_paragraph - 1] = 0;
  snprintf(lines, sizeof lines,
           "{\"question\": \"q\", \"context\": \"a b\", \"answer\": \"a\"}\n"
           "{\"question\": \"r\", \"context\": \"%s\", \"answer\": \"x\"}\n",
           long_paragraph);
  f.options.questions = check_file("long.jsonl", lines, strlen(lines));
  f.options.tasks = &qa, f.options.lengths = &length;
  f.options.task_count = f.options.length_count = 1;
  f.options.samples = 2;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "documents: a sample takes");
  f.options.skip_long = 1;
  report = evaluate(&f);
  size_t count;
  const still_evaluation_cell *cells = still_evaluation_report_cells(report, &count);
  for (size_t i = 0; i < count; i++) assert_int_equal(cells[i].count, 1);
  still_evaluation_report_destroy(report);
  still_model_destroy(f.model);
}

/* A session that the user made too small: named, left out where that is asked for. */
static void test_small_context(void **state) {
  (void)state;
  fixture f = open_fixture(byte_model());
  still_evaluation_report *report;
  f.runs[0].session.context = 850;
  f.options.task_count = 1;
  check_fails(still_evaluate(f.runs, 1, &f.options, &report), STILL_ERROR_LIMIT,
              "run 'full': sniah1 of 960 tokens: ");
  f.options.skip_long = 1;
  check_ok(still_evaluate(f.runs, 1, &f.options, &report));
  size_t count;
  const still_evaluation_cell *cells = still_evaluation_report_cells(report, &count);
  assert_int_equal(count, 2);
  assert_true(cells[0].count == 3 && !cells[1].count);
  still_evaluation_report_destroy(report);
  still_model_destroy(f.model);
}

/* bAbI's facts alone: the session has room for the longest. */
static void test_bare_facts(void **state) {
  (void)state;
  fixture f = open_fixture(byte_model());
  static const char stories[] = "1 Mary moved to the attic.\n2 Where is Mary?\tattic\t1\n"
                                "3 John went to the hall.\n4 Where is John?\thall\t3\n";
  const char *babi = "babi1";
  const int length = 0;
  check_file("babi/qa1_x_test.txt", stories, strlen(stories));
  f.options.babi = check_path("babi");
  f.options.haystack = check_file("prose.txt", "Prose.", 6);
  f.options.tasks = &babi, f.options.lengths = &length;
  f.options.task_count = f.options.length_count = 1;
  f.options.samples = 3;
  still_evaluation_report *report = evaluate(&f);
  size_t count;
  const still_evaluation_cell *cells = still_evaluation_report_cells(report, &count);
  assert_int_equal(count, 2);
  for (size_t i = 0; i < count; i++) assert_true(cells[i].count == 3 && !cells[i].length);
  still_evaluation_report_destroy(report);
  still_model_destroy(f.model);
}

/* Three processes' worth of work, put together: the report of one. */
static void test_shards(void **state) {
  (void)state;
  fixture f = open_fixture(byte_model());
  still_evaluation_report *whole, *report;
  const char *paths[3];
  char name[3][32];
  f.options.samples = 4;
  f.options.results = check_path("one.jsonl");
  whole = evaluate(&f);
  f.options.shards = 3;
  for (int i = 0; i < 3; i++) {
    snprintf(name[i], sizeof name[i], "shard%d.jsonl", i);
    paths[i] = strdup(check_path(name[i]));
    f.options.results = paths[i];
    f.options.shard = i;
    still_evaluation_report_destroy(evaluate(&f));
    assert_int_equal(lines_of(paths[i]), 1 + (i ? 8 : 16));
  }
  check_ok(still_evaluation_report_read(paths, 3, &report));
  size_t count, whole_count;
  const still_evaluation_cell *cells = still_evaluation_report_cells(report, &count);
  const still_evaluation_cell *expected = still_evaluation_report_cells(whole, &whole_count);
  assert_int_equal(count, whole_count);
  for (size_t i = 0; i < count; i++) {
    assert_string_equal(cells[i].run, expected[i].run);
    assert_string_equal(cells[i].task, expected[i].task);
    assert_int_equal(cells[i].length, expected[i].length);
    assert_true(cells[i].depth == expected[i].depth);
    assert_int_equal(cells[i].count, 4);
    assert_true(cells[i].right == expected[i].right && cells[i].low == expected[i].low);
  }
  still_evaluation_report_destroy(report);
  const char *twice[] = {paths[0], paths[1], paths[0]}; /* no sample counts twice */
  check_ok(still_evaluation_report_read(twice, 3, &report));
  assert_int_equal(still_evaluation_report_cells(report, &count)->count, 3);
  still_evaluation_report_destroy(report);
  still_evaluation_report_destroy(whole);

  f.options.shard = 3;
  check_fails(still_evaluate(f.runs, 2, &f.options, &report), STILL_ERROR_ARGUMENT,
              "shard is 3, must be 0 .. 2");
  f.options.shard = 1, f.options.seed = 8;
  f.options.results = check_path("other.jsonl");
  still_evaluation_report_destroy(evaluate(&f));
  const char *mixed[] = {paths[0], f.options.results};
  check_fails(still_evaluation_report_read(mixed, 2, &report), STILL_ERROR_ARGUMENT,
              "other.jsonl, line 1: these results are of 'seed 8,");
  f.options.seed = 7;
  f.runs[1].session.budget = 140; /* a run of the same name that is not the same */
  still_evaluation_report_destroy(evaluate(&f));
  check_fails(still_evaluation_report_read(mixed, 2, &report), STILL_ERROR_ARGUMENT,
              "other.jsonl, line 1: run 'still:128' is of");
  check_fails(still_evaluation_report_read(NULL, 0, &report), STILL_ERROR_FORMAT, "no sample");
  for (int i = 0; i < 3; i++) free((char *)paths[i]);
  still_model_destroy(f.model);
}

/* ---- names from anywhere, and more of them than a report takes */

static const char results_head[] = "{\"still_evaluation\": 1, \"settings\": \"s\", \"runs\": []}\n";

static void hostile_names(void **state) {
  (void)state;
  char text[1024], line[128];
  still_evaluation_report *report;
  memset(line, 'x', 80);
  line[80] = 0;
  snprintf(text, sizeof text,
           "%s{\"run\": \"</text><script>&\\u0001\xff\", \"task\": \"%s\", \"length\": 0, "
           "\"depth_index\": -1, \"index\": 0, \"depth\": 0, \"right\": 1}\n",
           results_head, line);
  const char *path = check_file("hostile.jsonl", text, strlen(text));
  check_ok(still_evaluation_report_read(&path, 1, &report));
  check_ok(still_evaluation_report_draw(report, STILL_PICTURE_LENGTHS, check_path("hostile.svg")));
  check_fails(still_evaluation_report_draw(report, STILL_PICTURE_DEPTHS, check_path("none.svg")),
              STILL_ERROR_ARGUMENT, "needs a grid of depths");
  char *svg = check_read(check_path("hostile.svg"), NULL);
  assert_null(strstr(svg, "<script"));
  assert_null(strchr(svg, 1)), assert_null(strchr(svg, '\xff'));
  assert_null(strstr(svg, "nan"));
  assert_non_null(strstr(svg, "&#60;/text&#62;&#60;script&#62;&#38;\xef\xbf\xbd\xef\xbf\xbd<"));
  line[38] = 0; /* what a panel has room for */
  strcat(line, "\xe2\x80\xa6<");
  assert_non_null(strstr(svg, line));
  free(svg);
  still_evaluation_report_destroy(report);
}

static void grids_that_are_too_large(void **state) {
  (void)state;
  enum { NAMES = 200, LINE = 160 }; /* 8 million cells of 200 samples */
  char *text = malloc(NAMES * LINE + sizeof results_head);
  assert_non_null(text);
  size_t at = (size_t)sprintf(text, "%s", results_head);
  for (int i = 0; i < NAMES; i++)
    at += (size_t)snprintf(
        text + at, LINE,
        "{\"run\": \"r%d\", \"task\": \"t%d\", \"length\": %d, \"depth_index\": -1, "
        "\"index\": 0, \"depth\": 0, \"right\": 1}\n",
        i, i, i);
  const char *path = check_file("large.jsonl", text, at);
  still_evaluation_report *report;
  check_fails(still_evaluation_report_read(&path, 1, &report), STILL_ERROR_ARGUMENT,
              "more than 4194304 parts");
  assert_null(report);
  free(text);
}

/* ---- needle: what it knows, and what a window forgets */

static void test_needle(void **state) {
  (void)state;
  fixture f = open_fixture(needle_folder());
  const char *task = "sniah1";
  const int length = 384;
  f.runs[1].name = "swa:96";
  f.runs[1].session.attention = STILL_ATTENTION_SWA;
  f.runs[1].session.window = 96;
  f.options.tasks = &task, f.options.lengths = &length;
  f.options.task_count = f.options.length_count = 1;
  f.options.scoring = STILL_SCORING_TASK;
  f.options.depths = 4; /* neighbours share their beginning */
  f.options.samples = 2;
  still_evaluation_report *report = evaluate(&f);
  size_t count;
  const still_evaluation_cell *cells = still_evaluation_report_cells(report, &count);
  assert_int_equal(count, 8);
  for (int d = 0; d < 4; d++) {
    assert_true(cells[d].right == 2);
    assert_true(fabs(cells[d].depth - d / 3.0) < 1e-9);
    assert_true(cells[4 + d].right == (d == 3 ? 2 : 0));
  }
  check_ok(still_evaluation_report_draw(report, STILL_PICTURE_DEPTHS, check_path("depths.svg")));
  check_ok(still_evaluation_report_draw(report, STILL_PICTURE_LENGTHS, check_path("lengths.svg")));
  char *svg = check_read(check_path("depths.svg"), NULL);
  assert_non_null(strstr(svg, ">swa:96, sniah1<"));
  assert_non_null(strstr(svg, "class=\"m d\">100<"));
  assert_non_null(strstr(svg, "class=\"m l\">0<"));
  free(svg);
  svg = check_read(check_path("lengths.svg"), NULL);
  assert_non_null(strstr(svg, ">sniah1</text>"));
  free(svg);
  still_evaluation_report_destroy(report);
  still_model_destroy(f.model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wilson),
      cmocka_unit_test(test_cells),
      cmocka_unit_test(test_resume),
      cmocka_unit_test(test_stop_within),
      cmocka_unit_test(test_damaged_results),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_shards),
      cmocka_unit_test(test_refused_combinations),
      cmocka_unit_test(test_long_items),
      cmocka_unit_test(test_bare_facts),
      cmocka_unit_test(test_small_context),
      cmocka_unit_test(hostile_names),
      cmocka_unit_test(grids_that_are_too_large),
      cmocka_unit_test(test_needle),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
