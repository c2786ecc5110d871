/* SPDX-License-Identifier: MIT
 * One block of an online softmax over rows of logits, and softmax of short rows. */

/* s[0..count) becomes exp(scale * s - max), some of s[count..room) 0; returns the sum. The scale
 * enters by a fused multiply, so the only rounding before exp is that of max, which is the same for
 * all. */
static float exponentials(float *s, size_t count, size_t room, float scale, float max) {
  const vf by = vf_set(scale), minus = vf_set(-max);
  vf sum = vf_zero();
  EACH_VECTOR(j, n, count, {
    const vf x = vf_fma(vf_load_near(s + j, n, room - j), by, minus);
    const vf e = vf_first(vf_exp(x), n, vf_zero());
    vf_store_near(s + j, e, n, room - j);
    sum = vf_add(sum, e);
  });
  return vf_sum(sum);
}

static void clear(float *x, size_t count) {
  EACH_VECTOR(j, n, count, { vf_store_n(x + j, vf_zero(), n); });
}

/* Rows go by VF at a time, so that their rescale factors are one vector. */
static void softmax_group(float *s, size_t s_row, size_t rows, size_t columns, const int *begin,
                          const int *end, float scale, float *max, float *sum, float *rescale) {
  float change[VF] = {0}, factor[VF];
  size_t from[VF], count[VF];
  for (size_t i = 0; i < rows; i++) {
    from[i] = begin ? (size_t)begin[i] : 0;
    count[i] = (size_t)end[i] > from[i] ? (size_t)end[i] - from[i] : 0;
    const float here = scale * row_largest(s + i * s_row + from[i], count[i], columns - from[i]);
    if (!(here > max[i])) continue;
    change[i] = max[i] - here;
    max[i] = here;
  }
  vf_store(factor, vf_exp(vf_load(change)));
  for (size_t i = 0; i < rows; i++, s += s_row) {
    rescale[i] = factor[i];
    if (max[i] == -INFINITY) count[i] = 0; /* nothing seen: no -inf - -inf */
    sum[i] =
        sum[i] * factor[i] + exponentials(s + from[i], count[i], columns - from[i], scale, max[i]);
    clear(s, count[i] ? from[i] : 0);
    const size_t done = count[i] ? from[i] + count[i] : 0;
    clear(s + done, columns - done);
  }
}

static void softmax_rows(float *s, size_t s_row, size_t rows, size_t columns, const int *begin,
                         const int *end, float scale, float *max, float *sum, float *rescale) {
  for (size_t i = 0; i < rows; i += VF)
    softmax_group(s + i * s_row, s_row, smaller(rows - i, VF), columns, begin ? begin + i : NULL,
                  end + i, scale, max + i, sum + i, rescale + i);
}

/* out = max(softmax(factor * x), floor), where `top` is the largest factor * x. */
static void softmax_of(float *out, const float *x, float factor, float top, size_t dim,
                       float floor) {
  const vf by = vf_set(factor), minus = vf_set(-top), least = vf_set(floor);
  vf sum = vf_zero();
  EACH_VECTOR(j, n, dim, {
    const vf e = vf_first(vf_exp(vf_fma(vf_load_n(x + j, n), by, minus)), n, vf_zero());
    vf_store_n(out + j, e, n);
    sum = vf_add(sum, e);
  });
  const vf inverse = vf_set(1 / vf_sum(sum));
  EACH_VECTOR(j, n, dim, {
    vf_store_n(out + j, vf_max(least, vf_mul(vf_load_n(out + j, n), inverse)), n); /* NaN stays */
  });
}

static void softmax_features(float *out, size_t out_row, const float *x, size_t x_row, size_t rows,
                             size_t dim) {
  for (size_t i = 0; i < rows; i++, x += x_row)
    softmax_of(out + i * out_row, x, 1, row_largest(x, dim, dim), dim, 0);
}
