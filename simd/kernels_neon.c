/* SPDX-License-Identifier: MIT
 * The kernels on 4 lanes: NEON, part of every AArch64. */
#include "simd/vec_neon.h"

#include "simd/kernels_simd.h"

void still_kernels_neon(still_kernels *table) {
  fill_kernels(table);
}
