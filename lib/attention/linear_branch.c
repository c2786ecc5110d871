/* SPDX-License-Identifier: MIT
 * The linear branch: what tokens answer to a query through their features. */
#include "attention/attention_stages.h"

#include <string.h>

void still_linear_branch(const still_task *task, const still_block *block) {
  const still_kernels *kernels = task->kernels;
  const still_scratch *s = task->scratch;
  const size_t dim = task->dim, features = (size_t)task->plan->features;
  const size_t tokens = block->at.tokens;
  for (size_t h = 0; h < block->heads; h++) {
    const size_t row = h * tokens, head = block->head + h;
    float *phi = s->q_features + row * features;
    still_features(task, head, STILL_QUERY, s->q + row * dim, tokens, phi);
    kernels->matmul(s->linear + row * dim, dim, phi, features, 1, still_state_of(task, head), dim,
                    tokens, dim, features, 0);
    kernels->matvec_f32(s->linear_sum + row, phi, still_normalizer_of(task, head), tokens,
                        features);
  }
}

/* Inner products of features become weights: columns that a row does not see are 0, the others go
 * into its sum. */
static void mask_and_sum(const still_scratch *s, float *sums, size_t rows, size_t count,
                         size_t inclusive) {
  for (size_t i = 0; i < rows; i++) {
    float *w = s->weights + i * s->pitch, sum = 0;
    const size_t seen = still_smaller(i + inclusive, count);
    for (size_t j = 0; j < seen; j++) sum += w[j];
    memset(w + seen, 0, (count - seen) * sizeof *w);
    sums[i] += sum;
  }
}

void still_linear_within(const still_task *task, size_t row, size_t rows, size_t count,
                         size_t inclusive) {
  enum { STEP = 16 };
  const still_kernels *kernels = task->kernels;
  const still_scratch *s = task->scratch;
  const size_t dim = task->dim, features = (size_t)task->plan->features;
  kernels->pack_keys(s->feature_tiles, 0, s->k_features, features, count, features);
  for (size_t a = 0; a < count; a += STILL_KEY_TILE)
    kernels->matmul(s->weights + a, s->pitch, s->q_features + row * features, features, 1,
                    s->feature_tiles + a * features, STILL_KEY_TILE, rows,
                    still_smaller(count - a, STILL_KEY_TILE), features, 0);
  mask_and_sum(s, s->linear_sum + row, rows, count, inclusive);
  for (size_t i = 0; i < rows; i += STEP) {
    const size_t n = still_smaller(rows - i, STEP);
    const size_t seen = still_smaller(i + n - 1 + inclusive, count);
    if (seen)
      kernels->matmul(s->linear + (row + i) * dim, dim, s->weights + i * s->pitch, s->pitch, 1,
                      s->values, dim, n, dim, seen, 1);
  }
}
