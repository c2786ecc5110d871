/* SPDX-License-Identifier: MIT
 * LoRA pairs in a GGUF file, as llama.cpp reads them:
 *   general.type "adapter", adapter.type "lora", general.architecture the base model's
 *   adapter.lora.alpha                   pairs count alpha / rank times; 0: once
 *   blk.<i>.<matrix>.weight.lora_a       (rank, in)
 *   blk.<i>.<matrix>.weight.lora_b       (out, rank); of q and k in the order of the family's GGUF */
#include "base/memory.h"
#include "model/adapter_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static still_status expect_text(const still_gguf *file, const char *key, const char *wanted) {
  const char *text;
  size_t length;
  if (!still_gguf_get_string(file, key, &text, &length))
    return still_fail(STILL_ERROR_FORMAT, "no adapter: %s is missing or no string", key);
  if (length == strlen(wanted) && !memcmp(text, wanted, length)) return STILL_OK;
  return still_fail(STILL_ERROR_UNSUPPORTED, "%s is '%.*s', must be '%s'", key,
                    (int)still_smaller(length, 40), text, wanted);
}

/* "attn_q.weight.lora_a": which matrix, and which half. */
static bool parse_name(const char *name, still_linear *linear, bool *is_a) {
  for (int l = 0; l < STILL_BASE_LINEARS; l++) {
    const char *matrix = still_linear_gguf(l);
    const size_t length = strlen(matrix);
    if (strncmp(name, matrix, length)) continue;
    *linear = (still_linear)l;
    *is_a = !strcmp(name + length, ".weight.lora_a");
    if (*is_a || !strcmp(name + length, ".weight.lora_b")) return true;
  }
  return false;
}

static still_status take_tensor(still_adapter *adapter, const still_tensor *tensor,
                                const still_model_config *config) {
  const char *name = "";
  still_linear linear;
  bool is_a;
  still_adapter_layer *layer = NULL;
  if (!strncmp(tensor->name, "blk.", 4))
    layer = still_adapter_layer_of(adapter, tensor->name + 4, &name);
  if (!layer || !parse_name(name, &linear, &is_a)) return still_adapter_no_place(tensor);
  uint64_t out, in;
  still_linear_shape(config, linear, &out, &in);
  return still_adapter_take_half(&layer->lora[linear], tensor, is_a, out, in);
}

/* B of q or k into the order of this library. */
static still_status reorder(still_lora *lora, size_t heads, size_t dim) {
  float *ordered;
  const size_t rank = (size_t)lora->rank;
  STILL_TRY(STILL_ALLOC(&ordered, heads * dim * rank, "rows of an adapter"));
  still_rows_from_gguf(ordered, lora->b, heads, dim, rank * sizeof *ordered);
  still_free(lora->b);
  lora->b = ordered;
  return STILL_OK;
}

static still_status finish_pair(still_lora *lora, int layer, still_linear linear, double alpha,
                                const still_model_config *config) {
  if (!lora->a || !lora->b)
    return still_fail(STILL_ERROR_FORMAT, "tensor 'blk.%d.%s.weight.%s' is missing", layer,
                      still_linear_gguf(linear), lora->a ? "lora_b" : "lora_a");
  lora->scale = alpha != 0 ? (float)(alpha / lora->rank) : 1;
  if (!config->architecture->gguf_permuted) return STILL_OK;
  const size_t dim = (size_t)config->head_dim;
  if (linear == STILL_LINEAR_Q) return reorder(lora, (size_t)config->heads, dim);
  if (linear == STILL_LINEAR_K) return reorder(lora, (size_t)config->kv_heads, dim);
  return STILL_OK;
}

static still_status take_pairs(still_adapter *adapter, const still_gguf *file,
                               const still_model_config *config) {
  double alpha = 0;
  STILL_TRY(expect_text(file, "general.type", "adapter"));
  STILL_TRY(expect_text(file, "adapter.type", "lora"));
  STILL_TRY(expect_text(file, "general.architecture", config->architecture->gguf));
  if (!still_gguf_get_f64(file, "adapter.lora.alpha", &alpha) || !isfinite(alpha))
    return still_fail(STILL_ERROR_FORMAT, "adapter.lora.alpha is missing or no number");
  for (size_t i = 0; i < still_gguf_tensor_count(file); i++)
    STILL_TRY(take_tensor(adapter, still_gguf_tensor(file, i), config));
  for (int i = 0; i < adapter->layer_count; i++)
    for (int l = 0; l < STILL_BASE_LINEARS; l++) {
      still_lora *lora = &adapter->layers[i].lora[l];
      if (lora->rank) STILL_TRY(finish_pair(lora, i, (still_linear)l, alpha, config));
    }
  return STILL_OK;
}

still_status still_adapter_read_gguf(still_adapter *adapter, const char *path,
                                     const still_model_config *config) {
  still_gguf *file;
  STILL_TRY(still_gguf_open(&file, path, true));
  const still_status status = take_pairs(adapter, file, config);
  still_gguf_close(file);
  return status ? still_fail_in(status, "%s", path) : STILL_OK;
}
