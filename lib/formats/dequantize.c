/* SPDX-License-Identifier: MIT
 *
 * Block layouts, in bytes (h = half float):
 *
 *   32 values      Q4_0   h scale, 16 nibbles pairs         scale * (q - 8)
 *                  Q4_1   h scale, h minimum, 16            scale * q + minimum
 *                  Q5_0   h scale, 4 high bits, 16          scale * (q - 16)
 *                  Q5_1   h scale, h minimum, 4, 16         scale * q + minimum
 *                  IQ4_NL h scale, 16                       scale * level[q]
 *                  MXFP4  1 exponent, 16                    2^(exponent - 127) * level[q]
 *   256 values     Q2_K   16 scales and minima, 64, h d, h dmin
 *                  Q3_K   32 high bits, 64, 12 scales, h d
 *                  Q4_K   h d, h dmin, 12 scales and minima, 128
 *                  Q5_K   h d, h dmin, 12 scales and minima, 32 high bits, 128
 *                  Q6_K   128 low, 64 high, 16 scales, h d
 *
 * Nibbles: byte i holds value i in its low half and value i + 16 (of 32) or i + 32 (of 64) in its
 * high half. Products are rounded in the order written here, as the types' definition does, so
 * results are the same bit by bit. */
#include "formats/dequantize.h"

#include "simd/half.h"

#include <string.h>

enum { SMALL = 32, LARGE = 256 };

static float half_at(const uint8_t *at) {
  uint16_t half;
  memcpy(&half, at, sizeof half);
  return still_f16_to_f32(half);
}

/* ---- blocks of 32 */

static void q4_0_block(float *out, const uint8_t *block) {
  const float scale = half_at(block);
  for (int i = 0; i < 16; i++) {
    out[i] = scale * (float)((block[2 + i] & 15) - 8);
    out[i + 16] = scale * (float)((block[2 + i] >> 4) - 8);
  }
}

static void q4_1_block(float *out, const uint8_t *block) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  for (int i = 0; i < 16; i++) {
    out[i] = scale * (float)(block[4 + i] & 15) + minimum;
    out[i + 16] = scale * (float)(block[4 + i] >> 4) + minimum;
  }
}

/* Value i of the 32 five-bit values: its low half in nibbles, its fifth bit in bit i of `high`. */
static int five_bits(const uint8_t *nibbles, uint32_t high, int i) {
  const int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
  return low | (int)(high >> i & 1) << 4;
}

static void q5_0_block(float *out, const uint8_t *block) {
  const float scale = half_at(block);
  uint32_t high;
  memcpy(&high, block + 2, sizeof high);
  for (int i = 0; i < SMALL; i++) out[i] = scale * (float)(five_bits(block + 6, high, i) - 16);
}

static void q5_1_block(float *out, const uint8_t *block) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  uint32_t high;
  memcpy(&high, block + 4, sizeof high);
  for (int i = 0; i < SMALL; i++) out[i] = scale * (float)five_bits(block + 8, high, i) + minimum;
}

static void levels_block(float *out, const uint8_t *nibbles, float scale, const int8_t *levels) {
  for (int i = 0; i < 16; i++) {
    out[i] = scale * (float)levels[nibbles[i] & 15];
    out[i + 16] = scale * (float)levels[nibbles[i] >> 4];
  }
}

const int8_t still_iq4_nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

static void iq4_nl_block(float *out, const uint8_t *block) {
  levels_block(out, block + 2, half_at(block), still_iq4_nl_levels);
}

/* Levels are twice the E2M1 numbers 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, so the scale is
 * half of the E8M0 number 2^(exponent - 127); written as bits, since its lowest two are subnormal.
 */
static void mxfp4_block(float *out, const uint8_t *block) {
  static const int8_t levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint32_t exponent = block[0];
  const float scale =
      still_float_of_bits(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  levels_block(out, block + 1, scale, levels);
}

/* ---- blocks of 256 */

/* 16 values a scale; bits 2k, 2k + 1 of 32 bytes are the k-th 32 values of each half. */
static void q2_k_block(float *out, const uint8_t *block) {
  const uint8_t *scales = block, *q = block + 16;
  const float d = half_at(block + 80), dmin = half_at(block + 82);
  for (int i = 0; i < LARGE; i++) {
    const int half = i / 128, shift = i % 128 / 32 * 2;
    const uint8_t packed = scales[i / 16];
    const float scale = d * (float)(packed & 15), minimum = dmin * (float)(packed >> 4);
    out[i] = scale * (float)(q[32 * half + i % 32] >> shift & 3) - minimum;
  }
}

/* Scale j of 16, less 32: four low bits in nibbles of bytes 0-7, two high bits in bytes 8-11. */
static int q3_k_scale(const uint8_t *packed, int j) {
  const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
  return (low | (packed[8 + j % 4] >> j / 4 * 2 & 3) << 4) - 32;
}

/* Low bits as in Q2_K; bit k of the 32 mask bytes says that the k-th 32 values are not lowered
 * by 4. */
static void q3_k_block(float *out, const uint8_t *block) {
  const uint8_t *mask = block, *q = block + 32, *scales = block + 96;
  const float d = half_at(block + 108);
  for (int i = 0; i < LARGE; i++) {
    const int half = i / 128, shift = i % 128 / 32 * 2;
    const int low = q[32 * half + i % 32] >> shift & 3;
    const int high = mask[i % 32] >> i / 32 & 1 ? 0 : 4;
    out[i] = d * (float)q3_k_scale(scales, i / 16) * (float)(low - high);
  }
}

void still_unpack_scales(const uint8_t packed[12], uint8_t scales[8], uint8_t minima[8]) {
  for (int i = 0; i < 4; i++) {
    scales[i] = packed[i] & 63;
    minima[i] = packed[i + 4] & 63;
    scales[i + 4] = (uint8_t)((packed[i + 8] & 15) | packed[i] >> 6 << 4);
    minima[i + 4] = (uint8_t)(packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4);
  }
}

/* 32 values a scale and minimum. `high`: NULL, or 32 bytes whose bit k is the fifth bit of the
 * k-th 32. */
static void scaled_and_shifted(float *out, const uint8_t *block, const uint8_t *high,
                               const uint8_t *nibbles) {
  const float d = half_at(block), dmin = half_at(block + 2);
  uint8_t scales[8], minima[8];
  still_unpack_scales(block + 4, scales, minima);
  for (int part = 0; part < 8; part++) {
    const float scale = d * scales[part], minimum = dmin * minima[part];
    const uint8_t *from = nibbles + part / 2 * 32;
    for (int i = 0; i < 32; i++) {
      int q = part % 2 ? from[i] >> 4 : from[i] & 15;
      if (high) q |= (high[i] >> part & 1) << 4;
      out[32 * part + i] = scale * (float)q - minimum;
    }
  }
}

static void q4_k_block(float *out, const uint8_t *block) {
  scaled_and_shifted(out, block, NULL, block + 16);
}

static void q5_k_block(float *out, const uint8_t *block) {
  scaled_and_shifted(out, block, block + 16, block + 48);
}

/* Each half: value 32 k + i has its low bits in byte i (k even) or 32 + i (k odd), low nibble for k
 * < 2; its high bits are bits 2k, 2k + 1 of byte i. */
static void q6_k_block(float *out, const uint8_t *block) {
  const int8_t *scales = (const int8_t *)block + 192;
  const float d = half_at(block + 208);
  for (int i = 0; i < LARGE; i++) {
    const int half = i / 128, k = i % 128 / 32, at = i % 32;
    const uint8_t low = block[64 * half + 32 * (k % 2) + at];
    const uint8_t high = block[128 + 32 * half + at];
    const int q = ((k < 2 ? low & 15 : low >> 4) | (high >> 2 * k & 3) << 4) - 32;
    out[i] = d * (float)scales[i / 16] * (float)q;
  }
}

/* ---- arrays of blocks */

#define ARRAY_OF(name, items, bytes)                                                               \
  static void name##_to_f32(float *out, const void *data, size_t count) {                          \
    const uint8_t *block = data;                                                                   \
    for (size_t i = 0; i < count; i += (items), block += (bytes)) name##_block(out + i, block);    \
  }
ARRAY_OF(q4_0, SMALL, 18)
ARRAY_OF(q4_1, SMALL, 20)
ARRAY_OF(q5_0, SMALL, 22)
ARRAY_OF(q5_1, SMALL, 24)
ARRAY_OF(iq4_nl, SMALL, 18)
ARRAY_OF(mxfp4, SMALL, 17)
ARRAY_OF(q2_k, LARGE, 84)
ARRAY_OF(q3_k, LARGE, 110)
ARRAY_OF(q4_k, LARGE, 144)
ARRAY_OF(q5_k, LARGE, 176)
ARRAY_OF(q6_k, LARGE, 210)

still_to_f32 *still_dequantizer(still_tensor_type type) {
  switch (type) {
  case STILL_TENSOR_Q4_0: return q4_0_to_f32;
  case STILL_TENSOR_Q4_1: return q4_1_to_f32;
  case STILL_TENSOR_Q5_0: return q5_0_to_f32;
  case STILL_TENSOR_Q5_1: return q5_1_to_f32;
  case STILL_TENSOR_IQ4_NL: return iq4_nl_to_f32;
  case STILL_TENSOR_MXFP4: return mxfp4_to_f32;
  case STILL_TENSOR_Q2_K: return q2_k_to_f32;
  case STILL_TENSOR_Q3_K: return q3_k_to_f32;
  case STILL_TENSOR_Q4_K: return q4_k_to_f32;
  case STILL_TENSOR_Q5_K: return q5_k_to_f32;
  case STILL_TENSOR_Q6_K: return q6_k_to_f32;
  default: return NULL;
  }
}
