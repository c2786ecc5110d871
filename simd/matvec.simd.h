/* SPDX-License-Identifier: MIT
 * Rows of weights times one row of activations (decode): bound by memory, so several rows are read
 * at once, for as many streams as the prefetcher follows. The order of a row's sum depends on dim
 * alone. */

/* Two sums for each row, over even and odd vectors. `load` turns VF weights into floats. */
#define MATVEC(name, type, load, load_one)                                                         \
  static inline __attribute__((always_inline)) void name##_rows(                                   \
      float *out, const type *w, const float *x, size_t dim, const size_t rows) {                  \
    vf even[MATVEC_ROWS], odd[MATVEC_ROWS];                                                        \
    float tail[MATVEC_ROWS] = {0};                                                                 \
    UNROLL for (size_t r = 0; r < rows; r++) even[r] = odd[r] = vf_zero();                         \
    size_t d = 0;                                                                                  \
    for (; d + 2 * VF <= dim; d += 2 * VF) {                                                       \
      const vf first = vf_load(x + d), second = vf_load(x + d + VF);                               \
      UNROLL for (size_t r = 0; r < rows; r++) {                                                   \
        even[r] = vf_fma(load(w + r * dim + d), first, even[r]);                                   \
        odd[r] = vf_fma(load(w + r * dim + d + VF), second, odd[r]);                               \
      }                                                                                            \
    }                                                                                              \
    for (; d < dim; d++)                                                                           \
      for (size_t r = 0; r < rows; r++) tail[r] += load_one(w[r * dim + d]) * x[d];                \
    UNROLL for (size_t r = 0; r < rows; r++) out[r] = vf_sum(vf_add(even[r], odd[r])) + tail[r];   \
  }                                                                                                \
  static void name(float *out, const type *w, const float *x, size_t rows, size_t dim) {           \
    size_t r = 0;                                                                                  \
    for (; r + MATVEC_ROWS <= rows; r += MATVEC_ROWS)                                              \
      name##_rows(out + r, w + r * dim, x, dim, MATVEC_ROWS);                                      \
    for (; r < rows; r++) name##_rows(out + r, w + r * dim, x, dim, 1);                            \
  }

enum { MATVEC_ROWS = 4 };

static inline float itself(float x) {
  return x;
}

MATVEC(matvec_f32, float, vf_load, itself)
MATVEC(matvec_f16, uint16_t, vf_load_f16, still_f16_to_f32)
MATVEC(matvec_bf16, uint16_t, vf_load_bf16, still_bf16_to_f32)
#undef MATVEC
