/* SPDX-License-Identifier: MIT
 * All kernel texts over one vector header, for the translation unit of one instruction set: include
 * vec_<isa>.h, then this, then call fill_kernels.
 * pack_keys keeps the portable text: a third of a nanosecond a float, once for each key. */
#ifndef STILL_SIMD_KERNELS_SIMD_H
#define STILL_SIMD_KERNELS_SIMD_H

#include "simd/kernels.h"

#include "simd/half.h"
#include "simd/kernel_facts.h"

#include <string.h>

#include "simd/vec_math.h"

#include "simd/matmul.simd.h"
#include "simd/softmax.simd.h"

#include "simd/convert.simd.h"
#include "simd/elementwise.simd.h"
#include "simd/feature_map.simd.h"
#include "simd/matvec.simd.h"
#include "simd/merge.simd.h"
#include "simd/quantised.simd.h"
#include "simd/rms_norm.simd.h"
#include "simd/saliency.simd.h"

static void fill_kernels(still_kernels *table) {
  table->matmul = matmul;
  table->softmax_rows = softmax_rows;
  table->saliency_rows = saliency_rows;
  table->saliency_from_weights = saliency_from_weights;
  table->feature_rows = feature_rows;
  table->softmax_features = softmax_features;
  table->row_norms = row_norms;
  table->column_sums = column_sums;
  table->merge_rows = merge_rows;
  table->scale_rows = scale_rows;
  table->rms_norm = rms_norm;
  table->rotary = rotary;
  table->swiglu = swiglu;
  table->sigmoid = sigmoid;
  table->add = add;
  table->dot = row_dot;
  table->matvec_f32 = matvec_f32;
  table->matvec_f16 = matvec_f16;
  table->matvec_bf16 = matvec_bf16;
  table->f16_to_f32 = f16_to_f32;
  table->f32_to_f16 = f32_to_f16;
  table->bf16_to_f32 = bf16_to_f32;
  table->f32_to_bf16 = f32_to_bf16;
  table->to_integers = to_integers;
  table->matvec_q8_0 = matvec_q8_0;
  table->matvec_q4_0 = matvec_q4_0;
  table->matvec_q4_1 = matvec_q4_1;
  table->matvec_q4_k = matvec_q4_k;
  table->matvec_q5_k = matvec_q5_k;
  table->matvec_q6_k = matvec_q6_k;
  table->q8_0_to_f32 = q8_0_to_f32;
  table->q4_0_to_f32 = q4_0_to_f32;
  table->q4_1_to_f32 = q4_1_to_f32;
  table->q4_k_to_f32 = q4_k_to_f32;
  table->q5_k_to_f32 = q5_k_to_f32;
  table->q6_k_to_f32 = q6_k_to_f32;
}

#endif
