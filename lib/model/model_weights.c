/* SPDX-License-Identifier: MIT */
#include "model/model_weights.h"

#include "base/files.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/random.h"
#include "formats/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- names and shapes: the one table ------------------------------------------------------------ */

typedef enum size_of { NONE, WIDTH, QUERY, KEY_VALUE, HEAD, FEED_FORWARD, VOCABULARY } size_of;

typedef struct part {
  const char *gguf, *hugging_face; /* of a layer: %d is its number */
  size_t offset;                   /* in still_layer_weights or still_model_weights */
  size_of out, in;                 /* the shape; in NONE: a vector */
} part;

#define LAYER(member) offsetof(still_layer_weights, member)
#define WHOLE(member) offsetof(still_model_weights, member)

/* In the order of still_linear. */
static const part linear_parts[STILL_BASE_LINEARS] = {
    {"attn_q", "self_attn.q_proj", LAYER(linear[STILL_LINEAR_Q]), QUERY, WIDTH},
    {"attn_k", "self_attn.k_proj", LAYER(linear[STILL_LINEAR_K]), KEY_VALUE, WIDTH},
    {"attn_v", "self_attn.v_proj", LAYER(linear[STILL_LINEAR_V]), KEY_VALUE, WIDTH},
    {"attn_output", "self_attn.o_proj", LAYER(linear[STILL_LINEAR_O]), WIDTH, QUERY},
    {"ffn_gate", "mlp.gate_proj", LAYER(linear[STILL_LINEAR_FF_GATE]), FEED_FORWARD, WIDTH},
    {"ffn_up", "mlp.up_proj", LAYER(linear[STILL_LINEAR_FF_UP]), FEED_FORWARD, WIDTH},
    {"ffn_down", "mlp.down_proj", LAYER(linear[STILL_LINEAR_FF_DOWN]), WIDTH, FEED_FORWARD},
};
static const part norm_parts[] = {
    {"attn_norm", "input_layernorm", LAYER(attention_norm), WIDTH, NONE},
    {"ffn_norm", "post_attention_layernorm", LAYER(feed_norm), WIDTH, NONE},
};
static const part bias_parts[] = {
    {"attn_q", "self_attn.q_proj", LAYER(q_bias), QUERY, NONE},
    {"attn_k", "self_attn.k_proj", LAYER(k_bias), KEY_VALUE, NONE},
    {"attn_v", "self_attn.v_proj", LAYER(v_bias), KEY_VALUE, NONE},
};
static const part head_norm_parts[] = {
    {"attn_q_norm", "self_attn.q_norm", LAYER(q_norm), HEAD, NONE},
    {"attn_k_norm", "self_attn.k_norm", LAYER(k_norm), HEAD, NONE},
};
static const part embedding_part = {"token_embd", "model.embed_tokens", WHOLE(embedding),
                                    VOCABULARY, WIDTH};
static const part output_norm_part = {"output_norm", "model.norm", WHOLE(output_norm), WIDTH, NONE};
static const part output_part = {"output", "lm_head", WHOLE(output), VOCABULARY, WIDTH};

static const char rope_factors_name[] = "rope_freqs.weight";
/* Tensors that files carry and nobody needs: the rotation, computed anew, and the copy of a tied embedding. */
static const char *const ignored[] = {"rotary_emb.inv_freq", "attn_rot_embd", "rope_freqs.weight",
                                      "lm_head.weight"};

static uint64_t size_value(const still_model_config *config, size_of size) {
  switch (size) {
  case NONE: return 0;
  case WIDTH: return (uint64_t)config->width;
  case QUERY: return (uint64_t)config->heads * (uint64_t)config->head_dim;
  case KEY_VALUE: return (uint64_t)config->kv_heads * (uint64_t)config->head_dim;
  case HEAD: return (uint64_t)config->head_dim;
  case FEED_FORWARD: return (uint64_t)config->feed_forward;
  case VOCABULARY: return (uint64_t)config->vocabulary;
  }
  return 0;
}

void still_linear_shape(const still_model_config *config, still_linear linear, uint64_t *out,
                        uint64_t *in) {
  const bool gate = linear == STILL_LINEAR_GATE;
  *out = size_value(config, gate ? QUERY : linear_parts[linear].out);
  *in = size_value(config, gate ? WIDTH : linear_parts[linear].in);
}

const char *still_linear_module(still_linear linear) {
  return linear == STILL_LINEAR_GATE ? "self_attn.g_proj" : linear_parts[linear].hugging_face;
}

const char *still_linear_gguf(still_linear linear) {
  return linear == STILL_LINEAR_GATE ? "attn_gate" : linear_parts[linear].gguf;
}

/* ---- the order of q and k rows ------------------------------------------------------------------ */

void still_rows_from_gguf(void *out, const void *in, size_t heads, size_t dim, size_t row_bytes) {
  for (size_t h = 0; h < heads; h++)
    for (size_t i = 0; i < dim / 2; i++)
      for (size_t s = 0; s < 2; s++)
        memcpy((char *)out + (h * dim + s * (dim / 2) + i) * row_bytes,
               (const char *)in + (h * dim + 2 * i + s) * row_bytes, row_bytes);
}

void still_rows_to_gguf(void *out, const void *in, size_t heads, size_t dim, size_t row_bytes) {
  for (size_t h = 0; h < heads; h++)
    for (size_t i = 0; i < dim / 2; i++)
      for (size_t s = 0; s < 2; s++)
        memcpy((char *)out + (h * dim + 2 * i + s) * row_bytes,
               (const char *)in + (h * dim + s * (dim / 2) + i) * row_bytes, row_bytes);
}

/* Puts an own copy in Hugging Face order in the tensor's place. */
static still_status reorder(still_model_weights *weights, still_tensor *tensor, int heads) {
  if (!tensor->data) return STILL_OK;
  const still_model_config *config = &weights->config;
  void *copy;
  STILL_TRY(still_progress_add(0));
  STILL_TRY(still_alloc(&copy, tensor->bytes, 1, tensor->name));
  still_rows_from_gguf(copy, tensor->data, (size_t)heads, (size_t)config->head_dim,
                       tensor->bytes / tensor->shape[0]);
  weights->owned[weights->owned_count++] = copy;
  tensor->data = copy;
  return STILL_OK;
}

enum { REORDERED_PER_LAYER = 4 };

static still_status reorder_all(still_model_weights *weights) {
  const still_model_config *config = &weights->config;
  if (!weights->gguf || !config->architecture->gguf_permuted) return STILL_OK;
  STILL_TRY(STILL_ALLOC(&weights->owned, (size_t)config->layers * REORDERED_PER_LAYER,
                        "the list of reordered tensors"));
  for (int i = 0; i < config->layers; i++) {
    still_layer_weights *layer = &weights->layers[i];
    STILL_TRY(reorder(weights, &layer->linear[STILL_LINEAR_Q], config->heads));
    STILL_TRY(reorder(weights, &layer->linear[STILL_LINEAR_K], config->kv_heads));
    STILL_TRY(reorder(weights, &layer->q_bias, config->heads));
    STILL_TRY(reorder(weights, &layer->k_bias, config->kv_heads));
  }
  return STILL_OK;
}

/* ---- finding ------------------------------------------------------------------------------------ */

static const still_tensor *find(const still_model_weights *weights, const char *name) {
  return weights->gguf ? still_gguf_find_tensor(weights->gguf, name)
                       : still_safetensors_find(weights->safetensors, name);
}

static void part_name(char out[128], const still_model_weights *weights, const part *what,
                      int layer, const char *suffix) {
  if (layer < 0)
    snprintf(out, 128, "%s.%s", weights->gguf ? what->gguf : what->hugging_face, suffix);
  else if (weights->gguf)
    snprintf(out, 128, "blk.%d.%s.%s", layer, what->gguf, suffix);
  else
    snprintf(out, 128, "model.layers.%d.%s.%s", layer, what->hugging_face, suffix);
}

static still_status check_tensor(const still_tensor *tensor, const char *name, uint32_t dimensions,
                                 const uint64_t *shape) {
  char wanted[64], given[256];
  still_shape_text(wanted, sizeof wanted, dimensions, shape);
  if (!tensor)
    return still_fail(STILL_ERROR_FORMAT, "tensor '%s' of shape %s is missing", name, wanted);
  if (!still_tensor_has_shape(tensor, dimensions, shape))
    return still_fail(STILL_ERROR_FORMAT, "tensor '%s' has shape %s, must have %s", name,
                      still_shape_text(given, sizeof given, tensor->dimensions, tensor->shape),
                      wanted);
  const still_type_traits *traits = still_type_traits_get(tensor->type);
  if (!traits || !traits->is_weight)
    return still_fail(STILL_ERROR_UNSUPPORTED, "tensor '%s' has type %s, which holds no weights",
                      name, traits ? traits->name : "unknown");
  return STILL_OK;
}

/* Mixes a tensor into the model's hash: its name, type, shape and some bytes spread over it. */
static uint64_t hash_tensor(uint64_t hash, const still_tensor *tensor) {
  enum { SAMPLES = 32 };
  for (const char *c = tensor->name; *c; c++) hash = still_hash64(hash ^ (uint8_t)*c);
  hash = still_hash64(hash ^ (uint64_t)tensor->type);
  for (uint32_t i = 0; i < tensor->dimensions; i++) hash = still_hash64(hash ^ tensor->shape[i]);
  for (uint64_t i = 0; i < SAMPLES && tensor->bytes >= 8; i++) {
    uint64_t sample;
    memcpy(&sample, (const char *)tensor->data + (tensor->bytes - 8) / (SAMPLES - 1) * i, 8);
    hash = still_hash64(hash ^ sample);
  }
  return hash;
}

/* Finds a part, checks it and counts it. */
static still_status take(still_model_weights *weights, const part *what, int layer,
                         const char *suffix) {
  char name[128];
  STILL_TRY(still_progress_add(0)); /* the hash waits for the disk */
  part_name(name, weights, what, layer, suffix);
  const uint64_t shape[2] = {size_value(&weights->config, what->out),
                             size_value(&weights->config, what->in)};
  const still_tensor *tensor = find(weights, name);
  STILL_TRY(check_tensor(tensor, name, what->in == NONE ? 1 : 2, shape));
  char *base = layer < 0 ? (char *)weights : (char *)&weights->layers[layer];
  *(still_tensor *)(base + what->offset) = *tensor;
  weights->parameters += still_tensor_items(tensor);
  weights->bytes += tensor->bytes;
  weights->hash = hash_tensor(weights->hash, tensor);
  return STILL_OK;
}

#define TAKE_ALL(weights, parts, layer, suffix)                                                    \
  for (size_t part_ = 0; part_ < sizeof(parts) / sizeof((parts)[0]); part_++)                      \
  STILL_TRY(take(weights, &(parts)[part_], layer, suffix))

static still_status take_layer(still_model_weights *weights, int layer) {
  TAKE_ALL(weights, linear_parts, layer, "weight");
  TAKE_ALL(weights, norm_parts, layer, "weight");
  if (weights->config.qkv_bias) TAKE_ALL(weights, bias_parts, layer, "bias");
  if (weights->config.architecture->qk_norm) TAKE_ALL(weights, head_norm_parts, layer, "weight");
  return STILL_OK;
}

static still_status take_all(still_model_weights *weights) {
  const still_model_config *config = &weights->config;
  STILL_TRY(STILL_ALLOC(&weights->layers, (size_t)config->layers, "the list of layers"));
  STILL_TRY(take(weights, &embedding_part, -1, "weight"));
  STILL_TRY(take(weights, &output_norm_part, -1, "weight"));
  if (config->tied_embeddings)
    weights->output = weights->embedding;
  else
    STILL_TRY(take(weights, &output_part, -1, "weight"));
  for (int i = 0; i < config->layers; i++) STILL_TRY(take_layer(weights, i));
  return STILL_OK;
}

/* A layer's weights as an array; absent parts have no name. */
enum { LAYER_TENSORS = sizeof(still_layer_weights) / sizeof(still_tensor) };

static bool is_taken(const still_model_weights *weights, const char *name) {
  if (name == weights->embedding.name || name == weights->output_norm.name ||
      name == weights->output.name)
    return true;
  for (int i = 0; i < weights->config.layers; i++) {
    const still_tensor *tensors = (const still_tensor *)&weights->layers[i];
    for (int j = 0; j < LAYER_TENSORS; j++)
      if (name == tensors[j].name) return true;
  }
  return false;
}

static bool is_ignored(const char *name) {
  for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
    if (strstr(name, ignored[i])) return true;
  return false;
}

/* A tensor that nobody has taken would be a part of the model that is silently not computed. */
static still_status refuse_others(const still_model_weights *weights) {
  const size_t count = weights->gguf ? still_gguf_tensor_count(weights->gguf)
                                     : still_safetensors_count(weights->safetensors);
  for (size_t i = 0; i < count; i++) {
    const char *name = weights->gguf ? still_gguf_tensor(weights->gguf, i)->name
                                     : still_safetensors_tensor(weights->safetensors, i)->name;
    if (!is_taken(weights, name) && !is_ignored(name))
      return still_fail(STILL_ERROR_UNSUPPORTED,
                        "tensor '%s' has no place in a model of architecture %s", name,
                        weights->config.architecture->gguf);
  }
  return STILL_OK;
}

static still_status rope_frequencies(still_model_weights *weights) {
  const still_model_config *config = &weights->config;
  const uint64_t half = (uint64_t)config->head_dim / 2;
  float factors[512]; /* head_dim is at most 1024 */
  const still_tensor *tensor = weights->gguf ? find(weights, rope_factors_name) : NULL;
  if (tensor) {
    STILL_TRY(check_tensor(tensor, rope_factors_name, 1, &half));
    STILL_TRY(still_tensor_to_f32(tensor, 0, half, factors));
    for (uint64_t i = 0; i < half; i++)
      if (!(factors[i] > 0) || !(factors[i] <= 1e12f))
        return still_fail(STILL_ERROR_FORMAT, "tensor '%s': value %" PRIu64 " is %g, must be > 0",
                          rope_factors_name, i, (double)factors[i]);
  }
  STILL_TRY(STILL_ALLOC(&weights->frequencies, half, "the rotation's frequencies"));
  still_rope_frequencies(&config->rope, config->head_dim, tensor ? factors : NULL,
                         weights->frequencies, &weights->rope_scale);
  return STILL_OK;
}

/* ---- opening ------------------------------------------------------------------------------------ */

static still_status open_gguf(still_model_weights *weights, const char *path, bool use_mmap) {
  STILL_TRY(still_gguf_open(&weights->gguf, path, use_mmap));
  return still_model_config_from_gguf(&weights->config, weights->gguf, path);
}

enum { CONFIG_BYTES = 16 << 20 };

static still_status open_folder(still_model_weights *weights, const char *path, bool use_mmap) {
  char *name = NULL, *text = NULL;
  size_t bytes;
  STILL_TRY(still_join_path(&name, path, "config.json"));
  still_status status = still_read_text(name, CONFIG_BYTES, &text, &bytes);
  if (!status) status = still_model_config_from_json(&weights->config, text, bytes, name);
  if (!status) status = still_safetensors_open(&weights->safetensors, path, use_mmap);
  still_free(text);
  still_free(name);
  return status;
}

static still_status find_everything(still_model_weights *weights) {
  STILL_TRY(take_all(weights));
  STILL_TRY(refuse_others(weights));
  STILL_TRY(rope_frequencies(weights));
  return reorder_all(weights);
}

still_status still_model_weights_open(still_model_weights **out, const char *path, bool use_mmap) {
  *out = NULL;
  still_model_weights *weights;
  STILL_TRY(STILL_ALLOC(&weights, 1, "a model's weights"));
  still_status status = still_path_is_folder(path) ? open_folder(weights, path, use_mmap)
                                                   : open_gguf(weights, path, use_mmap);
  if (!status) {
    status = find_everything(weights);
    if (status) status = still_fail_in(status, "%s", path);
  }
  if (status)
    still_model_weights_close(weights);
  else
    *out = weights;
  return status;
}

void still_model_weights_forget(const still_model_weights *weights) {
  if (weights->gguf) still_gguf_forget(weights->gguf);
}

void still_model_weights_close(still_model_weights *weights) {
  if (!weights) return;
  for (size_t i = 0; i < weights->owned_count; i++) still_free(weights->owned[i]);
  still_free(weights->owned);
  still_free(weights->layers);
  still_free(weights->frequencies);
  still_gguf_close(weights->gguf);
  still_safetensors_close(weights->safetensors);
  still_free(weights);
}

/* ---- as a GGUF file names them ------------------------------------------------------------------ */

static void list_tensor(still_gguf_tensors *list, const still_tensor *tensor, const char *gguf,
                        int layer, const char *suffix) {
  if (!tensor->data) return;
  char *name = list->names[list->count];
  if (layer < 0)
    snprintf(name, sizeof *list->names, "%s.%s", gguf, suffix);
  else
    snprintf(name, sizeof *list->names, "blk.%d.%s.%s", layer, gguf, suffix);
  list->tensors[list->count] = *tensor;
  list->tensors[list->count++].name = name;
}

static void list_parts(still_gguf_tensors *list, const still_model_weights *weights,
                       const part *parts, size_t count, int layer, const char *suffix) {
  const char *base = layer < 0 ? (const char *)weights : (const char *)&weights->layers[layer];
  for (size_t i = 0; i < count; i++)
    list_tensor(list, (const still_tensor *)(base + parts[i].offset), parts[i].gguf, layer, suffix);
}

/* q and k, and their biases, of the families whose GGUF files have another order. */
static void mark_permuted(still_gguf_tensors *list, const still_model_config *config) {
  for (size_t i = 0; config->architecture->gguf_permuted && i < list->count; i++) {
    const bool q = strstr(list->names[i], ".attn_q.") != NULL;
    const bool k = strstr(list->names[i], ".attn_k.") != NULL;
    list->permuted_heads[i] = q ? config->heads : k ? config->kv_heads : 0;
  }
}

static still_status list_rope_factors(still_gguf_tensors *list, const still_model_config *config) {
  const size_t half = (size_t)config->head_dim / 2;
  if (config->rope.scaling != STILL_ROPE_LLAMA3) return STILL_OK;
  STILL_TRY(STILL_ALLOC(&list->rope_factors, half, "factors of the rotation"));
  still_rope_factors(&config->rope, config->head_dim, list->rope_factors);
  const still_tensor tensor = {.type = STILL_TENSOR_F32,
                               .dimensions = 1,
                               .shape = {half},
                               .data = list->rope_factors,
                               .bytes = half * sizeof(float)};
  list_tensor(list, &tensor, "rope_freqs", -1, "weight");
  return STILL_OK;
}

#define LIST_ALL(parts, layer, suffix)                                                             \
  list_parts(list, weights, parts, sizeof(parts) / sizeof((parts)[0]), layer, suffix)

still_status still_gguf_tensors_of(still_gguf_tensors *list, const still_model_weights *weights) {
  const still_model_config *config = &weights->config;
  const size_t room = (size_t)config->layers * LAYER_TENSORS + 4;
  *list = (still_gguf_tensors){0};
  STILL_TRY(STILL_ALLOC(&list->tensors, room, "the list of tensors"));
  STILL_TRY(STILL_ALLOC(&list->permuted_heads, room, "the list of tensors"));
  STILL_TRY(STILL_ALLOC(&list->names, room, "names of tensors"));
  list_parts(list, weights, &embedding_part, 1, -1, "weight");
  list_parts(list, weights, &output_norm_part, 1, -1, "weight");
  if (!config->tied_embeddings) list_parts(list, weights, &output_part, 1, -1, "weight");
  for (int i = 0; i < config->layers; i++) {
    LIST_ALL(linear_parts, i, "weight");
    LIST_ALL(norm_parts, i, "weight");
    LIST_ALL(bias_parts, i, "bias");
    LIST_ALL(head_norm_parts, i, "weight");
  }
  mark_permuted(list, config);
  return list_rope_factors(list, config);
}

void still_gguf_tensors_free(still_gguf_tensors *list) {
  still_free(list->tensors);
  still_free(list->permuted_heads);
  still_free(list->names);
  still_free(list->rope_factors);
}
