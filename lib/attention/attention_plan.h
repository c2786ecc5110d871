/* SPDX-License-Identifier: MIT
 * What a plan holds: options with every default filled in, and what follows from them. */
#ifndef STILL_ATTENTION_PLAN_H
#define STILL_ATTENTION_PLAN_H

#include "attention/device_operator.h"
#include "base/status.h"

#include <still/attention.h>

#include <stdbool.h>

struct still_attention_plan {
  still_attention_options options;
  int threads;       /* resolved */
  int group;         /* query heads of a kv head, H / G */
  int features;      /* F of the linear state; 0 = none */
  int keep;          /* lambda; 0 without routing */
  int64_t most_kept; /* tokens that a routing unit ever keeps; -1 = grows with the sequence */
  int ring_chunks; /* STILL: chunks that the rings of near tokens and of scores hold; 2, or more for
                      passes */
  int near_span;   /* tokens of the window that the cache holds: 2 C, W; 0 = all (FULL) or none */
  /* Work is shared out by units of query heads that need no word from each other: a kv head's whole
   * group, or single query heads (each with its own copy of the window) where there are more
   * threads than groups. */
  int units, unit_heads;
  /* Chunks of one round where units would leave threads idle and a call goes by in passes over
   * heads and chunks instead (hybrid_passes.c); 0 = never. */
  int pass_chunks;
  /* Selections of kept tokens: one for each query head, or for each kv head. */
  int routes, route_heads;
  /* Copies of the caller's weights; NULL where not given. */
  float *feature_q, *feature_k, *bias_q, *bias_k, *window_factor;
  char *device;
  /* A GPU's share of the operator; NULL on the CPU. */
  const still_device_operator *gpu;
  still_device *gpu_device;
};

/* attention_cache.c: bytes of a snapshot of the plan's caches on the CPU. */
size_t still_attention_plan_snapshot_bytes(const still_attention_plan *plan);

/* attention_options.c: fills defaults in, or says which option is out of which range. */
still_status still_attention_options_resolve(const still_attention_options *given,
                                             still_attention_options *resolved);
/* lambda and the most tokens ever kept (-1 = no bound) of a STILL plan. */
still_status still_attention_options_schedule(const still_attention_options *options, int *keep,
                                              int64_t *most_kept);

/* What has become of the first `tokens` tokens of a sequence, for one query head. Every token is in
 * exactly one of the four. */
typedef struct still_census {
  int64_t kept, near, linear, forgotten;
} still_census;
still_census still_attention_census(const still_attention_plan *plan, int64_t tokens);

/* The same as a cache tells it, with the plan's bounds; its bytes are the caller's to add. */
still_attention_usage still_attention_usage_of(const still_attention_plan *plan, int64_t tokens);

/* Chunks that have been routed once the sequence has `tokens` tokens: chunk j is, when chunk j + 2
 * begins. */
int64_t still_routed_chunks(const still_attention_plan *plan, int64_t tokens);
/* Tokens that `chunks` routed chunks have left in the kept set. */
int64_t still_kept_after(const still_attention_plan *plan, int64_t chunks);

#endif
