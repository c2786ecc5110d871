/* SPDX-License-Identifier: MIT
 * Every kernel in plain loops: what the others must compute, and the whole library on a machine
 * that has nothing else. Contracts: kernels.h. */
#include "simd/kernels.h"

#include "simd/half.h"
#include "simd/kernel_facts.h"

#include <math.h>
#include <string.h>

enum {
  TILE_ROWS = 4, /* of C: 4 x 8 floats are 8 of the 16 registers of SSE2 */
  TILE_COLUMNS = 8,
  DEPTH = 64, /* rows of B in one pass: 64 x 128 floats fill the first-level cache */
  LANES = 8   /* partial sums of a long reduction */
};

/* ---- products ---- */

/* What every CPU has, or the compiler makes two of. */
typedef float four __attribute__((vector_size(16)));

static four load_four(const float *x) {
  four value;
  memcpy(&value, x, sizeof value);
  return value;
}

/* One tile of C over one block of k, summed from 0 and added once: with long sums (the linear
 * state) the error grows with the number of blocks, not of terms. Vectors are spelled out since
 * compilers find them in the loops of matmul_edge, but badly. */
static void matmul_tile(float *c, size_t c_row, const float *a, size_t a_row, size_t a_col,
                        const float *b, size_t b_row, size_t depth, int accumulate) {
  four sum[TILE_ROWS][2] = {{{0}}};
  for (size_t p = 0; p < depth; p++) {
    const four low = load_four(b + p * b_row), high = load_four(b + p * b_row + 4);
    for (size_t i = 0; i < TILE_ROWS; i++) {
      sum[i][0] += a[i * a_row + p * a_col] * low;
      sum[i][1] += a[i * a_row + p * a_col] * high;
    }
  }
  for (size_t i = 0; i < TILE_ROWS; i++, c += c_row) {
    if (accumulate) sum[i][0] += load_four(c), sum[i][1] += load_four(c + 4);
    memcpy(c, sum[i], sizeof sum[i]);
  }
}

/* The same where C ends before the tile does. */
static void matmul_edge(float *c, size_t c_row, const float *a, size_t a_row, size_t a_col,
                        const float *b, size_t b_row, size_t rows, size_t columns, size_t depth,
                        int accumulate) {
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++) {
      float sum = 0;
      for (size_t p = 0; p < depth; p++) sum += a[i * a_row + p * a_col] * b[p * b_row + j];
      c[i * c_row + j] = accumulate ? c[i * c_row + j] + sum : sum;
    }
}

static void matmul(float *c, size_t c_row, const float *a, size_t a_row, size_t a_col,
                   const float *b, size_t b_row, size_t m, size_t n, size_t k, int accumulate) {
  for (size_t p = 0; p < k; p += DEPTH)
    for (size_t j = 0; j < n; j += TILE_COLUMNS)
      for (size_t i = 0; i < m; i += TILE_ROWS) {
        float *c_tile = c + i * c_row + j;
        const float *a_tile = a + i * a_row + p * a_col, *b_tile = b + p * b_row + j;
        const size_t rows = smaller(m - i, TILE_ROWS), columns = smaller(n - j, TILE_COLUMNS);
        const size_t depth = smaller(k - p, DEPTH);
        if (rows == TILE_ROWS && columns == TILE_COLUMNS)
          matmul_tile(c_tile, c_row, a_tile, a_row, a_col, b_tile, b_row, depth, accumulate || p);
        else
          matmul_edge(c_tile, c_row, a_tile, a_row, a_col, b_tile, b_row, rows, columns, depth,
                      accumulate || p);
      }
}

static void pack_keys(float *tiles, size_t first, const float *rows, size_t row_stride, size_t n,
                      size_t dim) {
  for (size_t i = 0; i < n; i++) {
    const size_t slot = first + i;
    float *key = tiles + slot / STILL_KEY_TILE * STILL_KEY_TILE * dim + slot % STILL_KEY_TILE;
    for (size_t d = 0; d < dim; d++) key[d * STILL_KEY_TILE] = rows[i * row_stride + d];
  }
}

/* ---- attention stages ---- */

/* Turns logits into exp(scale * s - max) and returns their sum. */
static float exponentials(float *s, size_t n, float scale, float max) {
  float sum = 0;
  for (size_t j = 0; j < n; j++) sum += s[j] = expf(scale * s[j] - max);
  return sum;
}

/* NaN is skipped here and comes back in the sum. */
static float maximum(const float *x, size_t n) {
  float max = -INFINITY;
  for (size_t j = 0; j < n; j++) max = x[j] > max ? x[j] : max;
  return max;
}

static void softmax_rows(float *s, size_t s_row, size_t rows, size_t columns, const int *begin,
                         const int *end, float scale, float *max, float *sum, float *rescale) {
  for (size_t i = 0; i < rows; i++, s += s_row) {
    const size_t from = begin ? (size_t)begin[i] : 0;
    const size_t n = (size_t)end[i] > from ? (size_t)end[i] - from : 0;
    const float here = n ? scale * maximum(s + from, n) : -INFINITY;
    const float now = here > max[i] ? here : max[i];
    if (now == -INFINITY) { /* nothing seen: no -inf - -inf */
      memset(s, 0, columns * sizeof *s);
      rescale[i] = 1;
      continue;
    }
    rescale[i] = now == max[i] ? 1 : expf(max[i] - now);
    max[i] = now;
    sum[i] = sum[i] * rescale[i] + exponentials(s + from, n, scale, now);
    memset(s, 0, from * sizeof *s);
    if (from + n < columns) memset(s + from + n, 0, (columns - from - n) * sizeof *s);
  }
}

/* Spec section 2 from p = a_t and others = the window's other weights over all of them (not 1 - p,
 * which has no digits left when p is close to 1). With a_j = others * b_j the definition becomes
 *   p log((p + eps) / eps) + others log(others)
 *     + sum over j != t of a_j log1p(eps p / (a_j + eps others))
 * The last sum is at most window * eps * p, that is window * eps / (log(p / eps) - 1) of the score:
 * below 1e-6 of it up to a window of 1000, and left out. */
static float saliency_score(float p, float others) {
  const float log_others = p < 0.5f ? log1pf(-p) : logf(others);
  return p * log1pf(p * inverse_epsilon) + (others > 0 ? others * log_others : 0);
}

static void saliency_rows(float *score, const float *s, size_t s_row, size_t rows, const int *end,
                          const int *window, float scale) {
  for (size_t i = 0; i < rows; i++, s += s_row) {
    const float *logits = s + end[i] - window[i];
    const size_t before = (size_t)window[i] - 1;
    const float max = scale * maximum(logits, before + 1);
    float others = 0;
    for (size_t j = 0; j < before; j++) others += expf(scale * logits[j] - max);
    const float own = expf(scale * logits[before] - max), all = own + others;
    score[i] = saliency_score(own / all, others / all);
  }
}

static void saliency_from_weights(float *score, const float *weights, size_t row, size_t rows,
                                  const int *end, const int *window) {
  for (size_t i = 0; i < rows; i++, weights += row) {
    const float *mine = weights + end[i] - window[i];
    const size_t before = (size_t)window[i] - 1;
    float others = 0;
    for (size_t j = 0; j < before; j++) others += mine[j];
    const float all = others + mine[before];
    score[i] = all >= smallest_weights ? saliency_score(mine[before] / all, others / all) : NAN;
  }
}

/* out = max(softmax(factor * x), 1e-12) for a factor of either sign; floor 0 leaves the softmax
 * alone. */
static void softmax_of(float *out, const float *x, float factor, size_t dim, float floor) {
  float max = -INFINITY, sum = 0;
  for (size_t j = 0; j < dim; j++) max = factor * x[j] > max ? factor * x[j] : max;
  for (size_t j = 0; j < dim; j++) sum += out[j] = expf(factor * x[j] - max);
  const float inverse = 1 / sum;
  for (size_t j = 0; j < dim; j++) {
    const float share = out[j] * inverse;
    out[j] = share < floor ? floor : share; /* NaN stays */
  }
}

static float dot(const float *a, const float *b, size_t n) {
  float lane[LANES] = {0}, sum = 0;
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (size_t l = 0; l < LANES; l++) lane[l] += a[i + l] * b[i + l];
  for (; i < n; i++) sum += a[i] * b[i];
  for (size_t l = 0; l < LANES; l++) sum += lane[l];
  return sum;
}

static void row_norms(float *out, const float *x, size_t x_row, size_t rows, size_t dim) {
  for (size_t i = 0; i < rows; i++) out[i] = sqrtf(dot(x + i * x_row, x + i * x_row, dim));
}

static void feature_rows(float *out, size_t out_row, const float *y, size_t y_row,
                         const float *norm, size_t rows, size_t dim) {
  for (size_t i = 0; i < rows; i++, out += out_row, y += y_row) {
    float factor = 1;
    if (norm) {
      const float own = sqrtf(dot(y, y, dim));
      factor = norm[i] / (own > smallest_norm ? own : smallest_norm);
    }
    softmax_of(out, y, factor, dim, feature_floor);
    softmax_of(out + dim, y, -factor, dim, feature_floor);
  }
}

static void softmax_features(float *out, size_t out_row, const float *x, size_t x_row, size_t rows,
                             size_t dim) {
  for (size_t i = 0; i < rows; i++) softmax_of(out + i * out_row, x + i * x_row, 1, dim, 0);
}

static void column_sums(float *out, const float *x, size_t x_row, size_t rows, size_t dim) {
  for (size_t j = 0; j < dim; j += LANES) {
    float lane[LANES] = {0}; /* added to out once, for the same reason as in matmul_tile */
    const size_t width = smaller(dim - j, LANES);
    for (size_t i = 0; i < rows; i++)
      for (size_t l = 0; l < width; l++) lane[l] += x[i * x_row + j + l];
    for (size_t l = 0; l < width; l++) out[j + l] += lane[l];
  }
}

static void merge_rows(float *y, size_t y_row, const float *softmax_part, size_t s_row,
                       const float *linear_part, size_t l_row, const float *gate, size_t g_row,
                       const float *sum, const float *linear_sum, size_t rows, size_t dim) {
  for (size_t i = 0; i < rows; i++) {
    const float denominator = linear_part ? sum[i] + linear_sum[i] : sum[i];
    const float inverse = denominator == 0 ? 0 : 1 / denominator;
    for (size_t d = 0; d < dim; d++) {
      float value = softmax_part[i * s_row + d];
      if (linear_part) value += (gate ? gate[i * g_row + d] : 1) * linear_part[i * l_row + d];
      y[i * y_row + d] = value * inverse;
    }
  }
}

static void scale_rows(float *x, size_t x_row, const float *factor, size_t rows, size_t dim) {
  for (size_t i = 0; i < rows; i++)
    for (size_t d = 0; d < dim; d++) x[i * x_row + d] *= factor[i];
}

/* ---- the dense part of a model ---- */

static void rms_norm(float *out, const float *x, const float *weight, float eps, size_t rows,
                     size_t dim) {
  for (size_t i = 0; i < rows; i++, out += dim, x += dim) {
    const float inverse = 1 / sqrtf(dot(x, x, dim) / (float)dim + eps);
    for (size_t d = 0; d < dim; d++) out[d] = x[d] * inverse * weight[d];
  }
}

static void rotary(float *x, size_t x_row, const float *cosine, const float *sine, size_t rows,
                   size_t heads, size_t dim, size_t half) {
  for (size_t i = 0; i < rows; i++, cosine += half, sine += half)
    for (size_t h = 0; h < heads; h++) {
      float *low = x + i * x_row + h * dim, *high = low + half;
      for (size_t d = 0; d < half; d++) {
        const float a = low[d], b = high[d];
        low[d] = a * cosine[d] - b * sine[d];
        high[d] = b * cosine[d] + a * sine[d];
      }
    }
}

static void swiglu(float *out, const float *gate, const float *up, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

static void sigmoid(float *out, const float *x, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = 1 / (1 + expf(-x[i]));
}

static void add(float *x, const float *y, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] += y[i];
}

/* ---- conversions ---- */

static void f16_to_f32(float *out, const uint16_t *x, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = still_f16_to_f32(x[i]);
}

static void f32_to_f16(uint16_t *out, const float *x, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = still_f32_to_f16(x[i]);
}

static void bf16_to_f32(float *out, const uint16_t *x, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = still_bf16_to_f32(x[i]);
}

static void f32_to_bf16(uint16_t *out, const float *x, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = still_f32_to_bf16(x[i]);
}

static void q8_0_to_f32(float *out, const void *x, size_t n) {
  const unsigned char *block = x;
  for (size_t i = 0; i < n; i += SCALED_BLOCK, block += SCALED_BLOCK_BYTES) {
    uint16_t half;
    memcpy(&half, block, sizeof half);
    const float scale = still_f16_to_f32(half);
    for (size_t j = 0; j < SCALED_BLOCK; j++) out[i + j] = scale * (float)(int8_t)block[2 + j];
  }
}

/* ---- weight rows times one activation row ---- */

static void matvec_f32(float *out, const float *w, const float *x, size_t rows, size_t dim) {
  for (size_t r = 0; r < rows; r++) out[r] = dot(w + r * dim, x, dim);
}

/* The narrow types: a stretch of the row becomes floats, is used and forgotten. */
enum { STRETCH = 256 };

static void matvec_f16(float *out, const uint16_t *w, const float *x, size_t rows, size_t dim) {
  float wide[STRETCH];
  for (size_t r = 0; r < rows; r++, w += dim) {
    out[r] = 0;
    for (size_t d = 0; d < dim; d += STRETCH) {
      const size_t n = smaller(dim - d, STRETCH);
      f16_to_f32(wide, w + d, n);
      out[r] += dot(wide, x + d, n);
    }
  }
}

static void matvec_bf16(float *out, const uint16_t *w, const float *x, size_t rows, size_t dim) {
  float wide[STRETCH];
  for (size_t r = 0; r < rows; r++, w += dim) {
    out[r] = 0;
    for (size_t d = 0; d < dim; d += STRETCH) {
      const size_t n = smaller(dim - d, STRETCH);
      bf16_to_f32(wide, w + d, n);
      out[r] += dot(wide, x + d, n);
    }
  }
}

void still_kernels_portable(still_kernels *table) {
  *table = (still_kernels){
      .matmul = matmul,
      .pack_keys = pack_keys,
      .softmax_rows = softmax_rows,
      .saliency_rows = saliency_rows,
      .saliency_from_weights = saliency_from_weights,
      .feature_rows = feature_rows,
      .softmax_features = softmax_features,
      .row_norms = row_norms,
      .column_sums = column_sums,
      .merge_rows = merge_rows,
      .scale_rows = scale_rows,
      .rms_norm = rms_norm,
      .rotary = rotary,
      .swiglu = swiglu,
      .sigmoid = sigmoid,
      .add = add,
      .dot = dot,
      .matvec_f32 = matvec_f32,
      .matvec_f16 = matvec_f16,
      .matvec_bf16 = matvec_bf16,
      .f16_to_f32 = f16_to_f32,
      .f32_to_f16 = f32_to_f16,
      .bf16_to_f32 = bf16_to_f32,
      .f32_to_bf16 = f32_to_bf16,
      .q8_0_to_f32 = q8_0_to_f32,
  };
}
