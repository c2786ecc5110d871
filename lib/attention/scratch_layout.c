/* SPDX-License-Identifier: MIT
 * The arrays of one thread, one after the other in one piece of memory. */
#include "attention/attention_stages.h"
#include "base/memory.h"

/* Measures while base is NULL, places otherwise. */
typedef struct cursor {
  char *base;
  size_t used;
} cursor;

static void *place(cursor *at, size_t count, size_t size) {
  void *array = at->base ? at->base + at->used : NULL;
  at->used += still_round_up(count * size, STILL_ALIGNMENT);
  return array;
}

static float *floats(cursor *at, size_t count) {
  return place(at, count, sizeof(float));
}

/* Columns of the widest step of the online softmax. STILL looks at its whole near window in one
 * step, since the saliency score needs the weights of one maximum. */
static size_t widest_step(const still_attention_plan *plan) {
  const size_t near = plan->routes ? (size_t)plan->near_span : 0;
  return near > STILL_KEY_BLOCK ? near : STILL_KEY_BLOCK;
}

static void lay_out(still_scratch *s, const still_attention_plan *plan, cursor *at) {
  const size_t rows = STILL_BLOCK_ROWS, dim = (size_t)plan->options.head_dim;
  const size_t features = (size_t)plan->features;
  const size_t chunk = plan->routes ? (size_t)plan->options.chunk : 0;
  s->pitch = still_round_up(widest_step(plan), STILL_ALIGNMENT / sizeof(float));
  s->q = floats(at, rows * dim);
  s->out = floats(at, rows * dim);
  s->linear = floats(at, rows * dim);
  s->projected = floats(at, rows * dim);
  s->keys = floats(at, rows * dim);
  s->values = floats(at, rows * dim);
  s->weights = floats(at, (still_block_rows(plan) + 1) * s->pitch);
  s->max = floats(at, rows);
  s->sum = floats(at, rows);
  s->rescale = floats(at, rows);
  s->linear_sum = floats(at, rows);
  s->norm = floats(at, rows);
  s->scores = floats(at, rows);
  s->q_features = floats(at, rows * features);
  s->k_features = floats(at, rows * features);
  s->feature_tiles = floats(at, plan->routes ? 0 : rows * features);
  const size_t wide = plan->options.cache_type == STILL_F32 ? 0 : dim;
  s->tile = floats(at, STILL_KEY_TILE * wide);
  s->value_rows = floats(at, STILL_VALUE_BLOCK * wide);
  s->begin = place(at, rows, sizeof(int));
  s->end = place(at, rows, sizeof(int));
  s->window = place(at, rows, sizeof(int));
  s->gather = place(at, rows, sizeof(int64_t));
  s->chunk_scores = floats(at, chunk);
  s->order = place(at, chunk, sizeof(int));
  s->chosen = place(at, chunk, 1);
}

size_t still_scratch_bytes(const still_attention_plan *plan) {
  still_scratch unused;
  cursor at = {0};
  lay_out(&unused, plan, &at);
  return at.used;
}

void still_scratch_place(still_scratch *scratch, const still_attention_plan *plan, void *memory) {
  cursor at = {.base = memory};
  lay_out(scratch, plan, &at);
}
