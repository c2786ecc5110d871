/* SPDX-License-Identifier: MIT
 * What all kernel texts, portable and SIMD, must agree on. */
#ifndef STILL_SIMD_KERNEL_FACTS_H
#define STILL_SIMD_KERNEL_FACTS_H

#include <stddef.h>

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "the kernels need infinities and NaN: build without -ffast-math and -Ofast"
#endif

/* In front of a loop of constant length. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Q8_0: an f16 scale, then 32 int8. */
enum { SCALED_BLOCK = 32, SCALED_BLOCK_BYTES = 2 + SCALED_BLOCK };

static const float feature_floor = 1e-12f, smallest_norm = 1e-12f; /* spec section 4 */
static const float inverse_epsilon = 1e8f;                         /* 1 / eps of spec section 2 */
static const float smallest_weights = 1e-20f;                      /* saliency_from_weights */

static inline size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

#endif
