/* SPDX-License-Identifier: MIT
 * The one denominator of both branches, with the gate on the linear numerator (spec section 4). */

static void merge_rows(float *y, size_t y_row, const float *softmax_part, size_t s_row,
                       const float *linear_part, size_t l_row, const float *gate, size_t g_row,
                       const float *sum, const float *linear_sum, size_t rows, size_t dim) {
  for (size_t i = 0; i < rows; i++) {
    const float denominator = linear_part ? sum[i] + linear_sum[i] : sum[i];
    const vf inverse = vf_set(denominator == 0 ? 0 : 1 / denominator);
    EACH_VECTOR(d, n, dim, {
      vf value = vf_load_n(softmax_part + i * s_row + d, n);
      if (linear_part) {
        const vf linear = vf_load_n(linear_part + i * l_row + d, n);
        value = gate ? vf_fma(vf_load_n(gate + i * g_row + d, n), linear, value)
                     : vf_add(value, linear);
      }
      vf_store_n(y + i * y_row + d, vf_mul(value, inverse), n);
    });
  }
}
