/* SPDX-License-Identifier: MIT
 *
 * One pass over blocks of queries forward; two passes backward: the first, ascending, rebuilds the
 * linear state and does everything on the query side, the second, descending, gathers what later
 * queries want of the state and gives it to the keys. */
#include "linearize/hybrid_gradient.h"

#include "base/memory.h"
#include "simd/kernels.h"

#include <math.h>
#include <string.h>

enum {
  QUERY_BLOCK = 64, /* queries of a block for kinds without chunks */
  PAD = 16          /* keeps row strides off powers of two, which would share cache sets */
};
static const float masked = -1e30f;
static const float t2r_floor = 1e-12f; /* relu features may all be 0 */

static bool has_softmax(const still_hybrid_head *head) {
  return head->kind != STILL_ATTENTION_HEDGEHOG && head->kind != STILL_ATTENTION_T2R;
}

static bool has_linear(const still_hybrid_head *head) {
  return head->map_q.weight != NULL && (!has_softmax(head) || head->kind == STILL_ATTENTION_STILL ||
                                        head->kind == STILL_ATTENTION_LOLCATS);
}

/* Linear tokens that only some queries of a block see: all kinds but STILL, whose borders are
 * chunks'. */
static bool has_partial(const still_hybrid_head *head) {
  return has_linear(head) && head->kind != STILL_ATTENTION_STILL;
}

static size_t rows_of_block(const still_hybrid_head *head) {
  return head->kind == STILL_ATTENTION_STILL ? head->chunk : QUERY_BLOCK;
}

/* What a block of queries sees. Softmax: kept tokens 0 .. kept-1 of the list, then near ..
 * first+rows-1. Linear: tokens join_begin .. join_end-1 (not kept) join the state now;
 * partial_begin .. partial_end-1 are seen by the queries that are at least `delay` later. */
typedef struct query_block {
  size_t first, rows;
  size_t kept, near;
  size_t join_begin, join_end;
  size_t partial_begin, partial_end, delay;
} query_block;

/* All arrays of one call, carved out of the work space. B = block rows, P = padded tokens. */
typedef struct work {
  int32_t *kept_at;                           /* (N) positions of kept tokens, ascending */
  size_t kept;                                /* how many */
  size_t padded;                              /* P */
  float *kt, *kept_kt;                        /* (D, P) keys, transposed */
  float *vt, *kept_vt;                        /* (D, P) values, transposed: backward */
  float *kept_k, *kept_v;                     /* (kept, D) */
  float *dkept_k, *dkept_v;                   /* (kept, D) */
  float *s, *ds;                              /* (B, P) */
  float *max, *sum, *rescale, *dmax;          /* (B) */
  float *linear_sum, *norm;                   /* (B) */
  int *end;                                   /* (B) */
  float *softmax_part, *linear_part;          /* (B, D) */
  float *phi, *pre, *dphi;                    /* (B, F), (B, D), (B, F) of joining keys */
  float *keys, *values, *dvalues;             /* (B, D) of joining tokens */
  float *dpre;                                /* (B, D) */
  float *phi_q, *pre_q;                       /* (N, F), (B, D) */
  float *partial, *partial_t, *dpartial;      /* (B, B), (F, B), (B, B) */
  float *state, *normalizer, *state_t;        /* (F, D), (F), (D, F) */
  float *dnumerator, *dlinear, *ddenominator; /* (B, D), (N, D), (N) */
  float *dphi_k;                              /* (N, F), partial kinds */
  float *aq_t, *ak_t;                         /* (D, D) */
} work;

typedef struct carving {
  float *base; /* NULL: only count */
  size_t used;
} carving;

static float *take(carving *at, size_t floats) {
  float *array = at->base ? at->base + at->used : NULL;
  at->used += still_round_up(floats, 16);
  return array;
}

/* Carves the arrays out of base (NULL: none). Returns the floats. */
static size_t carve(work *w, float *base, const still_hybrid_head *head, size_t tokens) {
  const size_t D = head->dim, B = rows_of_block(head);
  const size_t P = still_round_up(tokens, 16) + PAD;
  const size_t F = has_linear(head) ? still_map_features(head->map_q.kind, D) : 0;
  const size_t K = head->kind == STILL_ATTENTION_STILL ? tokens : head->sinks;
  carving at = {base, 0};
  w->padded = P;
  w->kept = 0; /* until lay_out finds them */
  w->kept_at = (int32_t *)take(&at, K);
  w->kt = take(&at, D * P), w->vt = take(&at, D * P);
  w->kept_kt = take(&at, K ? D * P : 0), w->kept_vt = take(&at, K ? D * P : 0);
  w->kept_k = take(&at, K * D), w->kept_v = take(&at, K * D);
  w->dkept_k = take(&at, K * D), w->dkept_v = take(&at, K * D);
  w->s = take(&at, B * P), w->ds = take(&at, B * P);
  w->max = take(&at, B), w->sum = take(&at, B), w->rescale = take(&at, B);
  w->dmax = take(&at, B), w->linear_sum = take(&at, B), w->norm = take(&at, B);
  w->end = (int *)take(&at, B);
  w->softmax_part = take(&at, B * D), w->linear_part = take(&at, B * D);
  w->phi = take(&at, B * F), w->pre = take(&at, B * D), w->dphi = take(&at, B * F);
  w->keys = take(&at, B * D), w->values = take(&at, B * D), w->dvalues = take(&at, B * D);
  w->dpre = take(&at, B * D);
  w->phi_q = take(&at, (tokens + B) * F), w->pre_q = take(&at, B * D);
  w->partial = take(&at, B * B), w->partial_t = take(&at, F * B), w->dpartial = take(&at, B * B);
  w->state = take(&at, F * D), w->normalizer = take(&at, F), w->state_t = take(&at, F * D);
  w->dnumerator = take(&at, B * D), w->dlinear = take(&at, tokens * D);
  w->ddenominator = take(&at, tokens);
  w->dphi_k = take(&at, has_partial(head) ? tokens * F : 0);
  w->aq_t = take(&at, D * D), w->ak_t = take(&at, D * D);
  return at.used;
}

size_t still_hybrid_work_floats(const still_hybrid_head *head, size_t tokens) {
  work w;
  return carve(&w, NULL, head, tokens);
}

/* ---- what is seen ---- */

static size_t minus(size_t a, size_t b) {
  return a > b ? a - b : 0;
}

static query_block plan_block(const still_hybrid_head *head, const work *w, size_t tokens,
                              size_t index) {
  const size_t B = rows_of_block(head);
  query_block b = {.first = index * B};
  b.rows = tokens - b.first < B ? tokens - b.first : B;
  const size_t end = b.first + b.rows;
  if (head->kind == STILL_ATTENTION_STILL) {
    b.near = minus(b.first, B);
    b.join_begin = minus(b.near, B), b.join_end = b.near;
    while (b.kept < w->kept && (size_t)w->kept_at[b.kept] < b.near) b.kept++;
    return b;
  }
  const size_t window = has_softmax(head) ? head->window : 0;
  if (head->kind != STILL_ATTENTION_FULL) b.near = minus(b.first + 1, window);
  if (head->kind == STILL_ATTENTION_SWA) b.kept = head->sinks < b.near ? head->sinks : b.near;
  b.join_end = minus(b.first, window), b.join_begin = minus(b.first, window + B);
  b.delay = window;
  b.partial_begin = b.join_end, b.partial_end = minus(end, window);
  return b;
}

static size_t block_count(const still_hybrid_head *head, size_t tokens) {
  return (tokens + rows_of_block(head) - 1) / rows_of_block(head);
}

/* Lists the kept tokens and lays keys (and values, for backward) out for the products. */
static void lay_out(const still_hybrid_head *head, const still_hybrid_inputs *in, work *w,
                    bool backward) {
  const size_t D = head->dim, P = w->padded;
  if (!has_softmax(head)) return;
  if (head->kind == STILL_ATTENTION_STILL) {
    for (size_t t = 0; in->keep && t < in->tokens; t++)
      if (in->keep[t]) w->kept_at[w->kept++] = (int32_t)t;
  } else if (head->kind == STILL_ATTENTION_SWA) {
    for (; w->kept < head->sinks && w->kept < in->tokens; w->kept++)
      w->kept_at[w->kept] = (int32_t)w->kept;
  }
  for (size_t i = 0; i < w->kept; i++) {
    memcpy(w->kept_k + i * D, in->k + (size_t)w->kept_at[i] * in->k_row, D * sizeof(float));
    memcpy(w->kept_v + i * D, in->v + (size_t)w->kept_at[i] * in->v_row, D * sizeof(float));
  }
  still_transpose(w->kt, P, in->k, in->k_row, in->tokens, D);
  if (w->kept) still_transpose(w->kept_kt, P, w->kept_k, D, w->kept, D);
  if (!backward) return;
  still_transpose(w->vt, P, in->v, in->v_row, in->tokens, D);
  if (!w->kept) return;
  still_transpose(w->kept_vt, P, w->kept_v, D, w->kept, D);
  memset(w->dkept_k, 0, w->kept * D * sizeof(float));
  memset(w->dkept_v, 0, w->kept * D * sizeof(float));
}

/* ---- softmax branch ---- */

static size_t columns_of(const query_block *b) {
  return b->kept + b->first + b->rows - b->near;
}

/* out (rows, columns) = rows of x times the block's kept and near columns of a transposed matrix.
 */
static void times_seen(const still_hybrid_head *head, const work *w, const query_block *b,
                       float *out, const float *x, size_t x_row, const float *kept_t,
                       const float *near_t) {
  const still_kernels *kernels = still_kernels_get();
  const size_t P = w->padded, near = columns_of(b) - b->kept;
  if (b->kept) kernels->matmul(out, P, x, x_row, 1, kept_t, P, b->rows, b->kept, head->dim, 0);
  kernels->matmul(out + b->kept, P, x, x_row, 1, near_t + b->near, P, b->rows, near, head->dim, 0);
}

/* out (rows, D) = weights (rows, columns) times the kept and near rows. */
static void weigh_seen(const still_hybrid_head *head, const work *w, const query_block *b,
                       float *out, size_t out_row, const float *weights, const float *kept,
                       const float *near, size_t near_row, int accumulate) {
  const still_kernels *kernels = still_kernels_get();
  const size_t P = w->padded, D = head->dim, near_count = columns_of(b) - b->kept;
  if (b->kept) {
    kernels->matmul(out, out_row, weights, P, 1, kept, D, b->rows, D, b->kept, accumulate);
    accumulate = 1;
  }
  kernels->matmul(out, out_row, weights + b->kept, P, 1, near + b->near * near_row, near_row,
                  b->rows, D, near_count, accumulate);
}

/* kept and near rows += weights^T times rows of x: the transpose of weigh_seen. */
static void spread_seen(const still_hybrid_head *head, const work *w, const query_block *b,
                        float *kept, float *near, size_t near_row, const float *weights,
                        const float *x, size_t x_row) {
  const still_kernels *kernels = still_kernels_get();
  const size_t P = w->padded, D = head->dim, near_count = columns_of(b) - b->kept;
  if (b->kept) kernels->matmul(kept, D, weights, 1, P, x, x_row, b->kept, D, b->rows, 1);
  kernels->matmul(near + b->near * near_row, near_row, weights + b->kept, 1, P, x, x_row,
                  near_count, D, b->rows, 1);
}

/* Tokens between the sinks and the window of a query are not seen. */
static void mask_gap(const still_hybrid_head *head, work *w, const query_block *b) {
  if (head->kind == STILL_ATTENTION_STILL || head->kind == STILL_ATTENTION_FULL) return;
  const size_t sinks = head->kind == STILL_ATTENTION_SWA ? head->sinks : 0;
  const size_t from = sinks > b->near ? sinks : b->near;
  for (size_t i = 0; i < b->rows; i++) {
    const size_t low = minus(b->first + i + 1, head->window);
    float *row = w->s + i * w->padded + b->kept;
    for (size_t j = from; j < low; j++) row[j - b->near] = masked;
  }
}

/* w->s = exp(logit - M), w->sum, w->max of a block. */
static void softmax_weights(const still_hybrid_head *head, const still_hybrid_inputs *in, work *w,
                            const query_block *b) {
  times_seen(head, w, b, w->s, in->q + b->first * in->q_row, in->q_row, w->kept_kt, w->kt);
  mask_gap(head, w, b);
  for (size_t i = 0; i < b->rows; i++) {
    w->end[i] = (int)(b->kept + b->first + i + 1 - b->near);
    w->max[i] = -INFINITY, w->sum[i] = 0;
  }
  still_kernels_get()->softmax_rows(w->s, w->padded, b->rows, columns_of(b), NULL, w->end,
                                    1.0f / sqrtf((float)head->dim), w->max, w->sum, w->rescale);
}

/* ---- linear branch ---- */

/* Copies the tokens that join the state into w->keys and w->values and maps them. Returns how many.
 */
static size_t map_joining(const still_hybrid_head *head, const still_hybrid_inputs *in, work *w,
                          size_t begin, size_t end) {
  const size_t D = head->dim;
  size_t rows = 0;
  for (size_t t = begin; t < end; t++) {
    if (in->keep && in->keep[t] && head->kind == STILL_ATTENTION_STILL) continue;
    memcpy(w->keys + rows * D, in->k + t * in->k_row, D * sizeof(float));
    memcpy(w->values + rows * D, in->v + t * in->v_row, D * sizeof(float));
    rows++;
  }
  if (rows) still_map_forward(&head->map_k, w->phi, w->pre, w->norm, w->keys, D, rows, D);
  return rows;
}

static void join_state(const still_hybrid_head *head, const still_hybrid_inputs *in, work *w,
                       const query_block *b) {
  const still_kernels *kernels = still_kernels_get();
  const size_t D = head->dim, F = still_map_features(head->map_k.kind, D);
  const size_t rows = map_joining(head, in, w, b->join_begin, b->join_end);
  if (!rows) return;
  kernels->matmul(w->state, D, w->phi, 1, F, w->values, D, F, D, rows, 1);
  kernels->column_sums(w->normalizer, w->phi, F, rows, F);
}

/* partial (rows, n) = phi_q . phi_k where the query sees the key, else 0; w->phi holds phi_k. */
static size_t partial_weights(const still_hybrid_head *head, const still_hybrid_inputs *in, work *w,
                              const query_block *b, const float *phi_q) {
  const size_t D = head->dim, F = still_map_features(head->map_k.kind, D);
  const size_t n = map_joining(head, in, w, b->partial_begin, b->partial_end);
  if (!n) return 0;
  still_transpose(w->partial_t, n, w->phi, F, n, F);
  still_kernels_get()->matmul(w->partial, n, phi_q, F, 1, w->partial_t, n, b->rows, n, F, 0);
  for (size_t i = 0; i < b->rows; i++) {
    const size_t seen = minus(b->first + i + 1, b->delay + b->partial_begin);
    for (size_t j = seen; j < n; j++) w->partial[i * n + j] = 0;
  }
  return n;
}

/* w->linear_part, w->linear_sum of a block, phi_q into its place of w->phi_q. Returns how many
 * partial keys there are. */
static size_t linear_branch(const still_hybrid_head *head, const still_hybrid_inputs *in, work *w,
                            const query_block *b) {
  const still_kernels *kernels = still_kernels_get();
  const size_t D = head->dim, F = still_map_features(head->map_q.kind, D);
  join_state(head, in, w, b);
  float *phi_q = w->phi_q + b->first * F;
  still_map_forward(&head->map_q, phi_q, w->pre_q, w->norm, in->q + b->first * in->q_row, in->q_row,
                    b->rows, D);
  kernels->matmul(w->linear_part, D, phi_q, F, 1, w->state, D, b->rows, D, F, 0);
  kernels->matvec_f32(w->linear_sum, phi_q, w->normalizer, b->rows, F);
  if (!has_partial(head)) return 0;
  const size_t n = partial_weights(head, in, w, b, phi_q);
  if (!n) return 0;
  kernels->matmul(w->linear_part, D, w->partial, n, 1, w->values, D, b->rows, D, n, 1);
  for (size_t i = 0; i < b->rows; i++)
    for (size_t j = 0; j < n; j++) w->linear_sum[i] += w->partial[i * n + j];
  /* the norms that backward needs are the queries' again */
  if (head->map_q.kind == STILL_MAP_NORM_PRESERVED)
    kernels->row_norms(w->norm, in->q + b->first * in->q_row, in->q_row, b->rows, D);
  return n;
}

static void clear_state(const still_hybrid_head *head, work *w) {
  const size_t F = still_map_features(head->map_q.kind, head->dim);
  memset(w->state, 0, F * head->dim * sizeof(float));
  memset(w->normalizer, 0, F * sizeof(float));
}

/* ---- forward ---- */

static void block_forward(const still_hybrid_head *head, const still_hybrid_inputs *in, work *w,
                          const query_block *b, float *y, size_t y_row, float *denominator) {
  const still_kernels *kernels = still_kernels_get();
  const size_t D = head->dim;
  const bool linear = has_linear(head);
  if (linear) linear_branch(head, in, w, b);
  if (has_softmax(head)) {
    softmax_weights(head, in, w, b);
    weigh_seen(head, w, b, w->softmax_part, D, w->s, w->kept_v, in->v, in->v_row, 0);
    if (head->kind == STILL_ATTENTION_LOLCATS)
      for (size_t i = 0; i < b->rows; i++) {
        for (size_t d = 0; d < D; d++) w->softmax_part[i * D + d] *= head->window_factor;
        w->sum[i] *= head->window_factor;
      }
  } else {
    memset(w->softmax_part, 0, b->rows * D * sizeof(float));
    for (size_t i = 0; i < b->rows; i++)
      w->sum[i] = head->kind == STILL_ATTENTION_T2R ? t2r_floor : 0;
  }
  kernels->merge_rows(y + b->first * y_row, y_row, w->softmax_part, D,
                      linear ? w->linear_part : NULL, D,
                      in->gate ? in->gate + b->first * in->gate_row : NULL, in->gate_row, w->sum,
                      linear ? w->linear_sum : NULL, b->rows, D);
  for (size_t i = 0; denominator && i < b->rows; i++)
    denominator[b->first + i] = w->sum[i] + (linear ? w->linear_sum[i] : 0);
}

void still_hybrid_forward(const still_hybrid_head *head, const still_hybrid_inputs *in, float *y,
                          size_t y_row, float *denominator, float *work_space) {
  work w;
  carve(&w, work_space, head, in->tokens);
  lay_out(head, in, &w, false);
  if (has_linear(head)) clear_state(head, &w);
  for (size_t i = 0; i < block_count(head, in->tokens); i++) {
    if (still_progress_stops(in->progress)) return;
    const query_block b = plan_block(head, &w, in->tokens, i);
    block_forward(head, in, &w, &b, y, y_row, denominator);
  }
}

/* ---- backward ---- */

/* Gradients of the numerator, denominator, gate and linear branch's numerator of a block's rows.
 * w->dmax becomes dM: a larger maximum lowers every softmax weight, and y being a quotient, that is
 * the same as raising the linear terms: dM = dlinear . linear + ddenominator * linear_sum. */
static void merge_backward(const still_hybrid_head *head, const still_hybrid_inputs *in, work *w,
                           const query_block *b, const float *y, size_t y_row,
                           const float *denominator, const float *dy, size_t dy_row,
                           const still_hybrid_gradients *out) {
  const still_kernels *kernels = still_kernels_get();
  const size_t D = head->dim;
  const bool linear = has_linear(head);
  for (size_t i = 0; i < b->rows; i++) {
    const size_t t = b->first + i;
    const float inverse = 1.0f / denominator[t];
    float *dn = w->dnumerator + i * D;
    for (size_t d = 0; d < D; d++) dn[d] = dy[t * dy_row + d] * inverse;
    w->ddenominator[t] = -kernels->dot(dn, y + t * y_row, D);
    w->dmax[i] = 0;
    if (!linear) continue;
    float *dl = w->dlinear + t * D;
    const float *l = w->linear_part + i * D, *g = in->gate ? in->gate + t * in->gate_row : NULL;
    for (size_t d = 0; d < D; d++) dl[d] = g ? dn[d] * g[d] : dn[d];
    if (g && out->gate_logit) {
      float *dg = out->gate_logit + t * out->gate_row;
      for (size_t d = 0; d < D; d++) dg[d] += dl[d] * l[d] * (1 - g[d]);
    }
    w->dmax[i] = kernels->dot(dl, l, D) + w->ddenominator[t] * w->linear_sum[i];
    if (out->window_factor) *out->window_factor -= w->dmax[i] / head->window_factor;
  }
}

/* ds = gradient of the scaled logits, from w->ds = dnumerator . v. */
static void softmax_backward_rows(const still_hybrid_head *head, work *w, const query_block *b) {
  const size_t columns = columns_of(b);
  for (size_t i = 0; i < b->rows; i++) {
    const float *p = w->s + i * w->padded;
    float *ds = w->ds + i * w->padded;
    const float dd = w->ddenominator[b->first + i], factor = head->window_factor;
    for (size_t j = 0; j < columns; j++) ds[j] = factor * p[j] * (ds[j] + dd);
    if (!has_linear(head)) continue;
    size_t best = 0; /* M is one of the logits: the largest weight's */
    for (size_t j = 1; j < (size_t)w->end[i]; j++)
      if (p[j] > p[best]) best = j;
    ds[best] += w->dmax[i];
  }
}

static void scale_block(float *x, size_t row, size_t rows, size_t columns, float factor) {
  for (size_t i = 0; i < rows; i++)
    for (size_t j = 0; j < columns; j++) x[i * row + j] *= factor;
}

static void softmax_branch_backward(const still_hybrid_head *head, const still_hybrid_inputs *in,
                                    work *w, const query_block *b,
                                    const still_hybrid_gradients *out) {
  const size_t D = head->dim, P = w->padded, columns = columns_of(b);
  softmax_weights(head, in, w, b);
  times_seen(head, w, b, w->ds, w->dnumerator, D, w->kept_vt, w->vt);
  softmax_backward_rows(head, w, b);
  if (head->window_factor != 1) scale_block(w->s, P, b->rows, columns, head->window_factor);
  spread_seen(head, w, b, w->dkept_v, out->v, out->v_row, w->s, w->dnumerator, D);
  scale_block(w->ds, P, b->rows, columns, 1.0f / sqrtf((float)D));
  weigh_seen(head, w, b, out->q + b->first * out->q_row, out->q_row, w->ds, w->kept_k, in->k,
             in->k_row, 1);
  spread_seen(head, w, b, w->dkept_k, out->k, out->k_row, w->ds, in->q + b->first * in->q_row,
              in->q_row);
}

/* The masked products of keys within reach of only some queries. w->dphi holds the queries' dphi.
 */
static void partial_backward(const still_hybrid_head *head, work *w, const query_block *b, size_t n,
                             const still_hybrid_gradients *out) {
  const still_kernels *kernels = still_kernels_get();
  const size_t D = head->dim, F = still_map_features(head->map_q.kind, D);
  const float *dlinear = w->dlinear + b->first * D;
  /* values^T into the place of the transposed features: n * D <= n * F */
  still_transpose(w->partial_t, n, w->values, D, n, D);
  kernels->matmul(w->dpartial, n, dlinear, D, 1, w->partial_t, n, b->rows, n, D, 0);
  for (size_t i = 0; i < b->rows; i++) {
    const size_t seen = minus(b->first + i + 1, b->delay + b->partial_begin);
    for (size_t j = 0; j < n; j++)
      w->dpartial[i * n + j] =
          j < seen ? w->dpartial[i * n + j] + w->ddenominator[b->first + i] : 0;
  }
  kernels->matmul(w->dphi, F, w->dpartial, n, 1, w->phi, F, b->rows, F, n, 1);
  kernels->matmul(w->dphi_k + b->partial_begin * F, F, w->dpartial, 1, n, w->phi_q + b->first * F,
                  F, n, F, b->rows, 1);
  if (out->v)
    kernels->matmul(out->v + b->partial_begin * out->v_row, out->v_row, w->partial, 1, n, dlinear,
                    D, n, D, b->rows, 1);
}

/* Query side of the linear branch; w->pre_q and w->norm are the block's queries'. */
static void linear_branch_backward(const still_hybrid_head *head, const still_hybrid_inputs *in,
                                   work *w, const query_block *b, size_t partial,
                                   const still_hybrid_gradients *out) {
  const still_kernels *kernels = still_kernels_get();
  const size_t D = head->dim, F = still_map_features(head->map_q.kind, D);
  still_transpose(w->state_t, F, w->state, D, F, D);
  for (size_t i = 0; i < b->rows; i++)
    for (size_t f = 0; f < F; f++)
      w->dphi[i * F + f] = w->ddenominator[b->first + i] * w->normalizer[f];
  kernels->matmul(w->dphi, F, w->dlinear + b->first * D, D, 1, w->state_t, F, b->rows, F, D, 1);
  if (partial) partial_backward(head, w, b, partial, out);
  still_map_backward(&head->map_q, w->aq_t, w->dphi, w->dpre, w->phi_q + b->first * F, w->pre_q,
                     w->norm, in->q + b->first * in->q_row, in->q_row, b->rows, D, out->feature_q,
                     out->bias_q, out->q ? out->q + b->first * out->q_row : NULL, out->q_row);
}

/* Key side, blocks from the last to the first: w->state_t (D, F) and w->normalizer gather the
 * gradients of the state that the block's queries see. */
static void gather_state_gradient(const still_hybrid_head *head, work *w, const query_block *b) {
  const size_t D = head->dim, F = still_map_features(head->map_q.kind, D);
  const float *phi_q = w->phi_q + b->first * F;
  still_kernels_get()->matmul(w->state_t, F, w->dlinear + b->first * D, 1, D, phi_q, F, D, F,
                              b->rows, 1);
  for (size_t i = 0; i < b->rows; i++)
    for (size_t f = 0; f < F; f++)
      w->normalizer[f] += w->ddenominator[b->first + i] * phi_q[i * F + f];
}

/* Adds gradients of the copies in w->keys and w->values back to the tokens they are copies of. */
static void add_back(const still_hybrid_head *head, const still_hybrid_inputs *in, float *out,
                     size_t out_row, const float *rows, size_t begin, size_t end) {
  for (size_t t = begin; t < end; t++) {
    if (in->keep && in->keep[t] && head->kind == STILL_ATTENTION_STILL) continue;
    for (size_t d = 0; d < head->dim; d++) out[t * out_row + d] += rows[d];
    rows += head->dim;
  }
}

/* Gives the tokens begin .. end-1, which joined the state, their gradients; those of the state are
 * in w->state_t. */
static void keys_backward(const still_hybrid_head *head, const still_hybrid_inputs *in, work *w,
                          size_t begin, size_t end, const still_hybrid_gradients *out) {
  const still_kernels *kernels = still_kernels_get();
  const size_t D = head->dim, F = still_map_features(head->map_k.kind, D);
  const size_t rows = map_joining(head, in, w, begin, end);
  if (!rows) return;
  for (size_t i = 0; i < rows; i++)
    for (size_t f = 0; f < F; f++)
      w->dphi[i * F + f] =
          w->normalizer[f] + (has_partial(head) ? w->dphi_k[(begin + i) * F + f] : 0);
  kernels->matmul(w->dphi, F, w->values, D, 1, w->state_t, F, rows, F, D, 1);
  if (out->v) {
    still_transpose(w->state, D, w->state_t, F, D, F);
    kernels->matmul(w->dvalues, D, w->phi, F, 1, w->state, D, rows, D, F, 0);
    add_back(head, in, out->v, out->v_row, w->dvalues, begin, end);
    memset(w->dvalues, 0, rows * D * sizeof(float));
  }
  still_map_backward(&head->map_k, w->ak_t, w->dphi, w->dpre, w->phi, w->pre, w->norm, w->keys, D,
                     rows, D, out->feature_k, out->bias_k, out->k ? w->dvalues : NULL, D);
  if (out->k) add_back(head, in, out->k, out->k_row, w->dvalues, begin, end);
}

static void key_pass(const still_hybrid_head *head, const still_hybrid_inputs *in, work *w,
                     const still_hybrid_gradients *out) {
  const size_t F = still_map_features(head->map_k.kind, head->dim);
  const size_t blocks = block_count(head, in->tokens);
  memset(w->state_t, 0, F * head->dim * sizeof(float));
  memset(w->normalizer, 0, F * sizeof(float));
  if (has_partial(head)) { /* tokens that no state ever held, only partial products */
    const query_block last = plan_block(head, w, in->tokens, blocks - 1);
    keys_backward(head, in, w, last.partial_begin, last.partial_end, out);
  }
  for (size_t i = blocks; i-- > 0;) {
    if (still_progress_stops(in->progress)) return;
    const query_block b = plan_block(head, w, in->tokens, i);
    gather_state_gradient(head, w, &b);
    keys_backward(head, in, w, b.join_begin, b.join_end, out);
  }
}

void still_hybrid_backward(const still_hybrid_head *head, const still_hybrid_inputs *in,
                           const float *y, size_t y_row, const float *denominator, const float *dy,
                           size_t dy_row, const still_hybrid_gradients *out, float *work_space) {
  work w;
  const size_t D = head->dim, N = in->tokens;
  carve(&w, work_space, head, N);
  const bool linear = has_linear(head), softmax = has_softmax(head) && out->q;
  if (softmax) lay_out(head, in, &w, true);
  if (linear) {
    clear_state(head, &w);
    still_transpose(w.aq_t, D, head->map_q.weight, D, D, D);
    still_transpose(w.ak_t, D, head->map_k.weight, D, D, D);
    if (has_partial(head))
      memset(w.dphi_k, 0, N * still_map_features(head->map_k.kind, D) * sizeof(float));
  }
  for (size_t i = 0; i < block_count(head, N); i++) {
    if (still_progress_stops(in->progress)) return;
    const query_block b = plan_block(head, &w, N, i);
    const size_t partial = linear ? linear_branch(head, in, &w, &b) : 0;
    merge_backward(head, in, &w, &b, y, y_row, denominator, dy, dy_row, out);
    if (softmax) softmax_branch_backward(head, in, &w, &b, out);
    if (linear) linear_branch_backward(head, in, &w, &b, partial, out);
  }
  for (size_t i = 0; softmax && i < w.kept; i++) {
    float *dk = out->k + (size_t)w.kept_at[i] * out->k_row;
    float *dv = out->v + (size_t)w.kept_at[i] * out->v_row;
    for (size_t d = 0; d < D; d++) dk[d] += w.dkept_k[i * D + d], dv[d] += w.dkept_v[i * D + d];
  }
  if (linear) key_pass(head, in, &w, out);
}
