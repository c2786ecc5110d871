/* SPDX-License-Identifier: MIT
 * The two losses of spec section 7: attention transfer and next-token cross-entropy. */
#include "base/memory.h"
#include "base/progress.h"
#include "base/threads.h"
#include "linearize/dense_gradient.h"
#include "linearize/student_parts.h"
#include "simd/kernels.h"

#include <math.h>
#include <string.h>

/* ---- stage 1 ---- */

/* One head of one sequence: y (the softmax output) against the operator's, on the same q, k, v.
 * Gradients go to the head's sums and to the gate's columns of s->dprojected. Returns the squared
 * error, *power = |y|^2. */
static double transfer_head(still_student *s, const still_batch *batch, size_t layer,
                            const layer_trace *trace, size_t sequence, size_t h, bool gradients,
                            float scale, double *power) {
  const size_t first = batch->offsets[sequence], HD = s->H * s->D, D = s->D;
  const size_t R = s->layers[layer].projected;
  const still_hybrid_head head = student_head(s, batch, layer, sequence, h);
  const still_hybrid_inputs in = student_inputs(s, batch, layer, trace, sequence, h);
  float *dy = s->dkv + first * 2 * HD + h * D, *y = dy + HD; /* free in this stage */
  float *denominator = trace->denominator + h * s->options.most + first;
  float *work = student_work(s);
  const float *truth = trace->y + first * HD + h * D;
  double squared = 0;
  *power = 0;
  still_hybrid_forward(&head, &in, y, 2 * HD, denominator, work);
  for (size_t t = 0; t < in.tokens; t++)
    for (size_t d = 0; d < D; d++) {
      const float difference = y[t * 2 * HD + d] - truth[t * HD + d];
      squared += (double)difference * difference;
      *power += (double)truth[t * HD + d] * truth[t * HD + d];
      dy[t * 2 * HD + d] = 2 * scale * difference;
    }
  if (!gradients) return squared;
  still_hybrid_gradients out = student_head_gradients(s, layer, sequence, h);
  if (in.gate) {
    out.gate_logit = s->dprojected + first * R + gate_column(s) + h * D, out.gate_row = R;
    for (size_t t = 0; t < in.tokens; t++) memset(out.gate_logit + t * R, 0, D * sizeof(float));
  }
  still_hybrid_backward(&head, &in, y, 2 * HD, denominator, dy, 2 * HD, &out, work);
  return squared;
}

/* What each item adds, then summed in order. */
typedef struct item_sums {
  double squared, power;
} item_sums;

static still_status transfer_layer(still_student *s, const still_batch *batch, size_t layer,
                                   layer_trace *trace, bool gradients, double scale,
                                   still_transfer_error *error) {
  const size_t items = batch->sequences * s->H;
  const double elements = (double)batch->tokens * (double)(s->H * s->D);
  const float factor = (float)(scale / elements);
  item_sums *sums;
  STILL_TRY(STILL_ALLOC(&sums, items, "sums"));
  student_route(s, batch, layer, trace);
  STILL_OMP(parallel for schedule(dynamic, 1) num_threads(s->options.threads))
  for (size_t i = 0; i < items; i++)
    sums[i].squared = transfer_head(s, batch, layer, trace, i / s->H, i % s->H, gradients, factor,
                                    &sums[i].power);
  for (size_t i = 0; i < items; i++) {
    error->squared += sums[i].squared;
    error->power += sums[i].power;
  }
  error->elements += elements;
  still_free(sums);
  if (!gradients) return STILL_OK;
  student_reduce_head_gradients(s, layer, batch->sequences);
  if (s->layers[layer].gated) student_gate_gradient(s, layer, batch->tokens);
  return STILL_OK;
}

static bool is_compared(const still_student *s, size_t layer) {
  const layer_parameters *has = &s->layers[layer].has;
  return has->feature_q >= 0 || has->gate >= 0 || has->window_factor >= 0;
}

still_status still_student_transfer(still_student *s, const still_batch *batch, bool gradients,
                                    double scale, still_transfer_error *errors) {
  STILL_TRY(student_make_traces(s, 1));
  layer_trace *trace = &s->traces[0];
  size_t layers = s->L; /* up to the last one that is compared */
  while (layers && !is_compared(s, layers - 1)) layers--;
  STILL_TRY(student_embed(s, batch, trace->x));
  for (size_t i = 0; i < layers; i++) {
    student_project(s, i, trace, batch->tokens);
    s->put_back = (int)i; /* the teacher's operator, then the student's */
    student_attend(s, batch, i, trace);
    s->put_back = -1;
    STILL_TRY(still_progress_add(0));
    if (is_compared(s, i))
      STILL_TRY(transfer_layer(s, batch, i, trace, gradients, scale, &errors[i]));
    STILL_TRY(still_progress_add(0));
    if (i + 1 == layers) break;
    student_finish_layer(s, i, trace, batch->tokens, s->x);
    still_copy_floats(trace->x, s->x, batch->tokens * s->W);
  }
  return STILL_OK;
}

/* ---- stage 2 ---- */

/* Final hidden states, normed, in s->normed; the last layer's output stays in s->x. */
static still_status walk_up(still_student *s, const still_batch *batch) {
  STILL_TRY(student_make_traces(s, s->L));
  STILL_TRY(student_embed(s, batch, s->traces[0].x));
  for (size_t i = 0; i < s->L; i++) {
    layer_trace *trace = &s->traces[i];
    student_project(s, i, trace, batch->tokens);
    student_attend(s, batch, i, trace);
    student_finish_layer(s, i, trace, batch->tokens, i + 1 < s->L ? s->traces[i + 1].x : s->x);
    STILL_TRY(still_progress_add(0));
  }
  still_rms_norm(s->normed, s->x, s->output_norm, s->base->config.norm_eps, batch->tokens, s->W);
  return STILL_OK;
}

/* The rows that count, `rows` of them listed in `list`: logits, loss, and the gradient of their
 * normed states. */
static double score_rows(still_student *s, const still_batch *batch, const int32_t *list,
                         size_t rows, bool gradients, double scale) {
  float *logits = s->logits, *hidden = logits + s->logit_rows * s->V;
  float *factor = hidden + s->logit_rows * s->W;
  int32_t *target = (int32_t *)(factor + s->logit_rows);
  double *losses = (double *)(factor + 2 * s->logit_rows);
  for (size_t i = 0; i < rows; i++) {
    const size_t t = (size_t)list[i];
    memcpy(hidden + i * s->W, s->normed + t * s->W, s->W * sizeof(float));
    factor[i] = (float)(batch->weight[t] * scale);
    target[i] = batch->target[t];
  }
  still_gemm(false, true, rows, s->V, s->W, 1, hidden, s->W, s->output, s->W, 0, logits, s->V);
  const double loss = still_cross_entropy(logits, target, factor, rows, s->V, losses) / scale;
  if (!gradients) return loss;
  still_gemm(false, false, rows, s->W, s->V, 1, logits, s->V, s->output, s->W, 0, hidden, s->W);
  for (size_t i = 0; i < rows; i++)
    memcpy(s->dnormed + (size_t)list[i] * s->W, hidden + i * s->W, s->W * sizeof(float));
  return loss;
}

static double cross_entropy(still_student *s, const still_batch *batch, bool gradients,
                            double scale, double *weight) {
  int32_t list[MOST_LOGIT_ROWS];
  size_t rows = 0;
  double loss = 0;
  if (gradients) still_clear_floats(s->dnormed, batch->tokens * s->W);
  for (size_t t = 0; t < batch->tokens; t++) {
    if (!(batch->weight[t] > 0) || batch->target[t] < 0) continue;
    *weight += batch->weight[t];
    list[rows++] = (int32_t)t;
    if (rows < s->logit_rows) continue;
    if (still_progress_stops(still_progress_here())) return loss;
    loss += score_rows(s, batch, list, rows, gradients, scale);
    rows = 0;
  }
  if (rows) loss += score_rows(s, batch, list, rows, gradients, scale);
  return loss;
}

still_status still_student_loss(still_student *s, const still_batch *batch, bool gradients,
                                double scale, double *loss, double *weight) {
  STILL_TRY(walk_up(s, batch));
  *loss += cross_entropy(s, batch, gradients, scale, weight);
  STILL_TRY(still_progress_add(0));
  if (!gradients) return STILL_OK;
  still_clear_floats(s->dx, batch->tokens * s->W);
  still_rms_norm_backward(s->dx, s->dnormed, s->x, s->output_norm, s->base->config.norm_eps,
                          batch->tokens, s->W);
  for (size_t i = s->L; i-- > 0;) {
    student_layer_backward(s, batch, i, &s->traces[i]);
    STILL_TRY(still_progress_add(0));
  }
  return STILL_OK;
}

still_status still_student_hidden(still_student *s, const still_batch *batch, bool teacher,
                                  int layer, const float **hidden) {
  if (teacher != s->teacher) {
    s->teacher = teacher;
    STILL_TRY(still_student_refresh(s));
  }
  s->put_back = layer;
  const still_status status = walk_up(s, batch);
  s->put_back = -1;
  if (teacher) {
    s->teacher = false;
    STILL_TRY(still_student_refresh(s));
  }
  *hidden = s->normed;
  return status;
}
