/* SPDX-License-Identifier: MIT
 * Perplexity, divergence and multiple choice against what single sessions give. */
#include "byte_model.h"

#include <math.h>
#include <stdio.h>
#include <still/evaluate.h>

static const char text[] =
    "It is a truth universally acknowledged, that a text in a test need not be long. "
    "But it has to have more than one row, and rows that have something in common.";

static still_model *model;
static still_evaluation_run full, still_128;

static int set_up(void **state) {
  (void)state;
  const still_session_options session = STILL_SESSION_OPTIONS_INIT;
  check_ok(still_model_open(&model, byte_model(), NULL));
  full = (still_evaluation_run){"full", model, session};
  still_128 = (still_evaluation_run){"still", model, session};
  still_128.session.attention = STILL_ATTENTION_STILL;
  still_128.session.chunk = 4;
  still_128.session.budget = 44;
  return 0;
}

static int tear_down(void **state) {
  still_model_destroy(model);
  return check_nothing_allocated(state);
}

/* -log p of each byte from..to-1 of the text, bytes begin.. before it as context, in float64. */
static double nats_of(const still_evaluation_run *run, const char *bytes, size_t begin, size_t from,
                      size_t to) {
  still_session *session;
  still_session_options options = run->session;
  double sum = 0;
  options.context = (int)(to - begin);
  check_ok(still_session_create(&session, model, &options));
  for (size_t i = begin; i < to; i++) {
    const still_token id = (unsigned char)bytes[i];
    const float *logits = still_session_logits(session);
    double total = 0;
    if (i >= from && i > begin) {
      for (int k = 0; k < 256; k++) total += exp((double)logits[k]);
      sum += log(total) - (double)logits[id];
    }
    check_ok(still_session_evaluate(session, &id, 1, NULL, NULL));
  }
  still_session_destroy(session);
  return sum;
}

static still_language_result measure(const still_evaluation_run *run,
                                     const still_evaluation_run *reference, int length,
                                     int stride) {
  still_language_options options = STILL_LANGUAGE_OPTIONS_INIT;
  still_language_result result;
  options.length = length;
  options.stride = stride;
  check_ok(still_evaluate_language(run, reference, text, strlen(text), &options, &result));
  return result;
}

static void test_whole(void **state) {
  (void)state;
  const size_t n = strlen(text);
  const still_language_result r = measure(&still_128, NULL, 0, 0);
  assert_int_equal(r.rows, 1);
  assert_int_equal(r.tokens, n - 1); /* the first byte has nothing before it */
  const double nats = nats_of(&still_128, text, 0, 0, n) / (double)(n - 1);
  assert_true(fabs(r.nats - nats) < 1e-4);
  assert_true(fabs(r.perplexity - exp(r.nats)) < 1e-9 && r.divergence == 0);
  assert_true(fabs(r.bits_per_byte - r.nats / log(2)) < 1e-9);
}

static void test_sliding(void **state) {
  (void)state;
  const size_t n = strlen(text), rows = (n - 60) / 20 + 1;
  const still_language_result r = measure(&full, NULL, 60, 20);
  double nats = nats_of(&full, text, 0, 0, 60);
  for (size_t i = 1; i < rows; i++) nats += nats_of(&full, text, 20 * i, 20 * i + 40, 20 * i + 60);
  assert_int_equal(r.rows, rows);
  assert_int_equal(r.tokens, 59 + 20 * (rows - 1));
  assert_true(fabs(r.nats - nats / (double)r.tokens) < 1e-4);
  assert_true(r.nats_error > 0);
  const still_language_result apart = measure(&full, NULL, 60, 0);
  assert_int_equal(apart.rows, n / 60);
  assert_int_equal(apart.tokens, 59 * (n / 60));
}

/* ---- distance from a reference, against float64 sums over single sessions' distributions */

typedef struct distribution {
  double log_p[256];
} distribution;

/* That of the byte after each of the text's first n. */
static distribution *distributions(const still_evaluation_run *run, size_t n) {
  distribution *all = calloc(n, sizeof *all);
  still_session *session;
  still_session_options options = run->session;
  options.context = (int)n + 1;
  assert_non_null(all);
  check_ok(still_session_create(&session, model, &options));
  for (size_t i = 0; i < n; i++) {
    const still_token id = (unsigned char)text[i];
    check_ok(still_session_evaluate(session, &id, 1, NULL, NULL));
    const float *logits = still_session_logits(session);
    float largest = logits[0];
    double sum = 0;
    for (int k = 1; k < 256; k++) largest = fmaxf(largest, logits[k]);
    for (int k = 0; k < 256; k++) sum += exp((double)logits[k] - largest);
    for (int k = 0; k < 256; k++) all[i].log_p[k] = (double)logits[k] - largest - log(sum);
  }
  still_session_destroy(session);
  return all;
}

static int top(const distribution *d) {
  int best = 0;
  for (int k = 1; k < 256; k++)
    if (d->log_p[k] > d->log_p[best]) best = k;
  return best;
}

static double divergence_of(const distribution *p, const distribution *q) {
  double sum = 0;
  for (int k = 0; k < 256; k++) sum += exp(p->log_p[k]) * (p->log_p[k] - q->log_p[k]);
  return sum;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void test_divergence(void **state) {
  (void)state;
  const size_t n = strlen(text) - 1; /* the last byte has nothing after it */
  const still_language_result same = measure(&full, &full, 0, 0);
  assert_true(same.divergence < 1e-9 && same.divergence_99 < 1e-6 && same.agreement == 1);

  still_evaluation_run near = full; /* sees so little that it often differs */
  near.session.attention = STILL_ATTENTION_SWA;
  near.session.window = 2;
  distribution *p = distributions(&full, n), *q = distributions(&near, n);
  double *each = calloc(n, sizeof *each), mean = 0;
  size_t agreed = 0;
  assert_non_null(each);
  for (size_t i = 0; i < n; i++) {
    each[i] = divergence_of(&p[i], &q[i]);
    mean += each[i] / (double)n;
    agreed += top(&p[i]) == top(&q[i]);
  }
  qsort(each, n, sizeof *each, by_value);
  const double place = 0.99 * (double)(n - 1), part = place - floor(place);
  const size_t below = (size_t)place;
  const double percentile = each[below] + part * (each[below + 1] - each[below]);
  const still_language_result other = measure(&near, &full, 0, 0);
  assert_int_equal(other.tokens, n);
  assert_true(mean > 1e-6 && agreed < n); /* they do differ */
  assert_true(fabs(other.divergence - mean) < 1e-6 + 1e-4 * mean);
  assert_true(fabs(other.divergence_99 - percentile) < 1e-6 + 1e-3 * percentile);
  assert_true(fabs(other.agreement - (double)agreed / (double)n) < 1e-12);
  free(p);
  free(q);
  free(each);
}

/* Results are added to: a head with both runs, a line with the numbers. */
static void test_language_results(void **state) {
  (void)state;
  still_language_options options = STILL_LANGUAGE_OPTIONS_INIT;
  still_language_result result;
  double nats;
  options.results = check_path("language.jsonl");
  options.command = "as typed";
  for (int times = 0; times < 2; times++)
    check_ok(still_evaluate_language(&still_128, &full, text, strlen(text), &options, &result));
  char *lines = check_read(options.results, NULL);
  const char *line = strstr(lines, "{\"run\": \"still\", \"language\": {");
  assert_non_null(strstr(lines, "\"command\": \"as typed\""));
  assert_non_null(strstr(lines, "{\"run\": \"full\", \"model\""));
  assert_non_null(line);
  assert_non_null(strstr(line + 1, "{\"run\": \"still\", \"language\": {"));
  assert_int_equal(sscanf(strstr(line, "\"nats\""), "\"nats\": %lf", &nats), 1);
  assert_true(fabs(nats - result.nats) < 1e-6);
  free(lines);
  options.results = "/nowhere/language.jsonl";
  check_fails(still_evaluate_language(&full, NULL, text, strlen(text), &options, &result),
              STILL_ERROR_FILE, "/nowhere/language.jsonl: No such file");
}

static int stop_after(void *user, uint64_t done, uint64_t total) {
  assert_true(done <= total);
  return done >= *(uint64_t *)user;
}

/* Stopped anywhere and gone on with, twice: the bytes of the file that one go writes, and its
 * numbers. */
static void test_language_resume(void **state) {
  (void)state;
  still_language_options options = STILL_LANGUAGE_OPTIONS_INIT;
  still_language_result whole, result;
  const size_t bytes = strlen(text);
  options.length = 60, options.stride = 20;
  options.results = check_path("rows.jsonl");
  check_ok(still_evaluate_language(&still_128, &full, text, bytes, &options, &whole));
  char *expected = check_read(options.results, NULL);
  options.results = check_path("row_parts.jsonl");
  options.progress = stop_after;
  for (uint64_t stop = 30; stop < 110; stop += 35) {
    options.progress_user = &stop;
    options.resume = stop > 30;
    check_fails(still_evaluate_language(&still_128, &full, text, bytes, &options, &result),
                STILL_ERROR_CANCELLED, "language: stopped after");
    FILE *file = fopen(options.results, "a"); /* a line that was not finished */
    fputs("{\"run\": \"st", file);
    fclose(file);
  }
  options.progress = NULL;
  for (int times = 0; times < 2; times++) { /* the second time nothing is left to do */
    uint64_t none = 0;
    options.progress = times ? stop_after : NULL;
    options.progress_user = &none;
    check_ok(still_evaluate_language(&still_128, &full, text, bytes, &options, &result));
    char *lines = check_read(options.results, NULL);
    assert_string_equal(lines, expected);
    free(lines);
    assert_memory_equal(&result, &whole, sizeof result);
  }

  /* Another run and another text go on in the same file with heads of their own. */
  options.progress = NULL;
  check_ok(still_evaluate_language(&full, NULL, text, bytes, &options, &result));
  check_ok(still_evaluate_language(&full, NULL, text, bytes - 1, &options, &result));
  check_ok(still_evaluate_language(&still_128, &full, text, bytes, &options, &result));
  assert_memory_equal(&result, &whole, sizeof result);
  char *lines = check_read(options.results, NULL);
  size_t heads = 0;
  for (const char *at = lines; (at = strstr(at, "\"still_evaluation\"")); at++) heads++;
  assert_int_equal(heads, 3);
  free(lines);

  static const char *const damage[][2] = {{"\"tokens\": 59", "'tokens' is 58, must be 59"},
                                          {"\"agreed\": ", "'agreed' is"},
                                          {"\"divergences\": [", "'divergences'"}};
  static const char *const instead[] = {"\"tokens\": 58", "\"agreed\": 99",
                                        "\"divergences\": [0, "};
  for (int i = 0; i < 3; i++) {
    char *bad = calloc(1, strlen(expected) + 64);
    const char *at = strstr(expected, damage[i][0]);
    assert_non_null(at);
    snprintf(bad, strlen(expected) + 64, "%.*s%s%s", (int)(at - expected), expected, instead[i],
             at + strlen(damage[i][0]));
    options.results = check_file("bad_rows.jsonl", bad, strlen(bad));
    check_fails(still_evaluate_language(&still_128, &full, text, bytes, &options, &result),
                STILL_ERROR_FORMAT, damage[i][1]);
    free(bad);
  }
  free(expected);
}

static void test_language_refusals(void **state) {
  (void)state;
  still_language_options options = STILL_LANGUAGE_OPTIONS_INIT;
  still_language_result result;
  options.length = 4000;
  check_fails(still_evaluate_language(&full, NULL, text, strlen(text), &options, &result),
              STILL_ERROR_ARGUMENT, "tokens, a row has 4000");
  options.stride = 5000;
  check_fails(still_evaluate_language(&full, NULL, text, strlen(text), &options, &result),
              STILL_ERROR_ARGUMENT, "stride is not above length");
}

/* ---- multiple choice */

static const char *file_of(const char *name, const char *content) {
  return check_file(name, content, strlen(content));
}

static still_choice_result ask(const char *content, int examples) {
  still_choice_options options = STILL_CHOICE_OPTIONS_INIT;
  still_choice_result result;
  options.examples = examples;
  check_ok(still_evaluate_choices(&full, file_of("q.jsonl", content), &options, &result));
  return result;
}

static double likelihood(const char *start, const char *end) {
  char both[512];
  snprintf(both, sizeof both, "%s%s", start, end);
  return -nats_of(&full, both, 0, strlen(start), strlen(both));
}

static void test_choices(void **state) {
  (void)state;
  static const char start[] =
      "Question: Where does the sun go when it sets behind the hills?\nAnswer:";
  static const char *const ends[] = {" west of here", " up", " nowhere at all"};
  int best = 0, best_norm = 0;
  double sums[3];
  for (int i = 0; i < 3; i++) {
    sums[i] = likelihood(start, ends[i]);
    if (sums[i] > sums[best]) best = i;
    if (sums[i] / (double)(strlen(ends[i]) - 1) >
        sums[best_norm] / (double)(strlen(ends[best_norm]) - 1))
      best_norm = i;
  }
  for (int answer = 0; answer < 3; answer++) {
    char line[512];
    snprintf(
        line, sizeof line,
        "\n{\"question\": \"Where does the sun go when it sets behind the hills?\", \"choices\": "
        "[\"west of here\", \"up\", \"nowhere at all\"], \"answer\": %d}\n",
        answer);
    const still_choice_result r = ask(line, 0);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.right, answer == best);
    assert_int_equal(r.right_norm, answer == best_norm);
  }
}

/* The same question in the shapes of several files: one answer each time. */
static void test_shapes(void **state) {
  (void)state;
  static const char *const lines[] = {
      "{\"question\": \"q\", \"choices\": [\"aa\", \"b\"], \"answer\": %d}",
      "{\"question\": \"q\", \"choices\": {\"text\": [\"aa\", \"b\"], \"label\": [\"0\", \"1\"]}, "
      "\"answerKey\": \"%d\"}",
      "{\"question\": {\"stem\": \"q\", \"choices\": [{\"text\": \"aa\", \"label\": \"0\"}, "
      "{\"text\": \"b\", \"label\": \"1\"}]}, \"answerKey\": \"%d\"}",
      "{\"goal\": \"q\", \"sol1\": \"aa\", \"sol2\": \"b\", \"label\": %d}",
  };
  still_choice_result first[2];
  for (size_t i = 0; i < CHECK_COUNT(lines); i++)
    for (int answer = 0; answer < 2; answer++) {
      char line[512];
      snprintf(line, sizeof line, lines[i], answer);
      const still_choice_result r = ask(line, 0);
      if (!i) first[answer] = r;
      assert_int_equal(r.right, first[answer].right);
      assert_int_equal(r.right_norm, first[answer].right_norm);
    }
  assert_int_equal(first[0].right + first[1].right, 1);
}

/* HellaSwag's marks go, the second part of the text begins with a capital. */
static void test_endings(void **state) {
  (void)state;
  const double one = likelihood("Cooking: A pan. is hot Then he stirs", " the soup. Slowly now");
  const double two = likelihood("Cooking: A pan. is hot Then he stirs", " it");
  for (int answer = 0; answer < 2; answer++) {
    char line[512];
    snprintf(line, sizeof line,
             "{\"activity_label\": \"Cooking\", \"ctx_a\": \" A pan [title] is hot\", \"ctx_b\": "
             "\"then HE [step]  stirs\", \"ctx\": \"x\", \"endings\": [\" the soup [title] Slowly "
             "[substeps]now \", \"it\"], \"label\": \"%d\"}\n",
             answer);
    const still_choice_result r = ask(line, 0);
    assert_int_equal(r.right, answer == (two > one));
    assert_int_equal(r.right_norm, answer == (two / 2 > one / 20));
  }
}

/* MMLU: subject first, choices with letters in the prompt, the letter scored. */
static void test_letters(void **state) {
  (void)state;
  static const char start[] =
      "The following are multiple choice questions (with answers) about old hats.\n\n"
      "Which hat?\nA. red\nB. blue\nC. green\nAnswer:";
  static const char *const ends[] = {" A", " B", " C"};
  int best = 0;
  for (int i = 1; i < 3; i++)
    if (likelihood(start, ends[i]) > likelihood(start, ends[best])) best = i;
  for (int answer = 0; answer < 3; answer++) {
    char line[256];
    snprintf(line, sizeof line,
             "{\"question\": \" Which hat?\", \"subject\": \"old_hats\", \"choices\": [\"red\", "
             "\"blue\", \"green\"], \"answer\": %d}\n",
             answer);
    const still_choice_result r = ask(line, 0);
    assert_int_equal(r.right, answer == best);
    assert_int_equal(r.right_norm, r.right);
  }
}

/* The first item's in the results. */
static void check_likelihoods(const char *path, double one, double two) {
  char *results = check_read(path, NULL);
  const char *told = strstr(results, "\"likelihoods\": [");
  assert_non_null(told);
  double first, second;
  assert_int_equal(sscanf(told, "\"likelihoods\": [%lf, %lf]", &first, &second), 2);
  assert_true(fabs(first - one) < 1e-3);
  assert_true(fabs(second - two) < 1e-3);
  free(results);
}

/* Examples of a file of their own, of the item's subject alone. */
static void test_shown(void **state) {
  (void)state;
  static const char before[] =
      "The following are multiple choice questions (with answers) about b.\n\n"
      "y\nA. c\nB. d\nAnswer: B\n\nx\nA. a\nB. b\nAnswer:";
  still_choice_options options = STILL_CHOICE_OPTIONS_INIT;
  still_choice_result r;
  options.examples = 3;
  options.shown =
      file_of("shown.jsonl",
              "{\"question\":\"z\",\"subject\":\"a\",\"choices\":[\"c\",\"d\"],\"answer\":0}\n"
              "{\"question\":\"y\",\"subject\":\"b\",\"choices\":[\"c\",\"d\"],\"answer\":1}\n");
  const char *path = file_of("asked.jsonl", "{\"question\":\"x\",\"subject\":\"b\",\"choices\":["
                                            "\"a\",\"b\"],\"answer\":0}\n");
  options.results = check_path("shown_results.jsonl");
  check_ok(still_evaluate_choices(&full, path, &options, &r));
  check_likelihoods(options.results, likelihood(before, " A"), likelihood(before, " B"));
  file_of("asked.jsonl",
          "{\"question\":\"x\",\"subject\":\"a\",\"choices\":[\"a\",\"b\"],\"answer\":0}\n");
  options.resume = 1; /* another subject is another prompt */
  check_fails(still_evaluate_choices(&full, path, &options, &r), STILL_ERROR_ARGUMENT,
              "line 1: these results are of 'choices, examples 3");
  file_of("asked.jsonl",
          "{\"question\":\"x\",\"subject\":\"c\",\"choices\":[\"a\",\"b\"],\"answer\":0}\n");
  options.resume = 0;
  check_fails(still_evaluate_choices(&full, path, &options, &r), STILL_ERROR_ARGUMENT,
              "shown.jsonl: no example of the subject 'c'");
}

/* Parts, resumed results and a report of them give what one go gives. */
static void test_choice_results(void **state) {
  (void)state;
  char lines[4096] = "";
  for (int i = 0; i < 7; i++)
    snprintf(lines + strlen(lines), sizeof lines - strlen(lines),
             "{\"question\": \"number %d\", \"choices\": [\"o%dne\", \"two\"], \"answer\": %d}\n",
             i, i, i % 2);
  const char *path = file_of("seven.jsonl", lines);
  still_choice_options options = STILL_CHOICE_OPTIONS_INIT;
  still_choice_result whole, part, again;
  check_ok(still_evaluate_choices(&full, path, &options, &whole));
  assert_int_equal(whole.count, 7);
  options.results = check_path("seven_results.jsonl");
  options.shards = 2;
  check_ok(still_evaluate_choices(&full, path, &options, &part));
  assert_int_equal(part.count, 4);
  options.resume = 1;
  options.shards = 0;
  check_ok(still_evaluate_choices(&full, path, &options, &again));
  assert_true(again.count == 7 && again.right == whole.right &&
              again.right_norm == whole.right_norm);
  still_evaluation_report *report;
  size_t count;
  check_ok(still_evaluation_report_read(&options.results, 1, &report));
  const still_evaluation_cell *cells = still_evaluation_report_cells(report, &count);
  assert_int_equal(count, 2);
  assert_string_equal(cells[0].task, "seven acc");
  assert_string_equal(cells[1].task, "seven acc_norm");
  assert_true(cells[0].count == 7 && cells[0].right == (double)whole.right);
  assert_true(cells[1].count == 7 && cells[1].right == (double)whole.right_norm);
  still_evaluation_report_destroy(report);
  options.examples = 1;
  check_fails(still_evaluate_choices(&full, path, &options, &again), STILL_ERROR_ARGUMENT,
              "line 1: these results are of 'choices, examples 0");
  options.examples = 0;
  strstr(lines, "\"answer\": 1")[10] = '0'; /* what is right belongs to the questions */
  file_of("seven.jsonl", lines);
  check_fails(still_evaluate_choices(&full, path, &options, &again), STILL_ERROR_ARGUMENT,
              "line 1: these results are of 'choices, examples 0");
}

/* Too long for the session: named, left out where that is asked for. */
static void test_long_choices(void **state) {
  (void)state;
  still_choice_options options = STILL_CHOICE_OPTIONS_INIT;
  still_choice_result r;
  still_evaluation_run run = full;
  run.session.context = 64;
  const char *path =
      file_of("long.jsonl", "{\"question\":\"x\",\"choices\":[\"a\",\"b\"],\"answer\":"
                            "0}\n{\"question\":\"a question that is so long that "
                            "it does not fit\",\"choices\":[\"c\",\"d\"],\"answer\":0}\n");
  check_fails(still_evaluate_choices(&run, path, &options, &r), STILL_ERROR_ARGUMENT,
              "item 1: the question takes 67 tokens, the session 64");
  options.skip_long = 1;
  check_ok(still_evaluate_choices(&run, path, &options, &r));
  assert_true(r.count == 1 && r.skipped == 1);
}

/* A gap: what follows it decides. */
static void test_gap(void **state) {
  (void)state;
  const double one = likelihood("A cat or a hen: the cat", " flew away.");
  const double two = likelihood("A cat or a hen: the hen", " flew away.");
  const still_choice_result r =
      ask("{\"sentence\": \"A cat or a hen: the _ flew away.\", \"option1\": "
          "\"cat\", \"option2\": \"hen\", \"answer\": \"2\"}\n",
          0);
  assert_int_equal(r.right, two > one);
}

/* An index in a formula is no gap. */
static void test_formula(void **state) {
  (void)state;
  static const char start[] = "Question: is it Cl_{2}?\nAnswer:";
  still_choice_options options = STILL_CHOICE_OPTIONS_INIT;
  still_choice_result r;
  options.results = check_path("formula_results.jsonl");
  const char *path = file_of("formula.jsonl", "{\"question\": \"is it Cl_{2}?\", \"choices\": "
                                              "[\"yes\", \"no\"], \"answer\": 0}\n");
  check_ok(still_evaluate_choices(&full, path, &options, &r));
  check_likelihoods(options.results, likelihood(start, " yes"), likelihood(start, " no"));
}

static void test_examples(void **state) {
  (void)state;
  const double one = likelihood("Question: y\nAnswer: c\n\nQuestion: x\nAnswer:", " a");
  const double two = likelihood("Question: y\nAnswer: c\n\nQuestion: x\nAnswer:", " b");
  still_choice_options options = STILL_CHOICE_OPTIONS_INIT;
  still_choice_result r;
  options.examples = 1, options.items = 1;
  const char *path =
      file_of("x.jsonl", "{\"question\":\"x\",\"choices\":[\"a\",\"b\"],\"answer\":0}\n"
                         "{\"question\":\"y\",\"choices\":[\"c\",\"d\"],\"answer\":\"A\"}");
  check_ok(still_evaluate_choices(&full, path, &options, &r));
  assert_int_equal(r.count, 1);
  assert_int_equal(r.right, one >= two);
}

static void refuse(const char *content, const char *sentence) {
  still_choice_options options = STILL_CHOICE_OPTIONS_INIT;
  still_choice_result result;
  check_fails(still_evaluate_choices(&full, file_of("bad.jsonl", content), &options, &result),
              STILL_ERROR_FORMAT, sentence);
}

static void test_choice_refusals(void **state) {
  (void)state;
  refuse("", "bad.jsonl: holds no question");
  refuse("{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}\n{\n",
         "bad.jsonl, line 2");
  refuse("{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 2}",
         "'answer' is 2, there are 2");
  refuse("{\"question\": \"q\", \"choices\": [\"a\"], \"answer\": 0}",
         "1 choices, must be 2 .. 16");
  refuse("{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": \"yes\"}",
         "'answer' is 'yes'");
  refuse("{\"choices\": [\"a\", \"b\"], \"answer\": 0}", "line 1: 'question' is missing");
  refuse("{\"sentence\": \"a _\", \"option1\": \"x\", \"option2\": \"y\", \"answer\": \"3\"}",
         "'answer' is 3");
  refuse("{\"sentence\": \"no gap\", \"option1\": \"x\", \"option2\": \"y\", \"answer\": \"1\"}",
         "'sentence' must have one gap");
  refuse("{\"sentence\": \"_ and _\", \"option1\": \"x\", \"option2\": \"y\", \"answer\": \"1\"}",
         "'sentence' must have one gap");
  refuse("{\"question\": \"q\", \"choices\": [\"a\", \" \"], \"answer\": 0}", "choice 1 is empty");
  refuse("{\"question\": \"q\", \"choices\": \"ab\", \"answer\": 0}",
         "'choices' is no array of texts");
  refuse("[\"a\"]", "line 1: ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_whole),
      cmocka_unit_test(test_sliding),
      cmocka_unit_test(test_divergence),
      cmocka_unit_test(test_language_resume),
      cmocka_unit_test(test_language_refusals),
      cmocka_unit_test(test_language_results),
      cmocka_unit_test(test_choices),
      cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_gap),
      cmocka_unit_test(test_formula),
      cmocka_unit_test(test_endings),
      cmocka_unit_test(test_letters),
      cmocka_unit_test(test_shown),
      cmocka_unit_test(test_choice_results),
      cmocka_unit_test(test_long_choices),
      cmocka_unit_test(test_examples),
      cmocka_unit_test(test_choice_refusals),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
