/* SPDX-License-Identifier: MIT
 * Perplexity, and distance from a reference: both evaluate the same tokens, a block at a time. */
#include "base/memory.h"
#include "base/random.h"
#include "evaluate/distribution.h"
#include "evaluate/results.h"
#include "tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <still/evaluate.h>
#include <string.h>

enum { BLOCK = 64 }; /* tokens whose reference logits are held */

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
  double nats, row_nats, row_means, row_squares;
  size_t rows;
  uint64_t bytes; /* of the scored tokens */
  const still_tokenizer *tokenizer;
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
  const double nats = still_log_sum_exp(logits, l->vocabulary) - logits[next];
  l->nats += nats;
  l->row_nats += nats;
  l->bytes += still_token_text(l->tokenizer, next, 1, NULL, 0);
  if (l->reference) {
    const float *other = l->logits + index * (size_t)l->vocabulary;
    l->divergences[l->scored] = (float)still_divergence(other, logits, l->vocabulary);
    l->agreed +=
        still_most_likely(other, l->vocabulary) == still_most_likely(logits, l->vocabulary);
  }
  l->scored++;
}

/* Evaluates the first count - 1 tokens of the row, scores what follows each from token `first`
 * on. */
static still_status evaluate_row(language *l, size_t count, size_t first, uint64_t total) {
  const size_t scored = l->scored;
  still_session_reset(l->session);
  if (l->reference) still_session_reset(l->reference);
  l->row_nats = 0;
  for (size_t at = 0; at + 1 < count; at += BLOCK) {
    const size_t inputs = count - 1 - at < BLOCK ? count - 1 - at : BLOCK;
    block b = {l, l->row + at + 1, first > at + 1 ? first - at - 1 : 0, inputs};
    if (l->reference)
      STILL_TRY(still_session_evaluate_all(l->reference, l->row + at, inputs, keep_row, l));
    STILL_TRY(still_session_evaluate_all(l->session, l->row + at, inputs, score_row, &b));
    const still_language_options *o = l->options;
    if (o->progress && o->progress(o->progress_user, l->scored, total))
      return still_fail(STILL_ERROR_CANCELLED, "language: stopped after %zu tokens", l->scored);
  }
  const double mean = l->row_nats / (double)(l->scored - scored);
  l->row_means += mean;
  l->row_squares += mean * mean;
  l->rows++;
  return STILL_OK;
}

/* How the text is cut into rows. */
typedef struct cuts {
  size_t length, stride, rows;
} cuts;

static still_status plan_rows(const language *l, cuts *c) {
  const still_language_options *o = l->options;
  c->length = o->length ? (size_t)o->length : l->count;
  c->stride = o->stride ? (size_t)o->stride : c->length;
  if (l->count < c->length || c->length < 2)
    return still_fail(STILL_ERROR_ARGUMENT, "language: the text has %zu tokens, a row has %zu",
                      l->count, c->length);
  c->rows = (l->count - c->length) / c->stride + 1;
  if (o->rows && (size_t)o->rows < c->rows) c->rows = (size_t)o->rows;
  return STILL_OK;
}

static still_status evaluate_rows(language *l, const cuts *c) {
  const still_token bos = still_tokenizer_bos(l->tokenizer);
  size_t head;
  STILL_TRY(still_tokenize(l->tokenizer, "", 0, STILL_TOKENIZE_ADD_BOS, NULL, 0, &head));
  const uint64_t total = c->length + (c->rows - 1) * c->stride;
  STILL_TRY(STILL_ALLOC(&l->row, c->length + 1, "a row"));
  if (l->reference) {
    STILL_TRY(STILL_ALLOC(&l->logits, (size_t)BLOCK * (size_t)l->vocabulary, "logits"));
    STILL_TRY(STILL_ALLOC(&l->divergences, (size_t)total, "divergences"));
  }
  if (head) l->row[0] = bos;
  for (size_t r = 0; r < c->rows; r++) {
    memcpy(l->row + head, l->ids + r * c->stride, c->length * sizeof *l->ids);
    const size_t old = r ? c->length - c->stride : 0;
    STILL_TRY(evaluate_row(l, head + c->length, head + old, total));
  }
  return STILL_OK;
}

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
  cuts c = {0};
  STILL_TRY(still_tokenize_new(l->tokenizer, text, bytes, 0, &l->ids, &l->count));
  STILL_TRY(plan_rows(l, &c));
  STILL_TRY(open_session(run, c.length + 1, &l->session));
  if (reference) STILL_TRY(open_session(reference, c.length + 1, &l->reference));
  return evaluate_rows(l, &c);
}

/* The head names the reference, too, by its place: the second run. */
static still_status write_result(const language *l, const still_evaluation_run *run,
                                 const still_evaluation_run *reference,
                                 const still_language_result *result) {
  const still_language_options *o = l->options;
  uint64_t text = l->count;
  char settings[160];
  for (size_t i = 0; i < l->count; i++) text = still_hash64(text ^ (uint64_t)l->ids[i]);
  snprintf(settings, sizeof settings, "language, length %d, stride %d, rows %d, text %016" PRIx64,
           o->length, o->stride, o->rows, text);
  const still_evaluation_run runs[] = {*run, reference ? *reference : *run};
  const still_results_plan plan = {.path = o->results,
                                   .append = 1,
                                   .command = o->command,
                                   .settings = settings,
                                   .runs = runs,
                                   .run_count = reference ? 2 : 1};
  still_results results;
  STILL_TRY(still_results_open(&results, &plan));
  const still_status status = still_results_put_language(&results, run->name, result);
  still_results_close(&results);
  return status;
}

still_status still_evaluate_language(const still_evaluation_run *run,
                                     const still_evaluation_run *reference, const char *text,
                                     size_t bytes, const still_language_options *options,
                                     still_language_result *result) {
  language l = {.options = options, .tokenizer = still_model_tokenizer(run->model)};
  STILL_TRY(check(run, reference, options, &l.vocabulary));
  still_status status = evaluate(&l, run, reference, text, bytes);
  if (!status) sum_up(&l, result);
  if (!status) status = write_result(&l, run, reference, result);
  still_session_destroy(l.session);
  still_session_destroy(l.reference);
  still_free(l.ids);
  still_free(l.row);
  still_free(l.logits);
  still_free(l.divergences);
  return status;
}
