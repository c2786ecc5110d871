/* SPDX-License-Identifier: MIT
 * What a session's layers tell while it evaluates. */
#include "base/memory.h"
#include "model/session.h"

static size_t floats_of(const still_session *session, int heads) {
  return (size_t)heads * (size_t)session->model->weights->config.head_dim * session->forward.block;
}

/* An array that is there exactly when it is wanted. */
static still_status want(float **array, bool wanted, size_t floats) {
  if (wanted && !*array) return STILL_ALLOC(array, floats, "what a probe is told");
  if (wanted) return STILL_OK;
  still_free(*array);
  *array = NULL;
  return STILL_OK;
}

still_status still_taps_open(still_session *session) {
  const still_model_config *config = &session->model->weights->config;
  const size_t rows = (size_t)config->heads * session->forward.block;
  const bool probed = session->probing.call;
  still_taps *taps = &session->forward.taps;
  STILL_TRY(want(&session->probing.q, probed, floats_of(session, config->heads)));
  STILL_TRY(want(&session->probing.k, probed, floats_of(session, config->kv_heads)));
  STILL_TRY(want(&taps->linear_mass, probed, rows));
  STILL_TRY(want(&taps->linear_output, probed, rows));
  return want(&taps->scores, probed || session->scores->on, rows);
}

static still_status read_rows(still_session *session, still_activation which, int heads, size_t n,
                              float *out, still_rows *rows) {
  still_backend *backend = session->backend;
  const size_t dim = (size_t)session->model->weights->config.head_dim;
  *rows = (still_rows){out, dim, (size_t)heads * dim};
  return backend->ops->buffer_read(backend, session->forward.activations[which], 0, out,
                                   n * rows->token_stride);
}

static still_status tell_probe(still_session *session, int layer, size_t n, int64_t first) {
  const still_model_config *config = &session->model->weights->config;
  const still_attention_options *options =
      still_attention_plan_options(session->layers[layer].plan);
  const still_taps *taps = &session->forward.taps;
  still_probe probe = {.layer = layer,
                       .first = first,
                       .tokens = n,
                       .scores = options->kind == STILL_ATTENTION_STILL ? taps->scores : NULL,
                       .linear_mass = taps->linear_mass,
                       .linear_output = taps->linear_output};
  STILL_TRY(read_rows(session, STILL_ACT_Q, config->heads, n, session->probing.q, &probe.q));
  STILL_TRY(read_rows(session, STILL_ACT_K, config->kv_heads, n, session->probing.k, &probe.k));
  if (session->probing.call(session->probing.user, &probe))
    return still_fail(STILL_ERROR_CANCELLED, "the evaluation was stopped by its probe");
  return STILL_OK;
}

still_status still_session_tell(void *user, int layer, size_t n, int64_t first) {
  still_session *session = user;
  if (session->scores->on) still_scores_add(session, layer, n);
  return session->probing.call ? tell_probe(session, layer, n, first) : STILL_OK;
}

still_status still_session_probe(still_session *session, still_probe_callback *probe, void *user) {
  if (probe && !session->owns_backend)
    return still_fail(STILL_ERROR_UNSUPPORTED, "a probe needs a model on the CPU");
  session->probing.call = probe;
  session->probing.user = user;
  const still_status status = still_taps_open(session);
  if (status) session->probing.call = NULL;
  return status;
}

void still_probe_free(still_session *session) {
  still_free(session->probing.q);
  still_free(session->probing.k);
}
