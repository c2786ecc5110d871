/* SPDX-License-Identifier: MIT
 *
 * y = (softmax numerator + gate * linear numerator) / (softmax sum + linear sum)
 *
 * The softmax part stands in units of exp(M), M the maximum over everything the query attends to
 * exactly; the linear part does not, and is never rescaled. So this comes last, when M is final.
 */
#include "attention/attention_stages.h"

void still_merge(const still_task *task, const still_block *block, bool linear) {
  const still_call *call = task->call;
  const still_scratch *s = task->scratch;
  const still_rows *gate = &call->inputs->gate;
  const bool gated = task->plan->options.kind == STILL_ATTENTION_STILL && linear && gate->data;
  const size_t dim = task->dim, tokens = block->at.tokens;
  for (size_t h = 0; h < block->heads; h++) {
    const size_t row = h * tokens, head = block->head + h;
    float *y = call->y + head * call->y_head_stride + block->at.offset * call->y_token_stride;
    task->kernels->merge_rows(y, call->y_token_stride, s->out + row * dim, dim,
                              linear ? s->linear + row * dim : NULL, dim,
                              gated ? still_input_row(gate, head, block->at.offset) : NULL,
                              gate->token_stride, s->sum + row, s->linear_sum + row, tokens, dim);
  }
}
