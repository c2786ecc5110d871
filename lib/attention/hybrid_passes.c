/* SPDX-License-Identifier: MIT
 *
 * STILL attention of few heads on many threads. The stages are those of hybrid_attention.c and so
 * are the results, bit for bit; only their order differs. A round of chunks goes by in passes, each
 * of which keeps all threads busy:
 *
 *   append    keys and values of the whole round                        by kv head
 *   near      near softmax and scores; features of the queries          by head and block
 *   route     selection, chunk after chunk                              by selection
 *   features  phi(k) of the tokens that were not chosen                 by head and chunk
 *   state     S += phi(k) v^T, then phi(q) S, chunk after chunk         by head and slice of the
 *                                                                       value channels
 *   last      kept tokens' softmax, one denominator                     by head and block
 */
#include "attention/attention_stages.h"
#include "base/memory.h"
#include "base/threads.h"

#include <string.h>

enum { SLICE = 16 }; /* value channels; a vector register or two */

/* What the passes of a round hand on. T = pass_chunks * C tokens, rows of a head one after the
 * other. */
typedef struct passes {
  const still_call *call;
  still_scratch *scratches;
  size_t tokens;                           /* T: room for one round */
  float *q_features, *k_features, *values; /* (H, T, F), (H, T, F), (H, T, D) */
  float *linear, *linear_sum, *max, *sum;  /* (H, T, D), (H, T) ... */
  unsigned char *chosen;                   /* (H, T): of the chunks that this round routes */
  size_t *rest;                            /* (H, pass_chunks): tokens not chosen */
  still_piece *pieces, *blocks;            /* of this round */
  size_t piece_count, block_count;
} passes;

static void *place(char **at, size_t count, size_t size) {
  void *array = *at;
  *at += still_round_up(count * size, STILL_ALIGNMENT);
  return array;
}

static size_t lay_out(passes *p, const still_attention_plan *plan, char *memory) {
  const size_t heads = (size_t)plan->options.heads, dim = (size_t)plan->options.head_dim;
  const size_t chunks = (size_t)plan->pass_chunks, features = (size_t)plan->features;
  const size_t tokens = chunks * (size_t)plan->options.chunk, rows = heads * tokens;
  const size_t linear_rows = features ? rows : 0;
  char *at = memory;
  p->tokens = tokens;
  p->q_features = place(&at, rows * features, sizeof(float));
  p->k_features = place(&at, rows * features, sizeof(float));
  p->values = place(&at, linear_rows * dim, sizeof(float));
  p->linear = place(&at, linear_rows * dim, sizeof(float));
  p->linear_sum = place(&at, linear_rows, sizeof(float));
  p->max = place(&at, rows, sizeof(float));
  p->sum = place(&at, rows, sizeof(float));
  p->chosen = place(&at, rows, 1);
  p->rest = place(&at, heads * chunks, sizeof(size_t));
  p->pieces = place(&at, chunks, sizeof(still_piece));
  p->blocks = place(&at, tokens, sizeof(still_piece));
  return (size_t)(at - memory);
}

size_t still_passes_bytes(const still_attention_plan *plan) {
  passes unused;
  static char nothing; /* only distances from it matter */
  return plan->pass_chunks ? lay_out(&unused, plan, &nothing) : 0;
}

/* The chunk that a piece's beginning sends out of the near window; -1 = none. */
static int64_t leaving_chunk(const still_attention_plan *plan, const still_piece *piece) {
  const int64_t chunk = piece->position / plan->options.chunk;
  return piece->position % plan->options.chunk || chunk < 2 ? -1 : chunk - 2;
}

static still_task task_of(const passes *p, size_t head) {
  return still_task_of(p->call, &p->scratches[omp_get_thread_num()], head, 1);
}

static still_block block_of(const passes *p, size_t head, size_t block) {
  return (still_block){
      .at = p->blocks[block], .head = head, .heads = 1, .rows = p->blocks[block].tokens};
}

/* Where a block's rows lie in the arrays of this round. */
static size_t row_of(const passes *p, const still_block *block) {
  return block->head * p->tokens + (block->at.offset - p->pieces[0].offset);
}

/* The softmax part of a block rests in y between the passes. */
static void park(const passes *p, const still_block *block, const still_scratch *s, bool back) {
  const still_call *call = p->call;
  const size_t row = row_of(p, block), dim = (size_t)call->plan->options.head_dim;
  for (size_t i = 0; i < block->rows; i++) {
    float *y =
        call->y + block->head * call->y_head_stride + (block->at.offset + i) * call->y_token_stride;
    memcpy(back ? s->out + i * dim : y, back ? y : s->out + i * dim, dim * sizeof *y);
  }
  memcpy(back ? s->max : p->max + row, back ? p->max + row : s->max, block->rows * sizeof(float));
  memcpy(back ? s->sum : p->sum + row, back ? p->sum + row : s->sum, block->rows * sizeof(float));
}

static void near_pass(const passes *p, size_t head, size_t at) {
  const still_task task = task_of(p, head);
  const still_block block = block_of(p, head, at);
  const size_t features = (size_t)task.plan->features;
  still_attend_near(&task, &block);
  park(p, &block, task.scratch, false);
  if (features)
    still_features(&task, head, STILL_QUERY, task.scratch->q, block.rows,
                   p->q_features + row_of(p, &block) * features);
}

static void route_pass(const passes *p, size_t route) {
  const still_attention_plan *plan = p->call->plan;
  const size_t shared = (size_t)plan->route_heads, length = (size_t)plan->options.chunk;
  const still_task task = task_of(p, route * shared);
  for (size_t i = 0; i < p->piece_count; i++) {
    const int64_t chunk = leaving_chunk(plan, &p->pieces[i]);
    if (chunk < 0) continue;
    still_choose_kept(&task, task.head, chunk);
    for (size_t h = task.head; h < task.head + shared; h++)
      memcpy(p->chosen + h * p->tokens + i * length, task.scratch->chosen, length);
  }
}

static void feature_pass(const passes *p, size_t head, size_t piece) {
  const still_task task = task_of(p, head);
  const size_t length = (size_t)task.plan->options.chunk, features = (size_t)task.plan->features;
  const int64_t chunk = leaving_chunk(task.plan, &p->pieces[piece]);
  const size_t row = head * p->tokens + piece * length;
  size_t done = 0;
  for (size_t from = 0, n; chunk >= 0; done += n) {
    n = still_gather_rest(&task, p->chosen + row, chunk * task.plan->options.chunk, &from,
                          p->values + (row + done) * task.dim);
    if (!n) break;
    still_features(&task, head, STILL_KEY, task.scratch->keys, n,
                   p->k_features + (row + done) * features);
  }
  p->rest[head * (size_t)task.plan->pass_chunks + piece] = done;
}

/* One chunk's tokens into channels from .. from+width-1 of the state, in the blocks of
 * still_state_add. */
static void absorb_slice(const passes *p, const still_task *task, size_t piece, size_t from,
                         size_t width) {
  const size_t features = (size_t)task->plan->features, dim = task->dim, head = task->head;
  const size_t row = head * p->tokens + piece * (size_t)task->plan->options.chunk;
  const size_t count = p->rest[head * (size_t)task->plan->pass_chunks + piece];
  for (size_t done = 0, n; done < count; done += n) {
    n = still_smaller(count - done, STILL_BLOCK_ROWS);
    const float *phi = p->k_features + (row + done) * features;
    task->kernels->matmul(still_state_of(task, head) + from, dim, phi, 1, features,
                          p->values + (row + done) * dim + from, dim, features, width, n, 1);
    if (!from)
      task->kernels->column_sums(still_normalizer_of(task, head), phi, features, n, features);
  }
}

static void state_pass(const passes *p, size_t head, size_t slice) {
  const still_task task = task_of(p, head);
  const size_t features = (size_t)task.plan->features, dim = task.dim, from = slice * SLICE;
  const size_t width = still_smaller(dim - from, SLICE);
  for (size_t i = 0, block = 0; i < p->piece_count; i++) {
    absorb_slice(p, &task, i, from, width);
    const int64_t chunk = p->pieces[i].position / task.plan->options.chunk;
    const size_t end = p->pieces[i].offset + p->pieces[i].tokens;
    for (; block < p->block_count && p->blocks[block].offset < end; block++) {
      const still_block b = block_of(p, head, block);
      const size_t row = row_of(p, &b);
      const float *phi = p->q_features + row * features;
      if (chunk < 2) continue;
      task.kernels->matmul(p->linear + row * dim + from, dim, phi, features, 1,
                           still_state_of(&task, head) + from, dim, b.rows, width, features, 0);
      if (!from)
        task.kernels->matvec_f32(p->linear_sum + row, phi, still_normalizer_of(&task, head), b.rows,
                                 features);
    }
  }
}

static void last_pass(const passes *p, size_t head, size_t at) {
  const still_task task = task_of(p, head);
  const still_block block = block_of(p, head, at);
  const still_scratch *s = task.scratch;
  const size_t row = row_of(p, &block);
  const bool linear = task.plan->features && block.at.position / task.plan->options.chunk >= 2;
  still_softmax_begin(&task, &block);
  park(p, &block, s, true);
  still_attend_kept(&task, &block);
  if (linear) {
    memcpy(s->linear, p->linear + row * task.dim, block.rows * task.dim * sizeof(float));
    memcpy(s->linear_sum, p->linear_sum + row, block.rows * sizeof(float));
  }
  still_merge(&task, &block, linear);
}

/* Pieces and blocks of the round that begins at `offset`; returns where it ends. */
static size_t cut_round(passes *p, size_t offset) {
  const still_attention_plan *plan = p->call->plan;
  p->piece_count = p->block_count = 0;
  while (offset < p->call->n && p->piece_count < (size_t)plan->pass_chunks) {
    const still_piece piece = still_piece_of_chunk(p->call, offset);
    size_t most = SIZE_MAX;
    for (int g = 0; g < plan->options.kv_heads; g++)
      most = still_smaller(most, still_block_tokens(p->call, (size_t)g, piece));
    p->pieces[p->piece_count++] = piece;
    for (size_t done = 0, n; done < piece.tokens; done += n) {
      n = still_smaller(piece.tokens - done, most);
      p->blocks[p->block_count++] = (still_piece){
          .offset = offset + done, .tokens = n, .position = piece.position + (int64_t)done};
    }
    offset += piece.tokens;
  }
  return offset;
}

static void append_pass(const passes *p, size_t kv_head) {
  const size_t group = (size_t)p->call->plan->group;
  const still_task task =
      still_task_of(p->call, &p->scratches[omp_get_thread_num()], kv_head * group, group);
  for (size_t i = 0; i < p->piece_count; i++) still_append(&task, p->pieces[i]);
}

/* All passes of a round; each loop ends when all of it is done. */
static void run_round(const passes *p) {
  const still_attention_plan *plan = p->call->plan;
  const size_t heads = (size_t)plan->options.heads, kv_heads = (size_t)plan->options.kv_heads;
  const size_t slices = plan->features ? ((size_t)plan->options.head_dim + SLICE - 1) / SLICE : 0;
  STILL_OMP(parallel num_threads(plan->threads)) {
    STILL_OMP(for schedule(dynamic, 1))
    for (size_t g = 0; g < kv_heads; g++) append_pass(p, g);
    STILL_OMP(for schedule(dynamic, 1) collapse(2))
    for (size_t h = 0; h < heads; h++)
      for (size_t b = 0; b < p->block_count; b++)
        if (!still_call_stops(p->call)) near_pass(p, h, b);
    STILL_OMP(for schedule(dynamic, 1))
    for (size_t r = 0; r < (size_t)plan->routes; r++) route_pass(p, r);
    if (slices) {
      STILL_OMP(for schedule(dynamic, 1) collapse(2))
      for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < p->piece_count; i++)
          if (!still_call_stops(p->call)) feature_pass(p, h, i);
      STILL_OMP(for schedule(dynamic, 1) collapse(2))
      for (size_t h = 0; h < heads; h++)
        for (size_t s = 0; s < slices; s++)
          if (!still_call_stops(p->call)) state_pass(p, h, s);
    }
    STILL_OMP(for schedule(dynamic, 1) collapse(2))
    for (size_t h = 0; h < heads; h++)
      for (size_t b = 0; b < p->block_count; b++)
        if (!still_call_stops(p->call)) last_pass(p, h, b);
  }
}

void still_hybrid_passes(const still_call *call, still_scratch *scratches, void *space) {
  passes p = {.call = call, .scratches = scratches};
  lay_out(&p, call->plan, space);
  for (size_t offset = 0; offset < call->n && !still_call_stops(call);) {
    offset = cut_round(&p, offset);
    run_round(&p);
  }
}
