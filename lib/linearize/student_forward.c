/* SPDX-License-Identifier: MIT
 * The walk up the layers: the base model's, with any operator as attention. */
#include "base/memory.h"
#include "base/threads.h"
#include "linearize/dense_gradient.h"
#include "linearize/gated_linear_gradient.h"
#include "linearize/student_parts.h"
#include "simd/kernels.h"

#include <string.h>

still_status student_make_traces(still_student *s, size_t count) {
  const size_t T = s->options.most, HD = s->H * s->D;
  if (!s->traces) STILL_TRY(STUDENT_ALLOC(s, &s->traces, s->L, "traces"));
  for (; s->trace_count < count; s->trace_count++) {
    layer_trace *trace = &s->traces[s->trace_count];
    STILL_TRY(STUDENT_ALLOC(s, &trace->x, T * s->W, "activations"));
    STILL_TRY(STUDENT_ALLOC(s, &trace->projected, T * s->R, "activations"));
    STILL_TRY(STUDENT_ALLOC(s, &trace->y, T * HD, "activations"));
    STILL_TRY(STUDENT_ALLOC(s, &trace->denominator, T * s->H, "activations"));
    STILL_TRY(STUDENT_ALLOC(s, &trace->keep, T * s->H, "routing"));
    STILL_TRY(STUDENT_ALLOC(s, &trace->middle, T * s->W, "activations"));
    STILL_TRY(STUDENT_ALLOC(s, &trace->gate_up, T * 2 * s->FF, "activations"));
    if (s->layers[s->trace_count].kind == STILL_ATTENTION_LIGER_GLA)
      STILL_TRY(STUDENT_ALLOC(s, &trace->raw, T * (s->H + s->G) * s->D, "activations"));
  }
  return STILL_OK;
}

still_attention_kind student_kind(const still_student *s, size_t layer) {
  return s->teacher || (int)layer == s->put_back ? STILL_ATTENTION_FULL : s->layers[layer].kind;
}

/* The tokens that a row's layers attend to exactly, where it has a number of its own. */
static int own_budget(const still_batch *batch, size_t sequence) {
  return batch && batch->budget ? batch->budget[sequence] : 0;
}

still_hybrid_head student_head(const still_student *s, const still_batch *batch, size_t layer,
                               size_t sequence, size_t head) {
  const still_attention_options *options = &s->options.attention;
  const int own = own_budget(batch, sequence);
  const still_adapter_layer *arrays = &s->adapter->layers[layer];
  const size_t square = s->D * s->D;
  still_hybrid_head h = {.kind = student_kind(s, layer),
                         .dim = s->D,
                         .chunk = (size_t)options->chunk,
                         .window = (size_t)(own ? own : options->window),
                         .window_factor = 1};
  if (h.kind == STILL_ATTENTION_SWA) h.sinks = (size_t)options->sinks;
  if (h.kind == STILL_ATTENTION_LIGER_GLA) h.kind = STILL_ATTENTION_SWA;
  if (h.kind == STILL_ATTENTION_FULL || h.kind == STILL_ATTENTION_SWA || !arrays->feature_q)
    return h;
  const bool preserve =
      h.kind == STILL_ATTENTION_STILL && options->feature_map == STILL_FEATURE_NORM_PRESERVED;
  const still_map_kind map = h.kind == STILL_ATTENTION_T2R ? STILL_MAP_RELU
                             : preserve                    ? STILL_MAP_NORM_PRESERVED
                                                           : STILL_MAP_HEDGEHOG;
  h.map_q = (still_map){map, arrays->feature_q + head * square,
                        arrays->bias_q ? arrays->bias_q + head * s->D : NULL};
  h.map_k = (still_map){map, arrays->feature_k + head * square,
                        arrays->bias_k ? arrays->bias_k + head * s->D : NULL};
  if (arrays->window_factor && h.kind == STILL_ATTENTION_LOLCATS)
    h.window_factor = arrays->window_factor[head];
  return h;
}

still_hybrid_inputs student_inputs(const still_student *s, const still_batch *batch, size_t layer,
                                   const layer_trace *trace, size_t sequence, size_t head) {
  const size_t first = batch->offsets[sequence], row = s->layers[layer].projected;
  const size_t group = head / (s->H / s->G);
  const float *at = trace->projected + first * row;
  still_hybrid_inputs in = {.tokens = batch->offsets[sequence + 1] - first,
                            .q = at + head * s->D,
                            .k = at + k_column(s) + group * s->D,
                            .v = at + v_column(s) + group * s->D,
                            .q_row = row,
                            .k_row = row,
                            .v_row = row,
                            .gate_row = row,
                            .keep = trace->keep + head * s->options.most + first,
                            .progress = s->progress};
  if (s->layers[layer].gated) in.gate = at + gate_column(s) + head * s->D;
  return in;
}

still_status student_embed(still_student *s, const still_batch *batch, float *x) {
  for (size_t i = 0; i < batch->sequences; i++)
    for (size_t t = batch->offsets[i]; t < batch->offsets[i + 1]; t++)
      s->at[t] = (int32_t)(t - batch->offsets[i]);
  for (size_t t = 0; t < batch->tokens; t++) {
    const int32_t id = batch->ids[t];
    if (id < 0 || (size_t)id >= s->V)
      return still_fail(STILL_ERROR_ARGUMENT, "training: token id %d, the vocabulary has 0 .. %zu",
                        (int)id, s->V - 1);
    STILL_TRY(still_tensor_to_f32(&s->base->embedding, (uint64_t)id * s->W, s->W, x + t * s->W));
  }
  return STILL_OK;
}

static void add_bias(const student_layer *layer, float *x, size_t tokens) {
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static))
  for (size_t t = 0; t < tokens; t++)
    kernels->add(x + t * layer->projected, layer->bias, layer->projected);
}

void student_project(still_student *s, size_t index, layer_trace *trace, size_t tokens) {
  const student_layer *layer = &s->layers[index];
  const still_kernels *kernels = still_kernels_get();
  const size_t R = layer->projected, qk = (s->H + s->G) * s->D;
  still_rms_norm(s->normed, trace->x, layer->attention_norm, s->base->config.norm_eps, tokens,
                 s->W);
  still_gemm(false, true, tokens, R, s->W, 1, s->normed, s->W, layer->project, s->W, 0,
             trace->projected, R);
  if (layer->bias) add_bias(layer, trace->projected, tokens);
  if (trace->raw)
    for (size_t t = 0; t < tokens; t++)
      memcpy(trace->raw + t * qk, trace->projected + t * R, qk * sizeof(float));
  still_rotate(trace->projected, R, tokens, s->at, s->cosine, s->sine, s->H + s->G, s->D, 1);
  if (!layer->gated) return;
  STILL_OMP(parallel for schedule(static))
  for (size_t t = 0; t < tokens; t++) {
    float *gate = trace->projected + t * R + gate_column(s);
    kernels->sigmoid(gate, gate, s->H * s->D);
  }
}

static still_routing_rule rule_of(const still_student *s, const still_batch *batch,
                                  size_t sequence) {
  still_attention_options options = s->options.attention;
  const int own = own_budget(batch, sequence);
  if (own) options.budget = own;
  return still_routing_rule_make(&options, batch->offsets[sequence + 1] - batch->offsets[sequence]);
}

/* Per group: the scores of a group's heads are summed into its first head's and all heads keep the
 * same. */
static void route_group(still_student *s, const still_batch *batch, layer_trace *trace,
                        size_t sequence, size_t group) {
  const still_routing_rule rule = rule_of(s, batch, sequence);
  const size_t most = s->options.most, share = s->H / s->G, first = batch->offsets[sequence];
  const size_t tokens = batch->offsets[sequence + 1] - first;
  const bool together = s->options.attention.routing == STILL_ROUTING_PER_GROUP;
  float *scores = s->scores + group * share * most + first;
  uint8_t *keep = trace->keep + group * share * most + first;
  for (size_t h = 1; together && h < share; h++)
    for (size_t t = 0; t < tokens; t++) scores[t] += scores[h * most + t];
  for (size_t h = 0; h < share; h++) {
    if (together && h)
      memcpy(keep + h * most, keep, tokens);
    else
      still_routing_keep(&rule, scores + h * most, tokens, keep + h * most, (int *)student_work(s));
  }
}

void student_route(still_student *s, const still_batch *batch, size_t layer, layer_trace *trace) {
  if (student_kind(s, layer) != STILL_ATTENTION_STILL) return;
  const size_t items = batch->sequences * s->H;
  STILL_OMP(parallel for schedule(dynamic, 1) num_threads(s->options.threads))
  for (size_t i = 0; i < items; i++) {
    const size_t sequence = i / s->H, head = i % s->H;
    const still_hybrid_inputs in = student_inputs(s, batch, layer, trace, sequence, head);
    const still_routing_rule rule = rule_of(s, batch, sequence);
    still_routing_scores(&rule, head, in.q, in.q_row, in.k, in.k_row, in.tokens, s->D,
                         s->scores + head * s->options.most + batch->offsets[sequence],
                         student_work(s));
  }
  const size_t groups = batch->sequences * s->G;
  STILL_OMP(parallel for schedule(dynamic, 1) num_threads(s->options.threads))
  for (size_t i = 0; i < groups; i++) route_group(s, batch, trace, i / s->G, i % s->G);
}

/* y = y / 2 + gated linear attention / 2 */
static void add_gated_half(const still_student *s, const still_hybrid_inputs *in,
                           const layer_trace *trace, size_t first, size_t head, float *y,
                           size_t y_row, float *work) {
  const size_t qk = (s->H + s->G) * s->D;
  const float *raw = trace->raw + first * qk;
  const still_gated_inputs gated = {
      in->tokens, s->D, raw + head * s->D, raw + k_column(s) + head / (s->H / s->G) * s->D, in->v,
      qk,         qk,   in->v_row};
  float *part = work;
  still_gated_forward(&gated, part, work + in->tokens * s->D);
  for (size_t t = 0; t < in->tokens; t++)
    for (size_t d = 0; d < s->D; d++)
      y[t * y_row + d] = 0.5f * y[t * y_row + d] + 0.5f * part[t * s->D + d];
}

void student_attend(still_student *s, const still_batch *batch, size_t layer, layer_trace *trace) {
  const size_t items = batch->sequences * s->H, HD = s->H * s->D;
  s->progress = still_progress_here();
  if (still_progress_stops(s->progress)) return;
  student_route(s, batch, layer, trace);
  STILL_OMP(parallel for schedule(dynamic, 1) num_threads(s->options.threads))
  for (size_t i = 0; i < items; i++) {
    const size_t sequence = i / s->H, h = i % s->H, first = batch->offsets[sequence];
    const still_hybrid_head head = student_head(s, batch, layer, sequence, h);
    const still_hybrid_inputs in = student_inputs(s, batch, layer, trace, sequence, h);
    float *work = student_work(s);
    float *y = trace->y + first * HD + h * s->D;
    still_hybrid_forward(&head, &in, y, HD, trace->denominator + h * s->options.most + first, work);
    if (student_kind(s, layer) == STILL_ATTENTION_LIGER_GLA)
      add_gated_half(s, &in, trace, first, h, y, HD, work);
  }
}

void student_finish_layer(still_student *s, size_t index, layer_trace *trace, size_t tokens,
                          float *next) {
  const student_layer *layer = &s->layers[index];
  const size_t HD = s->H * s->D;
  still_copy_floats(trace->middle, trace->x, tokens * s->W);
  still_gemm(false, true, tokens, s->W, HD, 1, trace->y, HD, layer->output, HD, 1, trace->middle,
             s->W);
  still_rms_norm(s->normed, trace->middle, layer->feed_norm, s->base->config.norm_eps, tokens,
                 s->W);
  still_gemm(false, true, tokens, 2 * s->FF, s->W, 1, s->normed, s->W, layer->gate_up, s->W, 0,
             trace->gate_up, 2 * s->FF);
  still_swiglu(s->swiglu, trace->gate_up, tokens, s->FF);
  still_copy_floats(next, trace->middle, tokens * s->W);
  still_gemm(false, true, tokens, s->W, s->FF, 1, s->swiglu, s->FF, layer->down, s->FF, 1, next,
             s->W);
}
