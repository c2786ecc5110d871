/* SPDX-License-Identifier: MIT
 * On top of kernels_avx512vnni.c: quantised weights times many rows by AMX, whose tiles multiply 16
 * rows of activations by 16 rows of weights over 32 columns. Both become pairs of bf16, value = high
 * + low (17 bits), and a product is high high + low high + high low, summed up in f32 by the tiles.
 * What that leaves out is 2^-17 of a product at most, less than the rounding of 16-bit activations;
 * scales are in the numbers, so no sum leaves the tiles before the end of a panel. Tiles of bytes
 * would have to be emptied after each 32 columns, which takes longer than multiplying. */
#include "simd/transpose_avx512.h"
#include "simd/vec_avx512.h"

#include "simd/kernel_facts.h"
#include "simd/kernels.h"

#include <string.h>

enum {
  TILE_ROWS = STILL_PAIR_ROWS,
  TILE_DEPTH = STILL_PAIR_COLUMNS,
  TILE_BYTES = 64,                /* of a row */
  NEAR_DEPTH = 256,               /* of a panel at a time: 32 KiB stay in the first cache */
  PAIR_ROW = 4 * STILL_PANEL_ROWS /* bytes of two columns of a panel */
};

/* Tile registers; plain numbers, for the assembler reads them. Sums of the first and the second 16 rows of
 * activations with the first and the second 16 of the panel; the activations; the panel. */
#define SUM_00 0
#define SUM_01 1
#define SUM_10 2
#define SUM_11 3
#define X_0 4
#define X_1 5
#define W_0 6
#define W_1 7

/* ---- pairs ---- */

/* 32 values as highs, and as lows. */
static inline __m512i pairs_of(const float *x, __m512i *low) {
  const __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + VF);
  const __m512i high = (__m512i)_mm512_cvtne2ps_pbh(second, first);
  const __m512i one = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(high));
  const __m512i two = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(high, 1));
  const __m512 rest = _mm512_sub_ps(first, _mm512_castsi512_ps(_mm512_slli_epi32(one, 16)));
  const __m512 rest_too = _mm512_sub_ps(second, _mm512_castsi512_ps(_mm512_slli_epi32(two, 16)));
  *low = (__m512i)_mm512_cvtne2ps_pbh(rest_too, rest);
  return high;
}

static void to_pairs(still_pair_tile *out, const float *x, size_t x_row, size_t rows, size_t dim) {
  for (size_t i = 0; i < dim / TILE_DEPTH; i++) {
    if (rows < TILE_ROWS) memset(&out[i], 0, sizeof out[i]);
    for (size_t r = 0; r < rows; r++) {
      __m512i low;
      _mm512_storeu_si512(out[i].high[r], pairs_of(x + r * x_row + i * TILE_DEPTH, &low));
      _mm512_storeu_si512(out[i].low[r], low);
    }
  }
}

static void pack_pairs(still_pair_panel *panel, const float *rows, size_t row_stride, size_t count,
                       size_t depth) {
  if (count < STILL_PANEL_ROWS) memset(panel, 0, sizeof *panel);
  for (size_t r = 0; r < count; r += TILE_ROWS)
    for (size_t i = 0; i < depth; i += TILE_DEPTH) {
      __m512i high[TILE_ROWS], low[TILE_ROWS];
      const size_t here = smaller(count - r, TILE_ROWS);
      for (size_t j = 0; j < TILE_ROWS; j++)
        high[j] = pairs_of(rows + (r + smaller(j, here - 1)) * row_stride + i, &low[j]);
      store_transposed(panel->high[i / 2][r], PAIR_ROW, high);
      store_transposed(panel->low[i / 2][r], PAIR_ROW, low);
    }
}

/* ---- products ---- */

typedef struct tile_shapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_shapes;

/* Before tiles are loaded from what was stored here: gcc's functions do not say that they read it. */
static inline void written(const void *at) {
  __asm__ volatile("" ::"r"(at) : "memory");
}

static void shape_tiles(void) {
  tile_shapes shapes = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    shapes.row_bytes[i] = TILE_BYTES;
    shapes.rows[i] = TILE_ROWS;
  }
  written(&shapes);
  _tile_loadconfig(&shapes);
}

/* Where a block of one or two times 16 rows goes, and with which tiles of activations it begins. */
typedef struct block {
  char *first, *second;
  size_t row_bytes;
  const still_pair_tile *x, *x_second;
} block;

static inline void load_w(uint16_t w[][STILL_PANEL_ROWS][2]) {
  _tile_loadd(W_0, w[0][0], PAIR_ROW);
  _tile_loadd(W_1, w[0][TILE_ROWS], PAIR_ROW);
}

static inline __attribute__((always_inline)) void add_products(const int both) {
  _tile_dpbf16ps(SUM_00, X_0, W_0);
  _tile_dpbf16ps(SUM_01, X_0, W_1);
  if (!both) return;
  _tile_dpbf16ps(SUM_10, X_1, W_0);
  _tile_dpbf16ps(SUM_11, X_1, W_1);
}

/* The block = or += x w^T over `tiles` times 32 columns. */
static inline __attribute__((always_inline)) void multiply_block(const block *c,
                                                                 still_pair_panel *panel,
                                                                 size_t tiles, int accumulate,
                                                                 const int both) {
  if (accumulate) {
    _tile_loadd(SUM_00, c->first, c->row_bytes);
    _tile_loadd(SUM_01, c->first + TILE_BYTES, c->row_bytes);
    if (both) _tile_loadd(SUM_10, c->second, c->row_bytes);
    if (both) _tile_loadd(SUM_11, c->second + TILE_BYTES, c->row_bytes);
  } else {
    _tile_zero(SUM_00);
    _tile_zero(SUM_01);
    _tile_zero(SUM_10);
    _tile_zero(SUM_11);
  }
  for (size_t i = 0; i < tiles; i++) {
    load_w(&panel->high[i * TILE_DEPTH / 2]);
    _tile_loadd(X_0, c->x[i].low, TILE_BYTES);
    if (both) _tile_loadd(X_1, c->x_second[i].low, TILE_BYTES);
    add_products(both);
    _tile_loadd(X_0, c->x[i].high, TILE_BYTES);
    if (both) _tile_loadd(X_1, c->x_second[i].high, TILE_BYTES);
    add_products(both);
    load_w(&panel->low[i * TILE_DEPTH / 2]);
    add_products(both);
  }
  _tile_stored(SUM_00, c->first, c->row_bytes);
  _tile_stored(SUM_01, c->first + TILE_BYTES, c->row_bytes);
  if (both) _tile_stored(SUM_10, c->second, c->row_bytes);
  if (both) _tile_stored(SUM_11, c->second + TILE_BYTES, c->row_bytes);
}

static void multiply_two(const block *c, still_pair_panel *panel, size_t tiles, int accumulate) {
  multiply_block(c, panel, tiles, accumulate, 1);
}

static void multiply_one(const block *c, still_pair_panel *panel, size_t tiles, int accumulate) {
  multiply_block(c, panel, tiles, accumulate, 0);
}

static void copy_rows(float *out, size_t out_row, const float *from, size_t row, size_t rows,
                      size_t n) {
  for (size_t r = 0; r < rows; r++) memcpy(out + r * out_row, from + r * row, n * sizeof *out);
}

/* At most 32 rows. What does not fill its tiles goes by way of `whole`. */
static void block_of_rows(float *c, size_t c_row, const still_pair_tile *x, size_t x_tiles,
                          still_pair_panel *panel, size_t m, size_t n, size_t tiles,
                          int accumulate) {
  float whole[2 * TILE_ROWS][STILL_PANEL_ROWS];
  const int direct = n == STILL_PANEL_ROWS && m % TILE_ROWS == 0;
  if (!direct && accumulate) copy_rows(whole[0], STILL_PANEL_ROWS, c, c_row, m, n);
  float *to = direct ? c : whole[0];
  const size_t to_row = direct ? c_row : STILL_PANEL_ROWS;
  const block of = {(char *)to, (char *)(to + TILE_ROWS * to_row), to_row * sizeof *to, x,
                    x + x_tiles};
  written(to);
  (m > TILE_ROWS ? multiply_two : multiply_one)(&of, panel, tiles, accumulate);
  if (!direct) copy_rows(c, c_row, whole[0], STILL_PANEL_ROWS, m, n);
}

static void matmul_pairs(float *c, size_t c_row, const still_pair_tile *x, size_t x_tiles,
                         size_t first, const still_pair_panel *panels, size_t m, size_t n,
                         size_t depth, int accumulate) {
  still_pair_panel *w = (still_pair_panel *)(uintptr_t)panels; /* as the tile loads want it */
  x += first / TILE_DEPTH;
  shape_tiles();
  for (size_t i = 0; i < m; i += 2 * TILE_ROWS)
    for (size_t j = 0; j < n; j += STILL_PANEL_ROWS)
      block_of_rows(c + i * c_row + j, c_row, x + i / TILE_ROWS * x_tiles, x_tiles,
                    w + j / STILL_PANEL_ROWS, smaller(m - i, 2 * TILE_ROWS),
                    smaller(n - j, STILL_PANEL_ROWS), depth / TILE_DEPTH, accumulate);
  _tile_release();
}

void still_kernels_amx(still_kernels *table) {
  table->to_pairs = to_pairs;
  table->pack_pairs = pack_pairs;
  table->matmul_pairs = matmul_pairs;
}
