/* SPDX-License-Identifier: MIT
 * On top of kernels_avx512.c: quantised weights by VNNI, which multiplies 64 unsigned bytes of weights
 * by 64 signed bytes of activations and adds the products up by fours. Activations have 16 bits with
 * a scale for each 32, as in quantised.simd.h, here as two bytes, so there are two products:
 * 256 (w . high) + w . low, all of integers. One byte, as llama.cpp has, would be 1.7 times as fast for
 * many rows and hardly faster for one, which waits for memory; but the logits of SmolLM2-135M would
 * err by 0.14 (rms) instead of 0.0007 (bench/compare-llama-cpp.py --errors).
 *
 * Weights are codes: value = scale * (code - 128) for types without a minimum (Q4_0's codes are its
 * nibbles times 16, Q6_K's its six bits times 4, their scales a 16th and a quarter), else scale *
 * code + minimum. Sums begin at -128 times the activations', so the 128 costs nothing. */
#include "simd/transpose_avx512.h"
#include "simd/vec_avx512.h"

#include "simd/half.h"
#include "simd/kernel_facts.h"
#include "simd/kernels.h"

#include <string.h>

enum {
  PART = SCALED_BLOCK,
  GROUP_PARTS = 8,
  LARGE_BLOCK = 256,
  BIAS = 128,
  LINE = 64,
  AHEAD = 8192
};

/* ---- activations ---- */

/* Rows as two bytes a value, 256 high + low, both signed: `values` holds the high bytes of a row, then the low ones;
 * `totals` the values' sums by fours, then by sixteens, all times -BIAS. */
enum { SPLIT_MOST = 127 * 256 }; /* so that the high byte is at most 127 */

static inline int8_t *split_high(const still_integers *x) {
  return (int8_t *)x->values;
}

/* dim: of the row */
static inline int32_t *split_halves(const still_integers *x, size_t dim) {
  return x->totals + dim / 4;
}

/* The first of eight sums is of bytes 0 .. 3 and so on: -BIAS times the sums of `high` and `low`. */
static inline __m256i biases_of(__m256i high, __m256i low) {
  const __m256i zero = _mm256_setzero_si256(), bias = _mm256_set1_epi8((char)BIAS);
  const __m256i of_high = _mm256_slli_epi32(_mm256_dpbusd_epi32(zero, bias, high), 8);
  return _mm256_sub_epi32(zero, _mm256_dpbusd_epi32(of_high, bias, low));
}

static inline void part_to_integers(const still_integers *out, size_t part, const float *x,
                                    size_t dim) {
  const __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + 16);
  const __m512 sizes = _mm512_max_ps(_mm512_abs_ps(second), _mm512_abs_ps(first));
  const __m512 zero = _mm512_setzero_ps();
  const __mmask16 wrong = _mm512_cmp_ps_mask(_mm512_mul_ps(first, zero), zero, _CMP_NEQ_UQ) |
                          _mm512_cmp_ps_mask(_mm512_mul_ps(second, zero), zero, _CMP_NEQ_UQ);
  const float largest = vf_largest(sizes);
  /* below 2^-100 the inverse would overflow: such a part is worth nothing */
  const __m512 inverse = _mm512_set1_ps(largest > 0x1p-100f ? SPLIT_MOST / largest : 0);
  const __m256i one = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(first, inverse)));
  const __m256i two = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(second, inverse)));
  const __m512i whole = _mm512_inserti64x4(_mm512_castsi256_si512(one), two, 1);
  const __m512i nearest = _mm512_add_epi16(whole, _mm512_set1_epi16(128));
  const __m256i high = _mm512_cvtepi16_epi8(_mm512_srai_epi16(nearest, 8));
  const __m256i low = _mm512_cvtepi16_epi8(whole); /* whole - 256 high, in one byte */
  const __m256i biases = biases_of(high, low);
  __m256i halves = _mm256_add_epi32(biases, _mm256_shuffle_epi32(biases, 0x4e));
  halves = _mm256_add_epi32(halves, _mm256_shuffle_epi32(halves, 0xb1));
  _mm256_storeu_si256((__m256i *)(split_high(out) + part * PART), high);
  _mm256_storeu_si256((__m256i *)(split_high(out) + dim + part * PART), low);
  _mm256_storeu_si256((__m256i *)(out->totals + part * (PART / 4)), biases);
  const int32_t a = _mm256_cvtsi256_si32(halves), b = _mm256_extract_epi32(halves, 4);
  int32_t *of_halves = split_halves(out, dim) + 2 * part;
  of_halves[0] = a;
  of_halves[1] = b;
  out->scales[part] = wrong ? still_float_of_bits(0x7fc00000u) : largest / SPLIT_MOST;
  out->sums[part] = out->scales[part] * (float)((a + b) / -BIAS);
}

static void to_integers(const still_integers *out, const float *x, size_t dim) {
  for (size_t part = 0; part < dim / PART; part++)
    part_to_integers(out, part, x + part * PART, dim);
}

/* ---- codes: 64 of one row, from the block (or two blocks) that holds columns 64 j ... ---- */

static inline __m512i two_halves(const void *first, const void *second) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(first)),
                            _mm256_loadu_si256(second), 1);
}
/* Each 16 bytes twice. */
static inline __m512i two_pairs(const void *first, const void *second) {
  const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128(first));
  return _mm512_mask_broadcast_i32x4(all, 0xff00, _mm_loadu_si128(second));
}
static inline __m512i twice(const void *bytes) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256(bytes));
}
/* x in the first half (of each 256 bits, or of the whole), y in the second, as 16-bit counts */
static inline __m512i counts_within(long long x, long long y) {
  x *= 0x0001000100010001;
  y *= 0x0001000100010001;
  return _mm512_set_epi64(y, y, x, x, y, y, x, x);
}
static inline __m512i counts(long long x, long long y) {
  x *= 0x0001000100010001;
  y *= 0x0001000100010001;
  return _mm512_set_epi64(y, y, y, y, x, x, x, x);
}
static inline __m512i all_bytes(int x) {
  return _mm512_set1_epi8((char)x);
}

static inline __m512i q8_0_codes(const uint8_t *block, const uint8_t *next, const int j) {
  (void)j;
  return _mm512_xor_si512(two_halves(block + 2, next + 2), all_bytes(BIAS));
}
static inline __m512i q4_0_codes(const uint8_t *block, const uint8_t *next, const int j) {
  (void)j;
  const __m512i pairs = two_pairs(block + 2, next + 2);
  return _mm512_and_si512(_mm512_sllv_epi16(pairs, counts_within(4, 0)), all_bytes(0xf0));
}
static inline __m512i q4_1_codes(const uint8_t *block, const uint8_t *next, const int j) {
  (void)j;
  const __m512i pairs = two_pairs(block + 4, next + 4);
  return _mm512_and_si512(_mm512_srlv_epi16(pairs, counts_within(0, 4)), all_bytes(15));
}
static inline __m512i nibble_codes(const uint8_t *nibbles, const int j) {
  const __m512i pairs = twice(nibbles + 32 * j);
  return _mm512_and_si512(_mm512_srlv_epi16(pairs, counts(0, 4)), all_bytes(15));
}
static inline __m512i q4_k_codes(const uint8_t *block, const uint8_t *next, const int j) {
  (void)next;
  return nibble_codes(block + 16, j);
}
static inline __m512i q5_k_codes(const uint8_t *block, const uint8_t *next, const int j) {
  (void)next;
  const __m512i bits = _mm512_inserti64x4(_mm512_set1_epi8((char)(1 << 2 * j)),
                                          _mm256_set1_epi8((char)(2 << 2 * j)), 1);
  const __m512i codes = nibble_codes(block + 48, j);
  const __mmask64 high = _mm512_test_epi8_mask(twice(block + 16), bits);
  return _mm512_mask_add_epi8(codes, high, codes, all_bytes(16));
}
static inline __m512i q6_k_codes(const uint8_t *block, const uint8_t *next, const int j) {
  (void)next;
  const __m512i pairs = _mm512_loadu_si512(block + 64 * (j / 2));
  const __m512i top = twice(block + 128 + 32 * (j / 2));
  const __m512i low = j % 2 ? _mm512_srli_epi16(pairs, 2) : _mm512_slli_epi16(pairs, 2);
  const __m512i high = _mm512_sllv_epi16(top, j % 2 ? counts(2, 0) : counts(6, 4));
  return _mm512_or_si512(_mm512_and_si512(low, all_bytes(0x3c)),
                         _mm512_and_si512(high, all_bytes(0xc0)));
}

/* ---- scales of a group: eight parts, 256 columns ---- */

/* Of eight parts, or of sixteen halves of parts. Minima are of parts. */
typedef struct group_scales {
  __m512 scale;
  __m256 minimum;
} group_scales;

/* The first four bytes of the i-th block, 0 where it is not there. */
static inline __m128i two_f16(const uint8_t *block, size_t bytes, size_t i, size_t parts) {
  return i < parts ? _mm_loadu_si32(block + i * bytes) : _mm_setzero_si128();
}

/* Of those four bytes: a scale and perhaps a minimum. A gather would take longer. */
static inline __attribute__((always_inline)) group_scales
small_scales(const uint8_t *block, const size_t bytes, const size_t parts, float factor) {
#define AT(i) two_f16(block, bytes, i, parts)
#define FOUR(i)                                                                                    \
  _mm_unpacklo_epi64(_mm_unpacklo_epi32(AT(i), AT((i) + 1)),                                       \
                     _mm_unpacklo_epi32(AT((i) + 2), AT((i) + 3)))
  const __m256i halves = _mm256_set_m128i(FOUR(4), FOUR(0));
#undef FOUR
#undef AT
  const __m256 scale = _mm256_cvtph_ps(_mm256_cvtepi32_epi16(halves));
  return (group_scales){_mm512_zextps256_ps512(_mm256_mul_ps(scale, _mm256_set1_ps(factor))),
                        _mm256_cvtph_ps(_mm256_cvtepi32_epi16(_mm256_srli_epi32(halves, 16)))};
}
static inline group_scales q8_0_scales(const uint8_t *block, size_t parts) {
  return small_scales(block, 34, parts, 1);
}
static inline group_scales q4_0_scales(const uint8_t *block, size_t parts) {
  return small_scales(block, 18, parts, 0x1p-4f);
}
static inline group_scales q4_1_scales(const uint8_t *block, size_t parts) {
  return small_scales(block, 20, parts, 1);
}

/* Eight scales and minima of 6 bits from 12 bytes. */
static inline group_scales k_scales(const uint8_t *block, size_t parts) {
  (void)parts;
  uint32_t a, b, c;
  memcpy(&a, block + 4, sizeof a);
  memcpy(&b, block + 8, sizeof b);
  memcpy(&c, block + 12, sizeof c);
  const uint64_t scales =
      (a & 0x3f3f3f3f) | (uint64_t)((c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4) << 32;
  const uint64_t minima =
      (b & 0x3f3f3f3f) | (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4) << 32;
  const __m128 d = _mm_cvtph_ps(_mm_loadu_si32(block));
  const __m256 whole = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)scales)));
  const __m256 below = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)minima)));
  const __m256 minus =
      _mm256_sub_ps(_mm256_setzero_ps(), _mm256_broadcastss_ps(_mm_movehdup_ps(d)));
  return (group_scales){_mm512_zextps256_ps512(_mm256_mul_ps(_mm256_broadcastss_ps(d), whole)),
                        _mm256_mul_ps(minus, below)};
}
static inline group_scales q4_k_scales(const uint8_t *block, size_t parts) {
  return k_scales(block, parts);
}
static inline group_scales q5_k_scales(const uint8_t *block, size_t parts) {
  return k_scales(block, parts);
}
static inline group_scales q6_k_scales(const uint8_t *block, size_t parts) {
  (void)parts;
  uint16_t d;
  memcpy(&d, block + 208, sizeof d);
  const vf whole = vf_load_i8((const int8_t *)block + 192);
  return (group_scales){vf_mul(whole, vf_mul(vf_set_f16(d), vf_set(0x1p-2f))), _mm256_setzero_ps()};
}

/* ---- one row of activations ---- */

/* Lane l of 64 codes is of the part, or half part, place[l] of its group. */
static inline __m512i scale_places(const int j, const int halves) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return halves ? _mm512_add_epi32(_mm512_srli_epi32(lane, 2), _mm512_set1_epi32(4 * j))
                : _mm512_add_epi32(_mm512_srli_epi32(lane, 3), _mm512_set1_epi32(2 * j));
}

/* The scales of activations, as a group's weights have theirs. */
static inline __m512 scales_of_x(const float *scales, size_t parts, const int halves) {
  const __m512 eight = _mm512_maskz_loadu_ps((__mmask16)((1u << parts) - 1), scales);
  const __m512i pairs = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return halves ? _mm512_permutexvar_ps(pairs, eight) : eight;
}

/* start + codes . (256 high + low), by fours */
static inline __m512i dot_split(__m512i codes, __m512i high, __m512i low, __m512i start) {
  const __m512i upper = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, high);
  return _mm512_add_epi32(_mm512_slli_epi32(upper, 8), _mm512_dpbusd_epi32(start, codes, low));
}

/* Rows of W that share the loads of activations where those (2 to 3 bytes a column) and the weights do not fit into the first
 * cache together. Fewer columns go faster row by row. */
enum { ROWS = 4, WIDE = 4096 };

/* What is read AHEAD bytes later or more, into the second cache: the first has no room for it. Time is spent waiting for
 * memory. */
static inline __attribute__((always_inline)) void fetch(const uint8_t *block, const size_t bytes,
                                                        size_t ahead) {
  const uintptr_t at = (uintptr_t)block + ahead; /* perhaps beyond the array: no harm */
  for (size_t b = 0; b < bytes; b += LINE) _mm_prefetch((const char *)(at + b), _MM_HINT_T1);
}

/* `parts` <= 8 of `rows` rows; parts, rows, items, bytes: constants, see MATVEC. */
#define GROUP(type, items, bytes, halves, minima)                                                  \
  static inline __attribute__((always_inline)) void type##_group(                                  \
      __m512 *sum, const uint8_t *block, size_t row_bytes, size_t ahead, const size_t rows,        \
      const still_integers *x, size_t part, size_t dim, const size_t parts) {                      \
    const __mmask8 of_parts = (__mmask8)((1u << parts) - 1);                                       \
    const __m512 of_x = scales_of_x(x->scales + part, parts, halves);                              \
    const __m256 sums =                                                                            \
        minima ? _mm256_maskz_loadu_ps(of_parts, x->sums + part) : _mm256_setzero_ps();            \
    __m512 factor[ROWS];                                                                           \
    UNROLL for (size_t r = 0; r < rows; r++) {                                                     \
      const uint8_t *row = block + r * row_bytes;                                                  \
      fetch(row, (items) == PART ? parts * (bytes) : (bytes), ahead);                              \
      const group_scales scales = type##_scales(row, parts);                                       \
      factor[r] = _mm512_mul_ps(scales.scale, of_x);                                               \
      if (minima)                                                                                  \
        sum[r] =                                                                                   \
            _mm512_add_ps(sum[r], _mm512_zextps256_ps512(_mm256_mul_ps(scales.minimum, sums)));    \
    }                                                                                              \
    UNROLL for (int j = 0; 2 * j < (int)parts; j++) {                                              \
      const int two = 2 * j + 1 < (int)parts;                                                      \
      const size_t at = (part + 2 * (size_t)j) * PART;                                             \
      const __mmask64 there = two ? ~(__mmask64)0 : 0xffffffff;                                    \
      const __m512i high = _mm512_maskz_loadu_epi8(there, split_high(x) + at);                     \
      const __m512i low = _mm512_maskz_loadu_epi8(there, split_high(x) + dim + at);                \
      const __m512i start =                                                                        \
          minima ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi8(there, x->totals + at / 4);    \
      UNROLL for (size_t r = 0; r < rows; r++) {                                                   \
        const uint8_t *first = block + r * row_bytes + ((items) == PART ? 2 * j * (bytes) : 0);    \
        const __m512i codes = type##_codes(first, two ? first + (bytes) : first, j);               \
        const __m512 dots = _mm512_cvtepi32_ps(dot_split(codes, high, low, start));                \
        const __m512 by = _mm512_permutexvar_ps(scale_places(j, halves), factor[r]);               \
        sum[r] = _mm512_fmadd_ps(dots, by, sum[r]);                                                \
      }                                                                                            \
    }                                                                                              \
  }

/* items values in bytes; halves: scales are of 16; minima: the type has them. */
#define MATVEC(type, items, bytes, halves, minima)                                                 \
  GROUP(type, items, bytes, halves, minima)                                                        \
  static inline __attribute__((always_inline)) void type##_rows(                                   \
      float *out, const uint8_t *block, size_t row_bytes, const size_t rows,                       \
      const still_integers *x, size_t dim) {                                                       \
    const size_t tile = rows * row_bytes;                                                          \
    const size_t ahead = rows > 1 ? (AHEAD + tile - 1) / tile * tile : 2 * AHEAD;                  \
    __m512 sum[ROWS];                                                                              \
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();                         \
    size_t part = 0;                                                                               \
    for (; part + GROUP_PARTS <= dim / PART; part += GROUP_PARTS) {                                \
      type##_group(sum, block, row_bytes, ahead, rows, x, part, dim, GROUP_PARTS);                 \
      block += (size_t)LARGE_BLOCK / (items) * (bytes);                                            \
    }                                                                                              \
    if ((items) == PART) {                                                                         \
      for (; part + 2 <= dim / PART; part += 2, block += 2 * (bytes))                              \
        type##_group(sum, block, row_bytes, ahead, rows, x, part, dim, 2);                         \
      if (part < dim / PART) type##_group(sum, block, row_bytes, ahead, rows, x, part, dim, 1);    \
    }                                                                                              \
    for (size_t r = 0; r < rows; r++) out[r] = vf_sum(sum[r]);                                     \
  }                                                                                                \
  static void matvec_##type(float *out, const void *w, const still_integers *x, size_t rows,       \
                            size_t dim) {                                                          \
    const uint8_t *block = w;                                                                      \
    const size_t row_bytes = dim / (items) * (bytes);                                              \
    size_t r = 0;                                                                                  \
    for (; dim > WIDE && r + ROWS <= rows; r += ROWS)                                              \
      type##_rows(out + r, block + r * row_bytes, row_bytes, ROWS, x, dim);                        \
    for (; r < rows; r++) type##_rows(out + r, block + r * row_bytes, row_bytes, 1, x, dim);       \
  }
MATVEC(q8_0, PART, 34, 0, 0)
MATVEC(q4_0, PART, 18, 0, 0)
MATVEC(q4_1, PART, 20, 0, 1)
MATVEC(q4_k, LARGE_BLOCK, 144, 0, 1)
MATVEC(q5_k, LARGE_BLOCK, 176, 0, 1)
MATVEC(q6_k, LARGE_BLOCK, 210, 1, 0)
#undef MATVEC
#undef GROUP

/* ---- many rows: weights unpacked into a panel ---- */

enum { PACK_ROWS = 16 };

static void clear_panel(still_panel *panel) {
  memset(panel->codes, 0, sizeof panel->codes);
  memset(panel->scales, 0, sizeof panel->scales);
  memset(panel->minima, 0, sizeof panel->minima);
}

static inline void store_scales(still_panel *panel, size_t part, size_t row, size_t parts,
                                const group_scales *of, const int halves) {
  float scale[16], minimum[8];
  _mm512_storeu_ps(scale, of->scale);
  _mm256_storeu_ps(minimum, of->minimum);
  for (size_t j = 0; j < parts << halves; j++) panel->scales[(part << halves) + j][row] = scale[j];
  for (size_t j = 0; j < parts; j++) panel->minima[part + j][row] = minimum[j];
}

#define PACK(type, items, bytes, halves, with_minima)                                              \
  /* 64 codes each of PACK_ROWS rows, of which `rows` are there. */                                \
  static inline __attribute__((always_inline)) void type##_pack_codes(                             \
      uint8_t *out, const uint8_t *block, size_t row_bytes, size_t rows, const int two,            \
      const int j) {                                                                               \
    __m512i codes[PACK_ROWS];                                                                      \
    for (size_t r = 0; r < PACK_ROWS; r++) {                                                       \
      const uint8_t *first = block + smaller(r, rows - 1) * row_bytes;                             \
      codes[r] = type##_codes(first, two ? first + (bytes) : first, j);                            \
    }                                                                                              \
    store_transposed(out, 4 * STILL_PANEL_ROWS, codes);                                            \
  }                                                                                                \
  static void type##_pack_group(still_panel *panel, const uint8_t *block, size_t row_bytes,        \
                                size_t rows, size_t part, size_t parts) {                          \
    for (size_t r = 0; r < rows; r++) {                                                            \
      const group_scales scales = type##_scales(block + r * row_bytes, parts);                     \
      store_scales(panel, part, r, parts, &scales, halves);                                        \
    }                                                                                              \
    for (size_t r = 0; r < rows; r += PACK_ROWS)                                                   \
      UNROLL for (int j = 0; j < GROUP_PARTS / 2; j++) {                                           \
        if (2 * (size_t)j >= parts) break;                                                         \
        uint8_t *out = panel->codes[(part + 2 * (size_t)j) * PART / 4][r];                         \
        const uint8_t *from = block + r * row_bytes + ((items) == PART ? 2 * j * (bytes) : 0);     \
        type##_pack_codes(out, from, row_bytes, rows - r, 2 * (size_t)j + 1 < parts, j);           \
      }                                                                                            \
  }                                                                                                \
  static void pack_##type(still_panel *panel, const void *w, size_t row_bytes, size_t rows,        \
                          size_t depth) {                                                          \
    panel->scale_items = (halves) ? PART / 2 : PART;                                               \
    panel->has_minima = (with_minima);                                                             \
    if (rows < STILL_PANEL_ROWS) clear_panel(panel);                                               \
    const uint8_t *block = w;                                                                      \
    for (size_t part = 0; part < depth / PART; part += GROUP_PARTS) {                              \
      type##_pack_group(panel, block, row_bytes, rows, part,                                       \
                        smaller(depth / PART - part, GROUP_PARTS));                                \
      block += (size_t)LARGE_BLOCK / (items) * (bytes);                                            \
    }                                                                                              \
  }
PACK(q8_0, PART, 34, 0, 0)
PACK(q4_0, PART, 18, 0, 0)
PACK(q4_1, PART, 20, 0, 1)
PACK(q4_k, LARGE_BLOCK, 144, 0, 1)
PACK(q5_k, LARGE_BLOCK, 176, 0, 1)
PACK(q6_k, LARGE_BLOCK, 210, 1, 0)
#undef PACK

/* ---- rows side by side ----
 * Lane l of every vector is of row l, so that sums need no adding up at the end and scales no spreading
 * out: a third of the instructions that rows one after the other take, which for four bits a
 * weight take longer than memory does. */

/* The i-th word of each row. */
static inline __m512i lane_words(const uint8_t *block, const int i) {
  return _mm512_loadu_si512(block + i * STILL_LANES * 4);
}
/* The half floats after so many words. */
static inline __m512 lane_halves(const uint8_t *block, const int words) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(block + words * STILL_LANES * 4)));
}
/* The two half floats in words. */
static inline __m512 low_half(__m512i words) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}
static inline __m512 high_half(__m512i words) {
  return low_half(_mm512_srli_epi32(words, 16));
}
/* Four bits of each byte, where they are or moved down. */
static inline __m512i nibbles(__m512i words, const int high) {
  return _mm512_and_si512(high ? _mm512_srli_epi16(words, 4) : words, all_bytes(15));
}

/* Codes of columns 4 q ... of a block, scales of its part (or half part) i, minima of part i. */
static inline __m512i q4_0_lane_codes(const uint8_t *block, const int q) {
  const __m512i words = lane_words(block, q % 4);
  return _mm512_and_si512(q < 4 ? _mm512_slli_epi16(words, 4) : words, all_bytes(0xf0));
}
static inline __m512 q4_0_lane_scale(const uint8_t *block, const int i) {
  (void)i;
  return vf_mul(lane_halves(block, 4), vf_set(0x1p-4f));
}

static inline __m512i q4_1_lane_codes(const uint8_t *block, const int q) {
  return nibbles(lane_words(block, 1 + q % 4), q >= 4);
}
static inline __m512 q4_1_lane_scale(const uint8_t *block, const int i) {
  (void)i;
  return low_half(lane_words(block, 0));
}
static inline __m512 q4_1_lane_minimum(const uint8_t *block, const int i) {
  (void)i;
  return high_half(lane_words(block, 0));
}

/* Six bits of the i-th of eight scales (words 1 and 3) or minima (2 and 3, `high` there). */
static inline __m512 six_bit_lanes(const uint8_t *block, const int i, const int minimum) {
  const __m512i first = lane_words(block, 1 + minimum), last = lane_words(block, 3);
  const int at = i % 4 * 8;
  __m512i bits = _mm512_and_si512(_mm512_srli_epi32(first, at), _mm512_set1_epi32(63));
  if (i >= 4)
    bits = _mm512_or_si512(
        _mm512_and_si512(_mm512_srli_epi32(last, at + 4 * minimum), _mm512_set1_epi32(15)),
        _mm512_and_si512(_mm512_srli_epi32(first, at + 2), _mm512_set1_epi32(48)));
  return _mm512_cvtepi32_ps(bits);
}
static inline __m512 k_lane_scale(const uint8_t *block, const int i) {
  return vf_mul(low_half(lane_words(block, 0)), six_bit_lanes(block, i, 0));
}
static inline __m512 k_lane_minimum(const uint8_t *block, const int i) {
  return vf_mul(vf_sub(vf_zero(), high_half(lane_words(block, 0))), six_bit_lanes(block, i, 1));
}
static inline __m512i q4_k_lane_codes(const uint8_t *block, const int q) {
  return nibbles(lane_words(block, 4 + q / 16 * 8 + q % 8), q / 8 % 2);
}
#define q4_k_lane_scale k_lane_scale
#define q4_k_lane_minimum k_lane_minimum
static inline __m512i q5_k_lane_codes(const uint8_t *block, const int q) {
  const __m512i low = nibbles(lane_words(block, 12 + q / 16 * 8 + q % 8), q / 8 % 2);
  const __m512i high = lane_words(block, 4 + q % 8);
  const __m512i moved =
      q / 8 < 4 ? _mm512_slli_epi16(high, 4 - q / 8) : _mm512_srli_epi16(high, q / 8 - 4);
  return _mm512_or_si512(low, _mm512_and_si512(moved, all_bytes(16)));
}
#define q5_k_lane_scale k_lane_scale
#define q5_k_lane_minimum k_lane_minimum

static inline __m512 q4_0_lane_minimum(const uint8_t *block, const int i) {
  (void)block, (void)i;
  return vf_zero();
}

static inline __m512i broadcast4(const void *x) {
  return _mm512_set1_epi32(_mm_cvtsi128_si32(_mm_loadu_si32(x)));
}

/* Times 4, as in q6_k_codes; scales are of half parts. */
static inline __m512i q6_k_lane_codes(const uint8_t *block, const int q) {
  const int half = q / 32, k = q / 8 % 4;
  const __m512i pairs = lane_words(block, half * 16 + k % 2 * 8 + q % 8);
  const __m512i top = lane_words(block, 32 + half * 8 + q % 8);
  const __m512i low = k < 2 ? _mm512_slli_epi16(pairs, 2) : _mm512_srli_epi16(pairs, 2);
  const __m512i high = _mm512_slli_epi16(top, 6 - 2 * k);
  return _mm512_or_si512(_mm512_and_si512(low, all_bytes(0x3c)),
                         _mm512_and_si512(high, all_bytes(0xc0)));
}
static inline __m512 q6_k_lane_scale(const uint8_t *block, const int i) {
  const __m512i four = lane_words(block, 48 + i / 4);
  const __m512i whole = _mm512_srai_epi32(_mm512_slli_epi32(four, 24 - i % 4 * 8), 24);
  return vf_mul(_mm512_cvtepi32_ps(whole), vf_mul(lane_halves(block, 52), vf_set(0x1p-2f)));
}
#define q6_k_lane_minimum q4_0_lane_minimum

#define LANES(type, items, bytes, halves, with_minima)                                             \
  /* A block of STILL_LANES rows; its first part is `part`. */                                     \
  static inline __attribute__((always_inline)) vf type##_lane_block(                               \
      vf sum, const uint8_t *block, const still_integers *x, size_t part, size_t dim) {            \
    UNROLL for (int i = 0; i < (items) / PART << (halves); i++) {                                  \
      const size_t here = part + (size_t)(i >> (halves));                                          \
      const int8_t *values = split_high(x) + part * PART;                                          \
      const int32_t *totals = split_halves(x, dim) + 2 * here;                                     \
      const int32_t total = (halves) ? totals[i % 2] : totals[0] + totals[1];                      \
      __m512i upper = _mm512_setzero_si512(),                                                      \
              lower = _mm512_set1_epi32((with_minima) ? 0 : total);                                \
      UNROLL for (int q = 8 * i >> (halves); q < (8 * i + 8) >> (halves); q++) {                   \
        const __m512i codes = type##_lane_codes(block, q);                                         \
        upper = _mm512_dpbusd_epi32(upper, codes, broadcast4(values + 4 * q));                     \
        lower = _mm512_dpbusd_epi32(lower, codes, broadcast4(values + dim + 4 * q));               \
      }                                                                                            \
      const vf dots = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(upper, 8), lower));    \
      sum = vf_fma(vf_mul(dots, type##_lane_scale(block, i)), vf_set(x->scales[here]), sum);       \
      if (with_minima) sum = vf_fma(type##_lane_minimum(block, i), vf_set(x->sums[here]), sum);    \
    }                                                                                              \
    return sum;                                                                                    \
  }                                                                                                \
  static void lanes_##type(float *out, const void *w, const still_integers *x, size_t rows,        \
                           size_t dim) {                                                           \
    const uint8_t *block = w;                                                                      \
    for (size_t r = 0; r < rows; r += STILL_LANES) {                                               \
      vf sum = vf_zero();                                                                          \
      for (size_t part = 0; part < dim / PART; part += (items) / PART) {                           \
        fetch(block, STILL_LANES *(bytes), AHEAD);                                                 \
        sum = type##_lane_block(sum, block, x, part, dim);                                         \
        block += STILL_LANES * (bytes);                                                            \
      }                                                                                            \
      vf_store_n(out + r, sum, smaller(rows - r, STILL_LANES));                                    \
    }                                                                                              \
  }                                                                                                \
  static void pack_lanes_##type(still_panel *panel, const void *w, size_t row_bytes, size_t rows,  \
                                size_t depth) {                                                    \
    panel->scale_items = (halves) ? PART / 2 : PART;                                               \
    panel->has_minima = (with_minima);                                                             \
    if (rows <= STILL_LANES) clear_panel(panel);                                                   \
    for (size_t r = 0; r < rows; r += STILL_LANES) {                                               \
      const uint8_t *block = (const uint8_t *)w + r * row_bytes;                                   \
      for (size_t p = 0; p < depth; p += (items), block += STILL_LANES * (bytes)) {                \
        UNROLL for (int i = 0; i < (items) / PART << (halves); i++) vf_store(                      \
            panel->scales[(p / PART << (halves)) + (size_t)i] + r, type##_lane_scale(block, i));   \
        if (with_minima) {                                                                         \
          UNROLL for (int i = 0; i < (items) / PART; i++)                                          \
              vf_store(panel->minima[p / PART + (size_t)i] + r, type##_lane_minimum(block, i));    \
        }                                                                                          \
        UNROLL for (int q = 0; q < (items) / 4; q++)                                               \
            _mm512_storeu_si512(panel->codes[p / 4 + (size_t)q][r], type##_lane_codes(block, q));  \
      }                                                                                            \
    }                                                                                              \
  }
LANES(q4_0, PART, 18, 0, 0)
LANES(q4_1, PART, 20, 0, 1)
LANES(q4_k, LARGE_BLOCK, 144, 0, 1)
LANES(q5_k, LARGE_BLOCK, 176, 0, 1)
LANES(q6_k, LARGE_BLOCK, 210, 1, 0)
#undef LANES

/* ---- products of a panel ----
 * A tile is 1 .. TILE_ROWS rows of activations by a whole panel. Its sums stay in registers: of
 * integers over the columns that share a scale, exact, then times both scales of floats over the
 * panel's depth. */

enum {
  PANEL_VECTORS = STILL_PANEL_ROWS / VF,
  TILE_ROWS = 6 /* 12 sums of integers, 12 of floats, 2 of codes, 2 of scales: 28 of 32 registers */
};

/* The activations of one tile, and what is common to all tiles of a product. */
typedef struct panel_tile {
  float *c;
  size_t c_row, x_row, n, depth; /* x_row: of the whole row, values */
  const int8_t *x;               /* the high bytes; the low ones are x_row further */
  const float *scales, *sums;
  const int32_t *halves;
  const still_panel *panel;
  int accumulate;
} panel_tile;

/* dot += codes . x over the items of a scale; the rows of x are 2 x_row bytes apart. */
static inline __attribute__((always_inline)) void
add_products(__m512i dot[][PANEL_VECTORS], const uint8_t *codes, const int8_t *x, size_t x_row,
             const size_t rows, const size_t items) {
  for (size_t p = 0; p < items; p += 4, x += 4, codes += 4 * STILL_PANEL_ROWS) {
    __m512i of_w[PANEL_VECTORS];
    UNROLL for (size_t v = 0; v < PANEL_VECTORS; v++) of_w[v] =
        _mm512_loadu_si512(codes + v * 4 * VF);
    UNROLL for (size_t r = 0; r < rows; r++) {
      const __m512i of_x = broadcast4(x + r * 2 * x_row);
      UNROLL for (size_t v = 0; v < PANEL_VECTORS; v++) dot[r][v] =
          _mm512_dpbusd_epi32(dot[r][v], of_w[v], of_x);
    }
  }
}

/* rows, items (of a scale) and has_minima are constants where this is used. */
static inline __attribute__((always_inline)) void
multiply_tile(const panel_tile *t, const size_t rows, const size_t items, const int has_minima) {
  const size_t x_row = t->x_row, x_parts = x_row / PART;
  const still_panel *panel = t->panel;
  vf sum[TILE_ROWS][PANEL_VECTORS];
  UNROLL for (size_t r = 0; r < rows; r++) {
    UNROLL for (size_t v = 0; v < PANEL_VECTORS; v++) sum[r][v] = vf_zero();
  }
  for (size_t i = 0; i < t->depth; i += items) {
    const int8_t *x = t->x + i;
    const uint8_t *codes = panel->codes[i / 4][0];
    __m512i dot[TILE_ROWS][PANEL_VECTORS];
    UNROLL for (size_t r = 0; r < rows; r++) {
      UNROLL for (size_t v = 0; v < PANEL_VECTORS; v++) dot[r][v] = _mm512_setzero_si512();
    }
    add_products(dot, codes, x, x_row, rows, items);
    UNROLL for (size_t r = 0; r < rows; r++) {
      const int32_t *halves = t->halves + r * STILL_PART_TOTALS * x_parts + i / 16;
      __m512i start = has_minima ? _mm512_setzero_si512() : broadcast4(halves);
      if (!has_minima && items == PART) start = _mm512_add_epi32(start, broadcast4(halves + 1));
      UNROLL for (size_t v = 0; v < PANEL_VECTORS; v++) dot[r][v] =
          _mm512_add_epi32(_mm512_slli_epi32(dot[r][v], 8), start);
    }
    add_products(dot, codes, x + x_row, x_row, rows, items);
    const size_t part = i / PART;
    UNROLL for (size_t v = 0; v < PANEL_VECTORS; v++) {
      const vf scale = vf_load(panel->scales[i / items] + v * VF);
      UNROLL for (size_t r = 0; r < rows; r++) {
        const vf of_x = vf_set(t->scales[r * x_parts + part]);
        sum[r][v] = vf_fma(vf_mul(_mm512_cvtepi32_ps(dot[r][v]), scale), of_x, sum[r][v]);
      }
      if (!has_minima) continue;
      const vf minimum = vf_load(panel->minima[part] + v * VF);
      UNROLL for (size_t r = 0; r < rows; r++) sum[r][v] =
          vf_fma(minimum, vf_set(t->sums[r * x_parts + part]), sum[r][v]);
    }
  }
  UNROLL for (size_t r = 0; r < rows; r++) {
    UNROLL for (size_t v = 0; v < PANEL_VECTORS; v++) {
      const size_t lanes = t->n > v * VF ? smaller(t->n - v * VF, VF) : 0;
      float *c = t->c + r * t->c_row + v * VF;
      vf_store_n(c, t->accumulate ? vf_add(vf_load_n(c, lanes), sum[r][v]) : sum[r][v], lanes);
    }
  }
}

typedef void multiply_tile_function(const panel_tile *t);

#define TILE(rows)                                                                                 \
  static void multiply_plain_##rows(const panel_tile *t) {                                         \
    multiply_tile(t, rows, PART, 0);                                                               \
  }                                                                                                \
  static void multiply_minima_##rows(const panel_tile *t) {                                        \
    multiply_tile(t, rows, PART, 1);                                                               \
  }                                                                                                \
  static void multiply_halves_##rows(const panel_tile *t) {                                        \
    multiply_tile(t, rows, PART / 2, 0);                                                           \
  }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
#undef TILE
#define EACH_TILE(name)                                                                            \
  { NULL, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 }
static multiply_tile_function *const multiply_functions[][TILE_ROWS + 1] = {
    EACH_TILE(multiply_plain), EACH_TILE(multiply_minima), EACH_TILE(multiply_halves)};
#undef EACH_TILE

/* Tiles as equal as possible: one of a single row would wait for its own sums. */
static void matmul_panel(float *c, size_t c_row, const still_integers *x, size_t x_row,
                         size_t first, const still_panel *panel, size_t m, size_t n, size_t depth,
                         int accumulate) {
  multiply_tile_function *const *functions =
      multiply_functions[panel->scale_items == PART ? panel->has_minima : 2];
  const size_t part = first / PART;
  panel_tile t = {.c = c,
                  .c_row = c_row,
                  .x_row = x_row,
                  .n = n,
                  .depth = depth,
                  .x = split_high(x) + first,
                  .scales = x->scales + part,
                  .sums = x->sums + part,
                  .halves = split_halves(x, x_row) + 2 * part,
                  .panel = panel,
                  .accumulate = accumulate};
  const size_t count = (m + TILE_ROWS - 1) / TILE_ROWS, rows = m / count, longer = m % count;
  for (size_t i = 0; i < count; i++) {
    const size_t here = rows + (i < longer), parts = here * (x_row / PART);
    functions[here](&t);
    t.c += here * c_row;
    t.x += here * 2 * x_row;
    t.scales += parts;
    t.sums += parts;
    t.halves += STILL_PART_TOTALS * parts;
  }
}

void still_kernels_avx512vnni(still_kernels *table) {
  table->to_integers = to_integers;
  table->matvec_q8_0 = matvec_q8_0;
  table->matvec_q4_0 = matvec_q4_0;
  table->matvec_q4_1 = matvec_q4_1;
  table->matvec_q4_k = matvec_q4_k;
  table->matvec_q5_k = matvec_q5_k;
  table->matvec_q6_k = matvec_q6_k;
  table->pack_q8_0 = pack_q8_0;
  table->pack_q4_0 = pack_q4_0;
  table->pack_q4_1 = pack_q4_1;
  table->pack_q4_k = pack_q4_k;
  table->pack_q5_k = pack_q5_k;
  table->pack_q6_k = pack_q6_k;
  table->matmul_panel = matmul_panel;
  table->lanes_q4_0 = lanes_q4_0;
  table->lanes_q4_1 = lanes_q4_1;
  table->lanes_q4_k = lanes_q4_k;
  table->lanes_q5_k = lanes_q5_k;
  table->lanes_q6_k = lanes_q6_k;
  table->pack_lanes_q4_0 = pack_lanes_q4_0;
  table->pack_lanes_q4_1 = pack_lanes_q4_1;
  table->pack_lanes_q4_k = pack_lanes_q4_k;
  table->pack_lanes_q5_k = pack_lanes_q5_k;
  table->pack_lanes_q6_k = pack_lanes_q6_k;
}
