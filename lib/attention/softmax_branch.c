/* SPDX-License-Identifier: MIT
 *
 * Exact attention by an online softmax: logits of a block of keys, running maximum and sum,
 * weighted values.
 *
 * Where rows see different keys (causality, windows) the border is a stair: products run over
 * pieces of STEP keys and STEP rows that some row of the piece sees, and softmax_rows masks the
 * rest by index. Masked logits are never read, and rows that see nothing of a piece never multiply
 * its values.
 */
#include "attention/attention_stages.h"

#include <math.h>
#include <string.h>

enum { TILE = STILL_KEY_TILE, STEP = 16 };

void still_softmax_begin(const still_task *task, const still_block *block) {
  const still_scratch *s = task->scratch;
  const size_t dim = task->dim, tokens = block->at.tokens;
  const still_rows *q = &task->call->inputs->q;
  for (size_t i = 0; i < block->rows; i++) {
    const float *row = still_input_row(q, block->head + i / tokens, block->at.offset + i % tokens);
    memcpy(s->q + i * dim, row, dim * sizeof(float));
    s->max[i] = -INFINITY;
    s->sum[i] = 0;
  }
  memset(s->out, 0, block->rows * dim * sizeof(float));
}

/* Tokens of the block (from .. to-1) that see some key of a .. b-1. */
static void seeing_tokens(const still_sight *sight, const still_piece *at, int64_t a, int64_t b,
                          size_t *from, size_t *to) {
  const int64_t first = a - at->position;
  const int64_t last = b - 1 - at->position + sight->window;
  *from = first > 0 ? (size_t)first : 0;
  *to = sight->window && last < (int64_t)at->tokens ? (last > 0 ? (size_t)last : 0) : at->tokens;
}

/* Keys of the sight (from .. to-1) that some token of first .. last-1 sees. */
static void seen_keys(const still_sight *sight, const still_piece *at, size_t first, size_t last,
                      int64_t *from, int64_t *to) {
  const int64_t low = at->position + (int64_t)first - sight->window + 1;
  const int64_t high = at->position + (int64_t)last, end = sight->first + (int64_t)sight->count;
  *from = sight->window && low > sight->first ? low : sight->first;
  *to = high < end ? high : end;
}

/* Stairs pay for one head's rows of more than a step; a block shared by heads is one step high. */
static bool has_stairs(const still_sight *sight, const still_block *block, size_t rows) {
  return sight->causal && block->heads == 1 && rows > STEP;
}

static void tile_logits(const still_task *task, const still_sight *sight, const float *tile,
                        int64_t a, int64_t b, const float *q, float *out, size_t rows) {
  const size_t dim = task->dim;
  task->kernels->matmul(out + (a - sight->first), task->scratch->pitch, q, dim, 1, tile + a % TILE,
                        TILE, rows, (size_t)(b - a), dim, 0);
}

/* Logits of keys a .. b-1 of one tile, for the rows that see any of them. */
static void stair_logits(const still_task *task, const still_block *block, const still_sight *sight,
                         const float *tile, int64_t a, int64_t b) {
  const still_scratch *s = task->scratch;
  size_t from, to;
  seeing_tokens(sight, &block->at, a, b, &from, &to);
  if (from < to)
    tile_logits(task, sight, tile, a, b, s->q + from * task->dim, s->weights + from * s->pitch,
                to - from);
}

static bool seen_by_all(const still_sight *sight, const still_piece *at, int64_t a, int64_t b) {
  return b - 1 <= at->position &&
         (!sight->window || a > at->position + (int64_t)at->tokens - 1 - sight->window);
}

static void logits(const still_task *task, const still_block *block, const still_sight *sight,
                   size_t row, size_t rows) {
  const still_scratch *s = task->scratch;
  const int64_t end = sight->first + (int64_t)sight->count;
  const bool stairs = has_stairs(sight, block, rows);
  for (int64_t a = sight->first, b; a < end; a = b) {
    b = (a / TILE + 1) * TILE < end ? (a / TILE + 1) * TILE : end;
    const float *tile = still_key_store_tile(sight->store, task->kernels, a, s->tile);
    if (!stairs || seen_by_all(sight, &block->at, a, b)) {
      tile_logits(task, sight, tile, a, b, s->q + row * task->dim, s->weights + row * s->pitch,
                  rows);
      continue;
    }
    for (int64_t c = a, d; c < b; c = d) {
      d = (c / STEP + 1) * STEP < b ? (c / STEP + 1) * STEP : b;
      stair_logits(task, block, sight, tile, c, d);
    }
  }
}

void still_softmax_logits_of_row(const still_task *task, const still_sight *sight, const float *q,
                                 float *out) {
  const int64_t end = sight->first + (int64_t)sight->count;
  for (int64_t a = sight->first, b; a < end; a = b) {
    b = (a / TILE + 1) * TILE < end ? (a / TILE + 1) * TILE : end;
    tile_logits(task, sight,
                still_key_store_tile(sight->store, task->kernels, a, task->scratch->tile), a, b, q,
                out, 1);
  }
}

/* Columns begin .. end-1 that each row sees. */
static void mask(const still_scratch *s, const still_block *block, const still_sight *sight,
                 size_t row, size_t rows) {
  const int count = (int)sight->count;
  for (size_t i = row; i < row + rows; i++) {
    s->begin[i] = 0;
    s->end[i] = count;
    if (!sight->causal) continue;
    const int64_t end = block->at.position + (int64_t)(i % block->at.tokens) + 1 - sight->first;
    const int64_t begin = sight->window ? end - sight->window : 0;
    s->end[i] = end < 0 ? 0 : end < count ? (int)end : count;
    s->begin[i] = begin < 0 ? 0 : begin < count ? (int)begin : count;
  }
}

static void rescale_sums(const still_task *task, size_t row, size_t rows) {
  const still_scratch *s = task->scratch;
  for (size_t i = row; i < row + rows; i++)
    if (s->rescale[i] != 1) {
      task->kernels->scale_rows(s->out + row * task->dim, task->dim, s->rescale + row, rows,
                                task->dim);
      return;
    }
}

void still_softmax_weigh(const still_task *task, const still_block *block, const still_sight *sight,
                         size_t row, size_t rows) {
  const still_scratch *s = task->scratch;
  logits(task, block, sight, row, rows);
  mask(s, block, sight, row, rows);
  task->kernels->softmax_rows(s->weights + row * s->pitch, s->pitch, rows, sight->count,
                              s->begin + row, s->end + row, still_scale(task), s->max + row,
                              s->sum + row, s->rescale + row);
  rescale_sums(task, row, rows);
}

/* out += weights of keys a .. b-1 times their values. */
static void add_values(const still_task *task, const still_sight *sight, const float *values,
                       int64_t piece, int64_t a, int64_t b, size_t row, size_t rows) {
  const still_scratch *s = task->scratch;
  const size_t dim = task->dim;
  if (a < b)
    task->kernels->matmul(s->out + row * dim, dim, s->weights + row * s->pitch + (a - sight->first),
                          s->pitch, 1, values + (size_t)(a - piece) * dim, dim, rows, dim,
                          (size_t)(b - a), 1);
}

void still_softmax_add_values(const still_task *task, const still_block *block,
                              const still_sight *sight, size_t row, size_t rows) {
  const int64_t end = sight->first + (int64_t)sight->count;
  const size_t most = sight->store->type == STILL_F32 ? sight->count : STILL_VALUE_BLOCK;
  const bool stairs = has_stairs(sight, block, rows);
  const size_t step = stairs ? STEP : rows;
  for (int64_t a = sight->first, b; a < end; a = b) {
    b = a + (int64_t)still_key_store_piece(sight->store, a, still_smaller((size_t)(end - a), most));
    const float *values = still_key_store_values(sight->store, task->kernels, a, (size_t)(b - a),
                                                 task->scratch->value_rows);
    for (size_t i = 0; i < rows; i += step) {
      const size_t n = still_smaller(rows - i, step);
      int64_t from = a, to = b;
      if (stairs) {
        seen_keys(sight, &block->at, i, i + n, &from, &to);
        from = from > a ? from : a;
        to = to < b ? to : b;
      }
      add_values(task, sight, values, a, from, to, row + i, n);
    }
  }
}

void still_softmax_attend(const still_task *task, const still_block *block,
                          const still_sight *sight, size_t row, size_t rows) {
  const int64_t end = sight->first + (int64_t)sight->count;
  still_sight step = *sight;
  for (int64_t a = sight->first, b; a < end && !still_call_stops(task->call); a = b) {
    b = (a / STILL_KEY_BLOCK + 1) * STILL_KEY_BLOCK;
    if (b > end) b = end;
    step.first = a;
    step.count = (size_t)(b - a);
    still_softmax_weigh(task, block, &step, row, rows);
    still_softmax_add_values(task, block, &step, row, rows);
  }
}
