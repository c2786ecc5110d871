/* SPDX-License-Identifier: MIT
 * Rotation frequencies under the scalings of long-context models: linear (positions divided), llama3 (by
 * wavelength) and yarn (by rotations within the original context, arXiv 2309.00071). */
#include "model/model_config.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

/* Long waves are divided by the factor, short ones stay, those between are mixed. */
static double llama3_frequency(const still_rope *rope, double frequency) {
  const double turns = rope->original_context * frequency / two_pi; /* over the original context */
  if (turns > rope->high_frequency) return frequency;
  if (turns < rope->low_frequency) return frequency / rope->factor;
  const double kept = (turns - rope->low_frequency) / (rope->high_frequency - rope->low_frequency);
  return (1 - kept) * frequency / rope->factor + kept * frequency;
}

/* The (fractional) pair that makes `turns` turns over the original context. */
static double yarn_pair(const still_rope *rope, int head_dim, double turns) {
  return head_dim * log(rope->original_context / (turns * two_pi)) / (2 * log(rope->theta));
}

static double yarn_frequency(const still_rope *rope, int head_dim, int pair, double frequency) {
  const double low = fmax(floor(yarn_pair(rope, head_dim, rope->beta_fast)), 0);
  double high = fmin(ceil(yarn_pair(rope, head_dim, rope->beta_slow)), head_dim - 1);
  if (high == low) high += 0.001;
  const double divided = fmin(fmax((pair - low) / (high - low), 0), 1);
  return divided * frequency / rope->factor + (1 - divided) * frequency;
}

void still_rope_frequencies(const still_rope *rope, int head_dim, const float *factors,
                            float *frequencies, float *scale) {
  for (int i = 0; i < head_dim / 2; i++) {
    double frequency = pow(rope->theta, -2.0 * i / head_dim);
    switch (rope->scaling) {
    case STILL_ROPE_PLAIN: break;
    case STILL_ROPE_LINEAR: frequency /= rope->factor; break;
    case STILL_ROPE_LLAMA3: frequency = llama3_frequency(rope, frequency); break;
    case STILL_ROPE_YARN: frequency = yarn_frequency(rope, head_dim, i, frequency); break;
    }
    frequencies[i] = (float)(factors ? frequency / factors[i] : frequency);
  }
  *scale = rope->scaling == STILL_ROPE_YARN ? (float)rope->attention_factor : 1.0f;
}

void still_rope_factors(const still_rope *rope, int head_dim, float *factors) {
  for (int i = 0; i < head_dim / 2; i++) {
    const double frequency = pow(rope->theta, -2.0 * i / head_dim);
    factors[i] = (float)(frequency / llama3_frequency(rope, frequency));
  }
}
