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
  still_placement *to;
  uint64_t done; /* bytes */
  bool told;     /* that something stays on the CPU */
} placement;

static still_status report(placement *placing, uint64_t bytes) {
  if (placing->model->repack) still_model_weights_forget(placing->model->weights);
  placing->done += bytes;
  return still_progress_add(bytes);
}

static still_status place_on_host(placement *placing, still_placed *placed,
                                  const still_tensor *tensor) {
  still_backend *host = placing->model->host;
  placed->on_host = host != placing->model->device;
  return host->ops->weight_create(host, tensor, &placed->weight);
}

/* A tensor without data is a part that the model does not have. */
static still_status place(placement *placing, still_placed *placed, const still_tensor *tensor,
                          bool on_host) {
  still_model *model = placing->model;
  if (!tensor->data) return STILL_OK;
  STILL_TRY(still_progress_add(0));
  if (on_host) return place_on_host(placing, placed, tensor);
  still_status status = model->device->ops->weight_create(model->device, tensor, &placed->weight);
  if (status == STILL_ERROR_UNSUPPORTED && model->host != model->device &&
      tensor->dimensions == 2) {
    if (!placing->told)
      still_log(STILL_LOG_WARNING, "%s: %s; such matrices stay on the CPU", model->device->name,
                still_last_error());
    placing->told = true;
    status = place_on_host(placing, placed, tensor);
  }
  return status;
}

/* A matrix that activations are multiplied with. */
static still_status place_matrix(placement *placing, still_placed *placed,
                                 const still_tensor *tensor, bool on_host) {
  STILL_TRY(place(placing, placed, tensor, on_host));
  still_model *model = placing->model;
  still_backend *backend = on_host || placed->on_host ? model->host : model->device;
  if (!model->repack || !placed->weight || !backend->ops->weight_arrange) return STILL_OK;
  return backend->ops->weight_arrange(backend, placed->weight);
}

static still_status place_floats(placement *placing, still_placed *placed, const char *name,
                                 const float *data, uint64_t rows, uint64_t columns, bool on_host) {
  if (!data) return STILL_OK;
  const still_tensor tensor = {.name = name,
                               .type = STILL_TENSOR_F32,
                               .dimensions = rows ? 2 : 1,
                               .shape = {rows ? rows : columns, columns},
                               .data = data,
                               .bytes = (rows ? rows : 1) * columns * sizeof *data};
  return place(placing, placed, &tensor, on_host);
}

static still_status place_adapter(placement *placing, int index) {
  const still_model *model = placing->model;
  if (!model->adapter) return STILL_OK;
  const still_adapter_layer *from = &model->adapter->layers[index];
  still_placed_layer *to = &placing->to->layers[index];
  for (int l = 0; l < STILL_LINEARS; l++) {
    uint64_t out, in;
    still_linear_shape(&model->weights->config, l, &out, &in);
    if (l == STILL_LINEAR_GATE)
      STILL_TRY(place_floats(placing, &to->linear[l], "gate", from->gate, out, in, to->on_host));
    const still_lora *lora = &from->lora[l];
    if (!lora->rank) continue;
    const uint64_t rank = (uint64_t)lora->rank;
    STILL_TRY(place_floats(placing, &to->lora[l].a, "lora_A", lora->a, rank, in, to->on_host));
    STILL_TRY(place_floats(placing, &to->lora[l].b, "lora_B", lora->b, out, rank, to->on_host));
    to->lora[l].rank = lora->rank;
    to->lora[l].scale = lora->scale;
  }
  return STILL_OK;
}

static still_status place_layer(placement *placing, int index) {
  const still_layer_weights *from = &placing->model->weights->layers[index];
  still_placed_layer *to = &placing->to->layers[index];
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
    STILL_TRY(place(placing, vectors[i].to, vectors[i].from, to->on_host));
  uint64_t bytes = 0;
  for (int l = 0; l < STILL_BASE_LINEARS; l++) {
    STILL_TRY(place_matrix(placing, &to->linear[l], &from->linear[l], to->on_host));
    bytes += from->linear[l].bytes;
  }
  STILL_TRY(place_adapter(placing, index));
  return report(placing, bytes);
}

/* The embedding lies where the first layer runs, the output where the last one does. */
static still_status place_ends(placement *placing, bool first_on_host, bool last_on_host) {
  const still_model_weights *weights = placing->model->weights;
  still_placement *to = placing->to;
  const uint64_t half = (uint64_t)weights->config.head_dim / 2;
  const bool tied =
      weights->output.name == weights->embedding.name && first_on_host == last_on_host;
  STILL_TRY(
      (tied ? place_matrix : place)(placing, &to->embedding, &weights->embedding, first_on_host));
  STILL_TRY(place(placing, &to->output_norm, &weights->output_norm, last_on_host));
  if (tied)
    to->output = to->embedding; /* one copy */
  else
    STILL_TRY(place_matrix(placing, &to->output, &weights->output, last_on_host));
  if (!last_on_host)
    STILL_TRY(place_floats(placing, &to->frequencies, "frequencies", weights->frequencies, 0, half,
                           false));
  if (!first_on_host) return STILL_OK;
  return place_floats(placing, &to->host_frequencies, "frequencies", weights->frequencies, 0, half,
                      true);
}

/* The last `on_device` layers on the device. */
static still_status place_all(placement *placing, int on_device) {
  const still_model_weights *weights = placing->model->weights;
  const int layers = weights->config.layers, on_host = layers - on_device;
  STILL_TRY(STILL_ALLOC(&placing->to->layers, (size_t)layers, "placed layers"));
  STILL_TRY(report(placing, 0));
  STILL_TRY(place_ends(placing, on_host > 0, on_host == layers));
  for (int i = 0; i < layers; i++) {
    placing->to->layers[i].on_host = i < on_host;
    STILL_TRY(place_layer(placing, i));
  }
  return report(placing, weights->bytes - placing->done);
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

static void remove_all(still_model *model, still_placement *placed) {
  for (int i = 0; placed->layers && i < model->weights->config.layers; i++)
    remove_layer(model, &placed->layers[i]);
  still_free(placed->layers);
  if (placed->output.weight != placed->embedding.weight) remove_placed(model, &placed->output);
  remove_placed(model, &placed->embedding);
  remove_placed(model, &placed->output_norm);
  remove_placed(model, &placed->frequencies);
  remove_placed(model, &placed->host_frequencies);
  *placed = (still_placement){0};
}

still_status still_model_place_on_host(still_model *model) {
  if (model->on_host.layers) return STILL_OK;
  placement placing = {.model = model, .to = &model->on_host};
  const still_status status = place_all(&placing, 0);
  if (status) remove_all(model, &model->on_host);
  return status;
}

/* ---- how many layers fit ------------------------------------------------------------------------ */

static uint64_t floats_bytes(const float *data, uint64_t count) {
  return data ? count * sizeof *data : 0;
}

static uint64_t adapter_bytes(const still_model *model, int index) {
  if (!model->adapter) return 0;
  const still_adapter_layer *layer = &model->adapter->layers[index];
  uint64_t bytes = 0;
  for (int l = 0; l < STILL_LINEARS; l++) {
    uint64_t out, in;
    still_linear_shape(&model->weights->config, l, &out, &in);
    if (l == STILL_LINEAR_GATE) bytes += floats_bytes(layer->gate, out * in);
    bytes += floats_bytes(layer->lora[l].a, (uint64_t)layer->lora[l].rank * (out + in));
  }
  return bytes;
}

/* Weights of a layer on the device, and its keys and values of FIRST_TOKENS tokens under full attention: a guess at what
 * sessions will want, who fall back to the CPU layer by layer where it was too low. */
static uint64_t layer_bytes(const still_model *model, int index) {
  enum { FIRST_TOKENS = 4096 };
  const still_model_config *config = &model->weights->config;
  const still_layer_weights *layer = &model->weights->layers[index];
  still_backend *device = model->device;
  uint64_t bytes = adapter_bytes(model, index);
  for (int l = 0; l < STILL_BASE_LINEARS; l++)
    bytes += device->ops->weight_bytes(device, &layer->linear[l]);
  const uint64_t row = (uint64_t)config->kv_heads * (uint64_t)config->head_dim;
  return bytes + 2 * FIRST_TOKENS * row * sizeof(float);
}

static int layers_that_fit(const still_model *model) {
  const still_model_weights *weights = model->weights;
  still_backend *device = model->device;
  const int layers = weights->config.layers;
  const uint64_t all = device->ops->memory_free(device);
  uint64_t left = all - all / 8; /* the rest is for activations and work space */
  const uint64_t output = device->ops->weight_bytes(device, &weights->output);
  const uint64_t embedding = weights->output.name == weights->embedding.name
                                 ? 0
                                 : device->ops->weight_bytes(device, &weights->embedding);
  if (output > left) return 0;
  left -= output;
  int count = 0;
  while (count < layers && layer_bytes(model, layers - 1 - count) <= left)
    left -= layer_bytes(model, layers - 1 - count++);
  return count == layers && embedding > left ? layers - 1 : count;
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

/* Whether this machine has no GPU that could be meant: a wrong number of one is the caller's error. */
static bool has_none(const char *device) {
  size_t count = 0;
  return !strcmp(device, "vulkan") || (!still_list_devices(NULL, 0, &count) && count == 1);
}

static still_status open_backends(still_model *model, const still_model_options *options) {
  const char *device = options->device_layers ? options->device : NULL;
  still_status status = still_backend_create(&model->device, device, model->threads);
  if (status == STILL_ERROR_DEVICE && has_none(device)) {
    still_log(STILL_LOG_WARNING, "%s; the CPU is used", still_last_error());
    status = still_backend_create(&model->device, NULL, model->threads);
  }
  STILL_TRY(status);
  if (!strcmp(model->device->name, "cpu"))
    model->host = model->device;
  else
    STILL_TRY(still_backend_cpu_create(&model->host, model->threads));
  return STILL_OK;
}

static void close_backends(still_model *model) {
  if (model->host != model->device) still_backend_destroy(model->host);
  still_backend_destroy(model->device);
  model->host = model->device = NULL;
}

/* Decides how many layers the device gets. A device that gets none is closed. */
static still_status choose_layers(still_model *model, const still_model_options *options) {
  const int layers = model->weights->config.layers, wanted = options->device_layers;
  model->device_layers = layers;
  if (model->host == model->device) return STILL_OK;
  model->device_layers = wanted < 0 ? layers_that_fit(model) : wanted < layers ? wanted : layers;
  if (model->device_layers < layers)
    still_log(wanted < 0 ? STILL_LOG_WARNING : STILL_LOG_INFO,
              "%s: %d of %d layers, the others run on the CPU", model->device->name,
              model->device_layers, layers);
  if (model->device_layers) return STILL_OK;
  close_backends(model);
  model->device_layers = layers;
  still_model_options on_cpu = *options;
  on_cpu.device = NULL;
  return open_backends(model, &on_cpu);
}

static still_status fill(still_model *model, const char *path, const still_model_options *options,
                         still_progress *progress) {
  STILL_TRY(still_model_weights_open(&model->weights, path, options->use_mmap != 0));
  STILL_TRY(open_adapter(model, options->adapter));
  STILL_TRY(open_tokenizer(model, path));
  STILL_TRY(open_backends(model, options));
  STILL_TRY(choose_layers(model, options));
  model->repack = options->use_mmap && options->repack;
  progress->total = progress->done + model->weights->bytes;
  placement placing = {.model = model, .to = &model->placed};
  STILL_TRY(place_all(&placing, model->device_layers));
  if (model->weights->config.sliding_window)
    still_log(STILL_LOG_INFO,
              "%s: the model was trained with a window of %d tokens; full attention keeps to it",
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
  if (options->device_layers < -1)
    return still_fail(STILL_ERROR_ARGUMENT, "device_layers is %d, must be at least -1",
                      options->device_layers);
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
  if (model->host) remove_all(model, &model->placed);
  if (model->host) remove_all(model, &model->on_host);
  close_backends(model);
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
  *info =
      (still_model_info){.layers = config->layers,
                         .heads = config->heads,
                         .kv_heads = config->kv_heads,
                         .head_dim = config->head_dim,
                         .width = config->width,
                         .feed_forward = config->feed_forward,
                         .vocabulary = config->vocabulary,
                         .trained_context = config->trained_context,
                         .parameters = weights->parameters,
                         .weight_bytes = weights->bytes,
                         .device_layers = model->device == model->host ? 0 : model->device_layers,
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
