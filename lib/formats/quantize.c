/* SPDX-License-Identifier: MIT */
#include "formats/quantize.h"

#include "simd/half.h"

#include <math.h>
#include <string.h>

static float largest_size(const float *x, size_t n) {
  float largest = 0;
  for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
  return largest;
}

static void put_half(unsigned char *out, float value) {
  const uint16_t half = still_f32_to_f16(value);
  memcpy(out, &half, sizeof half);
}

/* To the nearest integer from low to high; not-a-number becomes low. */
static int nearest(float value, int low, int high) {
  if (!(value > (float)low)) return low;
  return value < (float)high ? (int)roundf(value) : high;
}

void still_quantize_q8_0(void *out, const float *data, size_t count) {
  unsigned char *block = out;
  for (size_t i = 0; i < count; i += 32, block += 34) {
    const float scale = largest_size(data + i, 32) / 127, inverse = scale > 0 ? 1 / scale : 0;
    put_half(block, scale);
    for (size_t j = 0; j < 32; j++)
      block[2 + j] = (uint8_t)nearest(data[i + j] * inverse, -127, 127);
  }
}
