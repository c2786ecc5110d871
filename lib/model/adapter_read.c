/* SPDX-License-Identifier: MIT
 * Adapter files in: tensors by name, metadata by key, everything checked. */
#include "base/files.h"
#include "base/memory.h"
#include "model/adapter_parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ------------------------------------------------------------------------------------ */

static still_status read_floats(float **out, const still_tensor *tensor) {
  if (*out) /* "layers.07.gate" beside "layers.7.gate" */
    return still_fail(STILL_ERROR_FORMAT, "tensor '%s' is there twice", tensor->name);
  const uint64_t items = still_tensor_items(tensor);
  STILL_TRY(STILL_ALLOC(out, items, tensor->name));
  STILL_TRY(still_tensor_to_f32(tensor, 0, items, *out));
  for (uint64_t i = 0; i < items; i++)
    if (!isfinite((*out)[i]))
      return still_fail(STILL_ERROR_NUMERIC, "tensor '%s': value %llu is not finite", tensor->name,
                        (unsigned long long)i);
  return STILL_OK;
}

static still_status wrong_shape(const still_tensor *tensor, uint32_t dimensions,
                                const uint64_t *shape) {
  char given[256], wanted[256];
  return still_fail(STILL_ERROR_FORMAT, "tensor '%s' has shape %s, must have %s", tensor->name,
                    still_shape_text(given, sizeof given, tensor->dimensions, tensor->shape),
                    still_shape_text(wanted, sizeof wanted, dimensions, shape));
}

still_status still_adapter_no_place(const still_tensor *tensor) {
  return still_fail(STILL_ERROR_UNSUPPORTED, "tensor '%s' has no place in this model",
                    tensor->name);
}

still_adapter_layer *still_adapter_layer_of(still_adapter *adapter, const char *text,
                                            const char **rest) {
  char *end;
  if (*text < '0' || *text > '9') return NULL;
  const long index = strtol(text, &end, 10);
  if (*end != '.' || index >= adapter->layer_count) return NULL;
  *rest = end + 1;
  return &adapter->layers[index];
}

static still_status take_shaped(still_adapter_layer *layer, int part, const still_tensor *tensor,
                                const still_model_config *config) {
  uint64_t shape[3];
  const uint32_t dimensions = still_adapter_part_shape(config, part, shape);
  if (!still_tensor_has_shape(tensor, dimensions, shape))
    return wrong_shape(tensor, dimensions, shape);
  return read_floats(still_adapter_part_of(layer, part), tensor);
}

still_status still_adapter_take_gate(still_adapter_layer *layer, const still_tensor *tensor,
                                     const still_model_config *config) {
  int part = 0;
  while (strcmp(still_adapter_parts[part].name, "gate")) part++;
  return take_shaped(layer, part, tensor, config);
}

static still_status take_part(still_adapter *adapter, const still_tensor *tensor,
                              const still_model_config *config) {
  const char *name;
  still_adapter_layer *layer =
      still_adapter_layer_of(adapter, tensor->name + strlen("layers."), &name);
  for (int p = 0; layer && p < STILL_ADAPTER_PARTS; p++)
    if (!strcmp(name, still_adapter_parts[p].name)) return take_shaped(layer, p, tensor, config);
  return still_adapter_no_place(tensor);
}

still_status still_adapter_take_half(still_lora *lora, const still_tensor *tensor, bool is_a,
                                     uint64_t out, uint64_t in) {
  const uint64_t rank = tensor->dimensions == 2 ? tensor->shape[is_a ? 0 : 1] : 0;
  const uint64_t known = rank >= 1 && rank <= STILL_LORA_MOST_RANK ? rank : 1;
  const uint64_t shape[2] = {is_a ? (lora->rank ? (uint64_t)lora->rank : known) : out,
                             is_a ? in : (lora->rank ? (uint64_t)lora->rank : known)};
  if (!still_tensor_has_shape(tensor, 2, shape)) return wrong_shape(tensor, 2, shape);
  lora->rank = (int)rank;
  return read_floats(is_a ? &lora->a : &lora->b, tensor);
}

static still_status take_lora(still_adapter *adapter, const still_tensor *tensor,
                              const still_model_config *config) {
  const char *name;
  still_adapter_layer *layer =
      still_adapter_layer_of(adapter, tensor->name + strlen(STILL_LORA_PREFIX), &name);
  for (int l = 0; layer && l < STILL_LINEARS; l++) {
    const char *module = still_linear_module(l);
    const size_t length = strlen(module);
    if (strncmp(name, module, length)) continue;
    const bool is_a = !strcmp(name + length, ".lora_A.weight");
    if (!is_a && strcmp(name + length, ".lora_B.weight")) continue;
    uint64_t out, in;
    still_linear_shape(config, l, &out, &in);
    return still_adapter_take_half(&layer->lora[l], tensor, is_a, out, in);
  }
  return still_adapter_no_place(tensor);
}

static still_status check_pairs(still_adapter *adapter, float scale) {
  for (int i = 0; i < adapter->layer_count; i++)
    for (int l = 0; l < STILL_LINEARS; l++) {
      still_lora *lora = &adapter->layers[i].lora[l];
      if (!lora->rank) continue;
      if (!lora->a || !lora->b)
        return still_fail(STILL_ERROR_FORMAT, "tensor '%s%d.%s.%s.weight' is missing",
                          STILL_LORA_PREFIX, i, still_linear_module(l),
                          lora->a ? "lora_B" : "lora_A");
      if (l == STILL_LINEAR_GATE && !adapter->layers[i].gate)
        return still_fail(STILL_ERROR_FORMAT, "tensor 'layers.%d.gate' is missing beside its pair",
                          i);
      lora->scale = scale;
    }
  return STILL_OK;
}

still_status still_adapter_take_tensors(still_adapter *adapter, const still_safetensors *file,
                                        const still_model_config *config, float scale) {
  for (size_t i = 0; i < still_safetensors_count(file); i++) {
    const still_tensor *tensor = still_safetensors_tensor(file, i);
    if (!strncmp(tensor->name, "layers.", 7))
      STILL_TRY(take_part(adapter, tensor, config));
    else if (!strncmp(tensor->name, STILL_LORA_PREFIX, strlen(STILL_LORA_PREFIX)))
      STILL_TRY(take_lora(adapter, tensor, config));
    else
      return still_adapter_no_place(tensor);
  }
  return check_pairs(adapter, scale);
}

/* ---- metadata ----------------------------------------------------------------------------------- */

static still_status missing_key(const char *key) {
  return still_fail(STILL_ERROR_FORMAT, "metadata '%s' is missing", key);
}

static still_status read_numbers(still_adapter *adapter, const still_safetensors *file) {
  for (int i = 0; i < STILL_ADAPTER_NUMBERS; i++) {
    const still_adapter_number *number = &still_adapter_numbers[i];
    const char *text = still_safetensors_metadata(file, number->key);
    if (!text) return missing_key(number->key);
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < number->least || value > INT32_MAX)
      return still_fail(STILL_ERROR_FORMAT, "metadata '%s' is '%s', must be %d .. %d", number->key,
                        text, number->least, INT32_MAX);
    *(int *)((char *)&adapter->attention + number->offset) = (int)value;
  }
  return STILL_OK;
}

static still_status read_words(still_adapter *adapter, const still_safetensors *file) {
  for (int i = 0; i < STILL_ADAPTER_WORDS; i++) {
    const still_adapter_word *word = &still_adapter_words[i];
    const char *text = still_safetensors_metadata(file, word->key);
    if (!text) return missing_key(word->key);
    int value = 0;
    const int most = (int)(sizeof word->words / sizeof word->words[0]);
    while (value < most && word->words[value] && strcmp(text, word->words[value])) value++;
    if (value == most || !word->words[value])
      return still_fail(STILL_ERROR_UNSUPPORTED, "metadata '%s' is '%s', which is not known",
                        word->key, text);
    *(int *)((char *)&adapter->attention + word->offset) = value;
  }
  return STILL_OK;
}

static still_status read_float(const still_safetensors *file, const char *key, float *value) {
  const char *text = still_safetensors_metadata(file, key);
  if (!text) return missing_key(key);
  char *end;
  *value = strtof(text, &end);
  if (end == text || *end || !isfinite(*value))
    return still_fail(STILL_ERROR_FORMAT, "metadata '%s' is '%s', must be a number", key, text);
  return STILL_OK;
}

/* "still,still,full": one word for each layer. */
static still_status read_kinds(still_adapter *adapter, const still_safetensors *file) {
  const char *text = still_safetensors_metadata(file, "kinds");
  if (!text) return missing_key("kinds");
  int count = 0;
  while (*text) {
    char word[32];
    const size_t length = strcspn(text, ",");
    snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), text);
    still_attention_kind kind;
    STILL_TRY(still_attention_kind_parse(word, &kind));
    if (count < adapter->layer_count) adapter->layers[count].kind = kind;
    count++;
    text += length + (text[length] == ',');
  }
  if (count == adapter->layer_count) return STILL_OK;
  return still_fail(STILL_ERROR_FORMAT, "metadata 'kinds' names %d layers, the model has %d", count,
                    adapter->layer_count);
}

static still_status read_hash(still_adapter *adapter, const still_safetensors *file) {
  const char *text = still_safetensors_metadata(file, "base_hash");
  if (!text) return missing_key("base_hash");
  char *end;
  adapter->base_hash = strtoull(text, &end, 16);
  if (strlen(text) == 16 && !*end) return STILL_OK;
  return still_fail(STILL_ERROR_FORMAT,
                    "metadata 'base_hash' is '%s', must be 16 hexadecimal digits", text);
}

static still_status read_own(still_adapter *adapter, const still_safetensors *file,
                             const still_model_config *config) {
  const char *version = still_safetensors_metadata(file, "still_adapter");
  if (!version && still_adapter_is_authors(file))
    return still_adapter_take_authors(adapter, file, config);
  if (!version)
    return still_fail(STILL_ERROR_FORMAT, "no STILL adapter: metadata 'still_adapter' is missing");
  if (strcmp(version, STILL_ADAPTER_VERSION))
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "adapter version '%s' is not known; known is: " STILL_ADAPTER_VERSION,
                      version);
  adapter->has_attention = true;
  float scale = 1;
  STILL_TRY(read_numbers(adapter, file));
  STILL_TRY(read_words(adapter, file));
  STILL_TRY(read_float(file, "keep_ratio", &adapter->attention.keep_ratio));
  STILL_TRY(read_float(file, "lora_scale", &scale));
  STILL_TRY(read_kinds(adapter, file));
  STILL_TRY(read_hash(adapter, file));
  return still_adapter_take_tensors(adapter, file, config, scale);
}

static still_status read_file(still_adapter *adapter, const char *path,
                              const still_model_config *config) {
  still_safetensors *file;
  STILL_TRY(still_safetensors_open(&file, path, true));
  const still_status status = read_own(adapter, file, config);
  still_safetensors_close(file);
  return status ? still_fail_in(status, "%s", path) : STILL_OK;
}

/* Folders are PEFT's, or a checkpoint in shards. */
static bool is_peft_folder(const char *path) {
  char *config = NULL;
  bool is_peft = still_path_is_folder(path);
  if (is_peft && !still_join_path(&config, path, "adapter_config.json"))
    is_peft = still_path_exists(config);
  still_free(config);
  return is_peft;
}

static bool is_gguf(const char *path) {
  char magic[4] = "";
  FILE *file = still_path_is_folder(path) ? NULL : fopen(path, "rb");
  const bool is = file && fread(magic, 1, 4, file) == 4 && !memcmp(magic, "GGUF", 4);
  if (file) fclose(file);
  return is;
}

static still_status read_any(still_adapter *adapter, const char *path,
                             const still_model_config *config) {
  if (is_peft_folder(path)) return still_adapter_read_peft(adapter, path, config);
  if (is_gguf(path)) return still_adapter_read_gguf(adapter, path, config);
  return read_file(adapter, path, config);
}

still_status still_adapter_read(still_adapter **out, const char *path,
                                const still_model_config *config) {
  *out = NULL;
  still_adapter *adapter;
  STILL_TRY(still_adapter_create(&adapter, config));
  const still_status status = read_any(adapter, path, config);
  if (status)
    still_adapter_destroy(adapter);
  else
    *out = adapter;
  return status;
}
