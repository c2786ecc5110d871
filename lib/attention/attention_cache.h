/* SPDX-License-Identifier: MIT
 * What one sequence has left behind in one layer. */
#ifndef STILL_ATTENTION_CACHE_H
#define STILL_ATTENTION_CACHE_H

#include "attention/attention_plan.h"
#include "attention/key_store.h"

/* The tokens that routing has chosen for one query head, or one group. How many there are follows
 * from the length of the sequence: still_kept_after. */
typedef struct still_kept {
  still_key_store store;
  int64_t *positions;
} still_kept;

struct still_attention_cache {
  const still_attention_plan *plan;
  int64_t tokens;         /* N */
  still_key_store *near;  /* [units]: ring by position. FULL: [kv heads], a list of every token */
  still_key_store *sinks; /* [units], SWA: the first tokens */
  still_kept *kept;       /* [routes] */
  float *scores;          /* (H, ring_chunks C): ring by position */
  float *state;           /* (H, F, D) */
  float *normalizer;      /* (H, F) */
  still_device_cache *on_gpu; /* all of it lies there; NULL on the CPU */
  int64_t reserved;           /* tokens that there is room for without growing */
  bool has_work;
};

static inline size_t still_near_stores(const still_attention_plan *plan) {
  if (plan->options.kind == STILL_ATTENTION_FULL) return (size_t)plan->options.kv_heads;
  return plan->near_span ? (size_t)plan->units : 0;
}
static inline size_t still_sink_stores(const still_attention_plan *plan) {
  const bool has = plan->options.kind == STILL_ATTENTION_SWA && plan->options.sinks;
  return has ? (size_t)plan->units : 0;
}

static inline size_t still_score_ring(const still_attention_plan *plan) {
  return (size_t)plan->ring_chunks * (size_t)plan->options.chunk;
}

/* Makes room for the sequence to become `tokens` long. The content stays. MEMORY: nothing has
 * changed. */
still_status still_attention_cache_reserve(still_attention_cache *cache, int64_t tokens);

#endif
