/* SPDX-License-Identifier: MIT
 * Rows of quantised weights times one row of activations (decode).
 *
 * Products are of integers: the weights as stored, the activations as int16 with one scale for each 32. With 8 bits
 * their rounding would be about 0.6 % of a typical result, six times what the contract allows; with 16 bits it is
 * 2e-5 of it, and a multiply-add of 16-bit pairs costs what the 8-bit one and its sign juggling do. Activations that
 * are not finite make every result NaN. */

enum {
  SPAN = 4096,
  SPAN_BLOCKS = SPAN / SCALED_BLOCK
}; /* activations held as integers at a time */

typedef struct integers {
  int16_t value[SPAN];
  float scale[SPAN_BLOCKS];
} integers;

static void to_integers(integers *out, const float *x, size_t count) {
  for (size_t b = 0; b * SCALED_BLOCK < count; b++) {
    const float *block = x + b * SCALED_BLOCK;
    vf most = vf_zero(), poison = vf_zero();
    for (size_t j = 0; j < SCALED_BLOCK; j += VF) {
      const vf v = vf_load(block + j);
      most = vf_max(vf_max(v, vf_sub(vf_zero(), v)), most);
      poison = vf_fma(v, vf_zero(), poison); /* NaN from infinity and NaN, else 0 */
    }
    const float largest = vf_largest(most), scale = largest / 32767;
    /* below 2^-100 the inverse would overflow: such a block is worth nothing */
    const vf inverse = vf_set(largest > 0x1p-100f ? 32767 / largest : 0);
    for (size_t j = 0; j < SCALED_BLOCK; j += VF)
      vf_store_i16(out->value + b * SCALED_BLOCK + j, vf_mul(vf_load(block + j), inverse));
    out->scale[b] = scale + vf_sum(poison);
  }
}

static inline __attribute__((always_inline)) void q8_0_rows(float *out, const unsigned char *w,
                                                            size_t row_bytes, const integers *x,
                                                            size_t count, const size_t rows) {
  vf sum[MATVEC_ROWS];
  UNROLL for (size_t r = 0; r < rows; r++) sum[r] = vf_zero();
  for (size_t b = 0; b * SCALED_BLOCK < count; b++, w += SCALED_BLOCK_BYTES) {
    const vf scale = vf_set(x->scale[b]);
    UNROLL for (size_t r = 0; r < rows; r++) {
      const unsigned char *block = w + r * row_bytes;
      uint16_t half;
      memcpy(&half, block, sizeof half);
      const vf products = vb_dot(vb_load(block + 2), x->value + b * SCALED_BLOCK);
      sum[r] = vf_fma(products, vf_mul(vf_set_f16(half), scale), sum[r]);
    }
  }
  UNROLL for (size_t r = 0; r < rows; r++) out[r] += vf_sum(sum[r]);
}

static void matvec_q8_0(float *out, const void *w, const float *x, size_t rows, size_t dim) {
  const size_t row_bytes = dim / SCALED_BLOCK * SCALED_BLOCK_BYTES;
  const unsigned char *first = w;
  integers span;
  memset(out, 0, rows * sizeof *out);
  for (size_t d = 0; d < dim; d += SPAN, first += SPAN_BLOCKS * SCALED_BLOCK_BYTES) {
    const size_t count = smaller(dim - d, SPAN);
    to_integers(&span, x + d, count);
    size_t r = 0;
    for (; r + MATVEC_ROWS <= rows; r += MATVEC_ROWS)
      q8_0_rows(out + r, first + r * row_bytes, row_bytes, &span, count, MATVEC_ROWS);
    for (; r < rows; r++) q8_0_rows(out + r, first + r * row_bytes, row_bytes, &span, count, 1);
  }
}
