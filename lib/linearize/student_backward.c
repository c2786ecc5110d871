/* SPDX-License-Identifier: MIT
 * The walk down: gradients of one layer from those of its output. */
#include "base/memory.h"
#include "base/threads.h"
#include "linearize/dense_gradient.h"
#include "linearize/gated_linear_gradient.h"
#include "linearize/student_parts.h"
#include "simd/kernels.h"

#include <string.h>

/* ---- the heads' own parameters: one set of sums for each sequence and head ---- */

size_t student_head_gradient_floats(const still_student *s) {
  return still_round_up(2 * s->D * s->D + 2 * s->D + 1, 16);
}

static float *head_gradient(const still_student *s, size_t sequence, size_t head) {
  return s->head_gradients + (sequence * s->H + head) * student_head_gradient_floats(s);
}

still_hybrid_gradients student_head_gradients(const still_student *s, size_t layer, size_t sequence,
                                              size_t head) {
  const layer_parameters *has = &s->layers[layer].has;
  const size_t square = s->D * s->D;
  float *at = head_gradient(s, sequence, head);
  still_hybrid_gradients out = {0};
  memset(at, 0, student_head_gradient_floats(s) * sizeof *at);
  if (student_gradient(s, has->feature_q)) out.feature_q = at, out.feature_k = at + square;
  if (student_gradient(s, has->bias_q))
    out.bias_q = at + 2 * square, out.bias_k = at + 2 * square + s->D;
  if (student_gradient(s, has->window_factor)) out.window_factor = at + 2 * square + 2 * s->D;
  return out;
}

void student_reduce_head_gradients(still_student *s, size_t layer, size_t sequences) {
  const still_kernels *kernels = still_kernels_get();
  const layer_parameters *has = &s->layers[layer].has;
  const size_t D = s->D, square = D * D;
  float *q = student_gradient(s, has->feature_q), *k = student_gradient(s, has->feature_k);
  float *bq = student_gradient(s, has->bias_q), *bk = student_gradient(s, has->bias_k);
  float *factor = student_gradient(s, has->window_factor);
  STILL_OMP(parallel for schedule(static))
  for (size_t h = 0; h < s->H; h++)
    for (size_t i = 0; i < sequences; i++) {
      const float *at = head_gradient(s, i, h);
      if (q) kernels->add(q + h * square, at, square);
      if (k) kernels->add(k + h * square, at + square, square);
      if (bq) kernels->add(bq + h * D, at + 2 * square, D);
      if (bk) kernels->add(bk + h * D, at + 2 * square + D, D);
      if (factor) factor[h] += at[2 * square + 2 * D];
    }
}

void student_gate_gradient(still_student *s, size_t layer, size_t tokens) {
  float *gradient = student_gradient(s, s->layers[layer].has.gate);
  if (!gradient) return;
  still_sum_of_products(gradient, s->W, s->dprojected + gate_column(s), s->layers[layer].projected,
                        s->H * s->D, s->normed, s->W, s->W, tokens, 1, s->sums);
}

/* ---- LoRA ---- */

typedef struct lora_part {
  still_linear linear;
  size_t column; /* of its output in the joined rows of dout */
} lora_part;

/* The rank of a pair that is trained; 0: there is none. */
static size_t trained_rank(still_student *s, size_t layer, still_linear linear) {
  const size_t rank = (size_t)s->adapter->layers[layer].lora[linear].rank;
  return rank && student_gradient(s, s->layers[layer].has.lora_a[linear]) ? rank : 0;
}

/* The pairs' A (r, in), transposed and side by side: (in, rank). */
static void join_a(still_student *s, size_t layer, const lora_part *parts, size_t count, size_t in,
                   size_t rank) {
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    const still_lora *pair = &s->adapter->layers[layer].lora[parts[i].linear];
    const size_t own = trained_rank(s, layer, parts[i].linear);
    for (size_t r = 0; r < own; r++, at++)
      for (size_t d = 0; d < in; d++) s->joined_a[d * rank + at] = pair->a[r * in + d];
  }
}

/* Pairs that share an input x (T, in; stride in): with a stack of their A, one product for all.
 *   dB += scale dout^T (x A^T),   dA += scale (dout B)^T x */
static void lora_gradients(still_student *s, size_t layer, const lora_part *parts, size_t count,
                           const float *x, size_t in, const float *dout, size_t dout_row,
                           size_t tokens) {
  const layer_parameters *has = &s->layers[layer].has;
  const still_lora *pairs = s->adapter->layers[layer].lora;
  size_t rank = 0;
  for (size_t i = 0; i < count; i++) rank += trained_rank(s, layer, parts[i].linear);
  if (!rank) return;
  join_a(s, layer, parts, count, in, rank);
  still_product_of_rows(s->through_a, rank, x, in, s->joined_a, tokens, rank, in, 1);
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    const still_linear linear = parts[i].linear;
    const still_lora *pair = &pairs[linear];
    const size_t r = trained_rank(s, layer, linear);
    if (!r) continue;
    const size_t out = s->parameters[has->lora_b[linear]].count / r;
    still_sum_of_products(student_gradient(s, has->lora_b[linear]), r, dout + parts[i].column,
                          dout_row, out, s->through_a + at, rank, r, tokens, pair->scale, s->sums);
    still_product_of_rows(s->dthrough_a + at, rank, dout + parts[i].column, dout_row, pair->b,
                          tokens, r, out, pair->scale);
    at += r;
  }
  still_clear_floats(s->djoined_a, rank * in);
  still_sum_of_products(s->djoined_a, in, s->dthrough_a, rank, rank, x, in, in, tokens, 1, s->sums);
  at = 0;
  for (size_t i = 0; i < count; i++) {
    const size_t r = trained_rank(s, layer, parts[i].linear);
    if (!r) continue;
    still_kernels_get()->add(student_gradient(s, has->lora_a[parts[i].linear]),
                             s->djoined_a + at * in, r * in);
    at += r;
  }
}

/* ---- attention ---- */

/* The gated half of LIGER_GLA: dy is that of the whole, dq and dk before rotation are rotated
 * forward so that the common rotation back gives them. Returns with part (tokens, D) = y of the
 * window half. */
static void gated_half_backward(const still_student *s, const still_hybrid_inputs *in,
                                const layer_trace *trace, size_t first, size_t head, const float *y,
                                const float *dy, size_t row, float *part, float *half_dy,
                                float *raw_dq, float *raw_dk, float *dv, size_t dkv_row,
                                float *work) {
  const size_t qk = (s->H + s->G) * s->D, D = s->D;
  const float *raw = trace->raw + first * qk;
  const still_gated_inputs gated = {
      in->tokens, D,  raw + head * D, raw + k_column(s) + head / (s->H / s->G) * D, in->v,
      qk,         qk, in->v_row};
  still_gated_forward(&gated, part, work);
  for (size_t t = 0; t < in->tokens; t++)
    for (size_t d = 0; d < D; d++) {
      part[t * D + d] = 2 * y[t * row + d] - part[t * D + d];
      half_dy[t * D + d] = 0.5f * dy[t * row + d];
    }
  still_gated_backward(&gated, half_dy, raw_dq, D, raw_dk, D, dv, dkv_row, work);
}

/* Undone by the rotation back, whose scale (YaRN) is taken out twice: once each way. */
static void rotate_rows_of_head(const still_student *s, float *x, size_t tokens) {
  const float scale = 1 / (s->base->rope_scale * s->base->rope_scale);
  still_kernels_get()->rotary(x, s->D, s->cosine, s->sine, tokens, 1, s->D, s->D / 2);
  for (size_t i = 0; scale != 1 && i < tokens * s->D; i++) x[i] *= scale;
}

static void add_strided(float *out, size_t out_row, const float *x, size_t rows, size_t dim) {
  for (size_t i = 0; i < rows; i++)
    for (size_t d = 0; d < dim; d++) out[i * out_row + d] += x[i * dim + d];
}

/* One head of a LIGER_GLA layer. work: 4 rows of D a token, then the operators'. */
static void liger_head_backward(const still_student *s, const still_hybrid_head *head,
                                const still_hybrid_inputs *in, const layer_trace *trace,
                                size_t first, size_t h, const float *y, const float *dy, size_t row,
                                const float *denominator, const still_hybrid_gradients *out,
                                float *work) {
  const size_t N = in->tokens, D = s->D;
  float *part = work, *half_dy = part + N * D, *dq = half_dy + N * D, *dk = dq + N * D;
  float *rest = dk + N * D;
  memset(dq, 0, 2 * N * D * sizeof(float));
  gated_half_backward(s, in, trace, first, h, y, dy, row, part, half_dy, dq, dk, out->v, out->v_row,
                      rest);
  rotate_rows_of_head(s, dq, N), rotate_rows_of_head(s, dk, N);
  add_strided(out->q, out->q_row, dq, N, D), add_strided(out->k, out->k_row, dk, N, D);
  still_hybrid_backward(head, in, part, D, denominator, half_dy, D, out, rest);
}

static void head_backward(still_student *s, const still_batch *batch, size_t layer,
                          const layer_trace *trace, size_t sequence, size_t h) {
  const size_t first = batch->offsets[sequence], HD = s->H * s->D, R = s->layers[layer].projected;
  const still_hybrid_head head = student_head(s, batch, layer, sequence, h);
  const still_hybrid_inputs in = student_inputs(s, batch, layer, trace, sequence, h);
  still_hybrid_gradients out = student_head_gradients(s, layer, sequence, h);
  float *work = student_work(s);
  out.q = s->dprojected + first * R + h * s->D, out.q_row = R;
  out.k = s->dkv + first * 2 * HD + h * s->D, out.k_row = 2 * HD;
  out.v = out.k + HD, out.v_row = 2 * HD;
  if (in.gate)
    out.gate_logit = s->dprojected + first * R + gate_column(s) + h * s->D, out.gate_row = R;
  const float *y = trace->y + first * HD + h * s->D, *dy = s->dy + first * HD + h * s->D;
  const float *denominator = trace->denominator + h * s->options.most + first;
  if (student_kind(s, layer) == STILL_ATTENTION_LIGER_GLA)
    liger_head_backward(s, &head, &in, trace, first, h, y, dy, HD, denominator, &out, work);
  else
    still_hybrid_backward(&head, &in, y, HD, denominator, dy, HD, &out, work);
}

/* k and v of a group are shared by its heads: their gradients are summed in order. */
static void sum_groups(still_student *s, size_t layer, size_t tokens) {
  const size_t HD = s->H * s->D, R = s->layers[layer].projected, share = s->H / s->G;
  STILL_OMP(parallel for schedule(static))
  for (size_t t = 0; t < tokens; t++)
    for (size_t part = 0; part < 2; part++)
      for (size_t h = 0; h < s->H; h++) {
        float *out = s->dprojected + t * R + k_column(s) + (part * s->G + h / share) * s->D;
        const float *from = s->dkv + t * 2 * HD + part * HD + h * s->D;
        for (size_t d = 0; d < s->D; d++) out[d] += from[d];
      }
}

static void attention_backward(still_student *s, const still_batch *batch, size_t layer,
                               const layer_trace *trace) {
  const size_t items = batch->sequences * s->H, T = batch->tokens;
  const size_t R = s->layers[layer].projected;
  still_clear_floats(s->dprojected, T * R);
  still_clear_floats(s->dkv, T * 2 * s->H * s->D);
  STILL_OMP(parallel for schedule(dynamic, 1) num_threads(s->options.threads))
  for (size_t i = 0; i < items; i++) head_backward(s, batch, layer, trace, i / s->H, i % s->H);
  student_reduce_head_gradients(s, layer, batch->sequences);
  sum_groups(s, layer, T);
  still_rotate(s->dprojected, R, T, s->at, s->cosine, s->sine, s->H + s->G, s->D, -1);
}

/* ---- the layer ---- */

static void feed_forward_backward(still_student *s, size_t index, const layer_trace *trace,
                                  size_t T) {
  const student_layer *layer = &s->layers[index];
  still_gemm(false, false, T, s->FF, s->W, 1, s->dx, s->W, layer->down, s->FF, 0, s->swiglu, s->FF);
  still_swiglu_backward(s->dgate_up, s->swiglu, trace->gate_up, T, s->FF);
  still_gemm(false, false, T, s->W, 2 * s->FF, 1, s->dgate_up, 2 * s->FF, layer->gate_up, s->W, 0,
             s->dnormed, s->W);
  still_rms_norm_backward(s->dx, s->dnormed, trace->middle, layer->feed_norm,
                          s->base->config.norm_eps, T, s->W);
}

void student_layer_backward(still_student *s, const still_batch *batch, size_t index,
                            layer_trace *trace) {
  static const lora_part output_part = {STILL_LINEAR_O, 0};
  const student_layer *layer = &s->layers[index];
  const size_t T = batch->tokens, HD = s->H * s->D, R = layer->projected;
  const lora_part input_parts[] = {{STILL_LINEAR_Q, 0},
                                   {STILL_LINEAR_K, k_column(s)},
                                   {STILL_LINEAR_V, v_column(s)},
                                   {STILL_LINEAR_GATE, gate_column(s)}};
  feed_forward_backward(s, index, trace, T);
  lora_gradients(s, index, &output_part, 1, trace->y, HD, s->dx, s->W, T);
  still_gemm(false, false, T, HD, s->W, 1, s->dx, s->W, layer->output, HD, 0, s->dy, HD);
  attention_backward(s, batch, index, trace);
  still_rms_norm(s->normed, trace->x, layer->attention_norm, s->base->config.norm_eps, T, s->W);
  lora_gradients(s, index, input_parts, layer->gated ? 4 : 3, s->normed, s->W, s->dprojected, R, T);
  if (layer->gated) student_gate_gradient(s, index, T);
  if (index == 0) return; /* below lies the frozen embedding */
  still_gemm(false, false, T, s->W, R, 1, s->dprojected, R, layer->project, s->W, 0, s->dnormed,
             s->W);
  still_rms_norm_backward(s->dx, s->dnormed, trace->x, layer->attention_norm,
                          s->base->config.norm_eps, T, s->W);
}
