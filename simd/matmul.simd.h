/* SPDX-License-Identifier: MIT
 * Matrix product by register tiles.
 *
 * A tile is 1 .. MATMUL_ROWS rows of C by half, once or twice MATMUL_VECTORS vectors. Its sums stay
 * in registers while k runs over a block of DEPTH, one row of B and one column of A at a time, and
 * go to C once a block. Each element of C is thus one chain of fused multiply-adds a block,
 * whatever tile it falls in: the bits depend on k alone. Columns are the outer loop, so that a
 * panel of B (DEPTH rows of a tile's width) stays in the first-level cache while A streams by. A
 * panel is copied first where its rows lie so far apart that they would fight for the same sets of
 * that cache, or where C has fewer columns than the tile. */

enum {
  DEPTH = 128,
  PANEL = MATMUL_VECTORS * VF, /* columns of a tile */
  LINE = 16,
  SETS = 64,
  WAYS = 8,                    /* floats, and the usual shape of a first-level cache */
  MANY_ROWS = 4 * MATMUL_ROWS, /* of C that must use a copy of B for it to pay */
};

typedef struct panel { /* and the block of k at work */
  const float *b;
  size_t b_row, depth;
  size_t width, columns; /* of the tiles, and what C has of them */
  size_t c_row, a_row, a_col;
  int accumulate;
} panel;

/* rows and vectors are constants where this is used. */
static inline __attribute__((always_inline)) void matmul_tile(const panel *t, float *c,
                                                              size_t c_row, int accumulate,
                                                              const float *a, const size_t rows,
                                                              const size_t vectors) {
  vf sum[MATMUL_ROWS][2 * MATMUL_VECTORS], of_b[2 * MATMUL_VECTORS];
  UNROLL for (size_t i = 0; i < rows; i++) {
    UNROLL for (size_t v = 0; v < vectors; v++) sum[i][v] = vf_zero();
  }
  const size_t a_row = t->a_row, a_col = t->a_col, b_row = t->b_row;
  const float *b = t->b;
  for (size_t p = t->depth; p; p--, a += a_col, b += b_row) {
    UNROLL for (size_t v = 0; v < vectors; v++) of_b[v] = vf_load(b + v * VF);
    UNROLL for (size_t i = 0; i < rows; i++) {
      const vf of_a = vf_set(a[i * a_row]);
      UNROLL for (size_t v = 0; v < vectors; v++) sum[i][v] = vf_fma(of_a, of_b[v], sum[i][v]);
    }
  }
  UNROLL for (size_t i = 0; i < rows; i++) {
    UNROLL for (size_t v = 0; v < vectors; v++) {
      float *to = c + i * c_row + v * VF;
      vf_store(to, accumulate ? vf_add(vf_load(to), sum[i][v]) : sum[i][v]);
    }
  }
}

typedef void matmul_function(const panel *t, float *c, size_t c_row, int accumulate,
                             const float *a);

/* One or two rows may take twice the width, for as many sums as the adder needs to be busy. */
#if MATMUL_ROWS == 12
#define EACH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#define EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif
#define TILE(name, rows, vectors)                                                                  \
  static void name##_##rows(const panel *t, float *c, size_t c_row, int accumulate,                \
                            const float *a) {                                                      \
    matmul_tile(t, c, c_row, accumulate, a, rows, vectors);                                        \
  }
#define HALF_TILE(rows) TILE(half_tile, rows, MATMUL_VECTORS / 2)
#define FULL_TILE(rows) TILE(full_tile, rows, MATMUL_VECTORS)
#define WIDE_TILE(rows) TILE(wide_tile, rows, 2 * MATMUL_VECTORS)
EACH(HALF_TILE)
EACH(FULL_TILE)
WIDE_TILE(1)
WIDE_TILE(2)
#define HALF_NAME(rows) [rows] = half_tile_##rows,
#define FULL_NAME(rows) [rows] = full_tile_##rows,
static matmul_function *const half_tiles[] = {EACH(HALF_NAME)};
static matmul_function *const full_tiles[] = {EACH(FULL_NAME)};
static matmul_function *const wide_tiles[] = {NULL, wide_tile_1, wide_tile_2};

/* A tile that C has only some columns of. */
static void part_of_tile(const panel *t, float *c, const float *a, size_t rows,
                         matmul_function *function) {
  float whole[MATMUL_ROWS * PANEL];
  function(t, whole, t->width, 0, a);
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < t->columns; j++) {
      const float sum = whole[i * t->width + j];
      c[i * t->c_row + j] = t->accumulate ? c[i * t->c_row + j] + sum : sum;
    }
}

/* All rows of one panel, in tiles as equal as possible: a last tile of one row would wait for its
 * own sums. */
static void matmul_panel(const panel *t, float *c, const float *a, size_t m,
                         matmul_function *const *functions) {
  const size_t count = (m + MATMUL_ROWS - 1) / MATMUL_ROWS, rows = m / count, longer = m % count;
  for (size_t i = 0; i < count; i++) {
    const size_t here = rows + (i < longer);
    if (t->columns == t->width)
      functions[here](t, c, t->c_row, t->accumulate, a);
    else
      part_of_tile(t, c, a, here, functions[here]);
    c += here * t->c_row;
    a += here * t->a_row;
  }
}

static void copy_panel(float *out, const panel *t) {
  for (size_t p = 0; p < t->depth; p++)
    for (size_t v = 0; v < t->width; v += VF) {
      const size_t n = v < t->columns ? smaller(t->columns - v, VF) : 0;
      vf_store(out + p * t->width + v, vf_load_n(t->b + p * t->b_row + v, n));
    }
}

/* Rows of B whose distance is 2^i lines (times an odd number) share SETS >> i sets. What does not fit
 * there comes from the second level, which hides behind the products unless the rows crowd it too:
 * measured on Zen 3 with 64 to 256 rows of C, rows of 64 and 128 floats run 3 to 8 % faster as they
 * are, rows of 512 and more 3 to 13 % faster copied. */
static int rows_collide(size_t b_row, size_t depth) {
  if (b_row % LINE) return 0;
  const size_t lines = b_row / LINE, power = lines & -lines;
  return depth * power > 4 * SETS * WAYS;
}

static void matmul(float *c, size_t c_row, const float *a, size_t a_row, size_t a_col,
                   const float *b, size_t b_row, size_t m, size_t n, size_t k, int accumulate) {
  _Alignas(64) float copy[DEPTH * PANEL];
  const int copies = m >= MANY_ROWS && rows_collide(b_row, smaller(k, DEPTH));
  panel t = {.c_row = c_row, .a_row = a_row, .a_col = a_col};
  for (size_t p = 0; p < k; p += DEPTH)
    for (size_t j = 0; j < n; j += t.width) {
      const int is_wide = m <= 2 && n - j >= 2 * PANEL, is_half = n - j <= PANEL / 2;
      t.b = b + p * b_row + j;
      t.b_row = b_row;
      t.depth = smaller(k - p, DEPTH);
      t.width = is_wide ? 2 * PANEL : is_half ? PANEL / 2 : PANEL;
      t.columns = smaller(n - j, t.width);
      t.accumulate = accumulate || p;
      if (copies || t.columns < t.width) {
        copy_panel(copy, &t);
        t.b = copy;
        t.b_row = t.width;
      }
      matmul_function *const *narrow = is_half ? half_tiles : full_tiles;
      matmul_panel(&t, c + j, a + p * a_col, m, is_wide ? wide_tiles : narrow);
    }
}
