/* SPDX-License-Identifier: MIT
 * The mechanism of a run on a text, and what reads a measured record out. */
#include "evaluate/mechanism.h"

#include "base/memory.h"
#include "evaluate/mechanism_results.h"
#include "tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- reading out */

const still_mechanism_head *still_mechanism_heads(const still_mechanism *m, size_t *count) {
  *count = m->heads ? (size_t)m->layer_count * (size_t)m->head_count : 0;
  return m->heads;
}

const still_mechanism_word *still_mechanism_words(const still_mechanism *m, size_t *count) {
  *count = m->word_count;
  return m->words;
}

still_mechanism_tokens still_mechanism_tokens_of(const still_mechanism *m, int layer, int head) {
  if (!m->measured || !m->heads || layer < 0 || layer >= m->layer_count || head < 0 ||
      head >= m->head_count)
    return (still_mechanism_tokens){0};
  const still_measured_head *measured = &m->measured[layer * m->head_count + head];
  return (still_mechanism_tokens){(int64_t)m->tokens, measured->scores, measured->attention,
                                  measured->kept};
}

/* ---- a run on a text */

typedef struct recorded {
  still_session *session;
  still_mechanism *mechanism;
} recorded;

static void close_recorded(recorded *r) {
  still_mechanism_destroy(r->mechanism);
  still_session_destroy(r->session);
}

static still_status record(recorded *r, const still_evaluation_run *run, const still_token *ids,
                           size_t count) {
  still_session_options options = run->session;
  if (!options.context) options.context = (int)count;
  STILL_TRY(still_session_create(&r->session, run->model, &options));
  STILL_TRY(still_mechanism_create(&r->mechanism, r->session, 0));
  const still_status status = still_session_evaluate(r->session, ids, count, NULL, NULL);
  if (r->mechanism->failed) return still_fail(r->mechanism->failed, "no memory for the record");
  return status;
}

static still_status measure(recorded *own, recorded *other, const still_evaluation_run *run,
                            const still_evaluation_run *reference, const still_token *ids,
                            size_t count) {
  still_status status = record(own, run, ids, count);
  if (status) return still_fail_in(status, "run '%s'", run->name);
  if (reference) status = record(other, reference, ids, count);
  if (status) return still_fail_in(status, "run '%s'", reference->name);
  return still_mechanism_measure(own->mechanism, other->mechanism);
}

/* What a run's results are opened with. */
typedef struct known {
  const still_evaluation_run *run;
  still_mechanism *mechanism; /* that was read; NULL: none */
  bool finished;
} known;

static still_status take_line(void *user, const still_json *line) {
  known *k = user;
  if (k->finished || !still_json_find(line, "mechanism")) return STILL_OK;
  STILL_TRY(still_mechanism_read(&k->mechanism, line, k->run->model));
  k->finished = true;
  return STILL_OK;
}

/* The head names the reference, too, by its place: the second run. */
static still_status open_results(still_results *results, known *k,
                                 const still_evaluation_run *reference, const still_token *ids,
                                 size_t count, const still_mechanism_options *o) {
  char settings[64];
  snprintf(settings, sizeof settings, "mechanism, text %016" PRIx64,
           still_results_text_hash(ids, count));
  const still_evaluation_run runs[] = {*k->run, reference ? *reference : *k->run};
  const still_results_plan plan = {.path = o->results,
                                   .resume = o->resume,
                                   .command = o->command,
                                   .settings = settings,
                                   .runs = runs,
                                   .run_count = reference ? 2 : 1,
                                   .line = take_line,
                                   .user = k,
                                   .finished = &k->finished};
  return still_results_open(results, &plan);
}

static still_status evaluate(const still_evaluation_run *run, const still_evaluation_run *reference,
                             const still_token *ids, size_t count,
                             const still_mechanism_options *options, still_mechanism **mechanism) {
  recorded own = {0}, other = {0};
  known k = {.run = run};
  still_results results;
  still_status status = open_results(&results, &k, reference, ids, count, options);
  if (!status && !k.mechanism) {
    status = measure(&own, &other, run, reference, ids, count);
    if (!status) status = still_results_put_mechanism(&results, run->name, own.mechanism);
    if (!status) {
      still_mechanism_detach(own.mechanism);
      k.mechanism = own.mechanism;
      own.mechanism = NULL;
    }
  }
  if (status)
    still_mechanism_destroy(k.mechanism);
  else
    *mechanism = k.mechanism;
  close_recorded(&other);
  close_recorded(&own);
  still_results_close(&results);
  return status;
}

still_status still_evaluate_mechanism(const still_evaluation_run *run,
                                      const still_evaluation_run *reference, const char *text,
                                      size_t bytes, const still_mechanism_options *options,
                                      still_mechanism **mechanism) {
  const still_tokenizer *tokenizer = still_model_tokenizer(run->model);
  still_token *ids;
  size_t count;
  *mechanism = NULL;
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(options, still_mechanism_options));
  if (!tokenizer)
    return still_fail(STILL_ERROR_ARGUMENT, "run '%.60s': the model has no vocabulary", run->name);
  STILL_TRY(still_tokenize_new(tokenizer, text, bytes, STILL_TOKENIZE_ADD_BOS, &ids, &count));
  const int length = options->length;
  still_status status = STILL_OK;
  if (length < 0 || (size_t)length > count || count > INT32_MAX)
    status = still_fail(STILL_ERROR_ARGUMENT, "the length is %d, the text has %zu tokens", length,
                        count);
  if (!status)
    status = evaluate(run, reference, ids, length ? (size_t)length : count, options, mechanism);
  still_free(ids);
  return status;
}
