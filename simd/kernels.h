/* SPDX-License-Identifier: MIT
 *
 * The kernels: pure functions on float arrays. No allocation, no threads, no logging, no model.
 *
 * One struct of pointers, filled by kernels_portable.c (plain loops: the semantics) and overwritten
 * level by level by kernels_<isa>.c, each of which compiles the same *.simd.h texts over its
 * vec_<isa>.h. Arguments: outputs, inputs, sizes. Sizes may be any number >= 1 unless a kernel says
 * otherwise; pointers need no alignment; nothing outside the stated arrays is read or written.
 * Inputs and outputs do not overlap unless stated. NaN and infinity propagate as in the portable
 * text.
 */
#ifndef STILL_SIMD_KERNELS_H
#define STILL_SIMD_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Keys are stored for products along the key axis in tiles of this many: tile i holds keys 32 i ..
 * 32 i + 31 as [channel][key], so a tile of D channels is D * 32 floats. */
enum { STILL_KEY_TILE = 32 };

/* Rows of activations as 16-bit integers with a scale for each 32, an error of at most the largest of
 * 32 / 65024 each. Rows are contiguous, their length a multiple of 32; a row of n has room for n
 * values, n / 32 scales and sums, STILL_PART_TOTALS times as many totals. What lies in values and
 * totals is the level's own matter. */
enum { STILL_PART_TOTALS = 10 };
typedef struct still_integers {
  int16_t *values;
  float *scales, *sums; /* of 32 each; a sum is of the values times their scale */
  int32_t *totals;
} still_integers;

/* Up to STILL_PANEL_ROWS rows of quantised weights, up to STILL_PANEL_DEPTH columns of them,
 * unpacked for products with many rows of activations: columns by fours, weight = scale * code +
 * minimum, or scale * (code - 128) where the type has no minima. Rows that are not there are 0. */
enum { STILL_PANEL_ROWS = 32, STILL_PANEL_DEPTH = 1024 };
typedef struct still_panel {
  uint8_t codes[STILL_PANEL_DEPTH / 4][STILL_PANEL_ROWS][4];
  float scales[STILL_PANEL_DEPTH / 16][STILL_PANEL_ROWS]; /* of each 32 columns, or of 16 */
  float minima[STILL_PANEL_DEPTH / 32][STILL_PANEL_ROWS]; /* of each 32 */
  int scale_items, has_minima;                            /* 32 or 16; 0 or 1 */
} still_panel;

/* Rows of quantised weights side by side, for types that otherwise take longer to take apart than to
 * read: STILL_LANES rows at a time, block by block. Of a block first its words of 4 bytes, each
 * [row], then the half floats, [row], of types with one that shares no word (Q4_0, Q6_K). As many bytes as the rows
 * have; rows that are not there are 0. backend/cpu/lanes.c writes them. */
enum { STILL_LANES = 16 };

/* Up to STILL_PANEL_ROWS rows of weights, up to STILL_PAIR_DEPTH columns, as pairs of bf16, weight = high
 * + low: columns by twos. */
enum { STILL_PAIR_DEPTH = 256, STILL_PAIR_ROWS = 16, STILL_PAIR_COLUMNS = 32 };
typedef struct still_pair_panel {
  uint16_t high[STILL_PAIR_DEPTH / 2][STILL_PANEL_ROWS][2];
  uint16_t low[STILL_PAIR_DEPTH / 2][STILL_PANEL_ROWS][2];
} still_pair_panel;

/* STILL_PAIR_ROWS rows of activations, STILL_PAIR_COLUMNS columns, as such pairs. */
typedef struct still_pair_tile {
  uint16_t high[STILL_PAIR_ROWS][STILL_PAIR_COLUMNS], low[STILL_PAIR_ROWS][STILL_PAIR_COLUMNS];
} still_pair_tile;

typedef void still_matvec(float *out, const void *w, const still_integers *x, size_t rows,
                          size_t dim);
typedef void still_pack(still_panel *panel, const void *w, size_t row_bytes, size_t rows,
                        size_t depth);
typedef void still_unpack(float *out, const void *x, size_t n);

typedef struct still_kernels {
  const char *name; /* "portable", "avx2" ... */

  /* ---- products ---- */

  /* matmul: C (m x n) = A B, or C += A B when accumulate is not 0.
   *   A(i, p) = a[i * a_row + p * a_col]: plain (a_col 1) or transposed (a_row 1)
   *   B(p, j) = b[p * b_row + j], C(i, j) = c[i * c_row + j]
   * For products whose operands stay in the caches (m, n, k up to some hundreds); blocks itself
   * along k for L1. The order of summation over k depends on k alone, not on m, n or the split of
   * either. */
  void (*matmul)(float *c, size_t c_row, const float *a, size_t a_row, size_t a_col, const float *b,
                 size_t b_row, size_t m, size_t n, size_t k, int accumulate);

  /* pack_keys: rows (n x dim, row stride in floats) into slots first .. first+n-1 of key tiles. */
  void (*pack_keys)(float *tiles, size_t first, const float *rows, size_t row_stride, size_t n,
                    size_t dim);

  /* ---- attention stages (spec sections 2 to 4) ---- */

  /* softmax_rows: one block of an online softmax, in place.
   *   s (rows x s_row): logits q . k, not yet scaled (scale > 0); row i takes part in columns
   *     begin[i] .. end[i]-1 (begin may be NULL = 0; an empty range is allowed), the others become
   *     0 up to `columns`
   *   max, sum (rows): running maximum of the scaled logits and sum of exp(s - max); -inf and 0 at
   *     first
   *   rescale (rows) out: what weighted sums made under the old maximum must be multiplied by
   * After: s[i][j] = exp(scale * s[i][j] - max[i]), and sum includes them. Rows that have seen
   * nothing keep -inf, 0, rescale 1. */
  void (*softmax_rows)(float *s, size_t s_row, size_t rows, size_t columns, const int *begin,
                       const int *end, float scale, float *max, float *sum, float *rescale);

  /* saliency_rows: self-saliency of tokens whose window is columns end[i]-window[i] .. end[i]-1 of
   * a row, the token itself last. s holds UNSCALED logits; 1 <= window[i]. Error against float64:
   * 1e-5 relative, 2e-6 absolute. */
  void (*saliency_rows)(float *score, const float *s, size_t s_row, size_t rows, const int *end,
                        const int *window, float scale);

  /* saliency_from_weights: the same from what softmax_rows left in s (weights exp(s - max) of at
   * least the window); returns in score NaN for a row whose window's weights are too small to be
   * exact (sum below 1e-20): the caller then uses saliency_rows on its logits. */
  void (*saliency_from_weights)(float *score, const float *weights, size_t row, size_t rows,
                                const int *end, const int *window);

  /* feature_rows: y (rows x dim, stride y_row) = x A already; out (rows x 2 dim, stride out_row) =
   * max([softmax(u), softmax(-u)], 1e-12) with u = y * (norm[i] / max(||y||, 1e-12)), or u = y when
   * norm is NULL (Hedgehog). norm (rows) holds ||x||. */
  void (*feature_rows)(float *out, size_t out_row, const float *y, size_t y_row, const float *norm,
                       size_t rows, size_t dim);

  /* softmax_features: out (rows x dim) = softmax(x) of each row (Liger). */
  void (*softmax_features)(float *out, size_t out_row, const float *x, size_t x_row, size_t rows,
                           size_t dim);

  /* row_norms: out[i] = ||x_i||. */
  void (*row_norms)(float *out, const float *x, size_t x_row, size_t rows, size_t dim);

  /* column_sums: out (dim) += sum over rows of x. */
  void (*column_sums)(float *out, const float *x, size_t x_row, size_t rows, size_t dim);

  /* merge_rows: y = (softmax_part + gate * linear_part) / (sum + linear_sum), row by row.
   * gate NULL = 1; linear_part NULL = no linear branch (linear_sum is then ignored). A denominator
   * of 0 gives a row of 0; y may be softmax_part or linear_part. */
  void (*merge_rows)(float *y, size_t y_row, const float *softmax_part, size_t s_row,
                     const float *linear_part, size_t l_row, const float *gate, size_t g_row,
                     const float *sum, const float *linear_sum, size_t rows, size_t dim);

  /* scale_rows: x_i *= factor[i], in place. */
  void (*scale_rows)(float *x, size_t x_row, const float *factor, size_t rows, size_t dim);

  /* ---- the dense part of a model ---- */

  /* rms_norm: out = x / sqrt(mean(x^2) + eps) * weight, row by row; out may be x. */
  void (*rms_norm)(float *out, const float *x, const float *weight, float eps, size_t rows,
                   size_t dim);

  /* rotary: rotates the pairs (i, i + half) of each head in place (Hugging Face order).
   * x (rows x heads*dim, row stride x_row); cosine, sine (rows x half). 2 * half <= dim, most often
   * equal; channels from 2 * half on stay. */
  void (*rotary)(float *x, size_t x_row, const float *cosine, const float *sine, size_t rows,
                 size_t heads, size_t dim, size_t half);

  /* swiglu: out = gate / (1 + exp(-gate)) * up; out may be gate or up. */
  void (*swiglu)(float *out, const float *gate, const float *up, size_t n);

  /* sigmoid: out = 1 / (1 + exp(-x)); out may be x. */
  void (*sigmoid)(float *out, const float *x, size_t n);

  /* add: x += y. */
  void (*add)(float *x, const float *y, size_t n);

  /* dot: sum of a[i] b[i]. */
  float (*dot)(const float *a, const float *b, size_t n);

  /* Weight rows dotted with one activation row, for decode: out[r] = W_r . x, r = 0 .. rows-1, dim
   * columns. Rows are contiguous in the type's own form. The bits of out[r] do not depend on the
   * other rows. */
  void (*matvec_f32)(float *out, const float *w, const float *x, size_t rows, size_t dim);
  void (*matvec_f16)(float *out, const uint16_t *w, const float *x, size_t rows, size_t dim);
  void (*matvec_bf16)(float *out, const uint16_t *w, const float *x, size_t rows, size_t dim);

  /* ---- quantised weights; each may be NULL: convert the rows to floats instead ---- */

  /* to_integers: one row. A 32 with a NaN or an infinity gets a scale of NaN. */
  void (*to_integers)(const still_integers *out, const float *x, size_t dim);
  /* matvec_<type>: as above, of one row of integers; dim is a multiple of the type's block: 32, for
   * the K types 256. */
  still_matvec *matvec_q8_0, *matvec_q4_0, *matvec_q4_1, *matvec_q4_k, *matvec_q5_k, *matvec_q6_k;
  /* pack_<type>: rows (row_bytes apart) into a panel; depth is a multiple of the type's block. */
  still_pack *pack_q8_0, *pack_q4_0, *pack_q4_1, *pack_q4_k, *pack_q5_k, *pack_q6_k;
  /* matmul_panel: C (m x n) = X panel^T, or += when accumulate is not 0, n <= STILL_PANEL_ROWS. X:
   * columns first .. first + depth - 1 (multiples of 32) of rows of x_row. The bits of a row of C
   * depend on that row of X and the panel alone. */
  void (*matmul_panel)(float *c, size_t c_row, const still_integers *x, size_t x_row, size_t first,
                       const still_panel *panel, size_t m, size_t n, size_t depth, int accumulate);

  /* The same of rows side by side. pack: w is a block of the first STILL_LANES rows, the next ones
   * lie STILL_LANES row_bytes further. A level has both of a type or none. */
  still_matvec *lanes_q4_0, *lanes_q4_1, *lanes_q4_k, *lanes_q5_k, *lanes_q6_k;
  still_pack *pack_lanes_q4_0, *pack_lanes_q4_1, *pack_lanes_q4_k, *pack_lanes_q5_k,
      *pack_lanes_q6_k;

  /* Where a level has these three, quantised weights of any type that were converted to floats are
   * multiplied with many rows as pairs of bf16, to 2^-17 of each product; depth is a multiple of 32.
   * to_pairs: up to 16 rows of dim as dim / 32 tiles; rows that are not there are 0. What is not finite
   * makes results that are not. */
  void (*to_pairs)(still_pair_tile *out, const float *x, size_t x_row, size_t rows, size_t dim);
  /* pack_pairs: count rows into a panel. */
  void (*pack_pairs)(still_pair_panel *panel, const float *rows, size_t row_stride, size_t count,
                     size_t depth);
  /* matmul_pairs: C (m x n) = or += X W^T with W in n / 32 panels (rounded up); x: tiles of m rows,
   * x_tiles of them for each 16, columns `first` .. first + depth - 1. The bits of C(i, j) depend on
   * that row of X and that row of W alone. */
  void (*matmul_pairs)(float *c, size_t c_row, const still_pair_tile *x, size_t x_tiles,
                       size_t first, const still_pair_panel *panels, size_t m, size_t n,
                       size_t depth, int accumulate);

  /* ---- conversions ---- */
  void (*f16_to_f32)(float *out, const uint16_t *x, size_t n);
  void (*f32_to_f16)(uint16_t *out, const float *x, size_t n); /* nearest even */
  void (*bf16_to_f32)(float *out, const uint16_t *x, size_t n);
  void (*f32_to_bf16)(uint16_t *out, const float *x, size_t n); /* nearest even, NaN stays NaN */
  /* Quantised blocks (n a multiple of the block) to the bits that lib/formats defines; from Q4_0
   * on, NULL where the level has none. */
  still_unpack *q8_0_to_f32, *q4_0_to_f32, *q4_1_to_f32, *q4_k_to_f32, *q5_k_to_f32, *q6_k_to_f32;
} still_kernels;

/* The table in use; never NULL. Chosen at the first call, from the machine and STILL_CPU. */
const still_kernels *still_kernels_get(void);

/* For tests and benches: the table of one level, NULL if this build or machine lacks it. Levels in
 * ascending order are still_kernels_levels()[i], NULL-terminated. */
const still_kernels *still_kernels_level(const char *level);
const char *const *still_kernels_levels(void);

/* Fill functions, one for each translation unit. */
void still_kernels_portable(still_kernels *table);
void still_kernels_avx2(still_kernels *table);
void still_kernels_avxvnni(still_kernels *table);
void still_kernels_avx512(still_kernels *table);
void still_kernels_avx512vnni(still_kernels *table);
void still_kernels_amx(still_kernels *table);
void still_kernels_neon(still_kernels *table);
void still_kernels_neondot(still_kernels *table);

#endif
