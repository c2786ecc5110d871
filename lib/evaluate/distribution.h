/* SPDX-License-Identifier: MIT
 * What logits say: likelihoods, divergence, the most likely token. */
#ifndef STILL_EVALUATE_DISTRIBUTION_H
#define STILL_EVALUATE_DISTRIBUTION_H

#include <still/model.h>

/* The first of the largest. */
still_token still_most_likely(const float *logits, int count);
/* log(sum(exp(logits))) in double. */
double still_log_sum_exp(const float *logits, int count);
/* KL(softmax(a) || softmax(b)), never below 0. */
double still_divergence(const float *a, const float *b, int count);

#endif
