/* SPDX-License-Identifier: MIT
 * Which tokens of a whole training sequence are kept (spec sections 2, 3): the same rule as the
 * operator's, all chunks at once. No gradient flows through it. */
#ifndef STILL_LINEARIZE_TRAINING_ROUTING_H
#define STILL_LINEARIZE_TRAINING_ROUTING_H

#include <still/attention.h>

/* The options that matter here, with lambda and the cap already worked out for the sequence's
 * length. */
typedef struct still_routing_rule {
  size_t chunk;
  size_t keep; /* lambda */
  size_t cap;  /* most tokens kept in all */
  still_metric metric;
  uint64_t seed;
} still_routing_rule;

/* lambda and cap for a sequence of `tokens`: a BUDGET schedule is certified for max(tokens,
 * options->context). */
still_routing_rule still_routing_rule_make(const still_attention_options *options, size_t tokens);

size_t still_routing_work_floats(const still_routing_rule *rule, size_t dim);

/* scores (tokens) of one query head, q and k rows of dim with strides. */
void still_routing_scores(const still_routing_rule *rule, size_t head, const float *q, size_t q_row,
                          const float *k, size_t k_row, size_t tokens, size_t dim, float *scores,
                          float *work);

/* keep (tokens) = 1 for each whole chunk's best tokens. order: work of C ints. */
void still_routing_keep(const still_routing_rule *rule, const float *scores, size_t tokens,
                        uint8_t *keep, int *order);

#endif
