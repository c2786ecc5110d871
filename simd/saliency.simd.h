/* SPDX-License-Identifier: MIT
 * Self-saliency (spec section 2) in the closed form that kernels_portable.c derives: for each row
 * two sums, then two logarithms, which are taken for VF rows at once. */

/* own, others: weights of the token itself and of the rest of its window, not normalised. */
static vf saliency_score(vf own, vf others) {
  const vf all = vf_add(own, others), p = vf_div(own, all), rest = vf_div(others, all);
  /* log(rest): of 1 - p where p is small, of the sum itself where p is close to 1; rest may be 0 */
  const vf least = vf_set(0x1p-126f), half = vf_set(0.5f);
  const vf exact = vf_log(vf_max(least, rest));
  const vf log_rest = vf_if_less(p, half, vf_log1p(vf_sub(vf_zero(), vf_min(half, p))), exact);
  const vf gain = vf_log1p(vf_mul(p, vf_set(inverse_epsilon)));
  return vf_fma(p, gain, vf_mul(rest, log_rest));
}

/* exp(scale * x - max) of a window but for its last, summed. */
static float others_of(const float *x, size_t window, float scale, float max) {
  const vf by = vf_set(scale), minus = vf_set(-max);
  vf sum = vf_zero();
  EACH_VECTOR(j, n, window - 1, {
    const vf e = vf_exp(vf_fma(vf_load_near(x + j, n, window - j), by, minus));
    sum = vf_add(sum, vf_first(e, n, vf_zero()));
  });
  return vf_sum(sum);
}

/* First all maxima of a group, then all sums: no row waits for its own maximum. */
static void saliency_rows(float *score, const float *s, size_t s_row, size_t rows, const int *end,
                          const int *window, float scale) {
  for (size_t i = 0; i < rows; i += VF) {
    const size_t group = smaller(rows - i, VF);
    float max[VF] = {0}, own[VF] = {0}, others[VF] = {0};
    for (size_t r = 0; r < group; r++) {
      const size_t size = (size_t)window[i + r];
      const float *last = s + (i + r) * s_row + end[i + r] - 1;
      max[r] = scale * row_largest(last + 1 - size, size, size);
      own[r] = *last;
    }
    for (size_t r = 0; r < group; r++) {
      const size_t size = (size_t)window[i + r];
      const float *first = s + (i + r) * s_row + end[i + r] - size;
      others[r] = others_of(first, size, scale, max[r]);
    }
    const vf mine = vf_fma(vf_load(own), vf_set(scale), vf_sub(vf_zero(), vf_load(max)));
    vf_store_n(score + i, saliency_score(vf_exp(mine), vf_load(others)), group);
  }
}

static void saliency_from_weights(float *score, const float *weights, size_t row, size_t rows,
                                  const int *end, const int *window) {
  for (size_t i = 0; i < rows; i += VF) {
    const size_t group = smaller(rows - i, VF);
    float own[VF] = {0}, others[VF] = {0};
    for (size_t r = 0; r < group; r++) {
      const size_t before = (size_t)window[i + r] - 1;
      const float *mine = weights + (i + r) * row + end[i + r] - window[i + r];
      vf sum = vf_zero();
      EACH_VECTOR(j, n, before, {
        const vf w = vf_load_near(mine + j, n, before + 1 - j);
        sum = vf_add(sum, vf_first(w, n, vf_zero()));
      });
      others[r] = vf_sum(sum);
      own[r] = mine[before];
    }
    const vf of_own = vf_load(own), of_others = vf_load(others);
    const vf result = saliency_score(of_own, of_others), least = vf_set(smallest_weights);
    vf_store_n(score + i, vf_if_less(vf_add(of_own, of_others), least, vf_set(NAN), result), group);
  }
}
