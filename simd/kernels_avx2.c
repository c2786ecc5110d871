/* SPDX-License-Identifier: MIT
 * The kernels on 8 lanes: AVX2 + FMA + F16C. */
#include "simd/vec_avx2.h"

#include "simd/kernels_simd.h"

void still_kernels_avx2(still_kernels *table) {
  fill_kernels(table);
}
