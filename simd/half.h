/* SPDX-License-Identifier: MIT
 * Half floats one at a time, in integers, exact: nearest even, subnormals kept, NaN stays NaN
 * (quiet, its upper payload bits kept). */
#ifndef STILL_SIMD_HALF_H
#define STILL_SIMD_HALF_H

#include <stdint.h>
#include <string.h>

static inline float still_float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t still_bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float still_f16_to_f32(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) { /* infinity, NaN */
    const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
    return still_float_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 | quiet);
  }
  if (magnitude < 0x400) { /* zero, subnormal: units of 2^-24 */
    const float value = (float)magnitude * 0x1p-24f;
    return sign ? -value : value;
  }
  return still_float_of_bits(sign | ((magnitude << 13) + ((127 - 15) << 23)));
}

static inline uint16_t still_f32_to_f16(float value) {
  const uint32_t bits = still_bits_of_float(value), magnitude = bits & 0x7fffffff;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return sign | 0x7c00; /* from 65520 on: infinity */
  uint32_t unit, kept; /* kept: the result rounded down; unit: what its last place is worth */
  if (magnitude < 0x38800000) { /* below 2^-14: subnormal or zero, in units of 2^-24 */
    const uint32_t shift = 126 - (magnitude >> 23);
    if (shift > 24) return sign; /* below 2^-25 */
    const uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
    kept = fraction >> shift;
    unit = (uint32_t)1 << shift;
    const uint32_t rest = fraction & (unit - 1);
    return (uint16_t)(sign | (kept + (rest > unit / 2 || (rest == unit / 2 && (kept & 1)))));
  }
  kept = (magnitude - ((127 - 15) << 23)) >> 13;
  unit = 1 << 13;
  const uint32_t rest = magnitude & (unit - 1);
  return (uint16_t)(sign | (kept + (rest > unit / 2 || (rest == unit / 2 && (kept & 1)))));
}

static inline float still_bf16_to_f32(uint16_t half) {
  return still_float_of_bits((uint32_t)half << 16);
}

static inline uint16_t still_f32_to_bf16(float value) {
  const uint32_t bits = still_bits_of_float(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
