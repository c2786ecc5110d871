/* SPDX-License-Identifier: MIT
 *
 * Routing scores of new tokens (spec section 2). The near window's softmax has just been made, and
 * a token's last C keys are part of it, so the score costs one pass over weights that lie in the
 * first-level cache.
 */
#include "attention/attention_stages.h"
#include "base/random.h"

#include <math.h>

/* Weights relative to the near window's maximum may be too small to tell a token's own window: then
 * its logits are made again. */
static const float smallest_weight = 1e-20f;

static void saliency_again(const still_task *task, const still_sight *near, size_t i) {
  still_scratch *s = task->scratch;
  float *spare = s->weights + still_block_rows(task->plan) * s->pitch;
  still_softmax_logits_of_row(task, near, s->q + i * task->dim, spare);
  task->kernels->saliency_rows(s->scores + i, spare, s->pitch, 1, s->end + i, s->window + i,
                               still_scale(task));
}

static void saliency_scores(const still_task *task, const still_block *block,
                            const still_sight *near) {
  still_scratch *s = task->scratch;
  task->kernels->saliency_from_weights(s->scores, s->weights, s->pitch, block->rows, s->end,
                                       s->window);
  for (size_t i = 0; i < block->rows; i++)
    if (isnan(s->scores[i])) saliency_again(task, near, i);
}

/* a_t, the last of a window's softmax. */
static float own_share(const float *weights, int window) {
  float all = 0;
  for (int j = 0; j < window; j++) all += weights[j];
  return all >= smallest_weight ? weights[window - 1] / all : NAN;
}

static float own_share_of_logits(const float *logits, int window, float scale) {
  float max = -INFINITY, all = 0;
  for (int j = 0; j < window; j++) max = logits[j] > max ? logits[j] : max;
  for (int j = 0; j < window; j++) all += expf(scale * (logits[j] - max));
  return expf(scale * (logits[window - 1] - max)) / all;
}

static void diagonal_scores(const still_task *task, const still_block *block,
                            const still_sight *near) {
  still_scratch *s = task->scratch;
  float *spare = s->weights + still_block_rows(task->plan) * s->pitch;
  for (size_t i = 0; i < block->rows; i++) {
    const int begin = s->end[i] - s->window[i];
    s->scores[i] = own_share(s->weights + i * s->pitch + begin, s->window[i]);
    if (!isnan(s->scores[i])) continue;
    still_softmax_logits_of_row(task, near, s->q + i * task->dim, spare);
    s->scores[i] = own_share_of_logits(spare + begin, s->window[i], still_scale(task));
  }
}

/* Positions floor((2 r + 1) C / (2 lambda)) of a chunk, r = 0 .. lambda - 1. */
static float uniform_score(const still_attention_plan *plan, int64_t position) {
  const int64_t chunk = plan->options.chunk, keep = plan->keep, i = position % chunk;
  if (!keep) return 0;
  /* the r whose slot [r C / lambda, (r + 1) C / lambda) holds i, and its neighbour when rounding
   * splits them */
  for (int64_t r = i * keep / chunk, last = r + 1; r <= last && r < keep; r++)
    if ((2 * r + 1) * chunk / (2 * keep) == i) return 1;
  return 0;
}

static float random_score(const still_attention_plan *plan, size_t head, int64_t position) {
  const uint64_t stream = still_hash64(plan->options.seed ^ still_hash64((uint64_t)head));
  return (float)(still_hash64(stream ^ (uint64_t)position) >> 40) * 0x1p-24f;
}

static float simple_score(const still_task *task, const still_block *block, size_t i) {
  const still_attention_inputs *in = task->call->inputs;
  const size_t token = i % block->at.tokens;
  const size_t head = block->head + i / block->at.tokens;
  const int64_t position = block->at.position + (int64_t)token;
  const float *k = still_input_row(&in->k, task->kv_head, block->at.offset + token);
  float norm;
  switch (task->plan->options.metric) {
  case STILL_METRIC_QK:
    return still_scale(task) * task->kernels->dot(task->scratch->q + i * task->dim, k, task->dim);
  case STILL_METRIC_KEYNORM:
    task->kernels->row_norms(&norm, k, task->dim, 1, task->dim);
    return norm;
  case STILL_METRIC_UNIFORM: return uniform_score(task->plan, position);
  default: return random_score(task->plan, head, position);
  }
}

static void store_scores(const still_task *task, const still_block *block) {
  const size_t ring = still_score_ring(task->plan), tokens = block->at.tokens;
  float *out = task->call->inputs->scores;
  for (size_t i = 0; i < block->rows; i++) {
    const size_t head = block->head + i / tokens, token = i % tokens;
    const size_t slot = (size_t)(block->at.position + (int64_t)token) % ring;
    task->call->cache->scores[head * ring + slot] = task->scratch->scores[i];
    if (out) out[head * task->call->n + block->at.offset + token] = task->scratch->scores[i];
  }
}

void still_saliency(const still_task *task, const still_block *block, const still_sight *near) {
  still_scratch *s = task->scratch;
  const int64_t chunk = task->plan->options.chunk;
  for (size_t i = 0; i < block->rows; i++) {
    const int64_t seen = block->at.position + (int64_t)(i % block->at.tokens) + 1;
    s->window[i] = (int)(seen < chunk ? seen : chunk);
  }
  switch (task->plan->options.metric) {
  case STILL_METRIC_SALIENCY: saliency_scores(task, block, near); break;
  case STILL_METRIC_DIAGONAL: diagonal_scores(task, block, near); break;
  default:
    for (size_t i = 0; i < block->rows; i++) s->scores[i] = simple_score(task, block, i);
  }
  store_scores(task, block);
}
