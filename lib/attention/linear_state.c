/* SPDX-License-Identifier: MIT
 * The linear state: S (F, D) += phi(k)^T v, z (F) += phi(k). Always f32, and always summed in
 * blocks of at most STILL_BLOCK_ROWS tokens before it is added, so that the error grows with the
 * blocks, not with the tokens. */
#include "attention/attention_stages.h"

void still_state_add(const still_task *task, size_t head, const float *k_features, const float *v,
                     size_t rows) {
  const size_t dim = task->dim, features = (size_t)task->plan->features;
  task->kernels->matmul(still_state_of(task, head), dim, k_features, 1, features, v, dim, features,
                        dim, rows, 1);
  task->kernels->column_sums(still_normalizer_of(task, head), k_features, features, rows, features);
}
