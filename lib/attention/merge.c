/* SPDX-License-Identifier: MIT
 *
 * y = (softmax numerator + gate * linear numerator) / (softmax sum + linear sum)
 *
 * The softmax part stands in units of exp(M), M the maximum over everything the query attends to
 * exactly; the linear part does not, and is never rescaled. So this comes last, when M is final.
 */
#include "attention/attention_stages.h"

#include <math.h>

static float share(double part, double rest) {
  return part > 0 ? (float)(part / (part + rest)) : 0;
}

/* Length of a row, each channel times its gate (NULL: 1). */
static double length_of(const float *row, const float *gate, size_t dim) {
  double sum = 0;
  for (size_t d = 0; d < dim; d++) {
    const double x = (double)row[d] * (gate ? (double)gate[d] : 1);
    sum += x * x;
  }
  return sqrt(sum);
}

/* What the linear branch contributes to a block's rows, for whoever asked. */
static void tell_shares(const still_task *task, const still_block *block, bool linear, bool gated) {
  const still_call *call = task->call;
  const still_attention_inputs *in = call->inputs;
  const still_scratch *s = task->scratch;
  const size_t dim = task->dim, tokens = block->at.tokens;
  for (size_t i = 0; i < block->rows; i++) {
    const size_t head = block->head + i / tokens, token = block->at.offset + i % tokens;
    const float *gate = gated ? still_input_row(&in->gate, head, token) : NULL;
    const size_t at = head * call->n + token;
    if (in->linear_mass) in->linear_mass[at] = linear ? share(s->linear_sum[i], s->sum[i]) : 0;
    if (in->linear_output)
      in->linear_output[at] = linear ? share(length_of(s->linear + i * dim, gate, dim),
                                             length_of(s->out + i * dim, NULL, dim))
                                     : 0;
  }
}

void still_merge(const still_task *task, const still_block *block, bool linear) {
  const still_call *call = task->call;
  const still_scratch *s = task->scratch;
  const still_rows *gate = &call->inputs->gate;
  const bool gated = task->plan->options.kind == STILL_ATTENTION_STILL && linear && gate->data;
  const size_t dim = task->dim, tokens = block->at.tokens;
  if (call->inputs->linear_mass || call->inputs->linear_output)
    tell_shares(task, block, linear, gated);
  for (size_t h = 0; h < block->heads; h++) {
    const size_t row = h * tokens, head = block->head + h;
    float *y = call->y + head * call->y_head_stride + block->at.offset * call->y_token_stride;
    task->kernels->merge_rows(y, call->y_token_stride, s->out + row * dim, dim,
                              linear ? s->linear + row * dim : NULL, dim,
                              gated ? still_input_row(gate, head, block->at.offset) : NULL,
                              gate->token_stride, s->sum + row, s->linear_sum + row, tokens, dim);
  }
}
