/* SPDX-License-Identifier: MIT
 * From a session's options, the model and its adapter to one attention plan for each layer. */
#include "base/memory.h"
#include "base/threads.h"
#include "model/session.h"

#include <stdlib.h>
#include <string.h>

/* ---- "0-3,7:full;4:swa" ------------------------------------------------------------------------- */

/* A layer's number at *at, moved behind it. */
static still_status parse_layer(const char **at, int layers, int *layer) {
  char *end;
  const long value = **at >= '0' && **at <= '9' ? strtol(*at, &end, 10) : -1;
  if (value < 0 || value >= layers)
    return still_fail(STILL_ERROR_ARGUMENT, "layer_kinds: at '%.20s': a layer must be 0 .. %d", *at,
                      layers - 1);
  *at = end;
  *layer = (int)value;
  return STILL_OK;
}

/* "0-3,7": marks the layers it names. */
static still_status parse_set(const char **at, int layers, bool *chosen) {
  for (;;) {
    int first = 0, last = 0;
    STILL_TRY(parse_layer(at, layers, &first));
    last = first;
    if (**at == '-') {
      (*at)++;
      STILL_TRY(parse_layer(at, layers, &last));
    }
    if (last < first)
      return still_fail(STILL_ERROR_ARGUMENT, "layer_kinds: %d-%d runs backwards", first, last);
    for (int i = first; i <= last; i++) chosen[i] = true;
    if (**at != ',') return STILL_OK;
    (*at)++;
  }
}

static still_status parse_rules(const char *text, still_attention_kind *kinds, int layers,
                                bool *chosen) {
  while (*text) {
    memset(chosen, 0, (size_t)layers * sizeof *chosen);
    STILL_TRY(parse_set(&text, layers, chosen));
    if (*text != ':')
      return still_fail(STILL_ERROR_ARGUMENT,
                        "layer_kinds: at '%.20s': ':' and a kind must follow the layers", text);
    text++;
    char name[32] = "";
    const size_t length = strcspn(text, ";");
    memcpy(name, text, length < sizeof name ? length : sizeof name - 1);
    still_attention_kind kind;
    STILL_TRY(still_attention_kind_parse(name, &kind));
    for (int i = 0; i < layers; i++)
      if (chosen[i]) kinds[i] = kind;
    text += length + (text[length] == ';');
  }
  return STILL_OK;
}

still_status still_parse_layer_kinds(const char *text, still_attention_kind *kinds, int layers) {
  bool *chosen;
  STILL_TRY(STILL_ALLOC(&chosen, (size_t)layers, "marks of layers"));
  const still_status status = parse_rules(text, kinds, layers, chosen);
  still_free(chosen);
  return status;
}

/* ---- options ------------------------------------------------------------------------------------ */

static still_status check_range(const char *name, long long value, long long least,
                                long long most) {
  if (value >= least && value <= most) return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT, "%s is %lld, must be %lld .. %lld", name, value, least,
                    most);
}

/* The adapter's values for what the caller left alone. */
static void apply_adapter(const still_adapter *adapter, still_session_options *options) {
  const still_session_options defaults = STILL_SESSION_OPTIONS_INIT;
  const still_attention_options *from = &adapter->attention;
#define FROM_ADAPTER(field, bit)                                                                   \
  if (options->field == defaults.field && !(options->own & STILL_OWN_##bit))                       \
  options->field = from->field
  FROM_ADAPTER(chunk, CHUNK);
  FROM_ADAPTER(budget, BUDGET);
  FROM_ADAPTER(schedule, SCHEDULE);
  FROM_ADAPTER(keep, SCHEDULE);
  FROM_ADAPTER(keep_ratio, SCHEDULE);
  FROM_ADAPTER(metric, METRIC);
  FROM_ADAPTER(routing, ROUTING);
  FROM_ADAPTER(window, WINDOW);
  FROM_ADAPTER(sinks, WINDOW);
#undef FROM_ADAPTER
}

static bool uses_adapter(const still_model *model, const still_session_options *options) {
  return options->adapter_kinds && model->adapter && model->adapter->has_attention;
}

still_status still_session_kinds(const still_model *model, const still_session_options *options,
                                 still_attention_kind *kinds) {
  const int layers = model->weights->config.layers;
  const bool from_adapter =
      uses_adapter(model, options) && options->attention == STILL_ATTENTION_FULL;
  for (int i = 0; i < layers; i++)
    kinds[i] = from_adapter ? model->adapter->layers[i].kind : options->attention;
  return options->layer_kinds ? still_parse_layer_kinds(options->layer_kinds, kinds, layers)
                              : STILL_OK;
}

static bool is_bounded(const still_attention_options *options) {
  if (options->kind == STILL_ATTENTION_FULL) return false;
  if (options->kind != STILL_ATTENTION_STILL || options->schedule == STILL_SCHEDULE_BUDGET)
    return true;
  return options->schedule == STILL_SCHEDULE_FIXED && options->budget > 0;
}

bool still_layer_grows(const still_session_layer *layer) {
  return !is_bounded(still_attention_plan_options(layer->plan));
}

/* N_max of layers with a budget: what the caller says, or else what their adapter was trained for. 0: neither. */
static int certified_context(const still_model *model, const still_session_options *options) {
  if (options->context || !uses_adapter(model, options)) return options->context;
  return model->adapter->attention.context;
}

/* ---- plans -------------------------------------------------------------------------------------- */

enum { FIRST_CAPACITY = 4096 }; /* tokens that growing caches are made for at first */

/* Full attention of a model with a window of its own (Mistral 7B v0.1) sees that window. */
static void keep_to_trained_window(const still_model_config *config, int context,
                                   still_attention_options *options) {
  if (options->kind != STILL_ATTENTION_FULL || !config->sliding_window) return;
  if ((context ? context : config->trained_context) <= config->sliding_window) return;
  options->kind = STILL_ATTENTION_SWA;
  options->window = config->sliding_window;
  options->sinks = 0;
}

static still_attention_options plan_options(const still_model *model,
                                            const still_session_options *from,
                                            still_attention_kind kind) {
  const still_model_config *config = &model->weights->config;
  still_attention_options options = STILL_ATTENTION_OPTIONS_INIT;
  options.kind = kind;
  options.heads = config->heads;
  options.kv_heads = config->kv_heads;
  options.head_dim = config->head_dim;
  options.chunk = from->chunk;
  options.budget = from->budget;
  options.schedule = from->schedule;
  options.keep = from->keep;
  options.keep_ratio = from->keep_ratio;
  options.metric = from->metric;
  options.routing = from->routing;
  options.seed = from->routing_seed;
  options.window = from->window;
  options.sinks = from->sinks;
  options.cache_type = from->cache_type;
  options.threads = from->threads;
  keep_to_trained_window(config, from->context, &options);
  options.context = is_bounded(&options) ? certified_context(model, from) : from->context;
  if (!options.context) options.context = config->trained_context;
  if (!is_bounded(&options) && options.context > FIRST_CAPACITY) options.context = FIRST_CAPACITY;
  return options;
}

static bool has_feature_map(still_attention_kind kind) {
  return kind == STILL_ATTENTION_STILL || kind == STILL_ATTENTION_LOLCATS ||
         kind == STILL_ATTENTION_HEDGEHOG || kind == STILL_ATTENTION_T2R;
}

/* With what the adapter learned for this kind of attention; for another kind it is of no use. */
static still_status make_plan(const still_model *model, const still_session_options *from,
                              still_attention_kind kind, int index, still_session_layer *layer) {
  still_attention_options options = plan_options(model, from, kind);
  still_attention_weights weights = STILL_ATTENTION_WEIGHTS_INIT;
  const still_adapter *adapter = model->adapter;
  if (adapter && adapter->has_attention && adapter->layers[index].kind == kind &&
      has_feature_map(kind)) {
    const still_adapter_layer *learned = &adapter->layers[index];
    options.feature_map = adapter->attention.feature_map;
    weights.feature_q = learned->feature_q;
    weights.feature_k = learned->feature_k;
    weights.bias_q = learned->bias_q;
    weights.bias_k = learned->bias_k;
    weights.window_factor = learned->window_factor;
    layer->learned = learned->feature_q != NULL;
    layer->uses_gate = kind == STILL_ATTENTION_STILL && learned->feature_q && learned->gate;
  }
  const still_status status = still_attention_plan_create(&layer->plan, &options, &weights);
  return status ? still_fail_in(status, "layer %d", index) : STILL_OK;
}

static still_status check_options(const still_session_options *options) {
  STILL_TRY(check_range("context", options->context, 0, INT32_MAX));
  STILL_TRY(check_range("block", options->block, 0, 65536));
  STILL_TRY(check_range("history", options->history, 0, INT32_MAX));
  STILL_TRY(check_range("threads", options->threads, 0, 1024));
  if (!still_attention_kind_name(options->attention))
    return still_fail(STILL_ERROR_ARGUMENT, "attention: %d is no kind", (int)options->attention);
  return STILL_OK;
}

/* Whether the device binds every array of such a block. */
static bool binds_block(const still_model *model, const still_session_layer *layers, int block) {
  const still_backend *device = model->device;
  size_t floats[STILL_ACTIVATIONS];
  still_forward_sizes(model, layers, (size_t)block, floats);
  for (int i = 0; i < STILL_ACTIVATIONS; i++)
    if (floats[i] > device->ops->buffer_most(device) / sizeof(float)) return false;
  return true;
}

static bool has_room(const still_model *model, const still_session_layer *layers, int block) {
  return still_forward_bytes(model, layers, (size_t)block) <=
         model->device->ops->memory_free(model->device) / 8;
}

/* A GPU wants many tokens at a time. */
static int default_block(const still_model *model, const still_session_layer *layers) {
  int block = model->device == model->host ? STILL_LEAST_BLOCK : STILL_MOST_BLOCK;
  while (block > STILL_LEAST_BLOCK &&
         (!binds_block(model, layers, block) || !has_room(model, layers, block)))
    block /= 2;
  return block;
}

static still_status check_block(const still_model *model, const still_session_layer *layers,
                                int block) {
  int most = block;
  while (most > 1 && !binds_block(model, layers, most)) most /= 2;
  if (most == block) return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT, "block %d: too large for the device's buffers; %d fits",
                    block, most);
}

still_status still_session_resolve(const still_model *model, const still_session_options *given,
                                   still_session_options *resolved, still_session_layer *layers) {
  const still_session_options defaults = STILL_SESSION_OPTIONS_INIT;
  *resolved = given ? *given : defaults;
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(resolved, still_session_options));
  STILL_TRY(check_options(resolved));
  if (!resolved->threads) resolved->threads = model->threads;
  if (uses_adapter(model, resolved)) apply_adapter(model->adapter, resolved);

  const int count = model->weights->config.layers;
  still_attention_kind *kinds;
  STILL_TRY(STILL_ALLOC(&kinds, (size_t)count, "kinds of layers"));
  still_status status = still_session_kinds(model, resolved, kinds);
  for (int i = 0; !status && i < count; i++)
    status = make_plan(model, resolved, kinds[i], i, &layers[i]);
  still_free(kinds);
  if (status) return status;
  bool grows = false;
  for (int i = 0; i < count; i++) grows = grows || still_layer_grows(&layers[i]);
  if (!grows) resolved->context = certified_context(model, resolved);
  if (!resolved->context) resolved->context = model->weights->config.trained_context;
  if (resolved->block)
    STILL_TRY(check_block(model, layers, resolved->block));
  else
    resolved->block = default_block(model, layers);
  resolved->layer_kinds = NULL; /* the caller's text need not live on */
  return STILL_OK;
}
