/* SPDX-License-Identifier: MIT
 * Rows of activations as two bytes each, value = 256 high + low, both signed: what the kernels that
 * multiply bytes (AVX-512 VNNI, AMX) share. `values` holds the high bytes of a row, then the low ones;
 * `totals` the values' sums by fours, then by sixteens, all times -128. */
#ifndef STILL_SIMD_SPLIT_INTEGERS_H
#define STILL_SIMD_SPLIT_INTEGERS_H

#include "simd/kernels.h"

enum { SPLIT_MOST = 127 * 256 }; /* so that the high byte is at most 127 */

static inline int8_t *split_high(const still_integers *x) {
  return (int8_t *)x->values;
}

/* dim: of the row */
static inline int32_t *split_halves(const still_integers *x, size_t dim) {
  return x->totals + dim / 4;
}

#endif
