/* SPDX-License-Identifier: MIT
 * The gated linear half of LIGER_GLA over one sequence and head, forward and backward (spec section
 * 6):
 *   S_t = diag(exp(logsigmoid(k_t) / 16)) S_{t-1} + softmax(k_t) v_t^T,   y_t = softmax(q_t) S_t */
#ifndef STILL_LINEARIZE_GATED_LINEAR_GRADIENT_H
#define STILL_LINEARIZE_GATED_LINEAR_GRADIENT_H

#include <stddef.h>

/* Rows of D with strides; q and k before rotation. */
typedef struct still_gated_inputs {
  size_t tokens, dim;
  const float *q, *k, *v;
  size_t q_row, k_row, v_row;
} still_gated_inputs;

size_t still_gated_work_floats(size_t tokens, size_t dim);

/* y (tokens, D) contiguous. */
void still_gated_forward(const still_gated_inputs *in, float *y, float *work);

/* dy (tokens, D) contiguous; adds to dq, dk, dv. */
void still_gated_backward(const still_gated_inputs *in, const float *dy, float *dq, size_t dq_row,
                          float *dk, size_t dk_row, float *dv, size_t dv_row, float *work);

#endif
