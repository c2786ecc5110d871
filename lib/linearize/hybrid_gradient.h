/* SPDX-License-Identifier: MIT
 *
 * The operators of still/attention.h over one whole sequence and one query head, forward and
 * backward, for training. Chunk-parallel: everything is a small matrix product; memory is linear in
 * the sequence. Routing is an input (constants, spec section 7), see training_routing.h.
 *
 *   y = (w sum_SA exp(s_j - M) v_j + g (phi_q . S)) / (w sum_SA exp(s_j - M) + phi_q . z)
 *
 * with w = 1 except for LOLCATS. What SA and LA hold is the kind's business:
 *   FULL       SA = all                      SWA       SA = window + sinks
 *   STILL      SA = kept + near, LA = rest   LOLCATS   SA = window, LA = everything older
 *   HEDGEHOG, T2R   LA = all up to the query
 * LIGER_GLA is the mean of SWA and gated_linear_gradient.h. */
#ifndef STILL_LINEARIZE_HYBRID_GRADIENT_H
#define STILL_LINEARIZE_HYBRID_GRADIENT_H

#include "base/progress.h"
#include "linearize/feature_gradient.h"

#include <still/attention.h>

/* One head's operator. */
typedef struct still_hybrid_head {
  still_attention_kind kind;
  size_t dim;
  size_t chunk;           /* STILL: C */
  size_t window, sinks;   /* SWA, LOLCATS */
  float window_factor;    /* LOLCATS: w, after the sigmoid; 1 for other kinds */
  still_map map_q, map_k; /* map.weight NULL: no linear branch */
} still_hybrid_head;

/* Rows of N tokens with a row stride in floats. */
typedef struct still_hybrid_inputs {
  size_t tokens;
  const float *q, *k, *v;
  size_t q_row, k_row, v_row;
  const float *gate; /* g, after the sigmoid; NULL = 1 */
  size_t gate_row;
  const uint8_t *keep;            /* STILL: (tokens), not 0 = kept once its chunk is routed */
  const still_progress *progress; /* asked whether to go on: outputs are undefined after a no */
} still_hybrid_inputs;

/* Where gradients are added; any may be NULL = not wanted (q, k and v together). q, k, v,
 * gate_logit: rows of D with stride row[]. Gradients of parameters are of (D, D) and (D) arrays. */
typedef struct still_hybrid_gradients {
  float *q, *k, *v;
  size_t q_row, k_row, v_row;
  float *gate_logit; /* with respect to x in g = sigmoid(x) */
  size_t gate_row;
  float *feature_q, *feature_k, *bias_q, *bias_k;
  float *window_factor; /* (1), with respect to w */
} still_hybrid_gradients;

/* Floats of work space that forward and backward need for a sequence of this length. */
size_t still_hybrid_work_floats(const still_hybrid_head *head, size_t tokens);

/* y (tokens, stride y_row); denominator (tokens) of y, for backward, NULL = not wanted. */
void still_hybrid_forward(const still_hybrid_head *head, const still_hybrid_inputs *in, float *y,
                          size_t y_row, float *denominator, float *work);

/* y and denominator as forward made them; dy (tokens, stride dy_row). */
void still_hybrid_backward(const still_hybrid_head *head, const still_hybrid_inputs *in,
                           const float *y, size_t y_row, const float *denominator, const float *dy,
                           size_t dy_row, const still_hybrid_gradients *out, float *work);

#endif
