/* SPDX-License-Identifier: MIT
 * out = in W^T with W as the file stores it.
 *
 * Few rows of activations (decode): W is read once, by the matrix-vector kernels. Many (prefill): pieces of W
 * are converted to floats, at most PANEL at a time, and multiplied by OpenBLAS on one thread each; the
 * parallelism is over pieces. OpenBLAS with a pool of its own sums in an order that depends on the number of
 * threads, so its pool is kept at one (and no second pool runs beside OpenMP's). */
#include "backend/cpu/backend_cpu.h"
#include "base/threads.h"
#include "simd/kernels.h"
#include "still_config.h"

#include <string.h>
#if STILL_HAVE_OPENBLAS
#include <cblas.h>
#endif

enum {
  FEW = 8,           /* rows of activations up to which the matrix-vector kernels win */
  VECTOR_ROWS = 32,  /* rows of W in a piece of those */
  PANEL_ROWS = 128,  /* of W in a piece of a product ... */
  PANEL_DEPTH = 512, /* ... and columns: 256 KiB of floats stay in the second-level cache */
  PANEL = PANEL_ROWS * PANEL_DEPTH,
  WORTH_A_TEAM = 1 << 15 /* multiply-adds */
};

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

size_t still_cpu_matmul_work(void) {
  return PANEL;
}

typedef struct matrix_product {
  float *out;
  const float *in;
  const still_weight *weight;
  size_t n;
  bool accumulate;
} matrix_product;

/* ---- few rows ----------------------------------------------------------------------------------- */

/* dots (count) = rows first .. of W times x. Types without a kernel are converted row by row. */
static void dot_rows(const still_weight *weight, size_t first, size_t count, const float *x,
                     float *dots, float *work) {
  const still_kernels *kernels = still_kernels_get();
  const char *rows = (const char *)weight->tensor.data + first * weight->row_bytes;
  const size_t columns = weight->columns;
  switch (weight->tensor.type) {
  case STILL_TENSOR_F32: kernels->matvec_f32(dots, (const void *)rows, x, count, columns); return;
  case STILL_TENSOR_F16: kernels->matvec_f16(dots, (const void *)rows, x, count, columns); return;
  case STILL_TENSOR_BF16: kernels->matvec_bf16(dots, (const void *)rows, x, count, columns); return;
  case STILL_TENSOR_Q8_0: kernels->matvec_q8_0(dots, rows, x, count, columns); return;
  default: break;
  }
  const still_type_traits *traits = still_type_traits_get(weight->tensor.type);
  for (size_t r = 0; r < count; r++) {
    dots[r] = 0;
    for (size_t p = 0; p < columns; p += PANEL) {
      const size_t depth = smaller(PANEL, columns - p);
      weight->to_f32(work,
                     rows + r * weight->row_bytes + p / traits->block_items * traits->block_bytes,
                     depth);
      dots[r] += kernels->dot(work, x + p, depth);
    }
  }
}

static void vector_piece(const matrix_product *product, size_t first, float *work) {
  const still_weight *weight = product->weight;
  const size_t count = smaller(VECTOR_ROWS, weight->rows - first);
  for (size_t i = 0; i < product->n; i++) {
    float dots[VECTOR_ROWS];
    dot_rows(weight, first, count, product->in + i * weight->columns, dots, work);
    float *out = product->out + i * weight->rows + first;
    for (size_t r = 0; r < count; r++) out[r] = product->accumulate ? out[r] + dots[r] : dots[r];
  }
}

static void multiply_few(still_backend_cpu *cpu, const matrix_product *product) {
  const size_t rows = product->weight->rows;
  const bool team = rows * product->weight->columns * product->n > WORTH_A_TEAM;
  STILL_OMP(parallel for schedule(static) num_threads(cpu->base.threads) if (team))
  for (size_t first = 0; first < rows; first += VECTOR_ROWS)
    vector_piece(product, first, cpu->work + (size_t)omp_get_thread_num() * PANEL);
  (void)team;
}

/* ---- many rows ---------------------------------------------------------------------------------- */

/* out (n x rows, row stride out_row) = or += in (n x depth, stride in_row) W^T, W (rows x depth, stride w_row). */
static void multiply_floats(float *out, size_t out_row, const float *in, size_t in_row,
                            const float *w, size_t w_row, size_t n, size_t rows, size_t depth,
                            bool accumulate) {
#if STILL_HAVE_OPENBLAS
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)n, (blasint)rows, (blasint)depth, 1,
              in, (blasint)in_row, w, (blasint)w_row, accumulate ? 1 : 0, out, (blasint)out_row);
#else
  (void)out, (void)out_row, (void)in, (void)in_row, (void)w, (void)w_row, (void)n, (void)rows,
      (void)depth, (void)accumulate;
#endif
}

/* Rows first .. of W as floats, PANEL_DEPTH columns at a time. */
static void converted_piece(const matrix_product *product, size_t first, size_t count,
                            float *panel) {
  const still_weight *weight = product->weight;
  const still_type_traits *traits = still_type_traits_get(weight->tensor.type);
  const size_t columns = weight->columns;
  for (size_t p = 0; p < columns; p += PANEL_DEPTH) {
    const size_t depth = smaller(PANEL_DEPTH, columns - p);
    const char *source = (const char *)weight->tensor.data + first * weight->row_bytes +
                         p / traits->block_items * traits->block_bytes;
    for (size_t r = 0; r < count; r++)
      weight->to_f32(panel + r * depth, source + r * weight->row_bytes, depth);
    multiply_floats(product->out + first, weight->rows, product->in + p, columns, panel, depth,
                    product->n, count, depth, product->accumulate || p);
  }
}

static void multiply_many(still_backend_cpu *cpu, const matrix_product *product) {
  const still_weight *weight = product->weight;
  still_blas_threads(1);
  STILL_OMP(parallel for schedule(static) num_threads(cpu->base.threads))
  for (size_t first = 0; first < weight->rows; first += PANEL_ROWS) {
    const size_t count = smaller(PANEL_ROWS, weight->rows - first);
    if (weight->tensor.type == STILL_TENSOR_F32)
      multiply_floats(product->out + first, weight->rows, product->in, weight->columns,
                      (const float *)weight->tensor.data + first * weight->columns, weight->columns,
                      product->n, count, weight->columns, product->accumulate);
    else
      converted_piece(product, first, count, cpu->work + (size_t)omp_get_thread_num() * PANEL);
  }
}

still_status still_cpu_matmul(still_backend *backend, still_buffer *out, const still_weight *weight,
                              const still_buffer *in, size_t n, int accumulate) {
  const matrix_product product = {out->data, in->data, weight, n, accumulate != 0};
  if (n <= FEW)
    multiply_few(still_cpu(backend), &product);
  else
    multiply_many(still_cpu(backend), &product);
  return STILL_OK;
}
