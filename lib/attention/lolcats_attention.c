/* SPDX-License-Identifier: MIT
 * LoLCATs: softmax over the last W tokens, weighted by a factor of the head, and Hedgehog linear
 * attention over everything older, under one denominator. */
#include "attention/attention_stages.h"

static void apply_factor(const still_task *task, const still_block *block) {
  const still_scratch *s = task->scratch;
  for (size_t i = 0; i < block->rows; i++) {
    s->rescale[i] = task->plan->window_factor[block->head + i / block->at.tokens];
    s->sum[i] *= s->rescale[i];
  }
  task->kernels->scale_rows(s->out, task->dim, s->rescale, block->rows, task->dim);
}

/* The tokens that leave the window while the block's T queries go by, W - 1 before the first query
 * and on. The state does not hold them yet: query i sees the first i of them through their
 * features. Then they join the state, the last one too, for the query after the block. */
static void attend_leaving(const still_task *task, const still_block *block) {
  const still_scratch *s = task->scratch;
  const size_t tokens = block->at.tokens;
  const int64_t left = block->at.position - task->plan->options.window + 1;
  const int64_t first = left > 0 ? left : 0, end = left + (int64_t)tokens;
  if (end <= first) return;
  const size_t count = (size_t)(end - first);
  const size_t early = (size_t)(first - left); /* queries before the window was full */
  for (size_t i = 0; i < count; i++) s->gather[i] = first + (int64_t)i;
  still_key_store_gather(&task->call->cache->near[task->unit], task->kernels, s->gather, count,
                         s->keys, s->values, s->tile);
  for (size_t h = 0; h < block->heads; h++) {
    still_features(task, block->head + h, STILL_KEY, s->keys, count, s->k_features);
    still_linear_within(task, h * tokens + early, tokens - early, count, 0);
    still_state_add(task, block->head + h, s->k_features, s->values, count);
  }
}

static void attend_block(const still_task *task, const still_block *block) {
  still_softmax_begin(task, block);
  still_window_attend(task, block);
  apply_factor(task, block);
  still_linear_branch(task, block);
  attend_leaving(task, block);
  still_merge(task, block, true);
}

void still_lolcats_attention(const still_task *task) {
  for (size_t offset = 0; offset < task->call->n;) {
    const still_piece piece = still_next_piece(task, offset);
    still_append(task, piece);
    still_for_blocks(task, piece, attend_block);
    offset += piece.tokens;
  }
}
