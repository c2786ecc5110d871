/* SPDX-License-Identifier: MIT
 * Hedgehog and T2R: linear attention over everything, the token itself included; nothing is exact.
 */
#include "attention/attention_stages.h"

#include <string.h>

static void gather_rows(float *out, const still_rows *rows, size_t head, const still_piece *at,
                        size_t dim) {
  for (size_t i = 0; i < at->tokens; i++)
    memcpy(out + i * dim, still_input_row(rows, head, at->offset + i), dim * sizeof *out);
}

static void attend_block(const still_task *task, const still_block *block) {
  const still_scratch *s = task->scratch;
  const still_attention_inputs *in = task->call->inputs;
  const size_t tokens = block->at.tokens;
  still_softmax_begin(task, block); /* an empty softmax part */
  still_linear_branch(task, block);
  gather_rows(s->keys, &in->k, task->kv_head, &block->at, task->dim);
  gather_rows(s->values, &in->v, task->kv_head, &block->at, task->dim);
  for (size_t h = 0; h < block->heads; h++) {
    still_features(task, block->head + h, STILL_KEY, s->keys, tokens, s->k_features);
    still_linear_within(task, h * tokens, tokens, tokens, 1);
    still_state_add(task, block->head + h, s->k_features, s->values, tokens);
  }
  still_merge(task, block, true);
}

void still_feature_attention(const still_task *task) {
  for (size_t offset = 0; offset < task->call->n;) {
    const still_piece piece = still_next_piece(task, offset);
    still_for_blocks(task, piece, attend_block);
    offset += piece.tokens;
  }
}
