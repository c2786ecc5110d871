/* SPDX-License-Identifier: MIT
 * A model in float64, token by token, with full attention: shares nothing with the library. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct state {
  const made_model *m;
  size_t n;
  double *x;         /* (n, width) */
  double *q, *k, *v; /* (n, heads * dim) */
} state;

static double *zeros(size_t count) {
  double *values = calloc(count, sizeof *values);
  assert_non_null(values);
  return values;
}

/* out (rows) = w (rows, columns) x + bias */
static void multiply(double *out, const float *w, const float *bias, const double *x, int rows,
                     int columns) {
  for (int r = 0; r < rows; r++) {
    out[r] = bias ? bias[r] : 0;
    for (int c = 0; c < columns; c++) out[r] += (double)w[r * columns + c] * x[c];
  }
}

static void normalise(double *out, const double *x, const float *weight, int width) {
  double sum = 0;
  for (int i = 0; i < width; i++) sum += x[i] * x[i];
  const double factor = 1 / sqrt(sum / width + 1e-5);
  for (int i = 0; i < width; i++) out[i] = x[i] * factor * weight[i];
}

static void rotate(const made_model *m, double *x, int heads, size_t position) {
  const int half = m->head_dim / 2;
  for (int h = 0; h < heads; h++, x += m->head_dim)
    for (int i = 0; i < half; i++) {
      const double angle = (double)position * pow(m->theta, -2.0 * i / m->head_dim);
      const double a = x[i], b = x[i + half];
      x[i] = a * cos(angle) - b * sin(angle);
      x[i + half] = b * cos(angle) + a * sin(angle);
    }
}

static void head_norms(const made_model *m, double *x, int heads, const float *weight) {
  for (int h = 0; weight && h < heads; h++)
    normalise(x + h * m->head_dim, x + h * m->head_dim, weight, m->head_dim);
}

static void attend_head(const state *s, double *out, size_t t, int head) {
  const made_model *m = s->m;
  const int dim = m->head_dim, group = m->heads / m->kv_heads;
  const size_t query = (size_t)(m->heads * dim), key_value = (size_t)(m->kv_heads * dim);
  const double *q = s->q + t * query + head * dim;
  double *weights = zeros(t + 1), sum = 0;
  for (size_t j = 0; j <= t; j++) {
    const double *k = s->k + j * key_value + head / group * dim;
    double dot = 0;
    for (int d = 0; d < dim; d++) dot += q[d] * k[d];
    sum += weights[j] = exp(dot / sqrt(dim));
  }
  for (size_t j = 0; j <= t; j++)
    for (int d = 0; d < dim; d++)
      out[d] += weights[j] / sum * s->v[j * key_value + (size_t)(head / group * dim + d)];
  free(weights);
}

static void attention(const state *s, const made_layer *layer) {
  const made_model *m = s->m;
  const int dim = m->head_dim, query = m->heads * dim, key_value = m->kv_heads * dim;
  double *normed = zeros((size_t)m->width), *attended = zeros((size_t)query),
         *projected = zeros((size_t)m->width);
  for (size_t t = 0; t < s->n; t++) {
    double *q = s->q + t * (size_t)query, *k = s->k + t * (size_t)key_value;
    normalise(normed, s->x + t * (size_t)m->width, layer->attention_norm, m->width);
    multiply(q, layer->q, layer->q_bias, normed, query, m->width);
    multiply(k, layer->k, layer->k_bias, normed, key_value, m->width);
    multiply(s->v + t * (size_t)key_value, layer->v, layer->v_bias, normed, key_value, m->width);
    head_norms(m, q, m->heads, layer->q_norm);
    head_norms(m, k, m->kv_heads, layer->k_norm);
    rotate(m, q, m->heads, t);
    rotate(m, k, m->kv_heads, t);
  }
  for (size_t t = 0; t < s->n; t++) {
    memset(attended, 0, (size_t)query * sizeof *attended);
    for (int h = 0; h < m->heads; h++) attend_head(s, attended + h * dim, t, h);
    multiply(projected, layer->o, NULL, attended, m->width, query);
    for (int i = 0; i < m->width; i++) s->x[t * (size_t)m->width + (size_t)i] += projected[i];
  }
  free(normed);
  free(attended);
  free(projected);
}

static void feed_forward(const state *s, const made_layer *layer) {
  const made_model *m = s->m;
  double *normed = zeros((size_t)m->width), *gate = zeros((size_t)m->feed_forward),
         *up = zeros((size_t)m->feed_forward), *down = zeros((size_t)m->width);
  for (size_t t = 0; t < s->n; t++) {
    double *x = s->x + t * (size_t)m->width;
    normalise(normed, x, layer->feed_norm, m->width);
    multiply(gate, layer->gate, NULL, normed, m->feed_forward, m->width);
    multiply(up, layer->up, NULL, normed, m->feed_forward, m->width);
    for (int i = 0; i < m->feed_forward; i++) gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    multiply(down, layer->down, NULL, gate, m->width, m->feed_forward);
    for (int i = 0; i < m->width; i++) x[i] += down[i];
  }
  free(normed);
  free(gate);
  free(up);
  free(down);
}

void made_reference(const made_model *m, const still_token *ids, size_t n, float *logits) {
  const size_t width = (size_t)m->width;
  state s = {.m = m,
             .n = n,
             .x = zeros(n * width),
             .q = zeros(n * (size_t)(m->heads * m->head_dim)),
             .k = zeros(n * (size_t)(m->kv_heads * m->head_dim)),
             .v = zeros(n * (size_t)(m->kv_heads * m->head_dim))};
  for (size_t t = 0; t < n; t++)
    for (size_t i = 0; i < width; i++)
      s.x[t * width + i] = m->embedding[(size_t)ids[t] * width + i];
  for (int i = 0; i < m->layers; i++) {
    attention(&s, &m->layer[i]);
    feed_forward(&s, &m->layer[i]);
  }
  double *out = zeros((size_t)m->vocabulary);
  for (size_t t = 0; t < n; t++) {
    normalise(s.x + t * width, s.x + t * width, m->output_norm, m->width);
    multiply(out, m->tied ? m->embedding : m->output, NULL, s.x + t * width, m->vocabulary,
             m->width);
    for (int i = 0; i < m->vocabulary; i++)
      logits[t * (size_t)m->vocabulary + (size_t)i] = (float)out[i];
  }
  free(out);
  free(s.x);
  free(s.q);
  free(s.k);
  free(s.v);
}
