/* SPDX-License-Identifier: MIT
 * Vectors of 4 floats: what every AArch64 has. Names and meanings: vec_avx2.h. */
#ifndef STILL_SIMD_VEC_NEON_H
#define STILL_SIMD_VEC_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef float32x4_t vf;
enum { VF = 4 };
#define MATMUL_ROWS 6 /* 24 sums, 4 vectors of B, the rest for A: 32 registers */
#define MATMUL_VECTORS 4

static inline vf vf_zero(void) {
  return vdupq_n_f32(0);
}
static inline vf vf_set(float x) {
  return vdupq_n_f32(x);
}
static inline vf vf_load(const float *x) {
  return vld1q_f32(x);
}
static inline void vf_store(float *x, vf v) {
  vst1q_f32(x, v);
}
static inline vf vf_load_n(const float *x, size_t n) {
  if (n == VF) return vf_load(x);
  float lanes[VF] = {0};
  memcpy(lanes, x, n * sizeof *lanes);
  return vf_load(lanes);
}
static inline void vf_store_n(float *x, vf v, size_t n) {
  if (n == VF) {
    vf_store(x, v);
    return;
  }
  float lanes[VF];
  vf_store(lanes, v);
  memcpy(x, lanes, n * sizeof *lanes);
}
static inline vf vf_first(vf v, size_t n, vf rest) {
  if (n == VF) return v;
  static const uint32_t lane[VF] = {0, 1, 2, 3};
  return vbslq_f32(vcltq_u32(vld1q_u32(lane), vdupq_n_u32((uint32_t)n)), v, rest);
}

static inline vf vf_add(vf x, vf y) {
  return vaddq_f32(x, y);
}
static inline vf vf_sub(vf x, vf y) {
  return vsubq_f32(x, y);
}
static inline vf vf_mul(vf x, vf y) {
  return vmulq_f32(x, y);
}
static inline vf vf_div(vf x, vf y) {
  return vdivq_f32(x, y);
}
static inline vf vf_fma(vf x, vf y, vf z) {
  return vfmaq_f32(z, x, y);
}
static inline vf vf_max(vf x, vf y) { /* not vmaxq: y where either is NaN */
  return vbslq_f32(vcgtq_f32(x, y), x, y);
}
static inline vf vf_min(vf x, vf y) {
  return vbslq_f32(vcltq_f32(x, y), x, y);
}
static inline vf vf_round(vf x) {
  return vrndnq_f32(x);
}
static inline vf vf_if_less(vf x, vf y, vf yes, vf no) {
  return vbslq_f32(vcltq_f32(x, y), yes, no);
}

static inline vf vf_power_of_two(vf n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
static inline vf vf_split(vf x, vf *exponent) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x), one = vdupq_n_u32(127 << 23);
  const int32x4_t biased = vreinterpretq_s32_u32(vshrq_n_u32(bits, 23));
  *exponent = vcvtq_f32_s32(vsubq_s32(biased, vdupq_n_s32(127)));
  return vreinterpretq_f32_u32(vorrq_u32(vandq_u32(bits, vdupq_n_u32(0x7fffff)), one));
}

static inline float vf_sum(vf v) {
  return vaddvq_f32(v);
}
static inline float vf_largest(vf v) {
  return vmaxvq_f32(v);
}

static inline vf vf_load_f16(const uint16_t *x) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x)));
}
static inline void vf_store_f16(uint16_t *x, vf v) {
  vst1_u16(x, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
static inline vf vf_load_bf16(const uint16_t *x) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(x), 16));
}
static inline void vf_store_bf16(uint16_t *x, vf v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v), top = vshrq_n_u32(bits, 16);
  const uint32x4_t round = vaddq_u32(vandq_u32(top, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
  const uint32x4_t nearest = vshrq_n_u32(vaddq_u32(bits, round), 16);
  const uint32x4_t quiet = vorrq_u32(top, vdupq_n_u32(0x40));
  vst1_u16(x, vmovn_u32(vbslq_u32(vceqq_f32(v, v), nearest, quiet)));
}
static inline vf vf_set_f16(uint16_t x) {
  return vdupq_lane_f32(vget_low_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(x)))), 0);
}
static inline void vf_set_two_f16(const void *x, vf *first, vf *second) {
  uint16_t both[2];
  memcpy(both, x, sizeof both);
  *first = vf_set_f16(both[0]);
  *second = vf_set_f16(both[1]);
}
static inline vf vf_load_i8(const int8_t *x) {
  int32_t four;
  memcpy(&four, x, sizeof four);
  const int8x8_t bytes = vreinterpret_s8_s32(vdup_n_s32(four));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}
static inline void vf_store_i16(int16_t *x, vf v) {
  vst1_s16(x, vqmovn_s32(vcvtnq_s32_f32(v)));
}

typedef uint8x16x2_t vb;
static inline vb vb_load(const void *x) {
  const uint8_t *bytes = x;
  return (vb){{vld1q_u8(bytes), vld1q_u8(bytes + 16)}};
}
static inline void vb_store(void *x, vb v) {
  uint8_t *bytes = x;
  vst1q_u8(bytes, v.val[0]);
  vst1q_u8(bytes + 16, v.val[1]);
}
static inline vb vb_set(int8_t x) {
  const uint8x16_t all = vdupq_n_u8((uint8_t)x);
  return (vb){{all, all}};
}
static inline vb vb_and(vb x, vb y) {
  return (vb){{vandq_u8(x.val[0], y.val[0]), vandq_u8(x.val[1], y.val[1])}};
}
static inline vb vb_or(vb x, vb y) {
  return (vb){{vorrq_u8(x.val[0], y.val[0]), vorrq_u8(x.val[1], y.val[1])}};
}
static inline vb vb_sub(vb x, vb y) {
  return (vb){{vsubq_u8(x.val[0], y.val[0]), vsubq_u8(x.val[1], y.val[1])}};
}
static inline vb vb_left(vb x, int n) {
  const int8x16_t by = vdupq_n_s8((int8_t)n);
  return (vb){{vshlq_u8(x.val[0], by), vshlq_u8(x.val[1], by)}};
}
static inline vb vb_right(vb x, int n) {
  return vb_left(x, -n);
}
static inline vb vb_nibbles(const void *x) {
  const uint8x16_t pairs = vld1q_u8(x);
  return (vb){{vandq_u8(pairs, vdupq_n_u8(15)), vshrq_n_u8(pairs, 4)}};
}

#ifdef __ARM_FEATURE_DOTPROD
/* Activations as two bytes, value = 256 high + low, both signed: 16 high ones, then 16 low ones. */
#define VB_MOST (127 * 256)
static inline void vb_arrange(int16_t *part) {
  for (int i = 0; i < 32; i += 16) {
    int16_t *half = part + i;
    const int16x8_t first = vld1q_s16(half), second = vld1q_s16(half + 8);
    const int8x16_t high = vrshrn_high_n_s16(vrshrn_n_s16(first, 8), second, 8);
    const int8x16_t low = vmovn_high_s16(vmovn_s16(first), second);
    vst1q_s8((int8_t *)half, high);
    vst1q_s8((int8_t *)half + 16, low);
  }
}

/* 16 products in 4 sums. */
static inline int32x4_t vb_products(int32x4_t sum, uint8x16_t w, const int16_t *x) {
  const int8_t *bytes = (const int8_t *)x;
  const int8x16_t weights = vreinterpretq_s8_u8(w);
  const int32x4_t high = vdotq_s32(vdupq_n_s32(0), weights, vld1q_s8(bytes));
  return vdotq_s32(vaddq_s32(sum, vshlq_n_s32(high, 8)), weights, vld1q_s8(bytes + 16));
}
#else
/* 16 products in 4 sums. */
static inline int32x4_t vb_products(int32x4_t sum, uint8x16_t w, const int16_t *x) {
  const int16x8_t low = vmovl_s8(vget_low_s8(vreinterpretq_s8_u8(w))), first = vld1q_s16(x);
  const int16x8_t high = vmovl_high_s8(vreinterpretq_s8_u8(w)), second = vld1q_s16(x + 8);
  sum = vmlal_s16(sum, vget_low_s16(low), vget_low_s16(first));
  sum = vmlal_high_s16(sum, low, first);
  sum = vmlal_s16(sum, vget_low_s16(high), vget_low_s16(second));
  return vmlal_high_s16(sum, high, second);
}
#endif
static inline vf vb_dot(vb w, const int16_t *x) {
  const int32x4_t first = vb_products(vdupq_n_s32(0), w.val[0], x);
  return vcvtq_f32_s32(vb_products(first, w.val[1], x + 16));
}
static inline vf vb_dot_nibbles(const void *pairs, const int16_t *x) {
  return vb_dot(vb_nibbles(pairs), x);
}
static inline vf vb_dot_pairs(const void *pairs, const int16_t *x, vf *high) {
  const vb both = vb_load(pairs), fifteen = vb_set(15);
  *high = vb_dot(vb_and(vb_right(both, 4), fifteen), x + 32);
  return vb_dot(vb_and(both, fifteen), x);
}
static inline vf vb_dot_halves(vb w, const int16_t *x, float first, float second) {
  const int32x4_t low = vb_products(vdupq_n_s32(0), w.val[0], x);
  const int32x4_t high = vb_products(vdupq_n_s32(0), w.val[1], x + 16);
  return vf_fma(vcvtq_f32_s32(low), vf_set(first), vf_mul(vcvtq_f32_s32(high), vf_set(second)));
}

#endif
