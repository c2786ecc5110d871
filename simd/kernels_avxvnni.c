/* SPDX-License-Identifier: MIT
 * The kernels on 8 lanes once more, with AVX-VNNI: integer products are added up as they are made. The
 * same bits as AVX2. */
#include "simd/vec_avx2.h"

#include "simd/kernels_simd.h"

void still_kernels_avxvnni(still_kernels *table) {
  fill_kernels(table);
}
