/* SPDX-License-Identifier: MIT
 * The kernels on 16 lanes: AVX-512 F, BW, DQ, VL. */
#include "simd/vec_avx512.h"

#include "simd/kernels_simd.h"

void still_kernels_avx512(still_kernels *table) {
  fill_kernels(table);
}
