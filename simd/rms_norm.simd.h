/* SPDX-License-Identifier: MIT
 * Norms and sums of rows. */

static void rms_norm(float *out, const float *x, const float *weight, float eps, size_t rows,
                     size_t dim) {
  for (size_t i = 0; i < rows; i++, out += dim, x += dim) {
    const vf inverse = vf_set(1 / sqrtf(row_dot(x, x, dim) / (float)dim + eps));
    for (size_t d = 0, n; d < dim; d += VF) {
      n = vf_lanes(dim - d);
      const vf scaled = vf_mul(vf_load_n(x + d, n), inverse);
      vf_store_n(out + d, vf_mul(scaled, vf_load_n(weight + d, n)), n);
    }
  }
}

static void row_norms(float *out, const float *x, size_t x_row, size_t rows, size_t dim) {
  for (size_t i = 0; i < rows; i++, x += x_row) out[i] = sqrtf(row_dot(x, x, dim));
}

/* Summed from 0 and added to out once, as matmul does with a block of k. */
static void column_sums(float *out, const float *x, size_t x_row, size_t rows, size_t dim) {
  for (size_t j = 0, n; j < dim; j += VF) {
    n = vf_lanes(dim - j);
    vf sum = vf_zero();
    for (size_t i = 0; i < rows; i++) sum = vf_add(sum, vf_load_n(x + i * x_row + j, n));
    vf_store_n(out + j, vf_add(vf_load_n(out + j, n), sum), n);
  }
}
