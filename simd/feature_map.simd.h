/* SPDX-License-Identifier: MIT
 * Norm-preserved feature map (spec section 4) after the product with the learned matrix. */

typedef struct row_facts {
  float norm, lowest, highest;
} row_facts;

/* One pass over a row. */
static row_facts facts_of(const float *x, size_t dim) {
  const vf far = vf_set(INFINITY), near = vf_set(-INFINITY);
  vf squares = vf_zero(), low = far, high = near;
  EACH_VECTOR(j, n, dim, {
    const vf v = vf_load_n(x + j, n);
    squares = vf_fma(v, v, squares);
    low = vf_min(vf_first(v, n, far), low);
    high = vf_max(vf_first(v, n, near), high);
  });
  const float lowest = -vf_largest(vf_sub(vf_zero(), low));
  return (row_facts){sqrtf(vf_sum(squares)), lowest, vf_largest(high)};
}

static void feature_rows(float *out, size_t out_row, const float *y, size_t y_row,
                         const float *norm, size_t rows, size_t dim) {
  for (size_t i = 0; i < rows; i++, out += out_row, y += y_row) {
    const row_facts facts = facts_of(y, dim);
    const float least = facts.norm > smallest_norm ? facts.norm : smallest_norm;
    const float factor = norm ? norm[i] / least : 1;
    softmax_of(out, y, factor, factor * facts.highest, dim, feature_floor);
    softmax_of(out + dim, y, -factor, -factor * facts.lowest, dim, feature_floor);
  }
}
