/* SPDX-License-Identifier: MIT
 * What a session costs, counted the same way before and after it is made. */
#include "attention/attention_plan.h"
#include "attention/attention_work.h"
#include "base/memory.h"
#include "model/session.h"

/* What one layer takes. */
typedef struct layer_cost {
  uint64_t cache_bytes, work_bytes, snapshot_bytes;
  int64_t softmax_tokens, linear_tokens, forgotten_tokens;
} layer_cost;

enum { FIRST_TOKENS = 4096 };

size_t still_token_capacity(const still_session_options *options, int64_t tokens) {
  if (options->history)
    return 2 * (size_t)(options->history < STILL_LEAST_HISTORY ? STILL_LEAST_HISTORY
                                                               : options->history);
  size_t capacity = options->context < FIRST_TOKENS ? (size_t)options->context : FIRST_TOKENS;
  while (capacity < (size_t)tokens) capacity *= 2;
  return capacity;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Adds a layer up. The operator's work space is lent from a pool: a layer adds to it only when it asks for more than
 * those before it; *largest is the most so far. */
static void add_layer(still_session_usage *usage, uint64_t *largest, const layer_cost *cost) {
  usage->cache_bytes += cost->cache_bytes;
  usage->work_bytes += cost->snapshot_bytes;
  if (cost->work_bytes > *largest) {
    usage->work_bytes += cost->work_bytes;
    *largest = cost->work_bytes;
  }
  usage->softmax_tokens = larger(usage->softmax_tokens, cost->softmax_tokens);
  usage->linear_tokens = larger(usage->linear_tokens, cost->linear_tokens);
  usage->forgotten_tokens = larger(usage->forgotten_tokens, cost->forgotten_tokens);
}

/* Columns of the widest quantised matrix; 0 without any. */
static size_t widest_quantised(const still_model *model) {
  const still_model_weights *weights = model->weights;
  size_t widest = 0;
  for (int i = 0; i < weights->config.layers; i++)
    for (int l = 0; l < STILL_BASE_LINEARS; l++) {
      const still_tensor *tensor = &weights->layers[i].linear[l];
      if (still_type_traits_get(tensor->type)->block_items > 1 && tensor->shape[1] > widest)
        widest = (size_t)tensor->shape[1];
    }
  return widest;
}

static still_session_usage begin_usage(const still_model *model,
                                       const still_session_options *options,
                                       const still_session_layer *layers, int64_t tokens) {
  const still_model_config *config = &model->weights->config;
  const size_t block = (size_t)options->block;
  const uint64_t logits = 2 * (uint64_t)config->vocabulary * sizeof(float);
  return (still_session_usage){
      .weight_bytes = model->weights->bytes,
      .tokens = tokens,
      .context = options->context,
      .block = options->block,
      .work_bytes = still_forward_bytes(model, layers, block) + logits +
                    still_backend_cpu_work_bytes(options->threads, block, (size_t)config->head_dim,
                                                 widest_quantised(model)) +
                    still_token_capacity(options, tokens) * sizeof(still_token)};
}

void still_session_get_usage(const still_session *session, still_session_usage *usage) {
  (void)still_session_settle_to_read(session);
  *usage = begin_usage(session->model, &session->options, session->layers, session->count);
  uint64_t largest = 0;
  for (int i = 0; i < session->layer_count; i++) {
    still_backend *backend = still_session_layer_backend(session, i);
    const still_layer_cache *cache = session->layers[i].cache;
    still_attention_usage now;
    backend->ops->attention_usage(backend, cache, &now);
    add_layer(usage, &largest,
              &(layer_cost){now.bytes, now.work_bytes,
                            backend->ops->attention_snapshot_bytes(backend, cache),
                            now.softmax_tokens, now.linear_tokens, now.forgotten_tokens});
  }
}

/* ---- before there is a session ------------------------------------------------------------------ */

static layer_cost predict(const still_attention_plan *plan, int64_t tokens) {
  const still_census census = still_attention_census(plan, tokens);
  return (layer_cost){.cache_bytes = still_attention_cache_bytes(plan, tokens),
                      .work_bytes = still_forward_work_bytes(plan),
                      .snapshot_bytes = still_attention_plan_snapshot_bytes(plan),
                      .softmax_tokens = census.kept + census.near,
                      .linear_tokens = census.linear,
                      .forgotten_tokens = census.forgotten};
}

static bool is_like(const still_session_layer *a, const still_session_layer *b) {
  return still_attention_plan_options(a->plan)->kind ==
             still_attention_plan_options(b->plan)->kind &&
         a->uses_gate == b->uses_gate && a->learned == b->learned;
}

static void predict_all(const still_model *model, const still_session_options *options,
                        const still_session_layer *layers, int64_t tokens,
                        still_session_usage *usage) {
  *usage = begin_usage(model, options, layers, tokens);
  uint64_t largest = 0;
  layer_cost cost = {0};
  for (int i = 0; i < model->weights->config.layers; i++) {
    if (!i || !is_like(&layers[i], &layers[i - 1])) cost = predict(layers[i].plan, tokens);
    add_layer(usage, &largest, &cost);
  }
}

still_status still_session_estimate(const still_model *model, const still_session_options *options,
                                    int64_t tokens, still_session_usage *usage) {
  if (!model || !usage || tokens < 0)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "still_session_estimate: model and usage must be given, tokens >= 0");
  still_session_options resolved;
  still_session_layer *layers;
  const int count = model->weights->config.layers;
  STILL_TRY(STILL_ALLOC(&layers, (size_t)count, "a session's layers"));
  still_status status = still_session_resolve(model, options, &resolved, layers);
  if (!status) predict_all(model, &resolved, layers, tokens, usage);
  for (int i = 0; i < count; i++) still_attention_plan_destroy(layers[i].plan);
  still_free(layers);
  return status;
}
