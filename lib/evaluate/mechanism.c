/* SPDX-License-Identifier: MIT
 * The mechanism of a run on a text, and what reads a measured record out. */
#include "evaluate/mechanism.h"

#include "base/memory.h"
#include "tokenizer/tokenizer.h"

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
  if (!m->heads || layer < 0 || layer >= m->layer_count || head < 0 || head >= m->head_count)
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

still_status still_evaluate_mechanism(const still_evaluation_run *run,
                                      const still_evaluation_run *reference, const char *text,
                                      size_t bytes, int length, still_mechanism **mechanism) {
  const still_tokenizer *tokenizer = still_model_tokenizer(run->model);
  recorded own = {0}, other = {0};
  still_token *ids;
  size_t count;
  *mechanism = NULL;
  if (!tokenizer)
    return still_fail(STILL_ERROR_ARGUMENT, "run '%.60s': the model has no vocabulary", run->name);
  STILL_TRY(still_tokenize_new(tokenizer, text, bytes, STILL_TOKENIZE_ADD_BOS, &ids, &count));
  still_status status = STILL_OK;
  if (length < 0 || (size_t)length > count || count > INT32_MAX)
    status = still_fail(STILL_ERROR_ARGUMENT, "the length is %d, the text has %zu tokens", length,
                        count);
  if (!status) status = measure(&own, &other, run, reference, ids, length ? (size_t)length : count);
  if (!status) {
    *mechanism = own.mechanism;
    still_mechanism_detach(own.mechanism);
    own.mechanism = NULL;
  }
  close_recorded(&other);
  close_recorded(&own);
  still_free(ids);
  return status;
}
