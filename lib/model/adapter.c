/* SPDX-License-Identifier: MIT */
#include "model/adapter.h"

#include "base/memory.h"
#include "base/random.h"
#include "model/adapter_parts.h"

#define PART(member) offsetof(still_adapter_layer, member)
const still_adapter_part still_adapter_parts[STILL_ADAPTER_PARTS] = {
    {"feature_q", PART(feature_q)},
    {"feature_k", PART(feature_k)},
    {"bias_q", PART(bias_q)},
    {"bias_k", PART(bias_k)},
    {"window_factor", PART(window_factor)},
    {"gate", PART(gate)},
};

#define OPTION(member) offsetof(still_attention_options, member)
const still_adapter_number still_adapter_numbers[STILL_ADAPTER_NUMBERS] = {
    {"chunk", OPTION(chunk), 1},   {"budget", OPTION(budget), 0}, {"context", OPTION(context), 1},
    {"window", OPTION(window), 1}, {"sinks", OPTION(sinks), 0},   {"keep", OPTION(keep), 0},
};
const still_adapter_word still_adapter_words[STILL_ADAPTER_WORDS] = {
    {"schedule", OPTION(schedule), {"budget", "fixed", "ratio"}},
    {"metric", OPTION(metric), {"saliency", "diagonal", "qk", "keynorm", "uniform", "random"}},
    {"routing", OPTION(routing), {"head", "group"}},
    {"feature_map", OPTION(feature_map), {"norm-preserved", "hedgehog"}},
};

uint32_t still_adapter_part_shape(const still_model_config *config, int part, uint64_t shape[3]) {
  const uint64_t heads = (uint64_t)config->heads, dim = (uint64_t)config->head_dim;
  const size_t offset = still_adapter_parts[part].offset;
  if (offset == PART(gate)) {
    shape[0] = heads * dim;
    shape[1] = (uint64_t)config->width;
    return 2;
  }
  shape[0] = heads;
  shape[1] = shape[2] = dim;
  if (offset == PART(window_factor)) return 1;
  return offset == PART(bias_q) || offset == PART(bias_k) ? 2 : 3;
}

still_status still_adapter_create(still_adapter **out, const still_model_config *config) {
  *out = NULL;
  still_adapter *adapter;
  STILL_TRY(STILL_ALLOC(&adapter, 1, "an adapter"));
  const still_status status =
      STILL_ALLOC(&adapter->layers, (size_t)config->layers, "an adapter's layers");
  if (status) {
    still_free(adapter);
    return status;
  }
  adapter->layer_count = config->layers;
  adapter->attention = (still_attention_options)STILL_ATTENTION_OPTIONS_INIT;
  *out = adapter;
  return STILL_OK;
}

void still_adapter_destroy(still_adapter *adapter) {
  if (!adapter) return;
  for (int i = 0; i < adapter->layer_count; i++) {
    still_adapter_layer *layer = &adapter->layers[i];
    for (int p = 0; p < STILL_ADAPTER_PARTS; p++) still_free(*still_adapter_part_of(layer, p));
    for (int l = 0; l < STILL_LINEARS; l++) {
      still_free(layer->lora[l].a);
      still_free(layer->lora[l].b);
    }
  }
  still_free(adapter->layers);
  still_free(adapter);
}

static uint64_t hash_floats(uint64_t hash, const float *x, uint64_t count) {
  for (uint64_t i = 0; x && i < count; i++) {
    union {
      float value;
      uint32_t bits;
    } one = {x[i]};
    hash = still_hash64(hash ^ one.bits);
  }
  return hash;
}

uint64_t still_adapter_hash(const still_adapter *adapter, const still_model_config *config) {
  uint64_t hash = 1;
  for (int i = 0; i < adapter->layer_count; i++) {
    still_adapter_layer *layer = &adapter->layers[i];
    hash = still_hash64(hash ^ (uint64_t)layer->kind);
    for (int p = 0; p < STILL_ADAPTER_PARTS; p++) {
      uint64_t shape[3], items = 1;
      const uint32_t dimensions = still_adapter_part_shape(config, p, shape);
      for (uint32_t d = 0; d < dimensions; d++) items *= shape[d];
      hash = hash_floats(hash, *still_adapter_part_of(layer, p), items);
    }
    for (int l = 0; l < STILL_LINEARS; l++) {
      const still_lora *lora = &layer->lora[l];
      uint64_t out, in;
      still_linear_shape(config, l, &out, &in);
      hash = hash_floats(hash, &lora->scale, 1);
      hash = hash_floats(hash, lora->a, (uint64_t)lora->rank * in);
      hash = hash_floats(hash, lora->b, (uint64_t)lora->rank * out);
    }
  }
  return hash;
}
