/* SPDX-License-Identifier: MIT
 * Opening a model: files, adapter, tokenizer, and every weight to its place. */
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/threads.h"
#include "model/model_state.h"
#include "tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- placing ------------------------------------------------------------------------------------ */

typedef struct placement {
  still_model *model;
  uint64_t done; /* bytes */
  bool told;     /* that something stays on the CPU */
} placement;

static still_status report(placement *placing, uint64_t bytes) {
  placing->done += bytes;
  return still_progress_add(bytes);
}

/* A tensor without data is a part that the model does not have. */
static still_status place(placement *placing, still_placed *placed, const still_tensor *tensor) {
  still_model *model = placing->model;
  if (!tensor->data) return STILL_OK;
  STILL_TRY(still_progress_add(0));
  still_status status = model->device->ops->weight_create(model->device, tensor, &placed->weight);
  if (status == STILL_ERROR_UNSUPPORTED && model->host != model->device &&
      tensor->dimensions == 2) {
    if (!placing->told)
      still_log(STILL_LOG_WARNING, "%s: %s; such matrices stay on the CPU", model->device->name,
                still_last_error());
    placing->told = true;
    placed->on_host = true;
    status = model->host->ops->weight_create(model->host, tensor, &placed->weight);
  }
  return status;
}

static still_status place_floats(placement *placing, still_placed *placed, const char *name,
                                 const float *data, uint64_t rows, uint64_t columns) {
  if (!data) return STILL_OK;
  const still_tensor tensor = {.name = name,
                               .type = STILL_TENSOR_F32,
                               .dimensions = rows ? 2 : 1,
                               .shape = {rows ? rows : columns, columns},
                               .data = data,
                               .bytes = (rows ? rows : 1) * columns * sizeof *data};
  return place(placing, placed, &tensor);
}

static still_status place_adapter(placement *placing, int index) {
  const still_model *model = placing->model;
  if (!model->adapter) return STILL_OK;
  const still_adapter_layer *from = &model->adapter->layers[index];
  still_placed_layer *to = &model->layers[index];
  for (int l = 0; l < STILL_LINEARS; l++) {
    uint64_t out, in;
    still_linear_shape(&model->weights->config, l, &out, &in);
    if (l == STILL_LINEAR_GATE)
      STILL_TRY(place_floats(placing, &to->linear[l], "gate", from->gate, out, in));
    const still_lora *lora = &from->lora[l];
    if (!lora->rank) continue;
    const uint64_t rank = (uint64_t)lora->rank;
    STILL_TRY(place_floats(placing, &to->lora[l].a, "lora_A", lora->a, rank, in));
    STILL_TRY(place_floats(placing, &to->lora[l].b, "lora_B", lora->b, out, rank));
    to->lora[l].rank = lora->rank;
    to->lora[l].scale = lora->scale;
  }
  return STILL_OK;
}

static still_status place_layer(placement *placing, int index) {
  const still_layer_weights *from = &placing->model->weights->layers[index];
  still_placed_layer *to = &placing->model->layers[index];
  const struct {
    still_placed *to;
    const still_tensor *from;
  } vectors[] = {{&to->attention_norm, &from->attention_norm},
                 {&to->feed_norm, &from->feed_norm},
                 {&to->q_norm, &from->q_norm},
                 {&to->k_norm, &from->k_norm},
                 {&to->q_bias, &from->q_bias},
                 {&to->k_bias, &from->k_bias},
                 {&to->v_bias, &from->v_bias}};
  for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
    STILL_TRY(place(placing, vectors[i].to, vectors[i].from));
  uint64_t bytes = 0;
  for (int l = 0; l < STILL_BASE_LINEARS; l++) {
    STILL_TRY(place(placing, &to->linear[l], &from->linear[l]));
    bytes += from->linear[l].bytes;
  }
  STILL_TRY(place_adapter(placing, index));
  return report(placing, bytes);
}

static still_status place_all(still_model *model) {
  const still_model_weights *weights = model->weights;
  const still_model_config *config = &weights->config;
  placement placing = {.model = model};
  STILL_TRY(STILL_ALLOC(&model->layers, (size_t)config->layers, "placed layers"));
  STILL_TRY(report(&placing, 0));
  STILL_TRY(place(&placing, &model->embedding, &weights->embedding));
  STILL_TRY(place(&placing, &model->output_norm, &weights->output_norm));
  if (weights->output.name == weights->embedding.name)
    model->output = model->embedding; /* tied: one copy */
  else
    STILL_TRY(place(&placing, &model->output, &weights->output));
  STILL_TRY(place_floats(&placing, &model->frequencies, "frequencies", weights->frequencies, 0,
                         (uint64_t)config->head_dim / 2));
  for (int i = 0; i < config->layers; i++) STILL_TRY(place_layer(&placing, i));
  return report(&placing, weights->bytes - placing.done);
}

static void remove_placed(still_model *model, still_placed *placed) {
  still_backend *backend = placed->on_host ? model->host : model->device;
  if (placed->weight) backend->ops->weight_destroy(backend, placed->weight);
  placed->weight = NULL;
}

static void remove_layer(still_model *model, still_placed_layer *layer) {
  still_placed *const vectors[] = {&layer->attention_norm, &layer->feed_norm, &layer->q_norm,
                                   &layer->k_norm,         &layer->q_bias,    &layer->k_bias,
                                   &layer->v_bias};
  for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) remove_placed(model, vectors[i]);
  for (int l = 0; l < STILL_LINEARS; l++) {
    remove_placed(model, &layer->linear[l]);
    remove_placed(model, &layer->lora[l].a);
    remove_placed(model, &layer->lora[l].b);
  }
}

static void remove_all(still_model *model) {
  for (int i = 0; model->layers && i < model->weights->config.layers; i++)
    remove_layer(model, &model->layers[i]);
  still_free(model->layers);
  if (model->output.weight != model->embedding.weight) remove_placed(model, &model->output);
  remove_placed(model, &model->embedding);
  remove_placed(model, &model->output_norm);
  remove_placed(model, &model->frequencies);
}

/* ---- opening ------------------------------------------------------------------------------------ */

static still_status open_adapter(still_model *model, const char *path) {
  if (!path) return STILL_OK;
  STILL_TRY(still_adapter_read(&model->adapter, path, &model->weights->config));
  model->adapter_hash = still_adapter_hash(model->adapter, &model->weights->config);
  const uint64_t hash = model->adapter->base_hash;
  if (hash && hash != model->weights->hash)
    still_log(STILL_LOG_WARNING,
              "%s: was made for another base model (%016" PRIx64 ", this one is %016" PRIx64 ")",
              path, hash, model->weights->hash);
  return STILL_OK;
}

static still_status open_tokenizer(still_model *model, const char *path) {
  return model->weights->gguf ? still_tokenizer_from_gguf(&model->tokenizer, model->weights->gguf)
                              : still_tokenizer_from_folder(&model->tokenizer, path);
}

static still_status open_backends(still_model *model, const still_model_options *options) {
  STILL_TRY(still_backend_create(&model->device, options->device, model->threads));
  if (!strcmp(model->device->name, "cpu"))
    model->host = model->device;
  else
    STILL_TRY(still_backend_cpu_create(&model->host, model->threads));
  return STILL_OK;
}

static still_status fill(still_model *model, const char *path, const still_model_options *options,
                         still_progress *progress) {
  STILL_TRY(still_model_weights_open(&model->weights, path, options->use_mmap != 0));
  STILL_TRY(open_adapter(model, options->adapter));
  STILL_TRY(open_tokenizer(model, path));
  STILL_TRY(open_backends(model, options));
  progress->total = progress->done + model->weights->bytes;
  STILL_TRY(place_all(model));
  if (model->weights->config.sliding_window)
    still_log(
        STILL_LOG_INFO,
        "%s: the model was trained with a window of %d tokens; the session's attention counts",
        path, model->weights->config.sliding_window);
  return STILL_OK;
}

still_status still_model_open(still_model **out, const char *path,
                              const still_model_options *given) {
  const still_model_options defaults = STILL_MODEL_OPTIONS_INIT;
  const still_model_options *options = given ? given : &defaults;
  if (!out || !path)
    return still_fail(STILL_ERROR_ARGUMENT, "still_model_open: model or path is NULL");
  *out = NULL;
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(options, still_model_options));
  still_model *model;
  STILL_TRY(STILL_ALLOC(&model, 1, "a model"));
  pthread_mutex_init(&model->device_use, NULL);
  model->threads = still_resolve_threads(options->threads);
  still_progress progress = {options->progress, options->progress_user, "loading", 0, 0, NULL};
  still_progress_begin(&progress);
  const still_status status = fill(model, path, options, &progress);
  still_progress_end(&progress);
  if (status)
    still_model_destroy(model);
  else
    *out = model;
  return status;
}

void still_model_destroy(still_model *model) {
  if (!model) return;
  if (model->host) remove_all(model);
  if (model->host != model->device) still_backend_destroy(model->host);
  still_backend_destroy(model->device);
  still_tokenizer_destroy(model->tokenizer);
  still_adapter_destroy(model->adapter);
  still_model_weights_close(model->weights);
  pthread_mutex_destroy(&model->device_use);
  still_free(model);
}

/* ---- telling ------------------------------------------------------------------------------------ */

/* "Q8_0, F32": each type once, matrices first. */
static void list_types(char *out, size_t bytes, const still_model_weights *weights) {
  const still_layer_weights *layer = &weights->layers[0];
  const still_tensor *tensors[STILL_BASE_LINEARS + 3] = {&weights->embedding, &weights->output};
  for (int l = 0; l < STILL_BASE_LINEARS; l++) tensors[2 + l] = &layer->linear[l];
  tensors[2 + STILL_BASE_LINEARS] = &weights->output_norm;
  size_t used = 0;
  *out = 0;
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
    bool seen = false;
    for (size_t j = 0; j < i; j++) seen = seen || tensors[j]->type == tensors[i]->type;
    const still_type_traits *traits = still_type_traits_get(tensors[i]->type);
    if (seen || used + strlen(traits->name) + 3 > bytes) continue;
    used += (size_t)snprintf(out + used, bytes - used, "%s%s", used ? ", " : "", traits->name);
  }
}

void still_model_get_info(const still_model *model, still_model_info *info) {
  const still_model_weights *weights = model->weights;
  const still_model_config *config = &weights->config;
  *info = (still_model_info){.layers = config->layers,
                             .heads = config->heads,
                             .kv_heads = config->kv_heads,
                             .head_dim = config->head_dim,
                             .width = config->width,
                             .feed_forward = config->feed_forward,
                             .vocabulary = config->vocabulary,
                             .trained_context = config->trained_context,
                             .parameters = weights->parameters,
                             .weight_bytes = weights->bytes,
                             .has_adapter = model->adapter && model->adapter->has_attention,
                             .hash = weights->hash};
  snprintf(info->architecture, sizeof info->architecture, "%s", config->architecture->gguf);
  snprintf(info->name, sizeof info->name, "%s", config->name);
  list_types(info->weights, sizeof info->weights, weights);
}

const still_tokenizer *still_model_tokenizer(const still_model *model) {
  return model->tokenizer;
}

const still_model_weights *still_model_get_weights(const still_model *model) {
  return model->weights;
}
