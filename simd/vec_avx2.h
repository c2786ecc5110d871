/* SPDX-License-Identifier: MIT
 * Vectors of 8 floats: AVX2 + FMA + F16C. The same names as in vec_avx512.h and vec_neon.h:
 *   vf                   VF floats
 *   vf_load_n, _store_n  the first n lanes, 0 <= n <= VF; the others load as 0 and stay in memory
 *   vf_first             v in the first n lanes, `rest` in the others
 *   vf_max(x, y)         x > y ? x : y, so y where either is NaN; vf_min likewise
 *   vf_power_of_two      2^n for whole n in -127 .. 128; -127 gives 0 and 128 infinity
 *   vf_split             x > 0 as mantissa in [1, 2) (returned) times 2^exponent
 *   vf_load_f16, ...     VF halves to or from floats, exact and to nearest even
 *   vb                   32 bytes, the weights of quantised blocks
 *   vb_nibbles           the low halves of 16 bytes, then their high halves
 *   vb_right, vb_left    by n < 8 bits; what neighbours send into a byte is the caller's to mask
 *   vb_dot               products of 32 signed bytes with 32 int16, in VF partial sums
 *   vb_dot_nibbles       vb_dot of vb_nibbles
 *   vb_dot_pairs         vb_dot of the low halves of 32 bytes with x[0..32), of the high ones with
 *                        x[32..64)
 *   vb_dot_halves        the same, of the first and second 16 times a factor each
 */
#ifndef STILL_SIMD_VEC_AVX2_H
#define STILL_SIMD_VEC_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

typedef __m256 vf;
enum { VF = 8 };
#define MATMUL_ROWS 6 /* 12 sums, 2 vectors of B, 1 of A: 15 of 16 registers */
#define MATMUL_VECTORS 2

static inline vf vf_zero(void) {
  return _mm256_setzero_ps();
}
static inline vf vf_set(float x) {
  return _mm256_set1_ps(x);
}
static inline vf vf_load(const float *x) {
  return _mm256_loadu_ps(x);
}
static inline void vf_store(float *x, vf v) {
  _mm256_storeu_ps(x, v);
}

/* Ends of rows go in pieces of 4, 2, 1: masked stores are slow on AMD before Zen 4, and masked
 * loads touch what they should not under qemu 7.2, by which CI runs old processors. */
static inline vf vf_load_n(const float *x, size_t n) {
  if (n == VF) return vf_load(x);
  const __m128 zero = _mm_setzero_ps(), four = n & 4 ? _mm_loadu_ps(x) : zero;
  x += n & 4;
  __m128 rest = zero;
  if (n & 2) rest = _mm_loadl_pi(rest, (const __m64 *)x);
  if (n & 1) rest = n & 2 ? _mm_movelh_ps(rest, _mm_load_ss(x + 2)) : _mm_load_ss(x);
  return n & 4 ? _mm256_set_m128(rest, four) : _mm256_set_m128(zero, rest);
}
static inline void vf_store_n(float *x, vf v, size_t n) {
  if (n == VF) {
    vf_store(x, v);
    return;
  }
  __m128 piece = _mm256_castps256_ps128(v);
  if (n & 4) {
    _mm_storeu_ps(x, piece);
    piece = _mm256_extractf128_ps(v, 1);
    x += 4;
  }
  if (n & 2) {
    _mm_storel_pi((__m64 *)x, piece);
    piece = _mm_movehl_ps(piece, piece);
    x += 2;
  }
  if (n & 1) _mm_store_ss(x, piece);
}
static inline __m256i first_lanes(size_t n) {
  static const int32_t ones_then_zeros[2 * VF] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256((const __m256i *)(ones_then_zeros + VF - n));
}
static inline vf vf_first(vf v, size_t n, vf rest) {
  if (n == VF) return v;
  return _mm256_blendv_ps(rest, v, _mm256_castsi256_ps(first_lanes(n)));
}

static inline vf vf_add(vf x, vf y) {
  return _mm256_add_ps(x, y);
}
static inline vf vf_sub(vf x, vf y) {
  return _mm256_sub_ps(x, y);
}
static inline vf vf_mul(vf x, vf y) {
  return _mm256_mul_ps(x, y);
}
static inline vf vf_div(vf x, vf y) {
  return _mm256_div_ps(x, y);
}
static inline vf vf_fma(vf x, vf y, vf z) { /* x y + z */
  return _mm256_fmadd_ps(x, y, z);
}
static inline vf vf_max(vf x, vf y) {
  return _mm256_max_ps(x, y);
}
static inline vf vf_min(vf x, vf y) {
  return _mm256_min_ps(x, y);
}
static inline vf vf_round(vf x) { /* nearest even */
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_if_less(vf x, vf y, vf yes, vf no) { /* x < y ? yes : no */
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
}

static inline vf vf_power_of_two(vf n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
static inline vf vf_split(vf x, vf *exponent) {
  const __m256i bits = _mm256_castps_si256(x), one = _mm256_set1_epi32(127 << 23);
  *exponent =
      _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(127)));
  return _mm256_castsi256_ps(
      _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffff)), one));
}

static inline float vf_sum(vf v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
static inline float vf_largest(vf v) { /* no NaN among them */
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

static inline vf vf_load_f16(const uint16_t *x) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
}
static inline void vf_store_f16(uint16_t *x, vf v) {
  _mm_storeu_si128((__m128i *)x, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_load_bf16(const uint16_t *x) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline void vf_store_bf16(uint16_t *x, vf v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i round = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i nearest = _mm256_srli_epi32(_mm256_add_epi32(bits, round), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i half = _mm256_blendv_epi8(nearest, quiet, is_nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
  _mm_storeu_si128((__m128i *)x, _mm256_castsi256_si128(packed));
}
static inline vf vf_set_f16(uint16_t x) {
  return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(x)));
}
static inline void vf_set_two_f16(const void *x, vf *first, vf *second) { /* x[0], x[1] */
  const __m128 both = _mm_cvtph_ps(_mm_loadu_si32(x));
  *first = _mm256_broadcastss_ps(both);
  *second = _mm256_broadcastss_ps(_mm_movehdup_ps(both));
}
static inline vf vf_load_i8(const int8_t *x) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)x)));
}

static inline void vf_store_i16(int16_t *x, vf v) { /* to nearest even */
  const __m256i wide = _mm256_cvtps_epi32(v);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(wide, wide), 0x08);
  _mm_storeu_si128((__m128i *)x, _mm256_castsi256_si128(packed));
}

/* In halves, since the only way on is to widen each. */
typedef struct vb {
  __m128i low, high;
} vb;
static inline vb vb_load(const void *x) {
  const __m128i *halves = x;
  return (vb){_mm_loadu_si128(halves), _mm_loadu_si128(halves + 1)};
}
static inline void vb_store(void *x, vb v) {
  __m128i *halves = x;
  _mm_storeu_si128(halves, v.low);
  _mm_storeu_si128(halves + 1, v.high);
}
static inline vb vb_set(int8_t x) {
  return (vb){_mm_set1_epi8(x), _mm_set1_epi8(x)};
}
static inline vb vb_and(vb x, vb y) {
  return (vb){_mm_and_si128(x.low, y.low), _mm_and_si128(x.high, y.high)};
}
static inline vb vb_or(vb x, vb y) {
  return (vb){_mm_or_si128(x.low, y.low), _mm_or_si128(x.high, y.high)};
}
static inline vb vb_sub(vb x, vb y) {
  return (vb){_mm_sub_epi8(x.low, y.low), _mm_sub_epi8(x.high, y.high)};
}
static inline vb vb_right(vb x, int n) {
  const __m128i by = _mm_cvtsi32_si128(n);
  return (vb){_mm_srl_epi16(x.low, by), _mm_srl_epi16(x.high, by)};
}
static inline vb vb_left(vb x, int n) {
  const __m128i by = _mm_cvtsi32_si128(n);
  return (vb){_mm_sll_epi16(x.low, by), _mm_sll_epi16(x.high, by)};
}
static inline vb vb_nibbles(const void *x) {
  const __m128i pairs = _mm_loadu_si128(x);
  return vb_and((vb){pairs, _mm_srli_epi16(pairs, 4)}, vb_set(15));
}

/* sum + a b, by twos. */
static inline __m256i add_pairs(__m256i sum, __m256i a, __m256i b) {
#ifdef __AVXVNNI__
  return _mm256_dpwssd_avx_epi32(sum, a, b);
#else
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
}
static inline __m256i add_products(__m256i sum, __m128i w, const int16_t *x) {
  return add_pairs(sum, _mm256_cvtepi8_epi16(w), _mm256_loadu_si256((const __m256i *)x));
}
static inline vf vb_dot(vb w, const int16_t *x) {
  const __m256i low = add_products(_mm256_setzero_si256(), w.low, x);
  return _mm256_cvtepi32_ps(add_products(low, w.high, x + 16));
}
/* 16 pairs: the halves are widened once, then taken apart. */
static inline __m256i low_products(__m256i sum, __m256i wide, const int16_t *x) {
  const __m256i low = _mm256_and_si256(wide, _mm256_set1_epi16(15));
  return add_pairs(sum, low, _mm256_loadu_si256((const __m256i *)x));
}
static inline __m256i high_products(__m256i sum, __m256i wide, const int16_t *x) {
  const __m256i high = _mm256_srli_epi16(wide, 4);
  return add_pairs(sum, high, _mm256_loadu_si256((const __m256i *)x));
}
static inline vf vb_dot_nibbles(const void *pairs, const int16_t *x) {
  const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(pairs));
  const __m256i low = low_products(_mm256_setzero_si256(), wide, x);
  return _mm256_cvtepi32_ps(high_products(low, wide, x + 16));
}
static inline vf vb_dot_pairs(const void *pairs, const int16_t *x, vf *high) {
  const __m128i *halves = pairs;
  const __m256i first = _mm256_cvtepu8_epi16(_mm_loadu_si128(halves));
  const __m256i second = _mm256_cvtepu8_epi16(_mm_loadu_si128(halves + 1));
  const __m256i zero = _mm256_setzero_si256();
  const __m256i low = low_products(low_products(zero, first, x), second, x + 16);
  x += 32;
  *high = _mm256_cvtepi32_ps(high_products(high_products(zero, first, x), second, x + 16));
  return _mm256_cvtepi32_ps(low);
}
static inline vf vb_dot_halves(vb w, const int16_t *x, float first, float second) {
  const __m256i zero = _mm256_setzero_si256();
  const vf low = _mm256_cvtepi32_ps(add_products(zero, w.low, x));
  const vf high = _mm256_cvtepi32_ps(add_products(zero, w.high, x + 16));
  return vf_fma(low, vf_set(first), vf_mul(high, vf_set(second)));
}

#endif
