/* SPDX-License-Identifier: MIT
 *
 * STILL attention: the conductor. The same for any number of new tokens; prefill and decode differ
 * only in how many tokens a piece has.
 *
 *   keys and values join the near window (previous chunk + this one)
 *   saliency       one score per token and query head, from weights the local softmax needs anyway
 *   route          the chunk that leaves the near window: its best lambda stay, the rest go
 *   salient cache  the chosen k, v, for good, at most the budget
 *   feature map    phi(k) of the rest        linear state   S += phi(k) v^T,  z += phi(k)
 *   softmax branch kept + near (causal): maximum, sum, weighted values
 *   linear branch  phi(q) S, phi(q) z
 *   merge          one denominator, gate on the linear numerator
 */
#include "attention/attention_stages.h"

static int64_t chunk_of(const still_task *task, const still_block *block) {
  return block->at.position / task->plan->options.chunk;
}

/* The previous chunk and this one up to the block's last token, in one step under one maximum; its
 * weights also give the scores of the new tokens. */
void still_attend_near(const still_task *task, const still_block *block) {
  const int64_t chunk = chunk_of(task, block);
  const int64_t first = chunk ? (chunk - 1) * task->plan->options.chunk : 0;
  const int64_t end = block->at.position + (int64_t)block->at.tokens;
  const still_sight near = {.store = &task->call->cache->near[task->unit],
                            .first = first,
                            .count = (size_t)(end - first),
                            .causal = true};
  still_softmax_begin(task, block);
  still_softmax_weigh(task, block, &near, 0, block->rows);
  still_saliency(task, block, &near);
  still_softmax_add_values(task, block, &near, 0, block->rows);
}

/* What routing has kept of chunks 0 .. chunk-2: every query of this chunk sees all of it. */
void still_attend_kept(const still_task *task, const still_block *block) {
  const size_t shared = (size_t)task->plan->route_heads, tokens = block->at.tokens;
  const int64_t chunk = chunk_of(task, block);
  const int64_t kept = chunk < 2 ? 0 : still_kept_after(task->plan, chunk - 1);
  for (size_t h = 0, same; kept && h < block->heads; h += same) {
    const size_t head = block->head + h;
    same = still_smaller(shared - head % shared, block->heads - h);
    const still_sight sight = {.store = &task->call->cache->kept[head / shared].store,
                               .count = (size_t)kept};
    still_softmax_attend(task, block, &sight, h * tokens, same * tokens);
  }
}

static void attend_block(const still_task *task, const still_block *block) {
  const bool linear = task->plan->features && chunk_of(task, block) >= 2;
  still_attend_near(task, block);
  still_attend_kept(task, block);
  if (linear) still_linear_branch(task, block);
  still_merge(task, block, linear);
}

still_piece still_piece_of_chunk(const still_call *call, size_t offset) {
  const int64_t position = call->cache->tokens + (int64_t)offset;
  const int64_t length = call->plan->options.chunk;
  const size_t left = (size_t)(length - position % length);
  return (still_piece){
      .offset = offset, .tokens = still_smaller(call->n - offset, left), .position = position};
}

void still_hybrid_attention(const still_task *task) {
  const int64_t length = task->plan->options.chunk;
  for (size_t offset = 0; offset < task->call->n && !still_call_stops(task->call);) {
    const still_piece piece = still_piece_of_chunk(task->call, offset);
    const int64_t chunk = piece.position / length;
    if (piece.position % length == 0 && chunk >= 2) still_route_chunk(task, chunk - 2);
    still_append(task, piece);
    still_for_blocks(task, piece, attend_block);
    offset += piece.tokens;
  }
}
