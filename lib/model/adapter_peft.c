/* SPDX-License-Identifier: MIT
 * PEFT LoRA folders: adapter_config.json says how strongly the pairs count, adapter_model.safetensors holds them. */
#include "base/files.h"
#include "base/memory.h"
#include "formats/json.h"
#include "model/adapter_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Members that do not change what the pairs compute, or that are read below. */
static const char *const harmless[] = {"peft_type",
                                       "auto_mapping",
                                       "base_model_name_or_path",
                                       "revision",
                                       "task_type",
                                       "inference_mode",
                                       "r",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "use_rslora",
                                       "target_modules",
                                       "exclude_modules",
                                       "rank_pattern",
                                       "alpha_pattern",
                                       "init_lora_weights",
                                       "layers_to_transform",
                                       "layers_pattern",
                                       "bias",
                                       "peft_version",
                                       "eva_config",
                                       "megatron_core",
                                       "qalora_group_size"};

/* null, false, {} and [] switch nothing on. */
static bool is_off(const still_json *value) {
  switch (still_json_type_of(value)) {
  case STILL_JSON_NULL: return true;
  case STILL_JSON_ARRAY:
  case STILL_JSON_OBJECT: return still_json_count(value) == 0;
  case STILL_JSON_BOOL: {
    bool on = true;
    return !still_json_to_bool(value, "", &on) && !on;
  }
  default: return false;
  }
}

static bool is_harmless(const char *key) {
  for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++)
    if (!strcmp(key, harmless[i])) return true;
  return false;
}

/* A member whose text, where present, must be this. */
static still_status expect_text(const still_json *config, const char *key, const char *wanted) {
  const char *text = wanted;
  STILL_TRY(still_json_optional_string(config, key, &text));
  if (!strcmp(text, wanted)) return STILL_OK;
  return still_fail(STILL_ERROR_UNSUPPORTED, "%s '%s' is not supported; supported is: %s", key,
                    text, wanted);
}

/* Starts that change the base weights (PiSSA, OLoRA, LoftQ ...) would need those weights. */
static still_status check_start(const still_json *config) {
  const still_json *start = still_json_find(config, "init_lora_weights");
  if (still_json_type_of(start) != STILL_JSON_STRING) return STILL_OK;
  const char *text = "";
  STILL_TRY(still_json_to_string(start, "init_lora_weights", &text));
  if (!strcmp(text, "gaussian") || !strcmp(text, "eva") || !strcmp(text, "orthogonal"))
    return STILL_OK;
  return still_fail(STILL_ERROR_UNSUPPORTED,
                    "init_lora_weights '%s' changes the base model and is not supported", text);
}

static still_status refuse_unknown(const still_json *config) {
  if (still_json_type_of(config) != STILL_JSON_OBJECT)
    return still_fail(STILL_ERROR_FORMAT, "adapter_config.json is no object");
  for (const still_json *at = still_json_first(config); at; at = still_json_next(at))
    if (!is_harmless(still_json_key(at)) && !is_off(at))
      return still_fail(STILL_ERROR_UNSUPPORTED, "PEFT option '%s' is not supported",
                        still_json_key(at));
  STILL_TRY(expect_text(config, "peft_type", "LORA"));
  STILL_TRY(expect_text(config, "bias", "none"));
  return check_start(config);
}

/* PEFT matches a pattern against the end of the module's name; only plain names are taken here, and a dot for
 * itself. */
static bool pattern_fits(const char *pattern, const char *module) {
  const size_t length = strlen(pattern), whole = strlen(module);
  if (length > whole || strcmp(module + whole - length, pattern)) return false;
  return length == whole || module[whole - length - 1] == '.';
}

/* The value for a module: the first pattern that fits, else the general one. */
static still_status value_for(const still_json *config, const char *patterns_key, const char *key,
                              const char *module, double *value) {
  STILL_TRY(still_json_get_f64(config, key, value));
  const still_json *patterns = still_json_find(config, patterns_key);
  for (const still_json *at = still_json_first(patterns); at; at = still_json_next(at)) {
    const char *pattern = still_json_key(at);
    if (!pattern || strpbrk(pattern, "\\^$*+?()[]{}|"))
      return still_fail(STILL_ERROR_UNSUPPORTED,
                        "%s: pattern '%s' is no plain module name and is not supported",
                        patterns_key, pattern ? pattern : "");
    if (pattern_fits(pattern, module)) return still_json_to_f64(at, patterns_key, value);
  }
  return STILL_OK;
}

static still_status set_scale(const still_json *config, still_lora *lora, const char *module) {
  double rank, alpha;
  bool rank_stabilised = false;
  STILL_TRY(value_for(config, "rank_pattern", "r", module, &rank));
  STILL_TRY(value_for(config, "alpha_pattern", "lora_alpha", module, &alpha));
  STILL_TRY(still_json_optional_bool(config, "use_rslora", &rank_stabilised));
  if (rank != lora->rank)
    return still_fail(STILL_ERROR_FORMAT, "%s: the pair has rank %d, the configuration says %g",
                      module, lora->rank, rank);
  lora->scale = (float)(alpha / (rank_stabilised ? sqrt(rank) : rank));
  return STILL_OK;
}

static still_status set_scales(const still_json *config, still_adapter *adapter) {
  for (int i = 0; i < adapter->layer_count; i++)
    for (int l = 0; l < STILL_LINEARS; l++) {
      char module[128];
      snprintf(module, sizeof module, "base_model.model.model.layers.%d.%s", i,
               still_linear_module(l));
      still_lora *lora = &adapter->layers[i].lora[l];
      if (lora->rank) STILL_TRY(set_scale(config, lora, module));
    }
  return STILL_OK;
}

static still_status read_pairs(still_adapter *adapter, const char *folder, const still_json *json,
                               const still_model_config *config) {
  STILL_TRY(refuse_unknown(json));
  char *path;
  STILL_TRY(still_join_path(&path, folder, "adapter_model.safetensors"));
  still_safetensors *file = NULL;
  still_status status = still_safetensors_open(&file, path, true);
  if (!status) status = still_adapter_take_tensors(adapter, file, config, 1);
  if (!status) status = set_scales(json, adapter);
  still_safetensors_close(file);
  still_free(path);
  return status;
}

still_status still_adapter_read_peft(still_adapter *adapter, const char *folder,
                                     const still_model_config *config) {
  char *path;
  STILL_TRY(still_join_path(&path, folder, "adapter_config.json"));
  still_json *json = NULL;
  still_status status = still_json_read(&json, path, STILL_JSON_FILE_LIMIT);
  if (!status) {
    status = read_pairs(adapter, folder, json, config);
    if (status) status = still_fail_in(status, "%s", folder);
  }
  still_json_free(json);
  still_free(path);
  return status;
}
