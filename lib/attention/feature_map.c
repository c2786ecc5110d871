/* SPDX-License-Identifier: MIT
 * Feature maps of the linear branch: norm-preserved (spec section 4), Hedgehog, T2R. */
#include "attention/attention_stages.h"

static void relu_features(const float *bias, const float *y, size_t rows, size_t dim, float *out) {
  for (size_t i = 0; i < rows * dim; i++) {
    const float u = y[i] + (bias ? bias[i % dim] : 0);
    out[i] = u > 0 ? u : u == u ? 0 : u; /* NaN stays */
  }
}

void still_features(const still_task *task, size_t head, still_side side, const float *x,
                    size_t rows, float *features) {
  const still_attention_plan *plan = task->plan;
  const still_kernels *kernels = task->kernels;
  const still_scratch *s = task->scratch;
  const size_t dim = task->dim;
  const float *map = (side == STILL_QUERY ? plan->feature_q : plan->feature_k) + head * dim * dim;
  kernels->matmul(s->projected, dim, x, dim, 1, map, dim, rows, dim, dim, 0);
  if (plan->options.kind == STILL_ATTENTION_T2R) {
    const float *bias = side == STILL_QUERY ? plan->bias_q : plan->bias_k;
    relu_features(bias ? bias + head * dim : NULL, s->projected, rows, dim, features);
    return;
  }
  const bool keep_norm = plan->options.kind == STILL_ATTENTION_STILL &&
                         plan->options.feature_map == STILL_FEATURE_NORM_PRESERVED;
  if (keep_norm) kernels->row_norms(s->norm, x, dim, rows, dim);
  kernels->feature_rows(features, 2 * dim, s->projected, dim, keep_norm ? s->norm : NULL, rows,
                        dim);
}
