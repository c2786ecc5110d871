/* SPDX-License-Identifier: MIT
 * Perplexity, and distance from a reference: both evaluate the same tokens, a block at a time. */
#include "base/memory.h"
#include "evaluate/distribution.h"
#include "evaluate/results.h"
#include "tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <still/evaluate.h>
#include <string.h>

enum { BLOCK = 64 }; /* tokens whose reference logits are held */

/* How the text is cut into rows. */
typedef struct cuts {
  size_t length, stride, rows;
  size_t head; /* tokens before each: 1 for a begin of sequence, else 0 */
} cuts;

typedef struct language {
  const still_language_options *options;
  still_session *session, *reference; /* reference NULL: none */
  int vocabulary;
  still_token *ids; /* the text */
  size_t count;
  still_token *row; /* begin of sequence and a piece of the text */
  float *logits;    /* of the reference for a block: (BLOCK, vocabulary) */
  float *divergences;
  size_t scored, agreed;
  double nats, row_means, row_squares;
  size_t rows;            /* that are complete */
  still_language_row now; /* the one that is evaluated */
  uint64_t bytes;         /* of the scored tokens */
  const still_tokenizer *tokenizer;
  const char *run;
  cuts cuts;
  still_results results;
  bool finished; /* results have the sum already */
} language;

/* A block of a row: `next` is what follows each of its tokens; those before `first` are not
 * scored. */
typedef struct block {
  language *l;
  const still_token *next;
  size_t first, count;
} block;

static void keep_row(void *user, size_t index, const float *logits) {
  language *l = user;
  memcpy(l->logits + index * (size_t)l->vocabulary, logits, (size_t)l->vocabulary * sizeof *logits);
}

static void score_row(void *user, size_t index, const float *logits) {
  const block *b = user;
  language *l = b->l;
  if (index < b->first || index >= b->count) return;
  const still_token next = b->next[index];
  l->now.nats += still_log_sum_exp(logits, l->vocabulary) - logits[next];
  l->now.bytes += still_token_text(l->tokenizer, next, 1, NULL, 0);
  if (l->reference) {
    const float *other = l->logits + index * (size_t)l->vocabulary;
    l->divergences[l->scored + l->now.tokens] =
        (float)still_divergence(other, logits, l->vocabulary);
    l->now.agreed +=
        still_most_likely(other, l->vocabulary) == still_most_likely(logits, l->vocabulary);
  }
  l->now.tokens++;
}

/* ---- rows */

static still_status plan_rows(language *l) {
  const still_language_options *o = l->options;
  cuts *c = &l->cuts;
  c->length = o->length ? (size_t)o->length : l->count;
  c->stride = o->stride ? (size_t)o->stride : c->length;
  if (l->count < c->length || c->length < 2)
    return still_fail(STILL_ERROR_ARGUMENT, "language: the text has %zu tokens, a row has %zu",
                      l->count, c->length);
  c->rows = (l->count - c->length) / c->stride + 1;
  if (o->rows && (size_t)o->rows < c->rows) c->rows = (size_t)o->rows;
  return still_tokenize(l->tokenizer, "", 0, STILL_TOKENIZE_ADD_BOS, NULL, 0, &c->head);
}

static size_t total_tokens(const cuts *c) {
  return c->length + (c->rows - 1) * c->stride;
}

/* The first token of a row that is scored: not its very first, nor what the row before had. */
static size_t first_scored(const cuts *c, size_t row) {
  const size_t first = c->head + (row ? c->length - c->stride : 0);
  return first ? first : 1;
}

/* What the row that was evaluated or read last adds to the sums. */
static void add_row(language *l, const still_language_row *row) {
  const double mean = row->nats / (double)row->tokens;
  l->nats += row->nats;
  l->bytes += row->bytes;
  l->agreed += row->agreed;
  l->scored += row->tokens;
  l->row_means += mean;
  l->row_squares += mean * mean;
  l->rows++;
}

/* Evaluates all but the last token of the row, scores what follows each from the first on that is to
 * be scored. */
static still_status evaluate_row(language *l) {
  const still_language_options *o = l->options;
  const size_t count = l->cuts.head + l->cuts.length, first = first_scored(&l->cuts, l->rows);
  still_session_reset(l->session);
  if (l->reference) still_session_reset(l->reference);
  l->now = (still_language_row){.index = l->rows,
                                .divergences = l->reference ? l->divergences + l->scored : NULL};
  for (size_t at = 0; at + 1 < count; at += BLOCK) {
    const size_t inputs = count - 1 - at < BLOCK ? count - 1 - at : BLOCK;
    block b = {l, l->row + at + 1, first > at + 1 ? first - at - 1 : 0, inputs};
    if (l->reference)
      STILL_TRY(still_session_evaluate_all(l->reference, l->row + at, inputs, keep_row, l));
    STILL_TRY(still_session_evaluate_all(l->session, l->row + at, inputs, score_row, &b));
    const size_t done = l->scored + l->now.tokens;
    if (o->progress && o->progress(o->progress_user, done, total_tokens(&l->cuts)))
      return still_fail(STILL_ERROR_CANCELLED, "language: stopped after %zu tokens", done);
  }
  return STILL_OK;
}

static still_status evaluate_rows(language *l) {
  const cuts *c = &l->cuts;
  STILL_TRY(STILL_ALLOC(&l->row, c->length + 1, "a row"));
  if (l->reference)
    STILL_TRY(STILL_ALLOC(&l->logits, (size_t)BLOCK * (size_t)l->vocabulary, "logits"));
  if (c->head) l->row[0] = still_tokenizer_bos(l->tokenizer);
  while (l->rows < c->rows) {
    memcpy(l->row + c->head, l->ids + l->rows * c->stride, c->length * sizeof *l->ids);
    STILL_TRY(evaluate_row(l));
    STILL_TRY(still_results_put_row(&l->results, l->run, &l->now));
    add_row(l, &l->now);
  }
  return STILL_OK;
}

/* ---- rows of results that go on */

static still_status get_count(const still_json *line, const char *name, size_t most, size_t *out) {
  uint64_t value;
  STILL_TRY(still_json_get_u64(line, name, &value));
  if (value > most)
    return still_fail(STILL_ERROR_FORMAT, "'%s' is %" PRIu64 ", must be at most %zu", name, value,
                      most);
  *out = (size_t)value;
  return STILL_OK;
}

static still_status take_divergences(language *l, const still_json *line, size_t tokens) {
  const still_json *list;
  size_t count = 0;
  STILL_TRY(still_json_get(line, "divergences", STILL_JSON_ARRAY, &list));
  for (const still_json *v = still_json_first(list); v && count < tokens; v = still_json_next(v)) {
    double value;
    STILL_TRY(still_json_to_f64(v, "divergences", &value));
    l->divergences[l->scored + count++] = (float)value;
  }
  if (count == tokens && still_json_count(list) == tokens) return STILL_OK;
  return still_fail(STILL_ERROR_FORMAT, "'divergences' has %zu entries, must have %zu",
                    still_json_count(list), tokens);
}

/* The next row in order is taken; any other was taken before. */
static still_status take_row(language *l, const still_json *line) {
  const cuts *c = &l->cuts;
  const size_t tokens = c->head + c->length - first_scored(c, l->rows);
  still_language_row row = {0};
  size_t bytes = 0;
  STILL_TRY(get_count(line, "language_row", SIZE_MAX, &row.index));
  if (row.index != l->rows || l->rows == c->rows) return STILL_OK;
  STILL_TRY(get_count(line, "tokens", tokens, &row.tokens));
  STILL_TRY(get_count(line, "agreed", tokens, &row.agreed));
  STILL_TRY(get_count(line, "bytes", SIZE_MAX, &bytes));
  STILL_TRY(still_json_get_f64(line, "nats", &row.nats));
  row.bytes = bytes;
  if (row.tokens != tokens)
    return still_fail(STILL_ERROR_FORMAT, "'tokens' is %zu, must be %zu", row.tokens, tokens);
  if (l->divergences) STILL_TRY(take_divergences(l, line, tokens));
  add_row(l, &row);
  return STILL_OK;
}

static still_status take_line(void *user, const still_json *line) {
  language *l = user;
  if (still_json_find(line, "language")) l->finished = true;
  return still_json_find(line, "language_row") ? take_row(l, line) : STILL_OK;
}

/* The head names the reference, too, by its place: the second run. */
static still_status open_results(language *l, const still_evaluation_run *run,
                                 const still_evaluation_run *reference) {
  const still_language_options *o = l->options;
  char settings[160];
  snprintf(settings, sizeof settings, "language, length %d, stride %d, rows %d, text %016" PRIx64,
           o->length, o->stride, o->rows, still_results_text_hash(l->ids, l->count));
  const still_evaluation_run runs[] = {*run, reference ? *reference : *run};
  const still_results_plan plan = {.path = o->results,
                                   .append = 1,
                                   .resume = o->resume,
                                   .command = o->command,
                                   .settings = settings,
                                   .runs = runs,
                                   .run_count = reference ? 2 : 1,
                                   .line = take_line,
                                   .user = l,
                                   .finished = &l->finished};
  return still_results_open(&l->results, &plan);
}

/* ---- the whole */

static int by_value(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Of sorted values, between two of them in proportion. */
static double percentile(const float *values, size_t count, double share) {
  const double place = share * (double)(count - 1);
  const size_t below = (size_t)place, above = below + 1 < count ? below + 1 : below;
  return values[below] + (place - (double)below) * (double)(values[above] - values[below]);
}

static void sum_up(language *l, still_language_result *r) {
  const double n = (double)l->scored, rows = (double)l->rows;
  *r = (still_language_result){.tokens = (int64_t)l->scored, .rows = (int64_t)l->rows};
  r->nats = l->nats / n;
  r->perplexity = exp(r->nats);
  r->bits_per_byte = l->bytes ? l->nats / log(2) / (double)l->bytes : 0;
  if (l->rows > 1) {
    const double mean = l->row_means / rows;
    const double variance = (l->row_squares - rows * mean * mean) / (rows - 1);
    r->nats_error = sqrt(fmax(0, variance) / rows);
  }
  if (!l->reference) return;
  for (size_t i = 0; i < l->scored; i++) r->divergence += l->divergences[i];
  r->divergence /= n;
  qsort(l->divergences, l->scored, sizeof *l->divergences, by_value);
  r->divergence_99 = percentile(l->divergences, l->scored, 0.99);
  r->agreement = (double)l->agreed / n;
}

static still_status open_session(const still_evaluation_run *run, size_t tokens,
                                 still_session **session) {
  still_session_options options = run->session;
  if (!options.context) options.context = tokens < INT32_MAX ? (int)tokens : INT32_MAX;
  const still_status status = still_session_create(session, run->model, &options);
  return status ? still_fail_in(status, "run '%s'", run->name) : STILL_OK;
}

static still_status check(const still_evaluation_run *run, const still_evaluation_run *reference,
                          const still_language_options *o, int *vocabulary) {
  still_model_info info, other;
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(o, still_language_options));
  if (o->length < 0 || o->rows < 0 || o->stride < 0 || (o->length && o->stride > o->length))
    return still_fail(STILL_ERROR_ARGUMENT,
                      "language: length %d, stride %d, rows %d; none is below 0, and stride is "
                      "not above length",
                      o->length, o->stride, o->rows);
  if (!still_model_tokenizer(run->model))
    return still_fail(STILL_ERROR_ARGUMENT, "run '%.60s': the model has no vocabulary", run->name);
  still_model_get_info(run->model, &info);
  still_model_get_info(reference ? reference->model : run->model, &other);
  *vocabulary = info.vocabulary;
  if (info.vocabulary == other.vocabulary) return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT, "run '%.60s' has %d tokens, its reference has %d",
                    run->name, info.vocabulary, other.vocabulary);
}

static still_status evaluate(language *l, const still_evaluation_run *run,
                             const still_evaluation_run *reference, const char *text,
                             size_t bytes) {
  const cuts *c = &l->cuts;
  STILL_TRY(still_tokenize_new(l->tokenizer, text, bytes, 0, &l->ids, &l->count));
  STILL_TRY(plan_rows(l));
  if (reference) STILL_TRY(STILL_ALLOC(&l->divergences, total_tokens(c), "divergences"));
  STILL_TRY(open_session(run, c->length + 1, &l->session));
  if (reference) STILL_TRY(open_session(reference, c->length + 1, &l->reference));
  STILL_TRY(open_results(l, run, reference));
  return evaluate_rows(l);
}

still_status still_evaluate_language(const still_evaluation_run *run,
                                     const still_evaluation_run *reference, const char *text,
                                     size_t bytes, const still_language_options *options,
                                     still_language_result *result) {
  language l = {
      .options = options, .tokenizer = still_model_tokenizer(run->model), .run = run->name};
  STILL_TRY(check(run, reference, options, &l.vocabulary));
  still_status status = evaluate(&l, run, reference, text, bytes);
  if (!status) sum_up(&l, result);
  if (!status && !l.finished) status = still_results_put_language(&l.results, run->name, result);
  still_results_close(&l.results);
  still_session_destroy(l.session);
  still_session_destroy(l.reference);
  still_free(l.ids);
  still_free(l.row);
  still_free(l.logits);
  still_free(l.divergences);
  return status;
}
