/* SPDX-License-Identifier: MIT
 * Adapter files out. */
#include "base/memory.h"
#include "model/adapter_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
  NAME_BYTES = 128,
  VALUE_BYTES = 32,
  PAIRS = STILL_ADAPTER_NUMBERS + STILL_ADAPTER_WORDS + 5, /* version, kinds, 2 floats, hash */
  TENSORS_PER_LAYER = STILL_ADAPTER_PARTS + 2 * STILL_LINEARS
};

typedef struct adapter_writer {
  still_tensor_type type;
  still_tensor *tensors;
  char *names; /* NAME_BYTES each */
  size_t count;
  still_safetensors_pair pairs[PAIRS];
  char values[PAIRS][VALUE_BYTES];
  size_t pair_count;
  char *kinds;
} adapter_writer;

/* ---- tensors ------------------------------------------------------------------------------------ */

static still_status add_tensor(adapter_writer *writer, const char *name, uint32_t dimensions,
                               const uint64_t *shape, const float *data) {
  if (!data) return STILL_OK;
  still_tensor *tensor = &writer->tensors[writer->count];
  char *own_name = writer->names + writer->count * NAME_BYTES;
  snprintf(own_name, NAME_BYTES, "%s", name);
  *tensor = (still_tensor){.name = own_name, .type = writer->type, .dimensions = dimensions};
  memcpy(tensor->shape, shape, dimensions * sizeof *shape);
  uint64_t items;
  STILL_TRY(still_tensor_bytes(name, writer->type, dimensions, shape, &items, &tensor->bytes));
  void *converted;
  STILL_TRY(still_alloc(&converted, tensor->bytes, 1, name));
  tensor->data = converted;
  writer->count++;
  still_type_from_f32(writer->type)(converted, data, items);
  return STILL_OK;
}

static still_status add_lora(adapter_writer *writer, const still_lora *lora, int layer,
                             still_linear linear, const still_model_config *config) {
  if (!lora->rank) return STILL_OK;
  uint64_t out, in;
  still_linear_shape(config, linear, &out, &in);
  char name[NAME_BYTES];
  const char *module = still_linear_module(linear);
  snprintf(name, sizeof name, STILL_LORA_PREFIX "%d.%s.lora_A.weight", layer, module);
  STILL_TRY(add_tensor(writer, name, 2, (uint64_t[]){(uint64_t)lora->rank, in}, lora->a));
  snprintf(name, sizeof name, STILL_LORA_PREFIX "%d.%s.lora_B.weight", layer, module);
  return add_tensor(writer, name, 2, (uint64_t[]){out, (uint64_t)lora->rank}, lora->b);
}

static still_status add_layer(adapter_writer *writer, still_adapter_layer *layer, int index,
                              const still_model_config *config) {
  for (int p = 0; p < STILL_ADAPTER_PARTS; p++) {
    char name[NAME_BYTES];
    uint64_t shape[3];
    snprintf(name, sizeof name, "layers.%d.%s", index, still_adapter_parts[p].name);
    const uint32_t dimensions = still_adapter_part_shape(config, p, shape);
    STILL_TRY(add_tensor(writer, name, dimensions, shape, *still_adapter_part_of(layer, p)));
  }
  for (int l = 0; l < STILL_LINEARS; l++)
    STILL_TRY(add_lora(writer, &layer->lora[l], index, l, config));
  return STILL_OK;
}

/* ---- metadata ----------------------------------------------------------------------------------- */

static void add_pair(adapter_writer *writer, const char *key, const char *value) {
  writer->pairs[writer->pair_count++] = (still_safetensors_pair){key, value};
}

/* Room for the text of a value. */
static char *new_value(adapter_writer *writer) {
  return writer->values[writer->pair_count];
}

static void add_float(adapter_writer *writer, const char *key, float value) {
  char *text = new_value(writer);
  snprintf(text, VALUE_BYTES, "%.9g", (double)value);
  add_pair(writer, key, text);
}

static void add_options(adapter_writer *writer, const still_attention_options *options) {
  for (int i = 0; i < STILL_ADAPTER_NUMBERS; i++) {
    char *text = new_value(writer);
    snprintf(text, VALUE_BYTES, "%d",
             *(const int *)((const char *)options + still_adapter_numbers[i].offset));
    add_pair(writer, still_adapter_numbers[i].key, text);
  }
  for (int i = 0; i < STILL_ADAPTER_WORDS; i++) {
    const still_adapter_word *word = &still_adapter_words[i];
    add_pair(writer, word->key, word->words[*(const int *)((const char *)options + word->offset)]);
  }
  add_float(writer, "keep_ratio", options->keep_ratio);
}

static still_status add_kinds(adapter_writer *writer, const still_adapter *adapter) {
  const size_t bytes = (size_t)adapter->layer_count * VALUE_BYTES;
  STILL_TRY(STILL_ALLOC(&writer->kinds, bytes, "names of kinds"));
  size_t length = 0;
  for (int i = 0; i < adapter->layer_count; i++)
    length += (size_t)snprintf(writer->kinds + length, bytes - length, "%s%s", i ? "," : "",
                               still_attention_kind_name(adapter->layers[i].kind));
  add_pair(writer, "kinds", writer->kinds);
  return STILL_OK;
}

/* The scale of all pairs; 1 if there are none. */
static still_status common_scale(const still_adapter *adapter, float *scale) {
  bool found = false;
  *scale = 1;
  for (int i = 0; i < adapter->layer_count; i++)
    for (int l = 0; l < STILL_LINEARS; l++) {
      const still_lora *lora = &adapter->layers[i].lora[l];
      if (!lora->rank) continue;
      if (found && lora->scale != *scale)
        return still_fail(STILL_ERROR_ARGUMENT,
                          "adapter: LoRA pairs of different scales (%g, %g) in one file",
                          (double)*scale, (double)lora->scale);
      *scale = lora->scale;
      found = true;
    }
  return STILL_OK;
}

static still_status fill(adapter_writer *writer, const still_adapter *adapter,
                         const still_model_config *config) {
  const size_t most = (size_t)adapter->layer_count * TENSORS_PER_LAYER;
  STILL_TRY(STILL_ALLOC(&writer->tensors, most, "the list of an adapter's tensors"));
  STILL_TRY(still_alloc((void **)&writer->names, most, NAME_BYTES, "names of tensors"));
  float scale;
  STILL_TRY(common_scale(adapter, &scale));
  add_pair(writer, "still_adapter", STILL_ADAPTER_VERSION);
  STILL_TRY(add_kinds(writer, adapter));
  add_options(writer, &adapter->attention);
  add_float(writer, "lora_scale", scale);
  char *hash = new_value(writer);
  snprintf(hash, VALUE_BYTES, "%016" PRIx64, adapter->base_hash);
  add_pair(writer, "base_hash", hash);
  for (int i = 0; i < adapter->layer_count; i++)
    STILL_TRY(add_layer(writer, &adapter->layers[i], i, config));
  return STILL_OK;
}

still_status still_adapter_write(const still_adapter *adapter, const char *path,
                                 const still_model_config *config, still_tensor_type type) {
  if (type != STILL_TENSOR_F32 && type != STILL_TENSOR_F16 && type != STILL_TENSOR_BF16)
    return still_fail(STILL_ERROR_ARGUMENT, "adapter: written as F32, F16 or BF16 only");
  adapter_writer *writer;
  STILL_TRY(STILL_ALLOC(&writer, 1, "an adapter's writer"));
  writer->type = type;
  still_status status = fill(writer, adapter, config);
  if (!status)
    status = still_safetensors_write(path, writer->tensors, writer->count, writer->pairs,
                                     writer->pair_count);
  for (size_t i = 0; i < writer->count; i++) still_free((void *)writer->tensors[i].data);
  still_free(writer->tensors);
  still_free(writer->names);
  still_free(writer->kinds);
  still_free(writer);
  return status;
}
