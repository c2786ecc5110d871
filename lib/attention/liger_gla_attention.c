/* SPDX-License-Identifier: MIT
 *
 * Liger-GLA: half windowed softmax, half gated linear attention on the q, k before RoPE.
 *
 *   S_t = diag(d_t) S_{t-1} + phi(k_t) v_t^T      d_t = sigmoid(k_t)^(1/16)
 *   o_t = phi(q_t) S_t                            phi = softmax
 *
 * STEP tokens at a time: with P_t the product of the decays of the step's tokens up to t,
 *   o_t = (phi(q_t) P_t) S_0 + sum over j <= t of (phi(q_t) P_t) . (phi(k_j) / P_j) v_j
 *   S   = diag(P_last) S_0 + sum over j of (phi(k_j) P_last / P_j) v_j^T
 * 1 / P_j cannot overflow while P_last is at least `smallest`; otherwise the step goes token by
 * token.
 */
#include "attention/attention_stages.h"

#include <math.h>
#include <string.h>

enum { STEP = 16 };
static const float smallest = 1e-9f;

/* d = sigmoid(k)^(1/16) by four square roots; where the sigmoid underflows it is exp(k). */
static void decays(const still_task *task, float *d, const float *k) {
  task->kernels->sigmoid(d, k, task->dim);
  for (size_t i = 0; i < task->dim; i++) d[i] = sqrtf(sqrtf(sqrtf(sqrtf(d[i]))));
  for (size_t i = 0; i < task->dim; i++)
    if (k[i] < -80) d[i] = expf(k[i] / 16);
}

/* One step's arrays, (STEP, D) each, in memory that the linear branch of other kinds uses. */
typedef struct step {
  float *q, *k, *product;
  const float *v;
  size_t tokens;
} step;

static void token_by_token(const still_task *task, const step *st, float *state, float *out) {
  const size_t dim = task->dim;
  for (size_t t = 0; t < st->tokens; t++) {
    const float *d = st->product + t * dim, *k = st->k + t * dim, *v = st->v + t * dim;
    for (size_t f = 0; f < dim; f++)
      for (size_t c = 0; c < dim; c++) state[f * dim + c] = d[f] * state[f * dim + c] + k[f] * v[c];
    task->kernels->matmul(out + t * dim, dim, st->q + t * dim, dim, 1, state, dim, 1, dim, dim, 0);
  }
}

/* Turns decays into running products; false if they become too small to divide by. */
static bool running_products(const step *st, size_t dim) {
  float least = INFINITY;
  for (size_t f = 0; f < dim; f++) {
    float product = 1;
    for (size_t t = 0; t < st->tokens; t++) product *= st->product[t * dim + f];
    least = product < least ? product : least;
  }
  if (!(least >= smallest)) return false;
  for (size_t i = dim; i < st->tokens * dim; i++) st->product[i] *= st->product[i - dim];
  return true;
}

static void whole_step(const still_task *task, const step *st, float *state, float *out) {
  const still_scratch *s = task->scratch;
  const size_t dim = task->dim, n = st->tokens;
  const float *last = st->product + (n - 1) * dim;
  for (size_t i = 0; i < n * dim; i++) st->q[i] *= st->product[i];
  for (size_t i = 0; i < n * dim; i++) st->k[i] /= st->product[i];
  task->kernels->matmul(out, dim, st->q, dim, 1, state, dim, n, dim, dim, 0);
  task->kernels->pack_keys(s->feature_tiles, 0, st->k, dim, n, dim);
  float weights[STEP * STEP];
  task->kernels->matmul(weights, STEP, st->q, dim, 1, s->feature_tiles, STILL_KEY_TILE, n, n, dim,
                        0);
  for (size_t t = 0; t < n; t++)
    for (size_t j = t + 1; j < n; j++) weights[t * STEP + j] = 0;
  task->kernels->matmul(out, dim, weights, STEP, 1, st->v, dim, n, dim, n, 1);
  for (size_t t = 0; t < n; t++)
    for (size_t f = 0; f < dim; f++) st->k[t * dim + f] *= last[f];
  task->kernels->scale_rows(state, dim, last, dim, dim);
  task->kernels->matmul(state, dim, st->k, 1, dim, st->v, dim, dim, dim, n, 1);
}

/* The gated linear half of one head: scratch->linear rows row .. row+tokens-1. */
static void gated_linear(const still_task *task, const still_block *block, size_t h) {
  const still_scratch *s = task->scratch;
  const still_attention_inputs *in = task->call->inputs;
  const size_t dim = task->dim, head = block->head + h;
  for (size_t t = 0; t < block->at.tokens; t += STEP) {
    step st = {.q = s->q_features,
               .k = s->k_features,
               .product = s->keys,
               .v = s->values,
               .tokens = still_smaller(block->at.tokens - t, STEP)};
    for (size_t i = 0; i < st.tokens; i++) {
      const size_t token = block->at.offset + t + i;
      const float *k = still_input_row(&in->k_raw, task->kv_head, token);
      task->kernels->softmax_features(st.q + i * dim, dim, still_input_row(&in->q_raw, head, token),
                                      dim, 1, dim);
      task->kernels->softmax_features(st.k + i * dim, dim, k, dim, 1, dim);
      decays(task, st.product + i * dim, k);
      memcpy(s->values + i * dim, still_input_row(&in->v, task->kv_head, token),
             dim * sizeof(float));
    }
    float *out = s->linear + (h * block->at.tokens + t) * dim;
    if (running_products(&st, dim))
      whole_step(task, &st, still_state_of(task, head), out);
    else
      token_by_token(task, &st, still_state_of(task, head), out);
  }
}

static void average(const still_task *task, const still_block *block) {
  const still_call *call = task->call;
  const size_t tokens = block->at.tokens, dim = task->dim;
  for (size_t i = 0; i < block->rows; i++) {
    const float *linear = task->scratch->linear + i * dim;
    float *y = call->y + (block->head + i / tokens) * call->y_head_stride +
               (block->at.offset + i % tokens) * call->y_token_stride;
    for (size_t c = 0; c < dim; c++) y[c] = 0.5f * y[c] + 0.5f * linear[c];
  }
}

static void attend_block(const still_task *task, const still_block *block) {
  still_softmax_begin(task, block);
  still_window_attend(task, block);
  still_merge(task, block, false);
  for (size_t h = 0; h < block->heads; h++) gated_linear(task, block, h);
  average(task, block);
}

void still_liger_gla_attention(const still_task *task) {
  for (size_t offset = 0; offset < task->call->n;) {
    const still_piece piece = still_next_piece(task, offset);
    still_append(task, piece);
    still_for_blocks(task, piece, attend_block);
    offset += piece.tokens;
  }
}
