/* SPDX-License-Identifier: MIT
 * Vectors of 16 floats: AVX-512 F, BW, DQ, VL. Names and meanings: vec_avx2.h. */
#ifndef STILL_SIMD_VEC_AVX512_H
#define STILL_SIMD_VEC_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

typedef __m512 vf;
enum { VF = 16 };
#define MATMUL_ROWS                                                                                \
  12 /* 24 sums, 2 vectors of B: 26 of 32 registers, A comes as broadcast memory operands */
#define MATMUL_VECTORS 2

static inline vf vf_zero(void) {
  return _mm512_setzero_ps();
}
static inline vf vf_set(float x) {
  return _mm512_set1_ps(x);
}
static inline vf vf_load(const float *x) {
  return _mm512_loadu_ps(x);
}
static inline void vf_store(float *x, vf v) {
  _mm512_storeu_ps(x, v);
}

static inline __mmask16 first_lanes(size_t n) {
  return (__mmask16)((1u << n) - 1);
}
static inline vf vf_load_n(const float *x, size_t n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), x);
}
static inline void vf_store_n(float *x, vf v, size_t n) {
  _mm512_mask_storeu_ps(x, first_lanes(n), v);
}
static inline vf vf_first(vf v, size_t n, vf rest) {
  return _mm512_mask_mov_ps(rest, first_lanes(n), v);
}

static inline vf vf_add(vf x, vf y) {
  return _mm512_add_ps(x, y);
}
static inline vf vf_sub(vf x, vf y) {
  return _mm512_sub_ps(x, y);
}
static inline vf vf_mul(vf x, vf y) {
  return _mm512_mul_ps(x, y);
}
static inline vf vf_div(vf x, vf y) {
  return _mm512_div_ps(x, y);
}
static inline vf vf_fma(vf x, vf y, vf z) {
  return _mm512_fmadd_ps(x, y, z);
}
static inline vf vf_max(vf x, vf y) {
  return _mm512_max_ps(x, y);
}
static inline vf vf_min(vf x, vf y) {
  return _mm512_min_ps(x, y);
}
static inline vf vf_round(vf x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_if_less(vf x, vf y, vf yes, vf no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), no, yes);
}

static inline vf vf_power_of_two(vf n) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
}
static inline vf vf_split(vf x, vf *exponent) {
  const __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(127 << 23);
  *exponent =
      _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_srli_epi32(bits, 23), _mm512_set1_epi32(127)));
  return _mm512_castsi512_ps(
      _mm512_or_si512(_mm512_and_si512(bits, _mm512_set1_epi32(0x7fffff)), one));
}

static inline float vf_sum(vf v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
static inline float vf_largest(vf v) {
  const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

static inline vf vf_load_f16(const uint16_t *x) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x));
}
static inline void vf_store_f16(uint16_t *x, vf v) {
  _mm256_storeu_si256((__m256i *)x, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_load_bf16(const uint16_t *x) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline void vf_store_bf16(uint16_t *x, vf v) {
  const __m512i bits = _mm512_castps_si512(v), top = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
  const __m512i round = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i nearest = _mm512_srli_epi32(_mm512_add_epi32(bits, round), 16);
  const __m512i quiet = _mm512_or_si512(top, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i half = _mm512_mask_blend_epi32(is_nan, nearest, quiet);
  _mm256_storeu_si256((__m256i *)x, _mm512_cvtepi32_epi16(half));
}
static inline vf vf_set_f16(uint16_t x) {
  return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(x)));
}
static inline void vf_set_two_f16(const void *x, vf *first, vf *second) {
  const __m128 both = _mm_cvtph_ps(_mm_loadu_si32(x));
  *first = _mm512_broadcastss_ps(both);
  *second = _mm512_broadcastss_ps(_mm_movehdup_ps(both));
}
static inline vf vf_load_i8(const int8_t *x) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)x)));
}
static inline void vf_store_i16(int16_t *x, vf v) {
  _mm256_storeu_si256((__m256i *)x, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)));
}

typedef __m256i vb;

static inline vb vb_load(const void *x) {
  return _mm256_loadu_si256(x);
}
static inline void vb_store(void *x, vb v) {
  _mm256_storeu_si256(x, v);
}
static inline vb vb_set(int8_t x) {
  return _mm256_set1_epi8(x);
}
static inline vb vb_and(vb x, vb y) {
  return _mm256_and_si256(x, y);
}
static inline vb vb_or(vb x, vb y) {
  return _mm256_or_si256(x, y);
}
static inline vb vb_sub(vb x, vb y) {
  return _mm256_sub_epi8(x, y);
}
static inline vb vb_right(vb x, int n) {
  return _mm256_srl_epi16(x, _mm_cvtsi32_si128(n));
}
static inline vb vb_left(vb x, int n) {
  return _mm256_sll_epi16(x, _mm_cvtsi32_si128(n));
}
static inline vb vb_nibbles(const void *x) {
  const __m128i pairs = _mm_loadu_si128(x);
  return vb_and(_mm256_set_m128i(_mm_srli_epi16(pairs, 4), pairs), vb_set(15));
}

static inline vf vb_dot(vb w, const int16_t *x) {
  return _mm512_cvtepi32_ps(_mm512_madd_epi16(_mm512_cvtepi8_epi16(w), _mm512_loadu_si512(x)));
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
  return vf_mul(vb_dot(w, x), _mm512_mask_mov_ps(vf_set(second), 0x00ff, vf_set(first)));
}

#endif
