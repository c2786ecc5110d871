/* SPDX-License-Identifier: MIT
 * Blocks of quantised values to floats, exactly as the types are defined; the layouts are in
 * dequantize.c. */
#ifndef STILL_FORMATS_DEQUANTIZE_H
#define STILL_FORMATS_DEQUANTIZE_H

#include "formats/tensor.h"

/* NULL for a type without blocks, and for Q8_0, which the kernels convert. */
still_to_f32 *still_dequantizer(still_tensor_type type);

/* The eight 6-bit scales and minima that Q4_K and Q5_K pack into 12 bytes: the first four of each
 * fill the low six bits of bytes 0-3 and 4-7; the last four lie in bytes 8-11 (low half: scale,
 * high half: minimum), with their two upper bits on top of bytes 0-3 and 4-7. */
void still_unpack_scales(const uint8_t packed[12], uint8_t scales[8], uint8_t minima[8]);

/* The sixteen levels of IQ4_NL. */
extern const int8_t still_iq4_nl_levels[16];

#endif
