/* SPDX-License-Identifier: MIT
 * A student's weights and parameters. */
#include "linearize/student.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/random.h"
#include "base/threads.h"
#include "linearize/dense_gradient.h"
#include "linearize/gated_linear_gradient.h"
#include "linearize/student_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const float initial_window_factor = 0.52497919f; /* sigmoid(0.1), LoLCATs' */

/* The pairs that are trained: the paper's (spec section 7); Liger has no gate and leaves W_o alone.
 */
static const still_linear lora_targets[] = {STILL_LINEAR_Q, STILL_LINEAR_K, STILL_LINEAR_V,
                                            STILL_LINEAR_O, STILL_LINEAR_GATE};

/* Room to remember one more array; memory takes its time. */
static still_status expect_array(still_student *s) {
  STILL_TRY(still_progress_add(0));
  if (s->owned_count < s->owned_capacity) return STILL_OK;
  const size_t capacity = s->owned_capacity ? 2 * s->owned_capacity : 64;
  STILL_TRY(STILL_REALLOC(&s->owned, capacity, "a list of arrays"));
  s->owned_capacity = capacity;
  return STILL_OK;
}

still_status student_alloc(still_student *s, void *out, size_t count, size_t size,
                           const char *what) {
  void *block = NULL;
  STILL_TRY(expect_array(s));
  STILL_TRY(still_alloc(&block, count ? count : 1, size, what));
  s->owned[s->owned_count++] = block;
  memcpy(out, &block, sizeof block);
  return STILL_OK;
}

/* ---- base weights ---- */

enum { VALUES_AT_ONCE = 1 << 20 }; /* of a tensor: some milliseconds, whole blocks of any type */

static still_status to_floats(const still_tensor *tensor, float *out) {
  const uint64_t items = still_tensor_items(tensor);
  for (uint64_t at = 0; at < items; at += VALUES_AT_ONCE) {
    const uint64_t left = items - at;
    STILL_TRY(still_progress_add(0));
    STILL_TRY(
        still_tensor_to_f32(tensor, at, left < VALUES_AT_ONCE ? left : VALUES_AT_ONCE, out + at));
  }
  return STILL_OK;
}

/* A matrix that is filled at once. */
static still_status make_matrix(still_student *s, float **out, size_t rows, size_t columns,
                                const char *what) {
  size_t count, bytes;
  void *block = NULL;
  if (!still_mul_size(rows, columns, &count) || !still_mul_size(count, sizeof **out, &bytes))
    return still_fail(STILL_ERROR_MEMORY, "%s: %zu x %zu do not fit into memory", what, rows,
                      columns);
  STILL_TRY(expect_array(s));
  STILL_TRY(still_alloc_raw(&block, bytes, what));
  s->owned[s->owned_count++] = *out = block;
  return STILL_OK;
}

static still_status take_floats(still_student *s, float **out, const still_tensor *tensor) {
  STILL_TRY(make_matrix(s, out, 1, (size_t)still_tensor_items(tensor), tensor->name));
  return to_floats(tensor, *out);
}

static still_status take_bias(still_student *s, student_layer *layer,
                              const still_layer_weights *base) {
  const size_t HD = s->H * s->D, GD = s->G * s->D;
  if (!base->q_bias.data) return STILL_OK;
  STILL_TRY(STUDENT_ALLOC(s, &layer->bias, layer->projected, "biases"));
  STILL_TRY(still_tensor_to_f32(&base->q_bias, 0, HD, layer->bias));
  STILL_TRY(still_tensor_to_f32(&base->k_bias, 0, GD, layer->bias + HD));
  return still_tensor_to_f32(&base->v_bias, 0, GD, layer->bias + HD + GD);
}

static still_status take_layer(still_student *s, size_t index) {
  const still_layer_weights *base = &s->base->layers[index];
  student_layer *layer = &s->layers[index];
  const size_t W = s->W, HD = s->H * s->D;
  if (base->q_norm.data)
    return still_fail(
        STILL_ERROR_UNSUPPORTED,
        "training: this model norms its heads' q and k (Qwen3); that is not known here");
  layer->projected = gate_column(s) + (layer->gated ? HD : 0);
  STILL_TRY(make_matrix(s, &layer->project, layer->projected, W, "projections"));
  STILL_TRY(make_matrix(s, &layer->output, W, HD, "output projection"));
  STILL_TRY(make_matrix(s, &layer->gate_up, 2 * s->FF, W, "feed forward"));
  const still_tensor *linear = base->linear;
  STILL_TRY(to_floats(&linear[STILL_LINEAR_FF_GATE], layer->gate_up));
  STILL_TRY(to_floats(&linear[STILL_LINEAR_FF_UP], layer->gate_up + s->FF * W));
  STILL_TRY(take_floats(s, &layer->down, &linear[STILL_LINEAR_FF_DOWN]));
  STILL_TRY(take_floats(s, &layer->attention_norm, &base->attention_norm));
  STILL_TRY(take_floats(s, &layer->feed_norm, &base->feed_norm));
  return take_bias(s, layer, base);
}

static still_status make_rotation(still_student *s) {
  const size_t half = s->D / 2, longest = s->options.longest;
  STILL_TRY(STUDENT_ALLOC(s, &s->cosine, longest * half, "cosines"));
  STILL_TRY(STUDENT_ALLOC(s, &s->sine, longest * half, "sines"));
  for (size_t t = 0; t < longest; t++)
    for (size_t i = 0; i < half; i++) {
      const double angle = (double)t * s->base->frequencies[i];
      s->cosine[t * half + i] = (float)cos(angle) * s->base->rope_scale;
      s->sine[t * half + i] = (float)sin(angle) * s->base->rope_scale;
    }
  return STILL_OK;
}

/* ---- parameters ---- */

static void fill_identity(float *maps, size_t heads, size_t dim) {
  for (size_t h = 0; h < heads; h++)
    for (size_t d = 0; d < dim; d++) maps[(h * dim + d) * dim + d] = 1;
}

static bool is_hedgehog_like(still_attention_kind kind) {
  return kind == STILL_ATTENTION_LOLCATS || kind == STILL_ATTENTION_HEDGEHOG ||
         kind == STILL_ATTENTION_T2R;
}

/* Gives a layer of the adapter the arrays of its kind, as they start (spec section 7). */
static still_status start_maps(still_student *s, size_t index) {
  still_adapter_layer *layer = &s->adapter->layers[index];
  const bool still_maps = layer->kind == STILL_ATTENTION_STILL && s->options.maps;
  const bool fresh = !layer->feature_q; /* maps that were made without a gate stay without */
  const size_t square = s->H * s->D * s->D;
  if ((still_maps || is_hedgehog_like(layer->kind)) && !layer->feature_q) {
    STILL_TRY(STILL_ALLOC(&layer->feature_q, square, "feature_q"));
    STILL_TRY(STILL_ALLOC(&layer->feature_k, square, "feature_k"));
    fill_identity(layer->feature_q, s->H, s->D), fill_identity(layer->feature_k, s->H, s->D);
  }
  if (layer->kind == STILL_ATTENTION_T2R && !layer->bias_q) {
    STILL_TRY(STILL_ALLOC(&layer->bias_q, s->H * s->D, "bias_q"));
    STILL_TRY(STILL_ALLOC(&layer->bias_k, s->H * s->D, "bias_k"));
  }
  if (layer->kind == STILL_ATTENTION_LOLCATS && !layer->window_factor) {
    STILL_TRY(STILL_ALLOC(&layer->window_factor, s->H, "window_factor"));
    for (size_t h = 0; h < s->H; h++) layer->window_factor[h] = initial_window_factor;
  }
  if (still_maps && s->options.gate && fresh)
    STILL_TRY(STILL_ALLOC(&layer->gate, s->H * s->D * s->W, "gate"));
  return STILL_OK;
}

static bool has_pair(const still_student *s, size_t index, still_linear linear) {
  const still_attention_kind kind = s->adapter->layers[index].kind;
  if (linear == STILL_LINEAR_GATE) return s->adapter->layers[index].gate != NULL;
  if (kind == STILL_ATTENTION_LIGER_GLA) return linear != STILL_LINEAR_O;
  return true;
}

/* A normal with the variance of PEFT's uniform start, B zero. */
static still_status start_pair(still_student *s, size_t index, still_linear linear,
                               still_random *random) {
  still_lora *pair = &s->adapter->layers[index].lora[linear];
  uint64_t out, in;
  if (!has_pair(s, index, linear) || pair->rank) return STILL_OK;
  still_linear_shape(&s->base->config, linear, &out, &in);
  const size_t rank = (size_t)s->options.lora_rank;
  STILL_TRY(STILL_ALLOC(&pair->a, rank * in, "lora_A"));
  STILL_TRY(STILL_ALLOC(&pair->b, out * rank, "lora_B"));
  pair->rank = (int)rank;
  pair->scale = s->options.lora_alpha / (float)rank;
  const double size = 1 / sqrt(3 * (double)in);
  for (size_t i = 0; i < rank * in; i++) pair->a[i] = (float)(size * still_random_normal(random));
  return STILL_OK;
}

static still_status start_adapter(still_student *s) {
  still_random random;
  still_random_seed(&random, s->options.seed);
  s->adapter->has_attention = true;
  s->adapter->attention = s->options.attention;
  s->adapter->base_hash = s->base->hash;
  for (size_t i = 0; i < s->L; i++) {
    s->adapter->layers[i].kind = s->options.kinds[i];
    STILL_TRY(still_progress_add(0));
    STILL_TRY(start_maps(s, i));
    for (size_t j = 0; s->options.lora_rank && j < sizeof lora_targets / sizeof *lora_targets; j++)
      STILL_TRY(start_pair(s, i, lora_targets[j], &random));
  }
  return STILL_OK;
}

static int list_parameter(still_student *s, size_t layer, const char *part, float *value,
                          size_t count, bool is_map) {
  if (!value) return -1;
  still_parameter *p = &s->parameters[s->parameter_count];
  snprintf(p->name, sizeof p->name, "layers.%zu.%s", layer, part);
  p->value = value, p->count = count, p->is_map = is_map;
  s->gradient_floats += still_round_up(count, 16);
  return (int)s->parameter_count++;
}

static void list_layer(still_student *s, size_t index) {
  still_adapter_layer *layer = &s->adapter->layers[index];
  layer_parameters *has = &s->layers[index].has;
  const size_t HD = s->H * s->D;
  has->feature_q = list_parameter(s, index, "feature_q", layer->feature_q, HD * s->D, true);
  has->feature_k = list_parameter(s, index, "feature_k", layer->feature_k, HD * s->D, true);
  has->bias_q = list_parameter(s, index, "bias_q", layer->bias_q, HD, true);
  has->bias_k = list_parameter(s, index, "bias_k", layer->bias_k, HD, true);
  has->window_factor = list_parameter(s, index, "window_factor", layer->window_factor, s->H, true);
  has->gate = list_parameter(s, index, "gate", layer->gate, HD * s->W, true);
  for (int i = 0; i < STILL_LINEARS; i++) {
    const still_lora *pair = &layer->lora[i];
    uint64_t out, in;
    char name[64];
    still_linear_shape(&s->base->config, (still_linear)i, &out, &in);
    snprintf(name, sizeof name, "%s.lora_A", still_linear_module((still_linear)i));
    has->lora_a[i] = list_parameter(s, index, name, pair->a, (size_t)pair->rank * in, false);
    snprintf(name, sizeof name, "%s.lora_B", still_linear_module((still_linear)i));
    has->lora_b[i] = list_parameter(s, index, name, pair->b, (size_t)pair->rank * out, false);
  }
}

static still_status list_parameters(still_student *s) {
  STILL_TRY(STUDENT_ALLOC(s, &s->parameters, s->L * (6 + 2 * STILL_LINEARS), "parameters"));
  for (size_t i = 0; i < s->L; i++) {
    list_layer(s, i);
    for (int j = 0; j < STILL_LINEARS; j++)
      if (s->adapter->layers[i].lora[j].rank && j != STILL_LINEAR_Q && j != STILL_LINEAR_K &&
          j != STILL_LINEAR_V && j != STILL_LINEAR_O && j != STILL_LINEAR_GATE)
        return still_fail(STILL_ERROR_UNSUPPORTED,
                          "training: the adapter has a LoRA pair on %s; known are q, k, v, o, g",
                          still_linear_module((still_linear)j));
  }
  STILL_TRY(STUDENT_ALLOC(s, &s->gradients, s->gradient_floats, "gradients"));
  float *at = s->gradients;
  for (size_t i = 0; i < s->parameter_count; i++) {
    s->parameters[i].gradient = at;
    at += still_round_up(s->parameters[i].count, 16);
  }
  return STILL_OK;
}

/* ---- creation ---- */

/* As many rows of logits at a time as 32 MiB hold, within bounds. */
static size_t choose_logit_rows(size_t vocabulary) {
  const size_t rows = ((size_t)8 << 20) / vocabulary;
  return rows < 16 ? 16 : rows > MOST_LOGIT_ROWS ? MOST_LOGIT_ROWS : rows;
}

static size_t larger(size_t a, size_t b) {
  return a > b ? a : b;
}

static still_status make_work(still_student *s) {
  const size_t T = s->options.most, HD = s->H * s->D, rank = (size_t)s->options.lora_rank;
  const size_t wide = HD > s->W ? HD : s->W;
  s->logit_rows = choose_logit_rows(s->V);
  STILL_TRY(STUDENT_ALLOC(s, &s->at, T, "positions"));
  STILL_TRY(STUDENT_ALLOC(s, &s->x, T * s->W, "activations"));
  STILL_TRY(STUDENT_ALLOC(s, &s->normed, T * s->W, "activations"));
  STILL_TRY(STUDENT_ALLOC(s, &s->swiglu, T * s->FF, "activations"));
  STILL_TRY(STUDENT_ALLOC(s, &s->scores, T * s->H, "scores"));
  STILL_TRY(STUDENT_ALLOC(s, &s->dx, T * s->W, "activation gradients"));
  STILL_TRY(STUDENT_ALLOC(s, &s->dnormed, T * s->W, "activation gradients"));
  STILL_TRY(STUDENT_ALLOC(s, &s->dprojected, T * s->R, "activation gradients"));
  STILL_TRY(STUDENT_ALLOC(s, &s->dy, T * HD, "activation gradients"));
  STILL_TRY(STUDENT_ALLOC(s, &s->dkv, T * 2 * HD, "activation gradients"));
  STILL_TRY(STUDENT_ALLOC(s, &s->dgate_up, T * 2 * s->FF, "activation gradients"));
  STILL_TRY(STUDENT_ALLOC(s, &s->through_a, T * 4 * rank, "LoRA activations"));
  STILL_TRY(STUDENT_ALLOC(s, &s->dthrough_a, T * 4 * rank, "LoRA activations"));
  STILL_TRY(STUDENT_ALLOC(s, &s->joined_a, 4 * rank * wide, "LoRA matrices"));
  STILL_TRY(STUDENT_ALLOC(s, &s->djoined_a, 4 * rank * wide, "LoRA matrices"));
  const size_t sums = still_sum_work_floats(larger(HD * s->W, 4 * rank * wide));
  STILL_TRY(STUDENT_ALLOC(s, &s->sums, sums, "partial sums"));
  STILL_TRY(STUDENT_ALLOC(s, &s->logits, s->logit_rows * (s->V + s->W + 4), "logits"));
  STILL_TRY(STUDENT_ALLOC(s, &s->head_gradients,
                          s->options.sequences * s->H * student_head_gradient_floats(s),
                          "head gradients"));
  return STILL_OK;
}

/* Of one thread, for any layer's operator and the teacher's. */
static size_t work_floats(const still_student *s) {
  const size_t N = s->options.longest, D = s->D;
  const still_routing_rule rule = {.chunk = (size_t)s->options.attention.chunk};
  const still_hybrid_head full = {.kind = STILL_ATTENTION_FULL, .dim = D, .window_factor = 1};
  size_t most = larger(still_routing_work_floats(&rule, D), still_hybrid_work_floats(&full, N));
  for (size_t i = 0; i < s->L; i++) {
    const still_hybrid_head head = student_head(s, NULL, i, 0, 0);
    size_t floats = still_hybrid_work_floats(&head, N);
    if (s->layers[i].kind == STILL_ATTENTION_LIGER_GLA)
      floats = 4 * N * D + larger(floats, still_gated_work_floats(N, D));
    most = larger(most, floats);
  }
  return still_round_up(most, 16);
}

static void take_shapes(still_student *s) {
  const still_model_config *config = &s->base->config;
  s->W = (size_t)config->width, s->H = (size_t)config->heads, s->G = (size_t)config->kv_heads;
  s->D = (size_t)config->head_dim, s->FF = (size_t)config->feed_forward;
  s->V = (size_t)config->vocabulary, s->L = (size_t)config->layers;
}

static still_status fill_student(still_student *s) {
  take_shapes(s);
  if (!s->adapter) STILL_TRY(still_adapter_create(&s->adapter, &s->base->config));
  STILL_TRY(STUDENT_ALLOC(s, &s->layers, s->L, "layers"));
  STILL_TRY(start_adapter(s));
  for (size_t i = 0; i < s->L; i++) {
    s->layers[i].kind = s->options.kinds[i];
    s->layers[i].gated = s->adapter->layers[i].gate != NULL;
    STILL_TRY(take_layer(s, i));
    if (s->layers[i].projected > s->R) s->R = s->layers[i].projected;
  }
  STILL_TRY(take_floats(s, &s->output, &s->base->output));
  STILL_TRY(take_floats(s, &s->output_norm, &s->base->output_norm));
  STILL_TRY(make_rotation(s));
  STILL_TRY(list_parameters(s));
  STILL_TRY(make_work(s));
  s->thread_floats = work_floats(s);
  STILL_TRY(STUDENT_ALLOC(s, &s->thread_work, (size_t)s->options.threads * s->thread_floats,
                          "attention work space"));
  return still_student_refresh(s);
}

still_status still_student_create(still_student **student, const still_model_weights *weights,
                                  still_adapter *adapter, const still_student_options *options) {
  *student = NULL;
  still_student *s;
  const still_status status = STILL_ALLOC(&s, 1, "student");
  if (status) {
    still_adapter_destroy(adapter);
    return status;
  }
  s->base = weights, s->adapter = adapter, s->options = *options, s->put_back = -1;
  s->options.threads = still_resolve_threads(options->threads);
  still_blas_threads(s->options.threads);
  const still_status made = fill_student(s);
  if (made) {
    still_student_destroy(s);
    return made;
  }
  *student = s;
  return STILL_OK;
}

void still_student_destroy(still_student *s) {
  if (!s) return;
  still_adapter_destroy(s->adapter);
  /* side by side: gigabytes take tens of milliseconds to give back, even for one who waits for a training to stop */
  STILL_OMP(parallel for schedule(dynamic, 1) num_threads(s->options.threads))
  for (size_t i = 0; i < s->owned_count; i++) still_free(s->owned[i]);
  still_free(s->owned);
  still_free(s);
}

still_adapter *still_student_adapter(still_student *s) {
  return s->adapter;
}

still_parameter *still_student_parameters(still_student *s, size_t *count) {
  *count = s->parameter_count;
  return s->parameters;
}

void still_student_clear_gradients(still_student *s) {
  still_clear_floats(s->gradients, s->gradient_floats);
}

float *student_gradient(const still_student *s, int parameter) {
  return parameter < 0 ? NULL : s->parameters[parameter].gradient;
}

const float *still_student_output_matrix(const still_student *s, size_t *vocabulary,
                                         size_t *width) {
  *vocabulary = s->V, *width = s->W;
  return s->output;
}

/* out = the base matrix + scale B A. */
static still_status work_in(const still_student *s, size_t index, still_linear linear, float *out) {
  const still_adapter_layer *layer = &s->adapter->layers[index];
  const still_lora *pair = &layer->lora[linear];
  uint64_t rows, columns;
  still_linear_shape(&s->base->config, linear, &rows, &columns);
  if (linear == STILL_LINEAR_GATE)
    still_copy_floats(out, layer->gate, rows * columns);
  else
    STILL_TRY(to_floats(&s->base->layers[index].linear[linear], out));
  if (pair->rank && !s->teacher)
    still_gemm(false, false, rows, columns, (size_t)pair->rank, pair->scale, pair->b,
               (size_t)pair->rank, pair->a, columns, 1, out, columns);
  return STILL_OK;
}

still_status still_student_refresh(still_student *s) {
  for (size_t i = 0; i < s->L; i++) {
    float *project = s->layers[i].project;
    STILL_TRY(still_progress_add(0));
    STILL_TRY(work_in(s, i, STILL_LINEAR_Q, project));
    STILL_TRY(work_in(s, i, STILL_LINEAR_K, project + k_column(s) * s->W));
    STILL_TRY(work_in(s, i, STILL_LINEAR_V, project + v_column(s) * s->W));
    if (s->layers[i].gated)
      STILL_TRY(work_in(s, i, STILL_LINEAR_GATE, project + gate_column(s) * s->W));
    STILL_TRY(work_in(s, i, STILL_LINEAR_O, s->layers[i].output));
  }
  return STILL_OK;
}
