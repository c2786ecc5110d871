/* SPDX-License-Identifier: MIT
 * Slow on purpose. Section numbers are those of the paper's method as attention.h tells it. */
#include "attention/attention_oracle.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

static const double epsilon = 1e-8; /* smooths the saliency score */
static const double tiny = 1e-12;   /* floor of norms and of features */

/* One query head: rows in double, and the arrays of one query. */
typedef struct head {
  const still_attention_options *o;
  size_t h, n, dim, features;
  double *q, *k, *v, *gate, *q_raw, *k_raw; /* (n, D) */
  double *phi_q, *phi_k;                    /* (n, F) */
  double *logits, *score, *numerator;       /* (n), (n), (D) */
  unsigned char *kept;                      /* (n) */
  double *y;                                /* (n, D) */
} head;

static double inner(const double *a, const double *b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

static void softmax(double *x, size_t n) {
  double max = -INFINITY, sum = 0;
  for (size_t i = 0; i < n; i++) max = fmax(max, x[i]);
  for (size_t i = 0; i < n; i++) sum += x[i] = exp(x[i] - max);
  for (size_t i = 0; i < n; i++) x[i] /= sum;
}

/* ---- feature maps ---- */

static void times_map(double *u, const double *x, const float *map, size_t dim) {
  for (size_t e = 0; e < dim; e++) {
    u[e] = 0;
    for (size_t d = 0; d < dim; d++) u[e] += x[d] * (double)map[d * dim + e];
  }
}

/* [softmax(u), softmax(-u)], at least tiny; u stands in the first half of out */
static void both_signs(double *out, size_t dim) {
  for (size_t e = 0; e < dim; e++) out[dim + e] = -out[e];
  softmax(out, dim);
  softmax(out + dim, dim);
  for (size_t e = 0; e < 2 * dim; e++) out[e] = fmax(out[e], tiny);
}

void still_oracle_norm_preserved(double *out, const double *x, const float *map, size_t dim) {
  times_map(out, x, map, dim);
  const double factor = sqrt(inner(x, x, dim)) / fmax(sqrt(inner(out, out, dim)), tiny);
  for (size_t e = 0; e < dim; e++) out[e] *= factor;
  both_signs(out, dim);
}

void still_oracle_hedgehog(double *out, const double *x, const float *map, size_t dim) {
  times_map(out, x, map, dim);
  both_signs(out, dim);
}

static void relu_map(double *out, const double *x, const float *map, const float *bias,
                     size_t dim) {
  times_map(out, x, map, dim);
  for (size_t e = 0; e < dim; e++) out[e] = fmax(out[e] + (bias ? (double)bias[e] : 0), 0);
}

static void features(const head *a, double *out, const double *x, const float *maps,
                     const float *biases) {
  const float *map = maps + a->h * a->dim * a->dim;
  if (a->o->kind == STILL_ATTENTION_T2R)
    relu_map(out, x, map, biases ? biases + a->h * a->dim : NULL, a->dim);
  else if (a->o->kind == STILL_ATTENTION_STILL && a->o->feature_map == STILL_FEATURE_NORM_PRESERVED)
    still_oracle_norm_preserved(out, x, map, a->dim);
  else
    still_oracle_hedgehog(out, x, map, a->dim);
}

/* ---- scores and routing ---- */

/* s_j for j = first .. t */
static void local_logits(const head *a, size_t first, size_t t) {
  for (size_t j = first; j <= t; j++)
    a->logits[j - first] =
        inner(a->q + t * a->dim, a->k + j * a->dim, a->dim) / sqrt((double)a->dim);
}

static double self_saliency(const double *s, size_t window, double *with, double *without) {
  memcpy(with, s, window * sizeof *s);
  memcpy(without, s, window * sizeof *s);
  softmax(with, window);
  softmax(without, window - 1);
  without[window - 1] = 0;
  double sum = 0;
  for (size_t j = 0; j < window; j++)
    sum += with[j] * log((with[j] + epsilon) / (without[j] + epsilon));
  return sum;
}

static double uniform(const still_attention_options *o, size_t t, int keep) {
  for (int64_t r = 0; r < keep; r++)
    if ((int64_t)t % o->chunk == (2 * r + 1) * o->chunk / (2 * (int64_t)keep)) return 1;
  return 0;
}

static double hashed(const still_attention_options *o, size_t h, size_t t) {
  const uint64_t stream = still_hash64(o->seed ^ still_hash64(h));
  return (double)(still_hash64(stream ^ t) >> 40) / (double)(1 << 24);
}

static double score_of(const head *a, size_t t, int keep, double *with, double *without) {
  const size_t chunk = (size_t)a->o->chunk, first = t + 1 > chunk ? t + 1 - chunk : 0;
  const size_t window = t + 1 - first;
  const double *k = a->k + t * a->dim;
  local_logits(a, first, t);
  switch (a->o->metric) {
  case STILL_METRIC_SALIENCY: return self_saliency(a->logits, window, with, without);
  case STILL_METRIC_DIAGONAL: softmax(a->logits, window); return a->logits[window - 1];
  case STILL_METRIC_QK: return a->logits[window - 1];
  case STILL_METRIC_KEYNORM: return sqrt(inner(k, k, a->dim));
  case STILL_METRIC_UNIFORM: return uniform(a->o, t, keep);
  case STILL_METRIC_RANDOM: break;
  }
  return hashed(a->o, a->h, t);
}

/* The schedule: lambda, and the cap on all kept tokens (-1 = none). */
static void schedule(const still_attention_options *o, int *keep, int64_t *cap) {
  const int64_t chunks = ((int64_t)o->context + o->chunk - 1) / o->chunk;
  *cap = o->budget - o->chunk;
  if (o->schedule == STILL_SCHEDULE_BUDGET) *keep = (int)((o->budget - o->chunk) / chunks);
  if (o->schedule == STILL_SCHEDULE_FIXED) *keep = o->keep;
  if (o->schedule == STILL_SCHEDULE_RATIO)
    *keep = (int)floor((double)o->keep_ratio * o->chunk + 0.5);
  if (o->schedule == STILL_SCHEDULE_RATIO || (o->schedule == STILL_SCHEDULE_FIXED && !o->budget))
    *cap = -1;
  if (*keep > o->chunk) *keep = o->chunk;
}

/* Marks the kept tokens of every whole chunk. */
static void route(unsigned char *kept, const double *score, size_t n, size_t chunk, int keep,
                  int64_t cap) {
  int64_t used = 0;
  for (size_t first = 0; first + chunk <= n; first += chunk)
    for (int r = 0; r < keep && (cap < 0 || used < cap); r++, used++) {
      size_t best = n;
      for (size_t t = first; t < first + chunk; t++)
        if (!kept[t] && (best == n || score[t] > score[best])) best = t;
      kept[best] = 1;
    }
}

/* ---- one query ---- */

static double add_softmax(const head *a, size_t t, const unsigned char *seen, double factor) {
  double max = -INFINITY, sum = 0;
  local_logits(a, 0, t);
  for (size_t j = 0; j <= t; j++)
    if (seen[j]) max = fmax(max, a->logits[j]);
  for (size_t j = 0; j <= t; j++) {
    if (!seen[j]) continue;
    const double weight = factor * exp(a->logits[j] - max);
    for (size_t d = 0; d < a->dim; d++) a->numerator[d] += weight * a->v[j * a->dim + d];
    sum += weight;
  }
  return sum;
}

static double add_linear(const head *a, size_t t, const unsigned char *seen, const double *gate) {
  double sum = 0;
  for (size_t j = 0; j <= t; j++) {
    if (!seen[j]) continue;
    const double weight =
        inner(a->phi_q + t * a->features, a->phi_k + j * a->features, a->features);
    for (size_t d = 0; d < a->dim; d++)
      a->numerator[d] += (gate ? gate[d] : 1) * weight * a->v[j * a->dim + d];
    sum += weight;
  }
  return sum;
}

/* Which tokens the query t attends to exactly (1) and through features (2). */
static unsigned char seat(const head *a, size_t t, size_t j) {
  const still_attention_options *o = a->o;
  const bool in_window = j + (size_t)o->window > t;
  const size_t chunk = (size_t)o->chunk;
  switch (o->kind) {
  case STILL_ATTENTION_FULL: return 1;
  case STILL_ATTENTION_SWA: return in_window || j < (size_t)o->sinks;
  case STILL_ATTENTION_LIGER_GLA: return in_window;
  case STILL_ATTENTION_LOLCATS: return in_window ? 1 : 2;
  case STILL_ATTENTION_HEDGEHOG:
  case STILL_ATTENTION_T2R: return 2;
  case STILL_ATTENTION_STILL: break;
  }
  if (j / chunk + 2 > t / chunk) return 1; /* chunks c-1 and c */
  return a->kept[j] ? 1 : a->features ? 2 : 0;
}

static void attend(const head *a, size_t t, double factor, unsigned char *exact,
                   unsigned char *linear) {
  for (size_t j = 0; j <= t; j++) {
    const unsigned char where = seat(a, t, j);
    exact[j] = where == 1;
    linear[j] = where == 2;
  }
  memset(a->numerator, 0, a->dim * sizeof *a->numerator);
  double sum = add_softmax(a, t, exact, factor);
  if (a->features) sum += add_linear(a, t, linear, a->gate ? a->gate + t * a->dim : NULL);
  for (size_t d = 0; d < a->dim; d++) a->y[t * a->dim + d] = sum == 0 ? 0 : a->numerator[d] / sum;
}

/* Liger's other half: y = y / 2 + softmax(q) S / 2. */
static void gated_half(const head *a, double *state) {
  const size_t dim = a->dim;
  memset(state, 0, dim * dim * sizeof *state);
  for (size_t t = 0; t < a->n; t++) {
    double *q = a->q_raw + t * dim, *k = a->k_raw + t * dim;
    for (size_t f = 0; f < dim; f++) {
      const double decay = exp(-log1p(exp(-k[f])) / 16);
      for (size_t d = 0; d < dim; d++)
        state[f * dim + d] *= isfinite(exp(-k[f])) ? decay : exp(k[f] / 16);
    }
    softmax(q, dim);
    softmax(k, dim);
    for (size_t d = 0; d < dim; d++) {
      double sum = 0;
      for (size_t f = 0; f < dim; f++) {
        state[f * dim + d] += k[f] * a->v[t * dim + d];
        sum += q[f] * state[f * dim + d];
      }
      a->y[t * dim + d] = 0.5 * a->y[t * dim + d] + 0.5 * sum;
    }
  }
}

/* ---- memory and rows ---- */

static void widen(double *out, const still_rows *rows, size_t head_index, size_t n, size_t dim) {
  for (size_t t = 0; t < n; t++)
    for (size_t d = 0; d < dim; d++)
      out[t * dim + d] =
          (double)rows->data[head_index * rows->head_stride + t * rows->token_stride + d];
}

static size_t feature_count(const still_attention_options *o, const still_attention_weights *w) {
  const size_t dim = (size_t)o->head_dim;
  if (!w || !w->feature_q) return 0;
  return o->kind == STILL_ATTENTION_T2R ? dim : 2 * dim;
}

static void load_head(head *a, size_t h, const still_attention_weights *w,
                      const still_attention_inputs *in) {
  const size_t kv = h / (size_t)(a->o->heads / a->o->kv_heads);
  a->h = h;
  widen(a->q, &in->q, h, a->n, a->dim);
  widen(a->k, &in->k, kv, a->n, a->dim);
  widen(a->v, &in->v, kv, a->n, a->dim);
  if (a->gate) widen(a->gate, &in->gate, h, a->n, a->dim);
  if (a->o->kind == STILL_ATTENTION_LIGER_GLA) {
    widen(a->q_raw, &in->q_raw, h, a->n, a->dim);
    widen(a->k_raw, &in->k_raw, kv, a->n, a->dim);
  }
  for (size_t t = 0; a->features && t < a->n; t++) {
    features(a, a->phi_q + t * a->features, a->q + t * a->dim, w->feature_q, w->bias_q);
    features(a, a->phi_k + t * a->features, a->k + t * a->dim, w->feature_k, w->bias_k);
  }
}

typedef struct oracle {
  head a;
  double *memory, *with, *without, *state, *scores;
  unsigned char *bytes, *kept, *exact, *linear;
} oracle;

static still_status create(oracle *x, const still_attention_options *o,
                           const still_attention_weights *w, size_t n, bool gated) {
  const size_t dim = (size_t)o->head_dim, heads = (size_t)o->heads, f = feature_count(o, w);
  STILL_TRY(
      STILL_ALLOC(&x->memory, n * (6 * dim + 2 * f + 4) + dim + dim * dim + heads * n, "oracle"));
  STILL_TRY(STILL_ALLOC(&x->bytes, (heads + 2) * n, "oracle"));
  double *at = x->memory;
  double **const rows[] = {&x->a.q, &x->a.k, &x->a.v, &x->a.q_raw, &x->a.k_raw, &x->a.gate};
  for (size_t i = 0; i < 6; i++, at += n * dim) *rows[i] = at;
  if (!gated) x->a.gate = NULL;
  double **const others[] = {&x->a.logits, &x->with, &x->without, &x->a.score};
  for (size_t i = 0; i < 4; i++, at += n) *others[i] = at;
  x->a.phi_q = at;
  x->a.phi_k = at += n * f;
  x->a.numerator = at += n * f;
  x->state = at += dim;
  x->scores = at += dim * dim;
  x->kept = x->bytes;
  x->exact = x->bytes + heads * n;
  x->linear = x->exact + n;
  x->a.o = o;
  x->a.n = n;
  x->a.dim = dim;
  x->a.features = f;
  return STILL_OK;
}

/* Scores of all heads, then the selection of each head or group. */
static void select_tokens(oracle *x, const still_attention_weights *w,
                          const still_attention_inputs *in) {
  const still_attention_options *o = x->a.o;
  const size_t n = x->a.n, heads = (size_t)o->heads;
  const size_t shared = o->routing == STILL_ROUTING_PER_GROUP ? heads / (size_t)o->kv_heads : 1;
  int keep = 0;
  int64_t cap = 0;
  schedule(o, &keep, &cap);
  for (size_t h = 0; h < heads; h++) {
    load_head(&x->a, h, w, in);
    for (size_t t = 0; t < n; t++)
      x->scores[h * n + t] = score_of(&x->a, t, keep, x->with, x->without);
  }
  for (size_t h = 0; h < heads; h += shared) {
    for (size_t t = 0; t < n; t++) {
      x->a.score[t] = 0;
      for (size_t i = h; i < h + shared; i++) x->a.score[t] += x->scores[i * n + t];
    }
    route(x->kept + h * n, x->a.score, n, (size_t)o->chunk, keep, cap);
    for (size_t i = h + 1; i < h + shared; i++) memcpy(x->kept + i * n, x->kept + h * n, n);
  }
}

static double factor_of(const still_attention_options *o, const still_attention_weights *w,
                        size_t h) {
  if (o->kind != STILL_ATTENTION_LOLCATS) return 1;
  return w->window_factor ? (double)w->window_factor[h] : 1 / (1 + exp(-0.1));
}

still_status still_attention_oracle(const still_attention_options *options,
                                    const still_attention_weights *weights, size_t n,
                                    const still_attention_inputs *inputs, double *y, double *scores,
                                    unsigned char *kept) {
  still_attention_options o = *options;
  if (!o.kv_heads) o.kv_heads = o.heads;
  const size_t heads = (size_t)o.heads, dim = (size_t)o.head_dim;
  const bool routed = o.kind == STILL_ATTENTION_STILL;
  oracle x = {0};
  const still_status status = create(&x, &o, weights, n, routed && inputs->gate.data);
  if (!status && routed) select_tokens(&x, weights, inputs);
  for (size_t h = 0; !status && h < heads; h++) {
    load_head(&x.a, h, weights, inputs);
    x.a.kept = x.kept + h * n;
    x.a.y = y + h * n * dim;
    for (size_t t = 0; t < n; t++) attend(&x.a, t, factor_of(&o, weights, h), x.exact, x.linear);
    if (o.kind == STILL_ATTENTION_LIGER_GLA) gated_half(&x.a, x.state);
  }
  if (!status && scores && routed) memcpy(scores, x.scores, heads * n * sizeof *scores);
  if (!status && kept && routed) memcpy(kept, x.kept, heads * n);
  still_free(x.memory);
  still_free(x.bytes);
  return status;
}
