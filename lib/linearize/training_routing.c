/* SPDX-License-Identifier: MIT */
#include "linearize/training_routing.h"

#include "attention/attention_stages.h"
#include "base/memory.h"
#include "base/random.h"
#include "linearize/feature_gradient.h"
#include "simd/kernels.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

still_routing_rule still_routing_rule_make(const still_attention_options *options, size_t tokens) {
  const size_t chunk = (size_t)options->chunk;
  still_routing_rule rule = {chunk, 0, SIZE_MAX, options->metric, options->seed};
  const size_t context = tokens > (size_t)options->context ? tokens : (size_t)options->context;
  switch (options->schedule) {
  case STILL_SCHEDULE_BUDGET:
    rule.keep =
        (size_t)still_attention_keep_for_length(options->budget, options->chunk, (int64_t)context);
    break;
  case STILL_SCHEDULE_FIXED: rule.keep = (size_t)options->keep; break;
  case STILL_SCHEDULE_RATIO: rule.keep = (size_t)lrintf(options->keep_ratio * (float)chunk); break;
  }
  if (options->schedule == STILL_SCHEDULE_BUDGET ||
      (options->schedule == STILL_SCHEDULE_FIXED && options->budget > 0))
    rule.cap = (size_t)(options->budget - options->chunk);
  return rule;
}

size_t still_routing_work_floats(const still_routing_rule *rule, size_t dim) {
  return 2 * rule->chunk * (dim + rule->chunk) + 2 * rule->chunk;
}

/* Scores of one chunk from the unscaled logits (rows, columns) of its queries with the previous
 * chunk and itself. */
static void chunk_scores(const still_routing_rule *rule, const float *logits, size_t columns,
                         size_t rows, size_t near, size_t dim, int *end, int *window,
                         float *scores) {
  const float scale = 1.0f / sqrtf((float)dim);
  for (size_t i = 0; i < rows; i++) {
    end[i] = (int)(near + i + 1);
    window[i] = (int)still_smaller(near + i + 1, rule->chunk);
  }
  if (rule->metric == STILL_METRIC_SALIENCY) {
    still_kernels_get()->saliency_rows(scores, logits, columns, rows, end, window, scale);
    return;
  }
  for (size_t i = 0; i < rows; i++) {
    const float *row = logits + i * columns + end[i] - window[i];
    const float self = row[window[i] - 1];
    float sum = 0;
    for (int j = 0; j < window[i]; j++) sum += expf(scale * (row[j] - self));
    scores[i] = rule->metric == STILL_METRIC_DIAGONAL ? 1 / sum : scale * self;
  }
}

/* Metrics that look at no logits. */
static float plain_score(const still_routing_rule *rule, size_t head, const float *key, size_t t,
                         size_t dim) {
  const size_t i = t % rule->chunk;
  switch (rule->metric) {
  case STILL_METRIC_KEYNORM: return sqrtf(still_kernels_get()->dot(key, key, dim));
  case STILL_METRIC_UNIFORM:
    for (size_t r = 0; r < rule->keep; r++)
      if (i == (2 * r + 1) * rule->chunk / (2 * rule->keep)) return 1;
    return 0;
  default: {
    const uint64_t stream = still_hash64(rule->seed ^ still_hash64((uint64_t)head));
    return (float)(still_hash64(stream ^ (uint64_t)t) >> 40) * 0x1p-24f;
  }
  }
}

void still_routing_scores(const still_routing_rule *rule, size_t head, const float *q, size_t q_row,
                          const float *k, size_t k_row, size_t tokens, size_t dim, float *scores,
                          float *work) {
  const still_kernels *kernels = still_kernels_get();
  const size_t chunk = rule->chunk;
  if (rule->metric == STILL_METRIC_KEYNORM || rule->metric == STILL_METRIC_UNIFORM ||
      rule->metric == STILL_METRIC_RANDOM) {
    for (size_t t = 0; t < tokens; t++) scores[t] = plain_score(rule, head, k + t * k_row, t, dim);
    return;
  }
  float *keys = work, *logits = keys + 2 * chunk * dim;
  int *end = (int *)(logits + 2 * chunk * chunk), *window = end + chunk;
  for (size_t first = 0; first < tokens; first += chunk) {
    const size_t rows = still_smaller(chunk, tokens - first), near = still_smaller(first, chunk);
    const size_t columns = near + rows;
    still_transpose(keys, columns, k + (first - near) * k_row, k_row, columns, dim);
    kernels->matmul(logits, columns, q + first * q_row, q_row, 1, keys, columns, rows, columns, dim,
                    0);
    chunk_scores(rule, logits, columns, rows, near, dim, end, window, scores + first);
  }
}

void still_routing_keep(const still_routing_rule *rule, const float *scores, size_t tokens,
                        uint8_t *keep, int *order) {
  size_t used = 0;
  memset(keep, 0, tokens);
  for (size_t first = 0; first + rule->chunk <= tokens; first += rule->chunk) {
    const size_t room = rule->cap > used ? rule->cap - used : 0;
    const size_t count = still_smaller(still_smaller(rule->keep, room), rule->chunk);
    still_choose_best(keep + first, scores + first, rule->chunk, count, order);
    used += count;
  }
}
