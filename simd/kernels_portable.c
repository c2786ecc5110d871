/* SPDX-License-Identifier: MIT */
#include "simd/kernels.h"
void still_kernels_portable(still_kernels *table) {
  *table = (still_kernels){.name = "portable"};
}
