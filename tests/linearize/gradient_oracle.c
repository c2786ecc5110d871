/* SPDX-License-Identifier: MIT */
#include "gradient_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void softmax(double *out, const double *x, int n, double sign) {
  double most = -INFINITY, sum = 0;
  for (int i = 0; i < n; i++) most = fmax(most, sign * x[i]);
  for (int i = 0; i < n; i++) sum += out[i] = exp(sign * x[i] - most);
  for (int i = 0; i < n; i++) out[i] /= sum;
}

static int feature_map(const oracle_head *h, double *phi, const double *x, const double *a,
                       const double *bias) {
  const int D = h->dim;
  double *u = calloc((size_t)D, sizeof *u), xx = 0, uu = 0;
  for (int e = 0; e < D; e++) {
    for (int d = 0; d < D; d++) u[e] += x[d] * a[d * D + e];
    xx += x[e] * x[e], uu += u[e] * u[e];
  }
  int F = 2 * D;
  if (h->kind == STILL_ATTENTION_T2R) {
    F = D;
    for (int e = 0; e < D; e++) phi[e] = fmax(u[e] + (bias ? bias[e] : 0), 0);
  } else {
    if (h->kind == STILL_ATTENTION_STILL && !h->hedgehog)
      for (int e = 0; e < D; e++) u[e] *= sqrt(xx) / fmax(sqrt(uu), 1e-12);
    softmax(phi, u, D, 1), softmax(phi + D, u, D, -1);
    for (int f = 0; f < F; f++) phi[f] = fmax(phi[f], 1e-12);
  }
  free(u);
  return F;
}

/* 1: softmax, 2: linear, 0: not seen. */
static int branch(const oracle_head *h, int t, int j) {
  const int chunk = h->chunk ? t / h->chunk : 0;
  switch (h->kind) {
  case STILL_ATTENTION_STILL: return j >= (chunk - 1) * h->chunk || h->keep[j] ? 1 : h->aq ? 2 : 0;
  case STILL_ATTENTION_SWA:
  case STILL_ATTENTION_LIGER_GLA: return j > t - h->window || j < h->sinks;
  case STILL_ATTENTION_LOLCATS: return j > t - h->window ? 1 : 2;
  case STILL_ATTENTION_HEDGEHOG:
  case STILL_ATTENTION_T2R: return 2;
  default: return 1;
  }
}

static void one_query(const oracle_head *h, int t, const double *phi_k, int F, double *y) {
  const int D = h->dim;
  double *s = calloc((size_t)t + 1, sizeof *s), *phi_q = calloc(2 * (size_t)D, sizeof *phi_q);
  double most = -INFINITY, denominator = h->kind == STILL_ATTENTION_T2R ? 1e-12 : 0;
  for (int j = 0; j <= t; j++) {
    for (int d = 0; d < D; d++) s[j] += h->q[t * D + d] * h->k[j * D + d];
    s[j] /= sqrt(D);
    if (branch(h, t, j) == 1) most = fmax(most, s[j]);
  }
  if (h->aq) feature_map(h, phi_q, h->q + t * D, h->aq, h->bq);
  memset(y, 0, (size_t)D * sizeof *y);
  for (int j = 0; j <= t; j++) {
    const int which = branch(h, t, j);
    double weight = 0;
    if (which == 1) weight = h->window_factor * exp(s[j] - most);
    for (int f = 0; which == 2 && f < F; f++) weight += phi_q[f] * phi_k[j * F + f];
    denominator += weight;
    for (int d = 0; d < D; d++) {
      const double g = which == 2 && h->gate_logit ? 1 / (1 + exp(-h->gate_logit[t * D + d])) : 1;
      y[d] += weight * g * h->v[j * D + d];
    }
  }
  for (int d = 0; d < D; d++) y[d] /= denominator;
  free(s), free(phi_q);
}

static void gated_linear(const oracle_head *h, double *y) {
  const int D = h->dim;
  double *state = calloc((size_t)(D * D), sizeof *state), *phi = calloc((size_t)D, sizeof *phi);
  for (int t = 0; t < h->tokens; t++) {
    softmax(phi, h->k_raw + t * D, D, 1);
    for (int f = 0; f < D; f++) {
      const double decay = exp(-log1p(exp(-h->k_raw[t * D + f])) / 16);
      for (int d = 0; d < D; d++)
        state[f * D + d] = decay * state[f * D + d] + phi[f] * h->v[t * D + d];
    }
    softmax(phi, h->q_raw + t * D, D, 1);
    for (int d = 0; d < D; d++) {
      double sum = 0;
      for (int f = 0; f < D; f++) sum += phi[f] * state[f * D + d];
      y[t * D + d] = 0.5 * y[t * D + d] + 0.5 * sum;
    }
  }
  free(state), free(phi);
}

void oracle_attention(const oracle_head *h, double *y) {
  const int D = h->dim;
  double *phi_k = calloc((size_t)(h->tokens * 2 * D), sizeof *phi_k);
  const int F = h->kind == STILL_ATTENTION_T2R ? D : 2 * D;
  for (int t = 0; h->ak && t < h->tokens; t++)
    feature_map(h, phi_k + t * F, h->k + t * D, h->ak, h->bk);
  for (int t = 0; t < h->tokens; t++) one_query(h, t, phi_k, F, y + t * D);
  if (h->kind == STILL_ATTENTION_LIGER_GLA) gated_linear(h, y);
  free(phi_k);
}
