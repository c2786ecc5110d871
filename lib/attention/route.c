/* SPDX-License-Identifier: MIT
 * Delayed selection (spec section 3): a whole chunk leaves the near window; its best-scored tokens
 * are kept for good, the others are summed up in the linear state or forgotten. */
#include "attention/attention_stages.h"

#include <math.h>
#include <string.h>

/* Strict order: a is chosen before b. */
static bool before(const float *scores, int a, int b) {
  const float x = isnan(scores[a]) ? -INFINITY : scores[a];
  const float y = isnan(scores[b]) ? -INFINITY : scores[b];
  return x > y || (x == y && a < b);
}

/* Lets order[at] sink in a heap of n whose top comes before all others. */
static void sink(int *order, size_t at, size_t n, const float *scores) {
  for (size_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && before(scores, order[child + 1], order[child])) child++;
    if (!before(scores, order[child], order[at])) return;
    const int moved = order[at];
    order[at] = order[child];
    order[child] = moved;
  }
}

void still_choose_best(unsigned char *chosen, const float *scores, size_t count, size_t keep,
                       int *order) {
  memset(chosen, 0, count);
  for (size_t i = 0; i < count; i++) order[i] = (int)i;
  for (size_t i = count / 2; i-- > 0;) sink(order, i, count, scores);
  for (size_t left = count; keep-- > 0;) {
    chosen[order[0]] = 1;
    order[0] = order[--left];
    sink(order, 0, left, scores);
  }
}

/* The chunk's scores, summed over the heads that share the selection. */
static void chunk_scores(const still_task *task, size_t head, int64_t first) {
  const size_t ring = still_score_ring(task->plan), chunk = (size_t)task->plan->options.chunk;
  float *sum = task->scratch->chunk_scores;
  memset(sum, 0, chunk * sizeof *sum);
  for (size_t h = head; h < head + (size_t)task->plan->route_heads; h++)
    task->kernels->add(sum, task->call->cache->scores + h * ring + (size_t)first % ring, chunk);
}

void still_choose_kept(const still_task *task, size_t head, int64_t chunk) {
  const still_attention_plan *plan = task->plan;
  const still_scratch *s = task->scratch;
  const int64_t first = chunk * plan->options.chunk, already = still_kept_after(plan, chunk);
  const size_t keep = (size_t)(still_kept_after(plan, chunk + 1) - already);
  const size_t length = (size_t)plan->options.chunk;
  chunk_scores(task, head, first);
  still_choose_best(s->chosen, s->chunk_scores, length, keep, s->order);
  still_keep_chosen(&task->call->cache->kept[head / (size_t)plan->route_heads], already,
                    &task->call->cache->near[task->unit], first, s->chosen, length);
}

size_t still_gather_rest(const still_task *task, const unsigned char *chosen, int64_t first,
                         size_t *from, float *values) {
  const still_scratch *s = task->scratch;
  const size_t chunk = (size_t)task->plan->options.chunk;
  size_t n = 0;
  for (; *from < chunk && n < STILL_BLOCK_ROWS; ++*from)
    if (!chosen[*from]) s->gather[n++] = first + (int64_t)*from;
  still_key_store_gather(&task->call->cache->near[task->unit], task->kernels, s->gather, n, s->keys,
                         values, s->tile);
  return n;
}

/* The tokens that were not chosen go into one head's state. */
static void absorb_rest(const still_task *task, size_t head, int64_t first) {
  const still_scratch *s = task->scratch;
  for (size_t from = 0, n; (n = still_gather_rest(task, s->chosen, first, &from, s->values));) {
    still_features(task, head, STILL_KEY, s->keys, n, s->k_features);
    still_state_add(task, head, s->k_features, s->values, n);
  }
}

void still_route_chunk(const still_task *task, int64_t chunk) {
  const still_attention_plan *plan = task->plan;
  const size_t shared = (size_t)plan->route_heads;
  for (size_t h = task->head; h < task->head + task->heads; h += shared) {
    still_choose_kept(task, h, chunk);
    for (size_t i = h; plan->features && i < h + shared; i++)
      absorb_rest(task, i, chunk * plan->options.chunk);
  }
}
