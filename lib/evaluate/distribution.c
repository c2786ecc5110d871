/* SPDX-License-Identifier: MIT */
#include "evaluate/distribution.h"

#include <math.h>

still_token still_most_likely(const float *logits, int count) {
  int best = 0;
  for (int i = 1; i < count; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

double still_log_sum_exp(const float *logits, int count) {
  const double largest = logits[still_most_likely(logits, count)];
  double sum = 0;
  for (int i = 0; i < count; i++) sum += exp(logits[i] - largest);
  return largest + log(sum);
}

double still_divergence(const float *a, const float *b, int count) {
  const double sum_a = still_log_sum_exp(a, count), sum_b = still_log_sum_exp(b, count);
  double divergence = 0;
  for (int i = 0; i < count; i++) {
    const double log_a = a[i] - sum_a;
    divergence += exp(log_a) * (log_a - (b[i] - sum_b));
  }
  return divergence > 0 ? divergence : 0; /* rounding */
}
