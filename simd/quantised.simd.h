/* SPDX-License-Identifier: MIT
 * Rows of quantised weights times one row of activations (decode), and quantised blocks to floats.
 *
 * Products are of integers: the weights as stored, the activations as int16 with one scale for
 * each 32. With 8 bits their rounding would be about 0.6 % of a typical result; with 16 bits it is
 * 2e-5 of it, and a multiply-add of 16-bit pairs costs what the 8-bit one and its sign juggling do.
 * Activations that are not finite make every result NaN. The block layouts are described in
 * lib/formats/dequantize.c, which these agree with bit by bit. */

enum {
  LARGE_BLOCK = 256,
  LARGE_PARTS = LARGE_BLOCK / SCALED_BLOCK,
  PADDED_PARTS = LARGE_PARTS > (int)VF ? LARGE_PARTS : (int)VF /* for whole vectors of scales */
};

static inline uint16_t half_bits(const uint8_t *at) {
  uint16_t bits;
  memcpy(&bits, at, sizeof bits);
  return bits;
}

/* Eight scales and minima of 6 bits from 12 bytes; lanes beyond stay 0. */
typedef struct six_bits {
  int8_t scale[PADDED_PARTS * 2], minimum[PADDED_PARTS * 2];
} six_bits;

static inline six_bits unpack_six_bits(const uint8_t *packed) {
  uint32_t a, b, c;
  memcpy(&a, packed, sizeof a);
  memcpy(&b, packed + 4, sizeof b);
  memcpy(&c, packed + 8, sizeof c);
  const uint32_t scales[] = {a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4};
  const uint32_t minima[] = {b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4};
  six_bits out = {{0}, {0}};
  memcpy(out.scale, scales, sizeof scales);
  memcpy(out.minimum, minima, sizeof minima);
  return out;
}

/* 32 values of part 0 .. 7: nibbles, and a fifth bit where `high` is not NULL. */
static inline __attribute__((always_inline)) vb k_values(const uint8_t *nibbles,
                                                         const uint8_t *high, const int part) {
  const vb pairs = vb_load(nibbles + part / 2 * SCALED_BLOCK);
  const vb low = vb_and(part % 2 ? vb_right(pairs, 4) : pairs, vb_set(15));
  if (!high) return low;
  const vb bits = vb_load(high);
  const vb fifth = part < 4 ? vb_left(bits, 4 - part) : vb_right(bits, part - 4);
  return vb_or(low, vb_and(fifth, vb_set(16)));
}

/* 32 values of part 0 .. 7: four low bits in nibbles, two high bits, less 32. */
static inline __attribute__((always_inline)) vb q6_k_values(const uint8_t *block, const int part) {
  const int half = part / 4, k = part % 4;
  const vb pairs = vb_load(block + 64 * half + 32 * (k % 2));
  const vb low = vb_and(k < 2 ? pairs : vb_right(pairs, 4), vb_set(15));
  const vb bits = vb_load(block + 128 + 32 * half);
  const vb high = k < 2 ? vb_left(bits, 4 - 2 * k) : vb_right(bits, 2 * k - 4);
  return vb_sub(vb_or(low, vb_and(high, vb_set(48))), vb_set(32));
}

/* ---- activations as integers ---- */

#ifndef VB_MOST /* where vectors want no other arrangement */
#define VB_MOST 32767
static inline void vb_arrange(int16_t *part) {
  (void)part;
}
#endif

static inline void part_to_integers(const still_integers *out, size_t part, const float *x) {
  int16_t *value = out->values + part * SCALED_BLOCK;
  vf most = vf_zero(), poison = vf_zero();
  for (size_t j = 0; j < SCALED_BLOCK; j += VF) {
    const vf v = vf_load(x + j);
    most = vf_max(vf_max(v, vf_sub(vf_zero(), v)), most);
    poison = vf_fma(v, vf_zero(), poison); /* NaN from infinity and NaN, else 0 */
  }
  const float largest = vf_largest(most);
  /* below 2^-100 the inverse would overflow: such a part is worth nothing */
  const vf inverse = vf_set(largest > 0x1p-100f ? VB_MOST / largest : 0);
  vf sum = vf_zero();
  for (size_t j = 0; j < SCALED_BLOCK; j += VF) {
    const vf whole = vf_round(vf_mul(vf_load(x + j), inverse));
    vf_store_i16(value + j, whole);
    sum = vf_add(sum, whole); /* exact: at most 32 of 15 bits */
  }
  vb_arrange(value);
  out->scales[part] = largest / VB_MOST + vf_sum(poison);
  out->sums[part] = out->scales[part] * vf_sum(sum);
}

static void to_integers(const still_integers *out, const float *x, size_t dim) {
  const size_t parts = dim / SCALED_BLOCK;
  for (size_t part = 0; part < parts; part++) part_to_integers(out, part, x + part * SCALED_BLOCK);
}

/* Scales of a large block; lanes beyond it are 0. */
static inline vf load_parts(const float *x) {
  return (int)VF > (int)LARGE_PARTS ? vf_load_n(x, LARGE_PARTS) : vf_load(x);
}

/* ---- products of one block: sum + block . x, where `part` is the block's first 32 of x ---- */

static inline vf q8_0_products(const uint8_t *block, const still_integers *x, size_t part, vf sum) {
  const vf scale = vf_mul(vf_set_f16(half_bits(block)), vf_set(x->scales[part]));
  return vf_fma(vb_dot(vb_load(block + 2), x->values + part * SCALED_BLOCK), scale, sum);
}

/* Values are scale * q + minimum: the minimum times the sum of x, a share of it in each lane. */
static inline vf nibble_products(const uint8_t *pairs, vf scale, vf minimum,
                                 const still_integers *x, size_t part, vf sum) {
  sum = vf_fma(minimum, vf_set(x->sums[part] / VF), sum);
  const vf by = vf_mul(scale, vf_set(x->scales[part]));
  return vf_fma(vb_dot_nibbles(pairs, x->values + part * SCALED_BLOCK), by, sum);
}

static inline vf q4_0_products(const uint8_t *block, const still_integers *x, size_t part, vf sum) {
  const vf scale = vf_set_f16(half_bits(block));
  return nibble_products(block + 2, scale, vf_mul(scale, vf_set(-8)), x, part, sum);
}

static inline vf q4_1_products(const uint8_t *block, const still_integers *x, size_t part, vf sum) {
  vf scale, minimum;
  vf_set_two_f16(block, &scale, &minimum);
  return nibble_products(block + 4, scale, minimum, x, part, sum);
}

static inline __attribute__((always_inline)) vf
k_products(const uint8_t *block, const uint8_t *high, const uint8_t *nibbles,
           const still_integers *x, size_t part, vf sum) {
  vf d, dmin;
  vf_set_two_f16(block, &d, &dmin);
  const six_bits six = unpack_six_bits(block + 4);
  float factor[PADDED_PARTS];
  for (size_t j = 0; j < LARGE_PARTS; j += VF) {
    const vf of_x = load_parts(x->scales + part + j),
             minima = vf_mul(dmin, vf_load_i8(six.minimum + j));
    vf_store(factor + j, vf_mul(vf_mul(d, vf_load_i8(six.scale + j)), of_x));
    sum = vf_fma(vf_sub(vf_zero(), minima), load_parts(x->sums + part + j), sum);
  }
  UNROLL for (int j = 0; j < LARGE_PARTS; j += 2) {
    const int16_t *by = x->values + (part + j) * SCALED_BLOCK;
    vf low, top;
    if (high) {
      low = vb_dot(k_values(nibbles, high, j), by);
      top = vb_dot(k_values(nibbles, high, j + 1), by + SCALED_BLOCK);
    } else {
      low = vb_dot_pairs(nibbles + j / 2 * SCALED_BLOCK, by, &top);
    }
    sum = vf_fma(top, vf_set(factor[j + 1]), vf_fma(low, vf_set(factor[j]), sum));
  }
  return sum;
}

static inline vf q4_k_products(const uint8_t *block, const still_integers *x, size_t part, vf sum) {
  return k_products(block, NULL, block + 16, x, part, sum);
}

static inline vf q5_k_products(const uint8_t *block, const still_integers *x, size_t part, vf sum) {
  return k_products(block, block + 16, block + 48, x, part, sum);
}

static inline vf q6_k_products(const uint8_t *block, const still_integers *x, size_t part, vf sum) {
  const int8_t *scales = (const int8_t *)block + 192;
  const vf d = vf_set_f16(half_bits(block + 208));
  float factor[2 * LARGE_PARTS];
  for (size_t j = 0; j < 2 * LARGE_PARTS; j += VF)
    vf_store(factor + j, vf_mul(d, vf_load_i8(scales + j)));
  UNROLL for (int j = 0; j < LARGE_PARTS; j++) {
    const float of_x = x->scales[part + j];
    sum = vf_add(sum, vb_dot_halves(q6_k_values(block, j), x->values + (part + j) * SCALED_BLOCK,
                                    factor[2 * j] * of_x, factor[2 * j + 1] * of_x));
  }
  return sum;
}

/* ---- blocks to floats: products rounded in the order of lib/formats, none fused ---- */

static inline void values_to_f32(float *out, vb values, vf scale, vf minimum) {
  int8_t q[SCALED_BLOCK];
  vb_store(q, values);
  for (size_t j = 0; j < SCALED_BLOCK; j += VF)
    vf_store(out + j, vf_add(vf_mul(scale, vf_load_i8(q + j)), minimum));
}

static inline void q8_0_block(float *out, const uint8_t *block) {
  const vf scale = vf_set_f16(half_bits(block));
  for (size_t j = 0; j < SCALED_BLOCK; j += VF)
    vf_store(out + j, vf_mul(scale, vf_load_i8((const int8_t *)block + 2 + j)));
}

static inline void q4_0_block(float *out, const uint8_t *block) {
  const vb values = vb_sub(vb_nibbles(block + 2), vb_set(8));
  values_to_f32(out, values, vf_set_f16(half_bits(block)), vf_set(-0.f));
}

static inline void q4_1_block(float *out, const uint8_t *block) {
  vf scale, minimum;
  vf_set_two_f16(block, &scale, &minimum);
  values_to_f32(out, vb_nibbles(block + 4), scale, minimum);
}

static inline void k_block(float *out, const uint8_t *block, const uint8_t *high,
                           const uint8_t *nibbles) {
  const float d = still_f16_to_f32(half_bits(block)), dmin = still_f16_to_f32(half_bits(block + 2));
  const six_bits six = unpack_six_bits(block + 4);
  UNROLL for (int j = 0; j < LARGE_PARTS; j++) {
    const vf scale = vf_set(d * (float)six.scale[j]),
             minimum = vf_set(-(dmin * (float)six.minimum[j]));
    values_to_f32(out + j * SCALED_BLOCK, k_values(nibbles, high, j), scale, minimum);
  }
}

static inline void q4_k_block(float *out, const uint8_t *block) {
  k_block(out, block, NULL, block + 16);
}

static inline void q5_k_block(float *out, const uint8_t *block) {
  k_block(out, block, block + 16, block + 48);
}

static inline void q6_k_block(float *out, const uint8_t *block) {
  const int8_t *scales = (const int8_t *)block + 192;
  const float d = still_f16_to_f32(half_bits(block + 208));
  UNROLL for (int part = 0; part < LARGE_PARTS; part++) {
    int8_t q[SCALED_BLOCK];
    vb_store(q, q6_k_values(block, part));
    for (size_t j = 0; j < SCALED_BLOCK; j += VF) {
      const vf scale = vf_set(d * (float)scales[2 * part + (j >= 16)]);
      vf_store(out + part * SCALED_BLOCK + j, vf_mul(scale, vf_load_i8(q + j)));
    }
  }
}

/* ---- rows of blocks ---- */

/* `abreast`: rows read at once, each with its own sum. */
#define QUANTISED(name, items, bytes, abreast)                                                     \
  static inline __attribute__((always_inline)) void name##_rows(                                   \
      float *out, const uint8_t *w, size_t row_bytes, const still_integers *x, size_t count,       \
      const size_t rows) {                                                                         \
    vf sum[abreast];                                                                               \
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] = vf_zero();                                   \
    for (size_t i = 0; i < count; i += (items), w += (bytes)) {                                    \
      UNROLL for (size_t r = 0; r < rows; r++) sum[r] =                                            \
          name##_products(w + r * row_bytes, x, i / SCALED_BLOCK, sum[r]);                         \
    }                                                                                              \
    UNROLL for (size_t r = 0; r < rows; r++) out[r] = vf_sum(sum[r]);                              \
  }                                                                                                \
  static void matvec_##name(float *out, const void *w, const still_integers *x, size_t rows,       \
                            size_t dim) {                                                          \
    const size_t row_bytes = dim / (items) * (bytes);                                              \
    const uint8_t *first = w;                                                                      \
    size_t r = 0;                                                                                  \
    for (; r + (abreast) <= rows; r += (abreast))                                                  \
      name##_rows(out + r, first + r * row_bytes, row_bytes, x, dim, abreast);                     \
    for (; r < rows; r++) name##_rows(out + r, first + r * row_bytes, row_bytes, x, dim, 1);       \
  }                                                                                                \
  static void name##_to_f32(float *out, const void *x, size_t n) {                                 \
    const uint8_t *block = x;                                                                      \
    for (size_t i = 0; i < n; i += (items), block += (bytes)) name##_block(out + i, block);        \
  }
QUANTISED(q8_0, SCALED_BLOCK, 34, MATVEC_ROWS)
QUANTISED(q4_0, SCALED_BLOCK, 18, MATVEC_ROWS)
QUANTISED(q4_1, SCALED_BLOCK, 20, MATVEC_ROWS)
QUANTISED(q4_k, LARGE_BLOCK, 144, 2)
QUANTISED(q5_k, LARGE_BLOCK, 176, 2)
QUANTISED(q6_k, LARGE_BLOCK, 210, 2)
#undef QUANTISED
