/* SPDX-License-Identifier: MIT */
#include "model/forward.h"

#include "base/memory.h"

/* ---- work space --------------------------------------------------------------------------------- */

static size_t largest_rank(const still_model *model) {
  size_t rank = 0;
  for (int i = 0; model->adapter && i < model->adapter->layer_count; i++)
    for (int l = 0; l < STILL_LINEARS; l++) {
      const size_t this_rank = (size_t)model->adapter->layers[i].lora[l].rank;
      if (this_rank > rank) rank = this_rank;
    }
  return rank;
}

static bool is_raw_kind(const still_session_layer *layer) {
  return still_attention_plan_options(layer->plan)->kind == STILL_ATTENTION_LIGER_GLA;
}

void still_forward_sizes(const still_model *model, const still_session_layer *layers, size_t block,
                         size_t floats[STILL_ACTIVATIONS]) {
  const still_model_config *config = &model->weights->config;
  const size_t width = (size_t)config->width, feed_forward = (size_t)config->feed_forward;
  const size_t query = (size_t)config->heads * (size_t)config->head_dim;
  const size_t key_value = (size_t)config->kv_heads * (size_t)config->head_dim;
  bool gate = false, raw = false;
  for (int i = 0; i < config->layers; i++) {
    gate = gate || layers[i].uses_gate;
    raw = raw || is_raw_kind(&layers[i]);
  }
  floats[STILL_ACT_X] = floats[STILL_ACT_NORMED] = block * width;
  floats[STILL_ACT_Q] = floats[STILL_ACT_ATTENDED] = block * query;
  floats[STILL_ACT_K] = floats[STILL_ACT_V] = block * key_value;
  floats[STILL_ACT_FF_GATE] = floats[STILL_ACT_FF_UP] = block * feed_forward;
  floats[STILL_ACT_LAST] = STILL_LOGIT_ROWS * width;
  floats[STILL_ACT_LOGITS] = STILL_LOGIT_ROWS * (size_t)config->vocabulary;
  floats[STILL_ACT_GATE] = gate ? block * query : 0;
  floats[STILL_ACT_Q_RAW] = raw ? block * query : 0;
  floats[STILL_ACT_K_RAW] = raw ? block * key_value : 0;
  floats[STILL_ACT_LOW] = block * largest_rank(model);
}

size_t still_forward_bytes(const still_model *model, const still_session_layer *layers,
                           size_t block) {
  size_t floats[STILL_ACTIVATIONS];
  still_forward_sizes(model, layers, block, floats);
  size_t total = 0;
  for (int i = 0; i < STILL_ACTIVATIONS; i++) total += floats[i];
  return total * sizeof(float);
}

still_status still_forward_open(still_forward *forward) {
  still_backend *backend = forward->backend;
  size_t floats[STILL_ACTIVATIONS];
  still_forward_sizes(forward->model, forward->layers, forward->block, floats);
  for (int i = 0; i < STILL_ACTIVATIONS; i++)
    if (floats[i])
      STILL_TRY(backend->ops->buffer_create(backend, floats[i], &forward->activations[i]));
  return still_forward_needs_host(forward) ? still_forward_open_mirrors(forward, floats) : STILL_OK;
}

void still_forward_close(still_forward *forward) {
  still_backend *backend = forward->backend;
  for (int i = 0; i < STILL_ACTIVATIONS; i++)
    if (forward->activations[i]) backend->ops->buffer_destroy(backend, forward->activations[i]);
  still_forward_close_mirrors(forward);
  still_free(forward->taps.scores);
  still_free(forward->taps.linear_mass);
  still_free(forward->taps.linear_output);
}

/* ---- the pieces --------------------------------------------------------------------------------- */

/* Names for one forward's parts, so that the functions below read like the model. */
typedef struct pass {
  still_forward *forward;
  const still_placement *placed;
  bool
      mirrored; /* on the host although the forward's backend is a device: activations are the mirrors */
  still_backend *backend;
  const still_backend_ops *ops;
  still_buffer *const *act;
  const still_model_config *config;
  size_t n, width, heads, kv_heads, dim;
  int64_t first;
} pass;

static pass begin(still_forward *forward, size_t n, int64_t first) {
  const still_model_config *config = &forward->model->weights->config;
  return (pass){.forward = forward,
                .placed = forward->placed,
                .backend = forward->backend,
                .ops = forward->backend->ops,
                .act = forward->activations,
                .config = config,
                .n = n,
                .width = (size_t)config->width,
                .heads = (size_t)config->heads,
                .kv_heads = (size_t)config->kv_heads,
                .dim = (size_t)config->head_dim,
                .first = first};
}

/* The same for layers that run on the CPU. */
static pass begin_on_host(still_forward *forward, size_t n, int64_t first) {
  pass p = begin(forward, n, first);
  if (forward->backend == forward->host) return p;
  p.mirrored = true;
  p.backend = forward->host;
  p.ops = p.backend->ops;
  p.act = forward->mirrors;
  return p;
}

static still_status multiply(const pass *p, still_activation out, const still_placed *placed,
                             uint64_t rows, still_activation in, uint64_t columns, int accumulate) {
  if (placed->on_host && p->backend != p->forward->host)
    return still_host_matmul(p->forward, out, placed, rows, in, columns, p->n, accumulate);
  return p->ops->matmul(p->backend, p->act[out], placed->weight, p->act[in], p->n, accumulate);
}

/* The caller may want to know, or to stop. A GPU's operations are only written down here, but not far ahead of it. */
static still_status breathe(const pass *p) {
  still_forward *forward = p->forward;
  return forward->between(forward->user, forward->layers_done, p->n);
}

/* out (n x rows) = or += in W^T, plus the LoRA pair beside W: scale (in A^T) B^T. */
static still_status linear(const pass *p, const still_placed_layer *layer, still_linear which,
                           still_activation out, still_activation in, int accumulate) {
  const still_placed_lora *lora = &layer->lora[which];
  const uint64_t rank = (uint64_t)lora->rank;
  uint64_t rows, columns;
  still_linear_shape(p->config, which, &rows, &columns);
  STILL_TRY(breathe(p));
  STILL_TRY(multiply(p, out, &layer->linear[which], rows, in, columns, accumulate));
  if (!rank) return STILL_OK;
  STILL_TRY(multiply(p, STILL_ACT_LOW, &lora->a, rank, in, columns, 0));
  STILL_TRY(p->ops->scale(p->backend, p->act[STILL_ACT_LOW], lora->scale, p->n * rank));
  return multiply(p, out, &lora->b, rows, STILL_ACT_LOW, rank, 1);
}

static still_status norm(const pass *p, still_activation out, still_activation in,
                         const still_placed *weight, size_t rows, size_t width) {
  return p->ops->rms_norm(p->backend, p->act[out], p->act[in], weight->weight, p->config->norm_eps,
                          rows, width);
}

static still_status bias(const pass *p, still_activation x, const still_placed *vector,
                         size_t width) {
  if (!vector->weight) return STILL_OK;
  return p->ops->add_vector(p->backend, p->act[x], vector->weight, p->n, width);
}

static still_status head_norm(const pass *p, still_activation x, const still_placed *weight,
                              size_t heads) {
  return weight->weight ? norm(p, x, x, weight, p->n * heads, p->dim) : STILL_OK;
}

static still_status rotate(const pass *p, still_activation x, size_t heads) {
  const still_placed *frequencies = p->placed->frequencies.weight && !p->mirrored
                                        ? &p->placed->frequencies
                                        : &p->placed->host_frequencies;
  return p->ops->rotary(p->backend, p->act[x], frequencies->weight,
                        p->forward->model->weights->rope_scale, p->first, p->n, heads, p->dim,
                        p->dim / 2);
}

/* normed -> q, k, v, and the gate of the linear branch. */
static still_status project(const pass *p, const still_placed_layer *layer,
                            const still_session_layer *session) {
  const size_t query = p->heads * p->dim, key_value = p->kv_heads * p->dim;
  STILL_TRY(linear(p, layer, STILL_LINEAR_Q, STILL_ACT_Q, STILL_ACT_NORMED, 0));
  STILL_TRY(linear(p, layer, STILL_LINEAR_K, STILL_ACT_K, STILL_ACT_NORMED, 0));
  STILL_TRY(linear(p, layer, STILL_LINEAR_V, STILL_ACT_V, STILL_ACT_NORMED, 0));
  STILL_TRY(bias(p, STILL_ACT_Q, &layer->q_bias, query));
  STILL_TRY(bias(p, STILL_ACT_K, &layer->k_bias, key_value));
  STILL_TRY(bias(p, STILL_ACT_V, &layer->v_bias, key_value));
  STILL_TRY(head_norm(p, STILL_ACT_Q, &layer->q_norm, p->heads));
  STILL_TRY(head_norm(p, STILL_ACT_K, &layer->k_norm, p->kv_heads));
  if (!session->uses_gate) return STILL_OK;
  STILL_TRY(linear(p, layer, STILL_LINEAR_GATE, STILL_ACT_GATE, STILL_ACT_NORMED, 0));
  return p->ops->sigmoid(p->backend, p->act[STILL_ACT_GATE], p->n * query);
}

/* q and k before the rotation, for the kind that wants them. */
static still_status keep_raw(const pass *p) {
  STILL_TRY(p->ops->copy_rows(p->backend, p->act[STILL_ACT_Q_RAW], p->act[STILL_ACT_Q], 0, p->n,
                              p->heads * p->dim));
  return p->ops->copy_rows(p->backend, p->act[STILL_ACT_K_RAW], p->act[STILL_ACT_K], 0, p->n,
                           p->kv_heads * p->dim);
}

static still_status attend_on_device(const pass *p, still_session_layer *session, bool raw) {
  return p->ops->attention(p->backend, session->cache, p->act[STILL_ACT_ATTENDED],
                           p->act[STILL_ACT_Q], p->act[STILL_ACT_K], p->act[STILL_ACT_V],
                           session->uses_gate ? p->act[STILL_ACT_GATE] : NULL,
                           raw ? p->act[STILL_ACT_Q_RAW] : NULL,
                           raw ? p->act[STILL_ACT_K_RAW] : NULL, p->n, &p->forward->taps);
}

static still_status attend(const pass *p, int index) {
  still_forward *forward = p->forward;
  still_session_layer *session = &forward->layers[index];
  const bool raw = is_raw_kind(session);
  if (raw) STILL_TRY(keep_raw(p));
  STILL_TRY(rotate(p, STILL_ACT_Q, p->heads));
  STILL_TRY(rotate(p, STILL_ACT_K, p->kv_heads));
  const bool elsewhere = session->on_host && p->backend != forward->host;
  STILL_TRY(elsewhere ? still_host_attention(forward, session, p->n)
                      : attend_on_device(p, session, raw));
  return forward->taps.scores ? forward->record(forward->user, index, p->n, p->first) : STILL_OK;
}

static still_status feed_forward(const pass *p, const still_placed_layer *layer) {
  STILL_TRY(norm(p, STILL_ACT_NORMED, STILL_ACT_X, &layer->feed_norm, p->n, p->width));
  STILL_TRY(linear(p, layer, STILL_LINEAR_FF_GATE, STILL_ACT_FF_GATE, STILL_ACT_NORMED, 0));
  STILL_TRY(linear(p, layer, STILL_LINEAR_FF_UP, STILL_ACT_FF_UP, STILL_ACT_NORMED, 0));
  STILL_TRY(p->ops->swiglu(p->backend, p->act[STILL_ACT_FF_GATE], p->act[STILL_ACT_FF_GATE],
                           p->act[STILL_ACT_FF_UP], p->n * (size_t)p->config->feed_forward));
  return linear(p, layer, STILL_LINEAR_FF_DOWN, STILL_ACT_X, STILL_ACT_FF_GATE, 1);
}

/* ---- finite values ------------------------------------------------------------------------------ */

static still_status check_rows(const pass *p, still_activation which, size_t width, int layer) {
  size_t row;
  STILL_TRY(p->ops->first_not_finite(p->backend, p->act[which], p->n, width, &row));
  if (row == p->n) return STILL_OK;
  return still_fail(STILL_ERROR_NUMERIC, "non-finite values at position %lld in layer %d of %d",
                    (long long)(p->first + (int64_t)row), layer, p->config->layers);
}

/* A GPU would have to be waited for. */
static bool can_look(const pass *p) {
  return p->backend == p->forward->host;
}

/* Before they reach the attention, where a weight of 0 times a NaN would spread it to earlier rows of the block. */
static still_status check_keys_and_values(const pass *p, int layer) {
  if (!can_look(p)) return STILL_OK;
  STILL_TRY(check_rows(p, STILL_ACT_K, p->kv_heads * p->dim, layer));
  return check_rows(p, STILL_ACT_V, p->kv_heads * p->dim, layer);
}

static still_status check_output(const pass *p, int layer) {
  /* of a single token the logits tell, for which a GPU is waited for anyway */
  const bool last = layer + 1 == p->config->layers && p->n > 1;
  return can_look(p) || last ? check_rows(p, STILL_ACT_X, p->width, layer) : STILL_OK;
}

static still_status embed(const pass *p, const still_token *ids) {
  const still_placed *embedding = &p->placed->embedding;
  if (embedding->on_host && p->backend != p->forward->host)
    return still_host_embed(p->forward, STILL_ACT_X, embedding, ids, p->n);
  return p->ops->embed(p->backend, p->act[STILL_ACT_X], embedding->weight, ids, p->n);
}

/* ---- the model ---------------------------------------------------------------------------------- */

static still_status run_layer(const pass *p, int index) {
  const still_placed_layer *layer = &p->placed->layers[index];
  STILL_TRY(norm(p, STILL_ACT_NORMED, STILL_ACT_X, &layer->attention_norm, p->n, p->width));
  STILL_TRY(project(p, layer, &p->forward->layers[index]));
  STILL_TRY(check_keys_and_values(p, index));
  STILL_TRY(attend(p, index));
  STILL_TRY(linear(p, layer, STILL_LINEAR_O, STILL_ACT_X, STILL_ACT_ATTENDED, 1));
  STILL_TRY(feed_forward(p, layer));
  STILL_TRY(p->ops->checkpoint(p->backend));
  return check_output(p, index);
}

still_status still_forward_block(still_forward *forward, const still_token *ids, size_t n,
                                 int64_t first) {
  const pass device = begin(forward, n, first), host = begin_on_host(forward, n, first);
  const still_placed_layer *layers = forward->placed->layers;
  bool on_host = layers[0].on_host;
  STILL_TRY(embed(on_host ? &host : &device, ids));
  for (int i = 0; i < device.config->layers; i++) {
    if (on_host && !layers[i].on_host) {
      STILL_TRY(still_forward_move(forward, STILL_ACT_X, n * device.width, false));
      on_host = false;
    }
    forward->layers_done = i;
    STILL_TRY(run_layer(on_host ? &host : &device, i));
    STILL_TRY(forward->between(forward->user, i + 1, n));
  }
  return n > 1 ? device.ops->finish(device.backend) : STILL_OK; /* a single token's logits wait */
}

still_status still_forward_logits(still_forward *forward, size_t row, size_t count, int64_t first,
                                  float *logits) {
  const pass pass_ = begin(forward, count, first), *p = &pass_;
  const size_t vocabulary = (size_t)p->config->vocabulary;
  STILL_TRY(p->ops->copy_rows(p->backend, p->act[STILL_ACT_LAST], p->act[STILL_ACT_X], row, count,
                              p->width));
  STILL_TRY(norm(p, STILL_ACT_LAST, STILL_ACT_LAST, &p->placed->output_norm, count, p->width));
  STILL_TRY(
      multiply(p, STILL_ACT_LOGITS, &p->placed->output, vocabulary, STILL_ACT_LAST, p->width, 0));
  STILL_TRY(
      p->ops->buffer_read(p->backend, p->act[STILL_ACT_LOGITS], 0, logits, count * vocabulary));
  for (size_t i = 0; i < count; i++)
    if (!still_all_finite(logits + i * vocabulary, vocabulary))
      return still_fail(STILL_ERROR_NUMERIC, "non-finite logits at position %lld",
                        (long long)(first + (int64_t)(row + i)));
  return STILL_OK;
}
