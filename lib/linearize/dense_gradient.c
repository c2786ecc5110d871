/* SPDX-License-Identifier: MIT */
#include "linearize/dense_gradient.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/threads.h"
#include "simd/kernels.h"
#include "still_config.h"

#include <math.h>
#include <string.h>

#if STILL_HAVE_OPENBLAS
#include <cblas.h>
#endif

/* ---- products ----------------------------------------------------------------------------------- */

typedef struct product {
  bool transpose_a, transpose_b;
  size_t m, n, k;
  float alpha;
  const float *a;
  size_t a_row;
  const float *b;
  size_t b_row;
  float beta; /* 0 or 1 */
  float *c;
  size_t c_row;
  const still_progress *progress; /* asked whether to go on: C is undefined after a no */
} product;

enum {
  LEAST_ROWS = 96, /* of C in a piece of a product: what packing a tile of B must serve ... */
  MOST_ROWS = 1024,
  LEAST_COLUMNS = 512,    /* of a piece that OpenBLAS computes */
  PIECES_OF_A_THREAD = 4, /* so that threads end together */
  BLOCK_DEPTH = 256,      /* 32 columns of B, 32 KiB, are packed at a time */
};

/* alpha op(B), rows p .. p+depth-1, columns j .. j+columns-1 (at most a tile): (depth, tile). */
static void pack_tile(float *tile, const product *x, size_t p, size_t j, size_t depth,
                      size_t columns) {
  if (x->transpose_b)
    still_kernels_get()->pack_keys(tile, 0, x->b + j * x->b_row + p, x->b_row, columns, depth);
  else
    for (size_t r = 0; r < depth; r++)
      memcpy(tile + r * STILL_KEY_TILE, x->b + (p + r) * x->b_row + j, columns * sizeof *tile);
  for (size_t r = 0; x->alpha != 1 && r < depth; r++)
    for (size_t i = 0; i < columns; i++) tile[r * STILL_KEY_TILE + i] *= x->alpha;
}

/* Rows i .. end-1 of C, columns first .. last-1. */
static void product_block(const product *x, size_t i, size_t end, size_t first, size_t last) {
  const still_kernels *kernels = still_kernels_get();
  const size_t a_row = x->transpose_a ? 1 : x->a_row, a_column = x->transpose_a ? x->a_row : 1;
  float tile[BLOCK_DEPTH * STILL_KEY_TILE];
  for (size_t p = 0; p < x->k; p += BLOCK_DEPTH)
    for (size_t j = first; j < last && !still_progress_stops(x->progress); j += STILL_KEY_TILE) {
      const size_t depth = still_smaller(BLOCK_DEPTH, x->k - p),
                   columns = still_smaller(STILL_KEY_TILE, last - j);
      pack_tile(tile, x, p, j, depth, columns);
      kernels->matmul(x->c + i * x->c_row + j, x->c_row, x->a + i * a_row + p * a_column, a_row,
                      a_column, tile, STILL_KEY_TILE, end - i, columns, depth, p || x->beta != 0);
    }
}

/* Pieces of all columns, or of some where the rows alone are too few for all threads. What a piece
 * is does not change a bit of C. */
static void own_product(const product *x) {
  const size_t wanted = PIECES_OF_A_THREAD * (size_t)omp_get_max_threads();
  size_t rows = (x->m + wanted - 1) / wanted;
  rows = rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
  const size_t down = (x->m + rows - 1) / rows, across = (wanted + down - 1) / down;
  const size_t columns = still_round_up((x->n + across - 1) / across, STILL_KEY_TILE);
  STILL_OMP(parallel for collapse(2) schedule(dynamic, 1))
  for (size_t i = 0; i < x->m; i += rows)
    for (size_t j = 0; j < x->n; j += columns)
      product_block(x, i, still_smaller(i + rows, x->m), j, still_smaller(j + columns, x->n));
}

#if STILL_HAVE_OPENBLAS
/* Not an OpenBLAS older than the CPU, which falls back to code for SSE3 ("Prescott"), nor beside our own products
 * with AVX-512: they reach 123 GFLOP/s where pieces of OpenBLAS 0.3.21 reach 91 (8192 x 1536 x 576, two cores of a Zen 4), and can be stopped sooner. */
static bool blas_is_faster(void) {
  const char *level = still_cpu_level();
  if (!strncmp(level, "avx512", 6) || !strcmp(level, "amx")) return false;
  return strcmp(openblas_get_corename(), "Prescott") || !strcmp(level, "portable");
}

/* How many of the count rows (or columns) of C, each with a product of `each` multiplications, take some milliseconds. */
static size_t at_once(size_t count, size_t each, size_t least) {
  const size_t some = ((size_t)1 << 28) / (each + 1);
  return still_smaller(some < least ? least : some, count);
}

static void blas_block(const product *x, size_t i, size_t rows, size_t j, size_t columns) {
  cblas_sgemm(CblasRowMajor, x->transpose_a ? CblasTrans : CblasNoTrans,
              x->transpose_b ? CblasTrans : CblasNoTrans, (blasint)rows, (blasint)columns,
              (blasint)x->k, x->alpha, x->a + i * (x->transpose_a ? 1 : x->a_row),
              (blasint)x->a_row, x->b + j * (x->transpose_b ? x->b_row : 1), (blasint)x->b_row,
              x->beta, x->c + i * x->c_row + j, (blasint)x->c_row);
}

static bool blas_product(const product *x) {
  if (!blas_is_faster()) return false;
  const size_t rows = at_once(x->m, x->n * x->k, LEAST_ROWS),
               columns = at_once(x->n, rows * x->k, LEAST_COLUMNS);
  for (size_t j = 0; j < x->n; j += columns)
    for (size_t i = 0; i < x->m && !still_progress_stops(x->progress); i += rows)
      blas_block(x, i, still_smaller(rows, x->m - i), j, still_smaller(columns, x->n - j));
  return true;
}
#else
static bool blas_product(const product *x) {
  (void)x;
  return false;
}
#endif

void still_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha,
                const float *a, size_t a_row, const float *b, size_t b_row, float beta, float *c,
                size_t c_row) {
  const product x = {transpose_a, transpose_b, m,     n,    k, alpha, a,
                     a_row,       b,           b_row, beta, c, c_row, still_progress_here()};
  if (!blas_product(&x)) own_product(&x);
}

enum {
  ROWS_AT_ONCE = 128, /* of still_product_of_rows */
  SUM_PIECES = 32,    /* partial sums of still_sum_of_products: as many threads have work */
  MOST_SUMS =
      1 << 17 /* floats of one partial sum; larger products have enough to share out themselves */
};

void still_product_of_rows(float *c, size_t c_row, const float *a, size_t a_row, const float *b,
                           size_t rows, size_t n, size_t k, float scale) {
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static))
  for (size_t first = 0; first < rows; first += ROWS_AT_ONCE) {
    const size_t count = still_smaller(rows - first, ROWS_AT_ONCE);
    float *out = c + first * c_row;
    kernels->matmul(out, c_row, a + first * a_row, a_row, 1, b, n, count, n, k, 0);
    for (size_t i = 0; scale != 1 && i < count; i++)
      for (size_t j = 0; j < n; j++) out[i * c_row + j] *= scale;
  }
}

size_t still_sum_work_floats(size_t most) {
  return SUM_PIECES * (most < MOST_SUMS ? most : MOST_SUMS);
}

void still_sum_of_products(float *c, size_t c_row, const float *a, size_t a_row, size_t m,
                           const float *b, size_t b_row, size_t n, size_t tokens, float scale,
                           float *work) {
  if (m * n > MOST_SUMS) {
    still_gemm(true, false, m, n, tokens, scale, a, a_row, b, b_row, 1, c, c_row);
    return;
  }
  const still_kernels *kernels = still_kernels_get();
  const size_t each = (tokens + SUM_PIECES - 1) / SUM_PIECES, used = (tokens + each - 1) / each;
  STILL_OMP(parallel for schedule(static))
  for (size_t p = 0; p < used; p++) {
    const size_t first = p * each, count = still_smaller(tokens - first, each);
    kernels->matmul(work + p * m * n, n, a + first * a_row, 1, a_row, b + first * b_row, b_row, m,
                    n, count, 0);
  }
  STILL_OMP(parallel for schedule(static))
  for (size_t i = 0; i < m; i++)
    for (size_t j = 0; j < n; j++) {
      float sum = 0;
      for (size_t p = 0; p < used; p++) sum += work[(p * m + i) * n + j];
      c[i * c_row + j] += scale * sum;
    }
}

enum { PIECE = 1 << 15 }; /* floats of a copy that one thread does at a time */

static size_t piece_of(size_t first, size_t count) {
  return still_smaller(count - first, PIECE);
}

void still_copy_floats(float *out, const float *in, size_t count) {
  STILL_OMP(parallel for schedule(static))
  for (size_t i = 0; i < count; i += PIECE)
    memcpy(out + i, in + i, piece_of(i, count) * sizeof *out);
}

void still_clear_floats(float *out, size_t count) {
  const still_progress *progress = still_progress_here();
  STILL_OMP(parallel for schedule(static))
  for (size_t i = 0; i < count; i += PIECE)
    if (!still_progress_stops(progress)) memset(out + i, 0, piece_of(i, count) * sizeof *out);
}

void still_rms_norm(float *out, const float *x, const float *weight, float eps, size_t rows,
                    size_t dim) {
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static))
  for (size_t i = 0; i < rows; i++)
    kernels->rms_norm(out + i * dim, x + i * dim, weight, eps, 1, dim);
}

/* With r = 1 / sqrt(mean x^2 + eps) and d = dout * weight: dx = r (d - x r^2 mean(d x)). */
void still_rms_norm_backward(float *dx, const float *dout, const float *x, const float *weight,
                             float eps, size_t rows, size_t dim) {
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static))
  for (size_t i = 0; i < rows; i++) {
    const float *xi = x + i * dim, *di = dout + i * dim;
    float *out = dx + i * dim;
    const float r = 1.0f / sqrtf(kernels->dot(xi, xi, dim) / (float)dim + eps);
    float along = 0;
    for (size_t d = 0; d < dim; d++) along += di[d] * weight[d] * xi[d];
    const float pull = along * r * r / (float)dim;
    for (size_t d = 0; d < dim; d++) out[d] += r * (di[d] * weight[d] - xi[d] * pull);
  }
}

void still_swiglu(float *out, const float *gate_up, size_t rows, size_t ff) {
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static))
  for (size_t i = 0; i < rows; i++)
    kernels->swiglu(out + i * ff, gate_up + i * 2 * ff, gate_up + i * 2 * ff + ff, ff);
}

void still_swiglu_backward(float *dgate_up, const float *dout, const float *gate_up, size_t rows,
                           size_t ff) {
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static))
  for (size_t i = 0; i < rows; i++) {
    const float *gate = gate_up + i * 2 * ff, *up = gate + ff, *d = dout + i * ff;
    float *dgate = dgate_up + i * 2 * ff, *dup = dgate + ff;
    kernels->sigmoid(dgate, gate, ff);
    for (size_t j = 0; j < ff; j++) {
      const float s = dgate[j], silu = gate[j] * s;
      dup[j] = d[j] * silu;
      dgate[j] = d[j] * up[j] * (s + silu * (1 - s));
    }
  }
}

void still_rotate(float *x, size_t x_row, size_t rows, const int32_t *at, const float *cosine,
                  const float *sine, size_t heads, size_t dim, int direction) {
  const size_t half = dim / 2;
  STILL_OMP(parallel for schedule(static))
  for (size_t i = 0; i < rows; i++) {
    const float *c = cosine + (size_t)at[i] * half, *s = sine + (size_t)at[i] * half;
    for (size_t h = 0; h < heads; h++) {
      float *low = x + i * x_row + h * dim, *high = low + half;
      for (size_t d = 0; d < half; d++) {
        const float sd = direction > 0 ? s[d] : -s[d], a = low[d], b = high[d];
        low[d] = a * c[d] - b * sd;
        high[d] = b * c[d] + a * sd;
      }
    }
  }
}

static double row_cross_entropy(const still_kernels *kernels, float *logits, int32_t target,
                                float factor, size_t vocabulary) {
  float max = -INFINITY, sum = 0, rescale;
  const float own = logits[target];
  const int end = (int)vocabulary;
  kernels->softmax_rows(logits, vocabulary, 1, vocabulary, NULL, &end, 1, &max, &sum, &rescale);
  const float scale = factor / sum;
  for (size_t j = 0; j < vocabulary; j++) logits[j] *= scale;
  logits[target] -= factor;
  return (double)factor * (log((double)sum) + (double)max - (double)own);
}

double still_cross_entropy(float *logits, const int32_t *target, const float *factor, size_t rows,
                           size_t vocabulary, double *losses) {
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static))
  for (size_t i = 0; i < rows; i++)
    losses[i] =
        row_cross_entropy(kernels, logits + i * vocabulary, target[i], factor[i], vocabulary);
  double total = 0; /* in order: the same for any number of threads */
  for (size_t i = 0; i < rows; i++) total += losses[i];
  return total;
}
