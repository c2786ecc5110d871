/* SPDX-License-Identifier: MIT
 * Floats to blocks of quantised values (dequantize.c has the layouts). count is a multiple of the
 * block. Values should be finite: others end as some value of the block's range. */
#ifndef STILL_FORMATS_QUANTIZE_H
#define STILL_FORMATS_QUANTIZE_H

#include <stddef.h>

void still_quantize_q8_0(void *out, const float *data, size_t count);
void still_quantize_q4_0(void *out, const float *data, size_t count);
/* These search for the scales that make the squared error small, larger values counting more. */
void still_quantize_q4_k(void *out, const float *data, size_t count);
void still_quantize_q6_k(void *out, const float *data, size_t count);

#endif
