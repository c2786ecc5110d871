/* SPDX-License-Identifier: MIT
 * Causal softmax attention over everything, streamed: never more than a block of logits in memory.
 */
#include "attention/attention_stages.h"
#include "base/threads.h"

static void attend_block(const still_task *task, const still_block *block) {
  const still_sight sight = {.store = &task->call->cache->near[task->kv_head],
                             .count = (size_t)block->at.position + block->at.tokens,
                             .causal = true};
  still_softmax_begin(task, block);
  still_softmax_attend(task, block, &sight, 0, block->rows);
  still_merge(task, block, false);
}

void still_full_attention(const still_call *call, still_scratch *scratches) {
  const int kv_heads = call->plan->options.kv_heads, threads = call->plan->threads;
  const size_t group = (size_t)call->plan->group;
  const int64_t position = call->cache->tokens;
  (void)threads;
  const int pieces = (int)((call->n + STILL_BLOCK_ROWS - 1) / STILL_BLOCK_ROWS);
  STILL_OMP(parallel num_threads(threads)) {
    still_scratch *scratch = &scratches[omp_get_thread_num()];
    STILL_OMP(for schedule(dynamic, 1))
    for (int g = 0; g < kv_heads; g++) {
      const still_task task = still_task_of(call, scratch, (size_t)g * group, group);
      still_append(&task, (still_piece){.tokens = call->n, .position = position});
    }
    /* the longest rows first, so that the threads end together */
    STILL_OMP(for schedule(dynamic, 1) collapse(2))
    for (int back = 0; back < pieces; back++)
      for (int g = 0; g < kv_heads; g++) {
        const size_t offset = (size_t)(pieces - 1 - back) * STILL_BLOCK_ROWS;
        const still_task task = still_task_of(call, scratch, (size_t)g * group, group);
        still_for_blocks(&task,
                         (still_piece){.offset = offset,
                                       .tokens = still_smaller(call->n - offset, STILL_BLOCK_ROWS),
                                       .position = position + (int64_t)offset},
                         attend_block);
      }
  }
}
