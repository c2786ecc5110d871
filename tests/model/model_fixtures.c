/* SPDX-License-Identifier: MIT */
#include "model/model_fixtures.h"

#include "base/random.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "harness/check.h"
#include "model/model_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *needle_folder(void) {
  const char *folder = getenv("STILL_NEEDLE");
  if (!folder) fail_msg("STILL_NEEDLE must name the folder of the embedded model");
  return folder;
}

const char *needle_file(const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", needle_folder(), name);
  return path;
}

double largest_difference(const float *got, const float *want, size_t count) {
  double worst = 0;
  for (size_t i = 0; i < count; i++) {
    const double difference = fabs((double)got[i] - (double)want[i]);
    if (!(difference <= worst)) worst = isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

/* ---- making ------------------------------------------------------------------------------------- */

made_model made_shape(void) {
  return (made_model){.gguf_architecture = "llama",
                      .class_name = "LlamaForCausalLM",
                      .layers = 2,
                      .heads = 4,
                      .kv_heads = 2,
                      .head_dim = 16,
                      .width = 48,
                      .feed_forward = 64,
                      .vocabulary = 97,
                      .context = 512,
                      .theta = 10000,
                      .tied = true};
}

static float *normal(size_t count, double mean, double deviation, uint64_t *seed) {
  float *values = malloc(count * sizeof *values);
  assert_non_null(values);
  check_normal(values, count, (*seed)++);
  for (size_t i = 0; i < count; i++) values[i] = (float)(mean + deviation * values[i]);
  return values;
}

static float *matrix(int rows, int columns, uint64_t *seed) {
  return normal((size_t)rows * (size_t)columns, 0, 1 / sqrt(columns), seed);
}

static float *vector(int count, double mean, uint64_t *seed) {
  return normal((size_t)count, mean, 0.1, seed);
}

void made_fill(made_model *m, uint64_t seed) {
  seed *= 1000;
  const int query = m->heads * m->head_dim, key_value = m->kv_heads * m->head_dim;
  m->embedding = normal((size_t)m->vocabulary * (size_t)m->width, 0, 1, &seed);
  m->output_norm = vector(m->width, 1, &seed);
  if (!m->tied) m->output = matrix(m->vocabulary, m->width, &seed);
  for (int i = 0; i < m->layers; i++) {
    made_layer *layer = &m->layer[i];
    layer->attention_norm = vector(m->width, 1, &seed);
    layer->q = matrix(query, m->width, &seed);
    layer->k = matrix(key_value, m->width, &seed);
    layer->v = matrix(key_value, m->width, &seed);
    layer->o = matrix(m->width, query, &seed);
    layer->feed_norm = vector(m->width, 1, &seed);
    layer->gate = matrix(m->feed_forward, m->width, &seed);
    layer->up = matrix(m->feed_forward, m->width, &seed);
    layer->down = matrix(m->width, m->feed_forward, &seed);
    if (m->biases) {
      layer->q_bias = vector(query, 0, &seed);
      layer->k_bias = vector(key_value, 0, &seed);
      layer->v_bias = vector(key_value, 0, &seed);
    }
    if (m->head_norms) {
      layer->q_norm = vector(m->head_dim, 1, &seed);
      layer->k_norm = vector(m->head_dim, 1, &seed);
    }
  }
}

void made_free(made_model *m) {
  free(m->embedding);
  free(m->output_norm);
  free(m->output);
  for (int i = 0; i < m->layers; i++) {
    float **arrays = (float **)&m->layer[i];
    for (size_t j = 0; j < sizeof(made_layer) / sizeof(float *); j++) free(arrays[j]);
  }
}

/* ---- writing ------------------------------------------------------------------------------------ */

/* Tensors with names and converted data of their own. */
typedef struct tensor_list {
  still_tensor tensors[16 * MADE_LAYERS + 3];
  char names[16 * MADE_LAYERS + 3][96];
  size_t count;
  still_tensor_type type; /* of matrices */
} tensor_list;

static void add(tensor_list *list, const char *name, const float *data, int rows, int columns) {
  if (!data) return;
  still_tensor *tensor = &list->tensors[list->count];
  snprintf(list->names[list->count], sizeof list->names[0], "%s", name);
  const bool is_matrix = rows > 0;
  const bool fits = list->type != STILL_TENSOR_Q8_0 || columns % 32 == 0;
  *tensor = (still_tensor){.name = list->names[list->count++],
                           .type = is_matrix && fits ? list->type : STILL_TENSOR_F32,
                           .dimensions = is_matrix ? 2 : 1,
                           .shape = {(uint64_t)(is_matrix ? rows : columns), (uint64_t)columns}};
  uint64_t items;
  check_ok(still_tensor_bytes(name, tensor->type, tensor->dimensions, tensor->shape, &items,
                              &tensor->bytes));
  void *converted = malloc(tensor->bytes);
  assert_non_null(converted);
  still_type_from_f32(tensor->type)(converted, data, items);
  tensor->data = converted;
}

static void free_list(tensor_list *list) {
  for (size_t i = 0; i < list->count; i++) free((void *)list->tensors[i].data);
  free(list);
}

/* A layer's tensor under the name of either format. */
static void add_part(tensor_list *list, bool gguf, int layer, const char *gguf_name,
                     const char *hugging_face, const float *data, int rows, int columns) {
  char name[96];
  if (gguf)
    snprintf(name, sizeof name, "blk.%d.%s", layer, gguf_name);
  else
    snprintf(name, sizeof name, "model.layers.%d.%s", layer, hugging_face);
  add(list, name, data, rows, columns);
}

/* q and k as a GGUF of the llama family stores them. */
static void add_rotated(tensor_list *list, const made_model *m, bool gguf, int layer,
                        const char *gguf_name, const char *hugging_face, const float *data,
                        int heads) {
  const int rows = heads * m->head_dim;
  const bool permute = gguf && !strcmp(m->gguf_architecture, "llama");
  float *order = malloc((size_t)rows * (size_t)m->width * sizeof *order);
  assert_non_null(order);
  if (permute)
    still_rows_to_gguf(order, data, (size_t)heads, (size_t)m->head_dim,
                       (size_t)m->width * sizeof *order);
  add_part(list, gguf, layer, gguf_name, hugging_face, permute ? order : data, rows, m->width);
  free(order);
}

static void add_layer(tensor_list *list, const made_model *m, bool gguf, int i) {
  const made_layer *layer = &m->layer[i];
  const int query = m->heads * m->head_dim, key_value = m->kv_heads * m->head_dim;
  add_part(list, gguf, i, "attn_norm.weight", "input_layernorm.weight", layer->attention_norm, 0,
           m->width);
  add_rotated(list, m, gguf, i, "attn_q.weight", "self_attn.q_proj.weight", layer->q, m->heads);
  add_rotated(list, m, gguf, i, "attn_k.weight", "self_attn.k_proj.weight", layer->k, m->kv_heads);
  add_part(list, gguf, i, "attn_v.weight", "self_attn.v_proj.weight", layer->v, key_value,
           m->width);
  add_part(list, gguf, i, "attn_output.weight", "self_attn.o_proj.weight", layer->o, m->width,
           query);
  add_part(list, gguf, i, "ffn_norm.weight", "post_attention_layernorm.weight", layer->feed_norm, 0,
           m->width);
  add_part(list, gguf, i, "ffn_gate.weight", "mlp.gate_proj.weight", layer->gate, m->feed_forward,
           m->width);
  add_part(list, gguf, i, "ffn_up.weight", "mlp.up_proj.weight", layer->up, m->feed_forward,
           m->width);
  add_part(list, gguf, i, "ffn_down.weight", "mlp.down_proj.weight", layer->down, m->width,
           m->feed_forward);
  add_part(list, gguf, i, "attn_q.bias", "self_attn.q_proj.bias", layer->q_bias, 0, query);
  add_part(list, gguf, i, "attn_k.bias", "self_attn.k_proj.bias", layer->k_bias, 0, key_value);
  add_part(list, gguf, i, "attn_v.bias", "self_attn.v_proj.bias", layer->v_bias, 0, key_value);
  add_part(list, gguf, i, "attn_q_norm.weight", "self_attn.q_norm.weight", layer->q_norm, 0,
           m->head_dim);
  add_part(list, gguf, i, "attn_k_norm.weight", "self_attn.k_norm.weight", layer->k_norm, 0,
           m->head_dim);
}

static tensor_list *list_tensors(const made_model *m, bool gguf, still_tensor_type type) {
  tensor_list *list = calloc(1, sizeof *list);
  assert_non_null(list);
  list->type = type;
  add(list, gguf ? "token_embd.weight" : "model.embed_tokens.weight", m->embedding, m->vocabulary,
      m->width);
  add(list, gguf ? "output_norm.weight" : "model.norm.weight", m->output_norm, 0, m->width);
  add(list, gguf ? "output.weight" : "lm_head.weight", m->output, m->vocabulary, m->width);
  for (int i = 0; i < m->layers; i++) add_layer(list, m, gguf, i);
  return list;
}

static void put_number(still_gguf_writer *writer, const made_model *m, const char *name,
                       int value) {
  char key[96];
  snprintf(key, sizeof key, "%s.%s", m->gguf_architecture, name);
  check_ok(still_gguf_put_u32(writer, key, (uint32_t)value));
}

static void put_float(still_gguf_writer *writer, const made_model *m, const char *name,
                      double value) {
  char key[96];
  snprintf(key, sizeof key, "%s.%s", m->gguf_architecture, name);
  check_ok(still_gguf_put_f32(writer, key, (float)value));
}

const char *made_gguf(const made_model *m, const char *name, still_tensor_type type) {
  still_gguf_writer *writer;
  check_ok(still_gguf_writer_create(&writer));
  check_ok(still_gguf_put_string(writer, "general.architecture", m->gguf_architecture,
                                 strlen(m->gguf_architecture)));
  put_number(writer, m, "block_count", m->layers);
  put_number(writer, m, "attention.head_count", m->heads);
  put_number(writer, m, "attention.head_count_kv", m->kv_heads);
  put_number(writer, m, "attention.key_length", m->head_dim);
  put_number(writer, m, "attention.value_length", m->head_dim);
  put_number(writer, m, "embedding_length", m->width);
  put_number(writer, m, "feed_forward_length", m->feed_forward);
  put_number(writer, m, "context_length", m->context);
  put_number(writer, m, "vocab_size", m->vocabulary);
  if (m->sliding_window) put_number(writer, m, "attention.sliding_window", m->sliding_window);
  put_float(writer, m, "rope.freq_base", m->theta);
  put_float(writer, m, "attention.layer_norm_rms_epsilon", 1e-5);
  tensor_list *list = list_tensors(m, true, type);
  for (size_t i = 0; i < list->count; i++)
    check_ok(still_gguf_put_tensor(writer, &list->tensors[i]));
  const char *path = check_path(name);
  check_ok(still_gguf_write(writer, path));
  still_gguf_writer_destroy(writer);
  free_list(list);
  return path;
}

const char *made_folder(const made_model *m, const char *name, still_tensor_type type) {
  char config[2048], file[256];
  snprintf(config, sizeof config,
           "{\"architectures\": [\"%s\"], \"num_hidden_layers\": %d, \"num_attention_heads\": %d,\n"
           "\"num_key_value_heads\": %d, \"head_dim\": %d, \"hidden_size\": %d,\n"
           "\"intermediate_size\": %d, \"vocab_size\": %d, \"max_position_embeddings\": %d,\n"
           "\"rope_theta\": %g, \"rms_norm_eps\": 1e-5, %s\"tie_word_embeddings\": %s}",
           m->class_name, m->layers, m->heads, m->kv_heads, m->head_dim, m->width, m->feed_forward,
           m->vocabulary, m->context, m->theta, m->extra_json ? m->extra_json : "",
           m->tied ? "true" : "false");
  snprintf(file, sizeof file, "%s/config.json", name);
  check_file(file, config, strlen(config));
  tensor_list *list = list_tensors(m, false, type);
  snprintf(file, sizeof file, "%s/model.safetensors", name);
  check_ok(still_safetensors_write(check_path(file), list->tensors, list->count, NULL, 0));
  free_list(list);
  return check_path(name);
}

const char *small_gguf(void) {
  static const char *path;
  if (path) return path;
  made_model model = made_shape();
  made_fill(&model, 1);
  path = made_gguf(&model, "small.gguf", STILL_TENSOR_F32);
  made_free(&model);
  return path;
}

/* ---- running ------------------------------------------------------------------------------------ */

model_run open_run(const char *path, const still_session_options *options) {
  model_run run;
  check_ok(still_model_open(&run.model, path, NULL));
  check_ok(still_session_create(&run.session, run.model, options));
  return run;
}

void close_run(model_run *run) {
  still_session_destroy(run->session);
  still_model_destroy(run->model);
}

void random_ids(still_token *ids, size_t n, int vocabulary, uint64_t seed) {
  still_random random;
  still_random_seed(&random, seed);
  for (size_t i = 0; i < n; i++)
    ids[i] = (still_token)still_random_below(&random, (uint64_t)vocabulary);
}

typedef struct row_store {
  float *logits;
  size_t vocabulary;
} row_store;

static void store_row(void *user, size_t index, const float *logits) {
  const row_store *store = user;
  memcpy(store->logits + index * store->vocabulary, logits, store->vocabulary * sizeof *logits);
}

void all_logits(const char *path, const still_session_options *options, const still_token *ids,
                size_t n, float *logits) {
  model_run run = open_run(path, options);
  still_model_info info;
  still_model_get_info(run.model, &info);
  row_store store = {logits, (size_t)info.vocabulary};
  check_ok(still_session_evaluate_all(run.session, ids, n, store_row, &store));
  close_run(&run);
}
