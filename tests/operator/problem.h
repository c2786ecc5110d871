/* SPDX-License-Identifier: MIT
 * One sequence with its options and weights, and ways to run it through the operator. */
#ifndef STILL_TESTS_PROBLEM_H
#define STILL_TESTS_PROBLEM_H

#include "harness/check.h"

#include <still/attention.h>

typedef struct problem {
  still_attention_options options;
  still_attention_weights weights;
  size_t n, heads, kv_heads, dim;
  float *q, *k, *v, *gate, *q_raw, *k_raw; /* (heads, n, D) */
  float *feature_q, *feature_k, *bias_q, *bias_k, *window_factor;
} problem;

/* Options of a kind with small sizes: H 4, G 2, D 16, C and W 16. */
still_attention_options small_options(still_attention_kind kind);

/* Random inputs of n tokens; feature maps wherever the kind takes them. */
problem problem_create(const still_attention_options *options, size_t n, uint64_t seed);
void problem_free(problem *p);

/* The inputs from token `first` on. */
still_attention_inputs problem_inputs(const problem *p, size_t first);

/* What came out of a run: poisoned with NaN where the operator wrote nothing. */
typedef struct answer {
  size_t n, heads, dim;
  float *y;      /* (H, n, D) */
  float *scores; /* (H, n) */
  int64_t *kept; /* (H, n): kept positions, -1 after the last */
} answer;

answer answer_create(const problem *p);
void answer_free(answer *a);
/* Tokens first .. first+count-1 through a cache, into the answer. */
void run_tokens(const problem *p, const still_attention_plan *plan, still_attention_cache *cache,
                size_t first, size_t count, answer *a);
void read_kept(const still_attention_cache *cache, answer *a);
/* The whole sequence in pieces of these lengths (the last repeats); one piece for lengths NULL. */
answer run_pieces(const problem *p, const size_t *lengths, size_t count);
answer run_oracle(const problem *p);

void check_same_answer(const answer *got, const answer *want, bool same_bits, double bound);

#endif
