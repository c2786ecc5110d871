/* SPDX-License-Identifier: MIT
 *
 * The stages of the operator and what they hand to each other.
 *
 * A forward call is cut twice. Units of query heads run side by side (attention_plan.h). Inside a
 * unit the new tokens go by in pieces, in order: of one chunk at most for STILL. The queries of a
 * piece are worked off in blocks of up to 64 rows: many tokens of one head, or few tokens of
 * several heads of the group, which then share every key they read. How a piece is cut into blocks
 * of tokens does not depend on the units, so neither do the results.
 */
#ifndef STILL_ATTENTION_STAGES_H
#define STILL_ATTENTION_STAGES_H

#include "attention/attention_cache.h"
#include "base/memory.h"

enum {
  STILL_BLOCK_ROWS = 64,  /* query rows of a block, and tokens of one state update */
  STILL_SHARED_ROWS = 16, /* blocks of up to this many tokens are shared by several heads */
  STILL_KEY_BLOCK =
      256, /* keys of one step of the online softmax: with 64 rows, half of a small L2 */
  STILL_VALUE_BLOCK = 128 /* value rows converted at a time, 16-bit caches */
};

/* The arrays of one thread. */
typedef struct still_scratch {
  float *q, *out, *linear; /* (rows, D): queries, softmax numerator, linear numerator */
  float *projected;        /* (rows, D): x A */
  float *weights;          /* (rows + 1, pitch): logits, then weights; the last row is spare */
  size_t pitch;
  float *max, *sum, *rescale, *linear_sum, *norm, *scores; /* (rows) */
  float *q_features, *k_features;                          /* (rows, F) */
  float *feature_tiles;      /* (rows, F) as key tiles; kinds without routing */
  float *keys, *values;      /* (rows, D): gathered */
  float *tile, *value_rows;  /* conversions of 16-bit caches: (D, 32), (STILL_VALUE_BLOCK, D) */
  int *begin, *end, *window; /* (rows) */
  int64_t *gather;           /* (rows) */
  float *chunk_scores;       /* (C) */
  int *order;                /* (C) */
  unsigned char *chosen;     /* (C) */
} still_scratch;

/* One forward call. */
typedef struct still_call {
  const still_attention_plan *plan;
  still_attention_cache *cache;
  const still_kernels *kernels;
  const still_attention_inputs *inputs;
  float *y;
  size_t y_head_stride, y_token_stride;
  size_t n;
} still_call;

/* One unit's share of a call, on one thread. */
typedef struct still_task {
  const still_call *call;
  const still_attention_plan *plan;
  const still_kernels *kernels;
  still_scratch *scratch;
  size_t unit, dim;
  size_t kv_head, head, heads; /* query heads head .. head+heads-1 */
} still_task;

/* Tokens offset .. offset+tokens-1 of the call, the first at `position` of the sequence. */
typedef struct still_piece {
  size_t offset, tokens;
  int64_t position;
} still_piece;

/* Query rows: `heads` heads times the tokens of a piece, head by head. */
typedef struct still_block {
  still_piece at;
  size_t head, heads, rows;
} still_block;

/* Whether the caller wants the call to end: what is still to do is skipped then. */
static inline bool still_call_stops(const still_call *call) {
  return call->inputs->stop && call->inputs->stop(call->inputs->stop_user);
}

static inline float still_scale(const still_task *task) {
  return 1 / __builtin_sqrtf((float)task->dim);
}
static inline const float *still_input_row(const still_rows *rows, size_t head, size_t token) {
  return rows->data + head * rows->head_stride + token * rows->token_stride;
}

/* Rows of a block: fewer than STILL_BLOCK_ROWS where the near window of STILL is so long that its
 * weights would not stay in the caches (spec section 2 wants all of it under one maximum). */
enum { STILL_MOST_WEIGHTS = 1 << 16 };
static inline size_t still_block_rows(const still_attention_plan *plan) {
  if (!plan->routes) return STILL_BLOCK_ROWS;
  const size_t rows = STILL_MOST_WEIGHTS / (size_t)plan->near_span;
  return rows > STILL_BLOCK_ROWS ? STILL_BLOCK_ROWS : rows ? rows : 1;
}

/* attention_forward.c: the task of one unit, or of part of its heads. */
still_task still_task_of(const still_call *call, still_scratch *scratch, size_t head, size_t heads);

/* scratch_layout.c: bytes of one thread's arrays, and their places in a piece of that size. */
size_t still_scratch_bytes(const still_attention_plan *plan);
void still_scratch_place(still_scratch *scratch, const still_attention_plan *plan, void *memory);

/* attention_forward.c: runs `unit` for every unit of the call, on the plan's threads. */
typedef void still_unit_function(const still_task *task);
/* Cuts a piece into blocks and hands each to `attend`. */
typedef void still_block_function(const still_task *task, const still_block *block);
/* Tokens of a block of this piece: one where a value is not finite, since in a block's masked
 * corner it would meet weights of 0 and make NaN of rows before it. */
size_t still_block_tokens(const still_call *call, size_t kv_head, still_piece piece);
void still_for_blocks(const still_task *task, still_piece piece, still_block_function *attend);
/* The new tokens' keys and values join the unit's near window (and sinks). */
void still_append(const still_task *task, still_piece piece);

/* One function for each kind: a unit's whole share of the call. */
still_unit_function still_hybrid_attention, still_sliding_window, still_lolcats_attention,
    still_liger_gla_attention, still_feature_attention;
/* hybrid_attention.c: the parts of it that hybrid_passes.c runs in another order. */
void still_attend_near(const still_task *task, const still_block *block);
void still_attend_kept(const still_task *task, const still_block *block);
/* The part of the call from `offset` on that lies in one chunk. */
still_piece still_piece_of_chunk(const still_call *call, size_t offset);
/* hybrid_passes.c: the same work by passes over heads and chunks, for more threads than units.
 * space: bytes as told by still_passes_bytes. */
size_t still_passes_bytes(const still_attention_plan *plan);
void still_hybrid_passes(const still_call *call, still_scratch *scratches, void *space);
/* FULL has no state that passes from piece to piece, so it goes by blocks over all threads. */
void still_full_attention(const still_call *call, still_scratch *scratches);

/* softmax_branch.c: exact attention, block of keys by block of keys. */
/* Keys first .. first+count-1 of a store as a block's rows see them. causal: a key is a position,
 * and token t sees those in (t - window, t], window 0 = all up to t; otherwise every row sees every
 * key. */
typedef struct still_sight {
  const still_key_store *store;
  int64_t first;
  size_t count;
  bool causal;
  int64_t window;
} still_sight;
/* Loads the queries and starts sums at nothing. */
void still_softmax_begin(const still_task *task, const still_block *block);
/* One step of at most pitch keys for rows row .. row+rows-1: weights into scratch->weights, sums
 * moved on. Then the weighted values are added. */
void still_softmax_weigh(const still_task *task, const still_block *block, const still_sight *sight,
                         size_t row, size_t rows);
void still_softmax_add_values(const still_task *task, const still_block *block,
                              const still_sight *sight, size_t row, size_t rows);
/* All keys of a sight, in steps of STILL_KEY_BLOCK. */
void still_softmax_attend(const still_task *task, const still_block *block,
                          const still_sight *sight, size_t row, size_t rows);
/* The logits of one query row, not scaled. */
void still_softmax_logits_of_row(const still_task *task, const still_sight *sight, const float *q,
                                 float *logits);

/* saliency.c: routing scores of a block's tokens from the near window's weights, where
 * still_softmax_weigh has just left them; `near` is what it was given. Into the cache's ring and
 * inputs->scores. */
void still_saliency(const still_task *task, const still_block *block, const still_sight *near);

/* route.c: a chunk leaves the near window: its best join the kept tokens, the rest the state. */
void still_route_chunk(const still_task *task, int64_t chunk);
/* Its two halves, for the selection that begins with query head `head`. The first leaves the choice
 * in scratch->chosen; the second reads the next tokens that were not chosen, at most
 * STILL_BLOCK_ROWS from the chunk's token *from on, keys into scratch->keys, and returns how many.
 */
void still_choose_kept(const still_task *task, size_t head, int64_t chunk);
size_t still_gather_rest(const still_task *task, const unsigned char *chosen, int64_t first,
                         size_t *from, float *values);
/* Marks the `keep` best of `count` scores: descending, equal ones by position, NaN last. order:
 * count ints. */
void still_choose_best(unsigned char *chosen, const float *scores, size_t count, size_t keep,
                       int *order);

/* salient_cache.c: the chosen tokens of a chunk, in order of position, from the near window. */
void still_keep_chosen(still_kept *kept, int64_t already, const still_key_store *near,
                       int64_t first, const unsigned char *chosen, size_t count);

/* feature_map.c: features (rows, F) of rows x (stride D) of a query head, by the plan's map. */
typedef enum still_side { STILL_QUERY, STILL_KEY } still_side;
void still_features(const still_task *task, size_t head, still_side side, const float *x,
                    size_t rows, float *features);

/* linear_state.c: S += phi(k)^T v, z += phi(k) for rows of key features (stride F) and values
 * (stride D) of a query head. */
void still_state_add(const still_task *task, size_t head, const float *k_features, const float *v,
                     size_t rows);
static inline float *still_state_of(const still_task *task, size_t head) {
  return task->call->cache->state + head * (size_t)task->plan->features * task->dim;
}
static inline float *still_normalizer_of(const still_task *task, size_t head) {
  return task->call->cache->normalizer + head * (size_t)task->plan->features;
}

/* linear_branch.c: scratch->linear = phi(q) S and scratch->linear_sum = phi(q) . z for a block's
 * rows. Leaves phi(q) in scratch->q_features. */
void still_linear_branch(const still_task *task, const still_block *block);
/* Tokens that are not yet in the state, causally: row i of a head's `rows` also sees the first i +
 * inclusive of `count` tokens, whose features are in scratch->k_features and values in
 * scratch->values. */
void still_linear_within(const still_task *task, size_t row, size_t rows, size_t count,
                         size_t inclusive);

/* sliding_window.c: the window's softmax for a block, as swa, lolcats and liger-gla have it. */
void still_window_attend(const still_task *task, const still_block *block);
/* The next piece of at most a block's tokens from `offset` on. */
still_piece still_next_piece(const still_task *task, size_t offset);

/* merge.c: one denominator for both branches, gate on the linear numerator; their shares into
 * inputs->linear_mass and linear_output. */
void still_merge(const still_task *task, const still_block *block, bool linear);

#endif
