/* SPDX-License-Identifier: MIT
 * Recording a session: its probe's queries, keys and scores, token by token. */
#include "base/memory.h"
#include "evaluate/mechanism.h"
#include "model/session.h"

#include <string.h>

static still_status reserve(const still_mechanism *m, still_recorded_layer *layer, size_t tokens) {
  const size_t heads = (size_t)m->head_count, dim = (size_t)m->dim;
  if (tokens <= layer->room) return STILL_OK;
  size_t room = layer->room ? 2 * layer->room : 512;
  while (room < tokens) room *= 2;
  if (m->most && room > m->most) room = m->most;
  STILL_TRY(STILL_REALLOC(&layer->q, room * heads * dim, "recorded queries"));
  STILL_TRY(STILL_REALLOC(&layer->k, room * (size_t)m->kv_heads * dim, "recorded keys"));
  STILL_TRY(STILL_REALLOC(&layer->linear_mass, room * heads, "recorded shares"));
  STILL_TRY(STILL_REALLOC(&layer->linear_output, room * heads, "recorded shares"));
  if (layer->routes) STILL_TRY(STILL_REALLOC(&layer->scores, room * heads, "recorded scores"));
  layer->room = room;
  return STILL_OK;
}

static void copy_rows(float *out, const still_rows *rows, size_t heads, size_t tokens, size_t dim) {
  for (size_t t = 0; t < tokens; t++)
    for (size_t h = 0; h < heads; h++, out += dim)
      memcpy(out, rows->data + h * rows->head_stride + t * rows->token_stride, dim * sizeof *out);
}

/* (heads, n) -> (tokens, heads) */
static void copy_values(float *out, const float *values, size_t heads, size_t n, size_t tokens) {
  for (size_t t = 0; t < tokens; t++)
    for (size_t h = 0; h < heads; h++) *out++ = values[h * n + t];
}

static int record(void *user, const still_probe *p) {
  still_mechanism *m = user;
  still_recorded_layer *layer = &m->layers[p->layer];
  const size_t heads = (size_t)m->head_count, dim = (size_t)m->dim, at = (size_t)p->first;
  if (m->most && at >= m->most) return 0;
  const size_t n = m->most ? still_smaller(p->tokens, m->most - at) : p->tokens;
  layer->tokens = 0; /* none, should there be no room */
  if ((m->failed = reserve(m, layer, at + n))) return 1;
  copy_rows(layer->q + at * heads * dim, &p->q, heads, n, dim);
  copy_rows(layer->k + at * (size_t)m->kv_heads * dim, &p->k, (size_t)m->kv_heads, n, dim);
  copy_values(layer->linear_mass + at * heads, p->linear_mass, heads, p->tokens, n);
  copy_values(layer->linear_output + at * heads, p->linear_output, heads, p->tokens, n);
  if (layer->routes) copy_values(layer->scores + at * heads, p->scores, heads, p->tokens, n);
  layer->tokens = at + n;
  return 0;
}

static still_status begin(still_mechanism *m, still_session *session) {
  const still_model_config *config = &session->model->weights->config;
  m->layer_count = config->layers;
  m->head_count = config->heads;
  m->kv_heads = config->kv_heads;
  m->dim = config->head_dim;
  m->tokenizer = still_model_tokenizer(session->model);
  STILL_TRY(STILL_ALLOC(&m->layers, (size_t)m->layer_count, "recorded layers"));
  for (int i = 0; i < m->layer_count; i++) {
    const still_attention_options *o = still_attention_plan_options(session->layers[i].plan);
    m->layers[i].routes = o->kind == STILL_ATTENTION_STILL;
    m->layers[i].chunk = (size_t)o->chunk;
  }
  STILL_TRY(still_session_probe(session, record, m));
  m->session = session;
  return STILL_OK;
}

still_status still_mechanism_create(still_mechanism **out, still_session *session, int64_t most) {
  *out = NULL;
  if (still_session_position(session) || most < 0)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "a session can be recorded from its beginning on, for a number of tokens");
  if (session->options.history)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "a recorded session must remember all its tokens: history 0");
  still_mechanism *m;
  STILL_TRY(STILL_ALLOC(&m, 1, "a record"));
  m->most = (size_t)most;
  const still_status status = begin(m, session);
  if (status)
    still_mechanism_destroy(m);
  else
    *out = m;
  return status;
}

void still_mechanism_detach(still_mechanism *m) {
  if (m->session) still_session_probe(m->session, NULL, NULL);
  m->session = NULL;
}

void still_mechanism_destroy(still_mechanism *m) {
  if (!m) return;
  still_mechanism_detach(m);
  for (int i = 0; m->layers && i < m->layer_count; i++) {
    still_recorded_layer *layer = &m->layers[i];
    float *const arrays[] = {layer->q, layer->k, layer->scores, layer->linear_mass,
                             layer->linear_output};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) still_free(arrays[a]);
  }
  for (int i = 0; m->measured && i < m->layer_count * m->head_count; i++) {
    still_free(m->measured[i].scores);
    still_free(m->measured[i].attention);
    still_free(m->measured[i].kept);
  }
  still_free(m->layers);
  still_free(m->measured);
  still_free(m->ids);
  still_free(m->heads);
  still_free(m->words);
  still_free(m);
}
