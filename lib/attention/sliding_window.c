/* SPDX-License-Identifier: MIT
 * Softmax over the last W tokens and the first `sinks`. */
#include "attention/attention_stages.h"

void still_window_attend(const still_task *task, const still_block *block) {
  const int64_t window = task->plan->options.window;
  const int64_t low = block->at.position - window + 1, first = low > 0 ? low : 0;
  const int64_t end = block->at.position + (int64_t)block->at.tokens;
  const still_sight sight = {.store = &task->call->cache->near[task->unit],
                             .first = first,
                             .count = (size_t)(end - first),
                             .causal = true,
                             .window = window};
  still_softmax_attend(task, block, &sight, 0, block->rows);
}

/* Sinks that have left every row's window; those that some row's window still holds are told apart
 * by position. */
static void attend_sinks(const still_task *task, const still_block *block) {
  const int64_t left = block->at.position - task->plan->options.window + 1;
  const int64_t last_left = left + (int64_t)block->at.tokens - 1, sinks = task->plan->options.sinks;
  const int64_t all = left < 0 ? 0 : left < sinks ? left : sinks;
  const int64_t some = last_left < 0 ? 0 : last_left < sinks ? last_left : sinks;
  still_sight sight = {.store = &task->call->cache->sinks[task->unit], .count = (size_t)all};
  still_softmax_attend(task, block, &sight, 0, block->rows);
  /* row i sees sink j >= all once j <= position + i - W: a causal sight, W tokens back */
  still_block shifted = *block;
  shifted.at.position -= task->plan->options.window;
  sight = (still_sight){
      .store = sight.store, .first = all, .count = (size_t)(some - all), .causal = true};
  still_softmax_attend(task, &shifted, &sight, 0, block->rows);
}

static void attend_block(const still_task *task, const still_block *block) {
  still_softmax_begin(task, block);
  still_window_attend(task, block);
  if (task->call->cache->sinks) attend_sinks(task, block);
  still_merge(task, block, false);
}

still_piece still_next_piece(const still_task *task, size_t offset) {
  return (still_piece){.offset = offset,
                       .tokens = still_smaller(task->call->n - offset, STILL_BLOCK_ROWS),
                       .position = task->call->cache->tokens + (int64_t)offset};
}

void still_sliding_window(const still_task *task) {
  for (size_t offset = 0; offset < task->call->n;) {
    const still_piece piece = still_next_piece(task, offset);
    still_append(task, piece);
    still_for_blocks(task, piece, attend_block);
    offset += piece.tokens;
  }
}
