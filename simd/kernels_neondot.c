/* SPDX-License-Identifier: MIT
 * The kernels on 4 lanes once more, with the dot products of bytes that ARMv8.2 may have. */
#include "simd/vec_neon.h"

#include "simd/kernels_simd.h"

void still_kernels_neondot(still_kernels *table) {
  fill_kernels(table);
}
