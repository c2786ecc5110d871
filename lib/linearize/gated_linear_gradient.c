/* SPDX-License-Identifier: MIT
 * Token by token; backward keeps the state at the borders of spans and rebuilds one span at a time.
 */
#include "linearize/gated_linear_gradient.h"

#include "simd/kernels.h"

#include <math.h>
#include <string.h>

enum { SPAN = 64 };
static const float decay_divisor = 16; /* Liger's */

/* phi_q, phi_k, decay: (D) of the current token; borders (spans, D, D); states (SPAN + 1, D, D). */
typedef struct gated_work {
  float *phi_q, *phi_k, *decay, *dphi, *dstate, *borders, *states;
} gated_work;

static size_t spans_of(size_t tokens) {
  return (tokens + SPAN - 1) / SPAN;
}

static gated_work lay(float *work, size_t dim) {
  gated_work w;
  w.phi_q = work, w.phi_k = w.phi_q + dim, w.decay = w.phi_k + dim, w.dphi = w.decay + dim;
  w.dstate = w.dphi + dim, w.states = w.dstate + dim * dim;
  w.borders = w.states + (SPAN + 1) * dim * dim;
  return w;
}

size_t still_gated_work_floats(size_t tokens, size_t dim) {
  return 4 * dim + (SPAN + 2 + spans_of(tokens)) * dim * dim;
}

static void features(const still_gated_inputs *in, const gated_work *w, size_t t) {
  const still_kernels *kernels = still_kernels_get();
  const size_t D = in->dim;
  const float *k = in->k + t * in->k_row;
  kernels->softmax_features(w->phi_q, D, in->q + t * in->q_row, in->q_row, 1, D);
  kernels->softmax_features(w->phi_k, D, k, in->k_row, 1, D);
  for (size_t f = 0; f < D; f++) /* logsigmoid(x) = min(x, 0) - log1p(exp(-|x|)) */
    w->decay[f] = expf((fminf(k[f], 0) - log1pf(expf(-fabsf(k[f])))) / decay_divisor);
}

/* next = diag(decay) state + phi_k v^T; next may be state. */
static void advance(const still_gated_inputs *in, const gated_work *w, size_t t, float *next,
                    const float *state) {
  const size_t D = in->dim;
  const float *v = in->v + t * in->v_row;
  for (size_t f = 0; f < D; f++)
    for (size_t d = 0; d < D; d++)
      next[f * D + d] = w->decay[f] * state[f * D + d] + w->phi_k[f] * v[d];
}

void still_gated_forward(const still_gated_inputs *in, float *y, float *work) {
  const still_kernels *kernels = still_kernels_get();
  const size_t D = in->dim;
  const gated_work w = lay(work, D);
  memset(w.dstate, 0, D * D * sizeof(float));
  for (size_t t = 0; t < in->tokens; t++) {
    features(in, &w, t);
    advance(in, &w, t, w.dstate, w.dstate);
    kernels->matmul(y + t * D, D, w.phi_q, D, 1, w.dstate, D, 1, D, D, 0);
  }
}

static void store_borders(const still_gated_inputs *in, const gated_work *w) {
  const size_t square = in->dim * in->dim;
  memset(w->states, 0, square * sizeof(float));
  for (size_t t = 0; t < in->tokens; t++) {
    if (t % SPAN == 0) memcpy(w->borders + t / SPAN * square, w->states, square * sizeof(float));
    features(in, w, t);
    advance(in, w, t, w->states, w->states);
  }
}

/* out += the softmax Jacobian of phi times dphi. */
static void softmax_backward(float *out, const float *phi, const float *dphi, size_t dim) {
  const float mean = still_kernels_get()->dot(phi, dphi, dim);
  for (size_t f = 0; f < dim; f++) out[f] += phi[f] * (dphi[f] - mean);
}

/* One token, last to first: w->dstate holds the gradient of S_t but for what y_t itself wants. */
static void token_backward(const still_gated_inputs *in, const gated_work *w, size_t t,
                           const float *before, const float *dy, float *dq, float *dk, float *dv) {
  const still_kernels *kernels = still_kernels_get();
  const size_t D = in->dim;
  const float *state = before + D * D, *v = in->v + t * in->v_row, *k = in->k + t * in->k_row;
  features(in, w, t);
  kernels->matvec_f32(w->dphi, state, dy, D, D);
  softmax_backward(dq, w->phi_q, w->dphi, D);
  for (size_t f = 0; f < D; f++)
    for (size_t d = 0; d < D; d++) w->dstate[f * D + d] += w->phi_q[f] * dy[d];
  kernels->matvec_f32(w->dphi, w->dstate, v, D, D);
  softmax_backward(dk, w->phi_k, w->dphi, D);
  kernels->matmul(dv, D, w->phi_k, D, 1, w->dstate, D, 1, D, D, 1);
  for (size_t f = 0; f < D; f++) {
    const float ddecay = kernels->dot(w->dstate + f * D, before + f * D, D);
    dk[f] += ddecay * w->decay[f] / (decay_divisor * (1 + expf(k[f])));
    for (size_t d = 0; d < D; d++) w->dstate[f * D + d] *= w->decay[f];
  }
}

void still_gated_backward(const still_gated_inputs *in, const float *dy, float *dq, size_t dq_row,
                          float *dk, size_t dk_row, float *dv, size_t dv_row, float *work) {
  const size_t D = in->dim, square = D * D;
  const gated_work w = lay(work, D);
  store_borders(in, &w);
  memset(w.dstate, 0, square * sizeof(float));
  for (size_t span = spans_of(in->tokens); span-- > 0;) {
    const size_t first = span * SPAN, end = first + SPAN < in->tokens ? first + SPAN : in->tokens;
    memcpy(w.states, w.borders + span * square, square * sizeof(float));
    for (size_t t = first; t < end; t++) {
      features(in, &w, t);
      advance(in, &w, t, w.states + (t - first + 1) * square, w.states + (t - first) * square);
    }
    for (size_t t = end; t-- > first;)
      token_backward(in, &w, t, w.states + (t - first) * square, dy + t * D, dq + t * dq_row,
                     dk + t * dk_row, dv + t * dv_row);
  }
}
