/* SPDX-License-Identifier: MIT
 * Any bits as floats into every type that can be written, and back. */
#include "fuzz.h"

#include "formats/tensor.h"

#include <math.h>
#include <string.h>

enum { VALUES = 256 };

void fuzz_one(const uint8_t *data, size_t bytes) {
  static const still_tensor_type types[] = {STILL_TENSOR_F32,  STILL_TENSOR_F16,  STILL_TENSOR_BF16,
                                            STILL_TENSOR_Q8_0, STILL_TENSOR_Q4_0, STILL_TENSOR_Q4_K,
                                            STILL_TENSOR_Q6_K};
  float values[VALUES] = {0}, back[VALUES];
  uint8_t blocks[VALUES * sizeof(float)];
  float largest = 0;
  memcpy(values, data, bytes < sizeof values ? bytes : sizeof values);
  for (int i = 0; i < VALUES; i++) largest = fmaxf(largest, fabsf(values[i]));
  for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
    still_type_from_f32(types[t])(blocks, values, VALUES);
    still_type_to_f32(types[t])(back, blocks, VALUES);
    /* scales are half floats: beyond their range, and for not-a-number, nothing is promised */
    bool usual = largest < 6e4f && largest > 1e-2f;
    for (int i = 0; i < VALUES; i++) usual = usual && isfinite(values[i]);
    for (int i = 0; i < VALUES && usual; i++)
      FUZZ_CHECK(fabsf(back[i] - values[i]) <= largest * 0.27f);
  }
}
