/* SPDX-License-Identifier: MIT
 * Norms and sums of rows. */

static void rms_norm(float *out, const float *x, const float *weight, float eps, size_t rows,
                     size_t dim) {
  for (size_t i = 0; i < rows; i++, out += dim, x += dim) {
    const vf inverse = vf_set(1 / sqrtf(row_dot(x, x, dim) / (float)dim + eps));
    EACH_VECTOR(d, n, dim, {
      const vf scaled = vf_mul(vf_load_n(x + d, n), inverse);
      vf_store_n(out + d, vf_mul(scaled, vf_load_n(weight + d, n)), n);
    });
  }
}

static void row_norms(float *out, const float *x, size_t x_row, size_t rows, size_t dim) {
  for (size_t i = 0; i < rows; i++, x += x_row) out[i] = sqrtf(row_dot(x, x, dim));
}

/* Summed from 0 and added to out once, as matmul does with a block of k. Several vectors abreast
 * use whole cache lines of each row. */
static inline __attribute__((always_inline)) void
sum_columns(float *out, const float *x, size_t x_row, size_t rows, const size_t vectors) {
  vf sum[4];
  UNROLL for (size_t v = 0; v < vectors; v++) sum[v] = vf_zero();
  for (size_t i = 0; i < rows; i++, x += x_row) {
    UNROLL for (size_t v = 0; v < vectors; v++) sum[v] = vf_add(sum[v], vf_load(x + v * VF));
  }
  UNROLL for (size_t v = 0; v < vectors; v++) {
    vf_store(out + v * VF, vf_add(vf_load(out + v * VF), sum[v]));
  }
}

static void column_sums(float *out, const float *x, size_t x_row, size_t rows, size_t dim) {
  size_t j = 0;
  for (; j + 4 * VF <= dim; j += 4 * VF) sum_columns(out + j, x + j, x_row, rows, 4);
  for (; j + VF <= dim; j += VF) sum_columns(out + j, x + j, x_row, rows, 1);
  if (j == dim) return;
  vf sum = vf_zero();
  for (size_t i = 0; i < rows; i++) sum = vf_add(sum, vf_load_n(x + i * x_row + j, dim - j));
  vf_store_n(out + j, vf_add(vf_load_n(out + j, dim - j), sum), dim - j);
}
