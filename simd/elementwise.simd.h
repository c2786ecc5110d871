/* SPDX-License-Identifier: MIT
 * Element by element: activations, sums, scales, rotation. */

static vf sigmoid_of(vf x) {
  const vf one = vf_set(1);
  return vf_div(one, vf_add(one, vf_exp(vf_sub(vf_zero(), x))));
}

static void sigmoid(float *out, const float *x, size_t count) {
  EACH_VECTOR(i, n, count, { vf_store_n(out + i, sigmoid_of(vf_load_n(x + i, n)), n); });
}

static void swiglu(float *out, const float *gate, const float *up, size_t count) {
  const vf one = vf_set(1);
  EACH_VECTOR(i, n, count, {
    const vf g = vf_load_n(gate + i, n), below = vf_add(one, vf_exp(vf_sub(vf_zero(), g)));
    vf_store_n(out + i, vf_mul(vf_div(g, below), vf_load_n(up + i, n)), n);
  });
}

static void add(float *x, const float *y, size_t count) {
  EACH_VECTOR(i, n, count,
              { vf_store_n(x + i, vf_add(vf_load_n(x + i, n), vf_load_n(y + i, n)), n); });
}

static void scale_rows(float *x, size_t x_row, const float *factor, size_t rows, size_t dim) {
  for (size_t i = 0; i < rows; i++, x += x_row) {
    const vf by = vf_set(factor[i]);
    EACH_VECTOR(d, n, dim, { vf_store_n(x + d, vf_mul(vf_load_n(x + d, n), by), n); });
  }
}

static void rotary_head(float *low, float *high, const float *cosine, const float *sine,
                        size_t half) {
  EACH_VECTOR(d, n, half, {
    const vf a = vf_load_n(low + d, n), b = vf_load_n(high + d, n);
    const vf c = vf_load_n(cosine + d, n), s = vf_load_n(sine + d, n);
    vf_store_n(low + d, vf_fma(a, c, vf_mul(vf_sub(vf_zero(), b), s)), n);
    vf_store_n(high + d, vf_fma(b, c, vf_mul(a, s)), n);
  });
}

static void rotary(float *x, size_t x_row, const float *cosine, const float *sine, size_t rows,
                   size_t heads, size_t dim, size_t half) {
  for (size_t i = 0; i < rows; i++, x += x_row, cosine += half, sine += half)
    for (size_t h = 0; h < heads; h++)
      rotary_head(x + h * dim, x + h * dim + half, cosine, sine, half);
}
