/* SPDX-License-Identifier: MIT
 * The operator in float64, one token after the other: the truth that everything faster is compared
 * with. It mirrors the mathematics line by line and shares no code with the stages. */
#ifndef STILL_ATTENTION_ORACLE_H
#define STILL_ATTENTION_ORACLE_H

#include "base/status.h"

#include <still/attention.h>

/* A whole sequence of n tokens from its beginning.
 *   y (H, n, D), scores (H, n) and kept (H, n; 1 where a routed token is kept) out; the last two
 *   may be NULL
 * inputs are those of still_attention_forward; inputs->scores is not written. Cache types are not
 * modelled: round k and v beforehand. The options must be valid for a plan. Errors: MEMORY. */
still_status still_attention_oracle(const still_attention_options *options,
                                    const still_attention_weights *weights, size_t n,
                                    const still_attention_inputs *inputs, double *y, double *scores,
                                    unsigned char *kept);

/* Features of one row x (D) by a map A (D, D): out (2 D), norm-preserved or Hedgehog; also used by
 * tests. */
void still_oracle_norm_preserved(double *out, const double *x, const float *map, size_t dim);
void still_oracle_hedgehog(double *out, const double *x, const float *map, size_t dim);

#endif
