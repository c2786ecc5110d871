/* SPDX-License-Identifier: MIT
 * Layouts: dequantize.c. */
#include "formats/quantize.h"

#include "simd/half.h"

#include <math.h>
#include <string.h>

enum { SMALL = 32, LARGE = 256 };

/* To the nearest integer from low to high, halves away from zero; not-a-number becomes low. Written
 * out because roundf is a call on processors without SSE4.1; the difference to the whole part is
 * exact. */
static int nearest(float value, int low, int high) {
  if (!(value > (float)low)) return low;
  if (!(value < (float)high)) return high;
  const int whole = (int)value;
  const float rest = value - (float)whole;
  return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* The value whose size is largest, with its sign. */
static float most_extreme(const float *x, size_t n) {
  float extreme = 0;
  for (size_t i = 0; i < n; i++)
    if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
  return extreme;
}

static float inverse_of(float x) {
  return x != 0 ? 1 / x : 0;
}

/* Stores a half float and returns what it then is: later steps must reckon with the rounded value.
 */
static float put_half(uint8_t *out, float value) {
  const uint16_t half = still_f32_to_f16(value);
  memcpy(out, &half, sizeof half);
  return still_f16_to_f32(half);
}

/* ---- blocks of 32: the scale follows from the most extreme value, unrounded */

static void q8_0_block(uint8_t *block, const float *x) {
  const float scale = fabsf(most_extreme(x, SMALL)) / 127, inverse = inverse_of(scale);
  put_half(block, scale);
  for (int i = 0; i < SMALL; i++) block[2 + i] = (uint8_t)nearest(x[i] * inverse, -127, 127);
}

/* The most extreme value becomes -8, the end of the range that reaches further. */
static void q4_0_block(uint8_t *block, const float *x) {
  const float scale = most_extreme(x, SMALL) / -8, inverse = inverse_of(scale);
  put_half(block, scale);
  for (int i = 0; i < 16; i++) {
    const int low = nearest(x[i] * inverse + 8, 0, 15);
    const int high = nearest(x[i + 16] * inverse + 8, 0, 15);
    block[2 + i] = (uint8_t)(low | high << 4);
  }
}

/* ---- scales by weighted least squares */

/* x ~ scale * q - minimum, q from 0 to most, minimum >= 0. */
typedef struct affine {
  float scale, minimum;
} affine;

/* The best scale and minimum for given integers: the normal equations of two unknowns. */
static affine solve_affine(const float *x, const float *weight, const uint8_t *q, int n) {
  float w = 0, wx = 0, wq = 0, wqq = 0, wxq = 0;
  for (int i = 0; i < n; i++) {
    w += weight[i];
    wx += weight[i] * x[i];
    wq += weight[i] * q[i];
    wqq += weight[i] * q[i] * q[i];
    wxq += weight[i] * x[i] * q[i];
  }
  const float determinant = w * wqq - wq * wq;
  const float offset = determinant > 0 ? (wqq * wx - wq * wxq) / determinant : 0;
  if (determinant > 0 && offset <= 0) return (affine){(w * wxq - wx * wq) / determinant, -offset};
  return (affine){wqq > 0 ? wxq / wqq : 0, 0}; /* a minimum cannot be negative */
}

static float affine_error(const float *x, const float *weight, const uint8_t *q, int n, affine a) {
  float error = 0;
  for (int i = 0; i < n; i++) {
    const float difference = a.scale * q[i] - a.minimum - x[i];
    error += weight[i] * difference * difference;
  }
  return error;
}

/* Tries grids somewhat finer and coarser than the one that spans the values; each is fitted to the
 * integers that it gives, and the best is kept. Weights: size plus root mean square. */
static affine fit_affine(const float *x, int n, int most) {
  float low = 0, high = x[0], squares = 0, weight[SMALL];
  for (int i = 0; i < n; i++) {
    low = fminf(low, x[i]);
    high = fmaxf(high, x[i]);
    squares += x[i] * x[i];
  }
  if (!(high > low)) return (affine){0, -low};
  for (int i = 0; i < n; i++) weight[i] = sqrtf(squares / (float)n) + fabsf(x[i]);
  affine best = {(high - low) / (float)most, -low};
  float least = INFINITY;
  for (int step = -10; step <= 10; step++) {
    const float inverse = ((float)most + 0.1f * (float)step) / (high - low);
    uint8_t q[SMALL];
    for (int i = 0; i < n; i++) q[i] = (uint8_t)nearest(inverse * (x[i] - low), 0, most);
    const affine a = solve_affine(x, weight, q, n);
    const float error = affine_error(x, weight, q, n, a);
    if (error < least) least = error, best = a;
  }
  return best;
}

/* x ~ scale * q, q from -half to half - 1: the same search; weights are the squares. */
static float fit_symmetric(const float *x, int n, int half) {
  const float extreme = most_extreme(x, (size_t)n);
  if (extreme == 0) return 0;
  float best = extreme / (float)-half, most = 0;
  for (int step = -9; step <= 9; step++) {
    const float inverse = -((float)half + 0.1f * (float)step) / extreme;
    float wqq = 0, wxq = 0;
    for (int i = 0; i < n; i++) {
      const float q = (float)nearest(inverse * x[i], -half, half - 1), w = x[i] * x[i];
      wqq += w * q * q;
      wxq += w * x[i] * q;
    }
    /* the error of the best scale wxq / wqq is a constant less this */
    const float gain = wqq > 0 ? wxq * wxq / wqq : 0;
    if (gain > most) most = gain, best = wxq / wqq;
  }
  return best;
}

/* ---- blocks of 256 */

/* The inverse of still_unpack_scales. */
static void pack_scales(uint8_t packed[12], const uint8_t scales[8], const uint8_t minima[8]) {
  for (int i = 0; i < 4; i++) {
    packed[i] = (uint8_t)(scales[i] | scales[i + 4] >> 4 << 6);
    packed[i + 4] = (uint8_t)(minima[i] | minima[i + 4] >> 4 << 6);
    packed[i + 8] = (uint8_t)((scales[i + 4] & 15) | (minima[i + 4] & 15) << 4);
  }
}

static void q4_k_block(uint8_t *block, const float *x) {
  affine fits[8];
  float scale = 0, minimum = 0;
  uint8_t scales[8], minima[8], q[LARGE];
  for (int part = 0; part < 8; part++) {
    fits[part] = fit_affine(x + 32 * part, 32, 15);
    scale = fmaxf(scale, fits[part].scale);
    minimum = fmaxf(minimum, fits[part].minimum);
  }
  const float d = put_half(block, scale / 63), dmin = put_half(block + 2, minimum / 63);
  for (int part = 0; part < 8; part++) {
    scales[part] = (uint8_t)nearest(fits[part].scale * inverse_of(d), 0, 63);
    minima[part] = (uint8_t)nearest(fits[part].minimum * inverse_of(dmin), 0, 63);
    const float inverse = inverse_of(d * scales[part]), shift = dmin * minima[part];
    for (int i = 32 * part; i < 32 * part + 32; i++)
      q[i] = (uint8_t)nearest((x[i] + shift) * inverse, 0, 15);
  }
  pack_scales(block + 4, scales, minima);
  for (int i = 0; i < 128; i++) {
    const uint8_t *from = q + i / 32 * 64 + i % 32;
    block[16 + i] = (uint8_t)(from[0] | from[32] << 4);
  }
}

/* Puts the 256 values 0 .. 63 where dequantize.c finds them. */
static void pack_q6_k(uint8_t *block, const uint8_t *q) {
  for (int i = 0; i < LARGE; i++) {
    const int half = i / 128, k = i % 128 / 32, at = i % 32;
    block[64 * half + 32 * (k % 2) + at] |= (uint8_t)((q[i] & 15) << (k < 2 ? 0 : 4));
    block[128 + 32 * half + at] |= (uint8_t)(q[i] >> 4 << 2 * k);
  }
}

static void q6_k_block(uint8_t *block, const float *x) {
  float fits[16];
  uint8_t q[LARGE];
  for (int part = 0; part < 16; part++) fits[part] = fit_symmetric(x + 16 * part, 16, 32);
  memset(block, 0, 208);
  const float d = put_half(block + 208, most_extreme(fits, 16) / -128);
  for (int part = 0; part < 16; part++) {
    const int scale = nearest(fits[part] * inverse_of(d), -128, 127);
    const float inverse = inverse_of(d * (float)scale);
    block[192 + part] = (uint8_t)scale;
    for (int i = 16 * part; i < 16 * part + 16; i++)
      q[i] = (uint8_t)(nearest(x[i] * inverse, -32, 31) + 32);
  }
  pack_q6_k(block, q);
}

/* ---- arrays of blocks */

#define ARRAY_OF(name, items, bytes)                                                               \
  void still_quantize_##name(void *out, const float *data, size_t count) {                         \
    uint8_t *block = out;                                                                          \
    for (size_t i = 0; i < count; i += (items), block += (bytes)) name##_block(block, data + i);   \
  }
ARRAY_OF(q8_0, SMALL, 34)
ARRAY_OF(q4_0, SMALL, 18)
ARRAY_OF(q4_k, LARGE, 144)
ARRAY_OF(q6_k, LARGE, 210)
