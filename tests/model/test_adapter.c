/* SPDX-License-Identifier: MIT
 * Adapters: our file there and back, PEFT folders, what they do to a model, and what is wrong with them. */
#include "base/memory.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "harness/check.h"
#include "model/adapter.h"
#include "model/adapter_parts.h"
#include "model/model_fixtures.h"
#include "model/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = 97, LENGTH = 120 };

static still_model_config small_config(void) {
  still_model_weights *weights;
  check_ok(still_model_weights_open(&weights, small_gguf(), true));
  const still_model_config config = weights->config;
  still_model_weights_close(weights);
  return config;
}

static float *floats(uint64_t count, double deviation, uint64_t seed) {
  float *values;
  check_ok(STILL_ALLOC(&values, count, "test values"));
  check_normal(values, count, seed);
  for (uint64_t i = 0; i < count; i++) values[i] = (float)(deviation * values[i]);
  return values;
}

/* Feature maps near the identity, as trained ones are. */
static float *feature_map(const still_model_config *config, uint64_t seed) {
  const size_t heads = (size_t)config->heads, dim = (size_t)config->head_dim;
  float *map = floats(heads * dim * dim, 0.1, seed);
  for (size_t h = 0; h < heads; h++)
    for (size_t d = 0; d < dim; d++) map[(h * dim + d) * dim + d] += 1;
  return map;
}

static void add_lora(still_adapter *adapter, const still_model_config *config, int layer,
                     still_linear linear, int rank, float scale, uint64_t seed) {
  uint64_t out, in;
  still_linear_shape(config, linear, &out, &in);
  adapter->layers[layer].lora[linear] =
      (still_lora){.rank = rank,
                   .scale = scale,
                   .a = floats((uint64_t)rank * in, 1 / sqrt((double)in), seed),
                   .b = floats(out * (uint64_t)rank, 0.2, seed + 1)};
}

/* STILL in every layer, with all that it can have. */
static still_adapter *make_still(const still_model_config *config, bool with_lora) {
  still_adapter *adapter;
  check_ok(still_adapter_create(&adapter, config));
  adapter->has_attention = true;
  adapter->attention.chunk = 8;
  adapter->attention.budget = 40;
  adapter->attention.context = 256;
  adapter->base_hash = 0x0123456789abcdef;
  uint64_t out, in;
  still_linear_shape(config, STILL_LINEAR_GATE, &out, &in);
  for (int i = 0; i < adapter->layer_count; i++) {
    still_adapter_layer *layer = &adapter->layers[i];
    layer->kind = STILL_ATTENTION_STILL;
    layer->feature_q = feature_map(config, 100 + (uint64_t)i);
    layer->feature_k = feature_map(config, 200 + (uint64_t)i);
    layer->gate = floats(out * in, 0.3, 300 + (uint64_t)i);
    for (int l = 0; with_lora && l < STILL_LINEARS; l++)
      add_lora(adapter, config, i, l, 3 + l % 2, 2, 400 + (uint64_t)(100 * i + 2 * l));
  }
  return adapter;
}

static const char *write_adapter(const still_adapter *adapter, const still_model_config *config,
                                 const char *name, still_tensor_type type) {
  check_ok(still_adapter_write(adapter, check_path(name), config, type));
  return check_path(name);
}

/* ---- our file ----------------------------------------------------------------------------------- */

static void check_layer_equal(const still_adapter_layer *a, const still_adapter_layer *b,
                              const still_model_config *config, double bound) {
  assert_int_equal(a->kind, b->kind);
  for (int p = 0; p < STILL_ADAPTER_PARTS; p++) {
    uint64_t shape[3], items = 1;
    const uint32_t dimensions = still_adapter_part_shape(config, p, shape);
    for (uint32_t d = 0; d < dimensions; d++) items *= shape[d];
    const float *x = *still_adapter_part_of((still_adapter_layer *)a, p);
    const float *y = *still_adapter_part_of((still_adapter_layer *)b, p);
    assert_int_equal(x != NULL, y != NULL);
    if (x) assert_true(largest_difference(x, y, items) <= bound);
  }
  for (int l = 0; l < STILL_LINEARS; l++) {
    uint64_t out, in;
    still_linear_shape(config, l, &out, &in);
    const still_lora *x = &a->lora[l], *y = &b->lora[l];
    assert_int_equal(x->rank, y->rank);
    if (!x->rank) continue;
    assert_true(x->scale == y->scale);
    assert_true(largest_difference(x->a, y->a, (uint64_t)x->rank * in) <= bound);
    assert_true(largest_difference(x->b, y->b, (uint64_t)x->rank * out) <= bound);
  }
}

static void written_and_read_is_the_same(void **state) {
  (void)state;
  static const struct {
    still_tensor_type type;
    double bound; /* values are below 8 */
  } cases[] = {{STILL_TENSOR_F32, 0}, {STILL_TENSOR_F16, 2e-3}, {STILL_TENSOR_BF16, 2e-2}};
  const still_model_config config = small_config();
  still_adapter *adapter = make_still(&config, true), *read;
  const size_t per_head = (size_t)config.heads * (size_t)config.head_dim;
  still_adapter_layer *other = &adapter->layers[1]; /* the parts of the other kinds */
  other->kind = STILL_ATTENTION_T2R;
  other->bias_q = floats(per_head, 1, 1);
  other->bias_k = floats(per_head, 1, 2);
  other->window_factor = floats((uint64_t)config.heads, 1, 3);
  adapter->attention.schedule = STILL_SCHEDULE_RATIO;
  adapter->attention.keep_ratio = 0.1f;
  adapter->attention.metric = STILL_METRIC_KEYNORM;
  adapter->attention.routing = STILL_ROUTING_PER_GROUP;
  adapter->attention.feature_map = STILL_FEATURE_HEDGEHOG;
  adapter->attention.window = 33;
  adapter->attention.sinks = 4;
  adapter->attention.keep = 5;
  for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
    const char *path = write_adapter(adapter, &config, "adapter.safetensors", cases[i].type);
    check_ok(still_adapter_read(&read, path, &config));
    assert_true(read->has_attention);
    assert_int_equal(read->base_hash, adapter->base_hash);
    assert_memory_equal(&read->attention, &adapter->attention, sizeof read->attention);
    for (int l = 0; l < adapter->layer_count; l++)
      check_layer_equal(&read->layers[l], &adapter->layers[l], &config, cases[i].bound);
    if (i == 0) /* a hash of the content */
      assert_int_equal(still_adapter_hash(read, &config), still_adapter_hash(adapter, &config));
    still_adapter_destroy(read);
  }
  still_adapter_destroy(adapter);
}

/* ---- what they do ------------------------------------------------------------------------------- */

static void logits_with(const char *model_path, const char *adapter,
                        const still_session_options *options, float *logits) {
  still_token ids[LENGTH];
  random_ids(ids, LENGTH, VOCABULARY, 21);
  still_model_options model_options = STILL_MODEL_OPTIONS_INIT;
  model_options.adapter = adapter;
  model_run run;
  check_ok(still_model_open(&run.model, model_path, &model_options));
  check_ok(still_session_create(&run.session, run.model, options));
  check_ok(still_session_evaluate(run.session, ids, LENGTH, NULL, NULL));
  memcpy(logits, still_session_logits(run.session), VOCABULARY * sizeof *logits);
  close_run(&run);
}

static float *base_linear(made_layer *layer, int linear) {
  float *const matrices[STILL_BASE_LINEARS] = {layer->q,    layer->k,  layer->v,   layer->o,
                                               layer->gate, layer->up, layer->down};
  return matrices[linear];
}

static void merge(made_model *model, const still_adapter *adapter,
                  const still_model_config *config) {
  for (int i = 0; i < model->layers; i++)
    for (int l = 0; l < STILL_BASE_LINEARS; l++) {
      const still_lora *lora = &adapter->layers[i].lora[l];
      float *w = base_linear(&model->layer[i], l);
      uint64_t out, in;
      still_linear_shape(config, l, &out, &in);
      for (uint64_t r = 0; r < out; r++)
        for (uint64_t c = 0; c < in; c++)
          for (int k = 0; k < lora->rank; k++)
            w[r * in + c] += lora->scale * lora->b[r * (uint64_t)lora->rank + (uint64_t)k] *
                             lora->a[(uint64_t)k * in + c];
    }
}

static void lora_aside_equals_lora_merged(void **state) {
  (void)state;
  const still_model_config config = small_config();
  still_adapter *adapter = make_still(&config, true);
  for (int i = 0; i < adapter->layer_count; i++) adapter->layers[i].kind = STILL_ATTENTION_FULL;
  made_model model = made_shape();
  made_fill(&model, 1);
  merge(&model, adapter, &config);
  float aside[VOCABULARY], merged[VOCABULARY], base[VOCABULARY];
  logits_with(small_gguf(), write_adapter(adapter, &config, "full.safetensors", STILL_TENSOR_F32),
              NULL, aside);
  logits_with(made_gguf(&model, "merged.gguf", STILL_TENSOR_F32), NULL, NULL, merged);
  logits_with(small_gguf(), NULL, NULL, base);
  check_rows_close("LoRA aside", aside, merged, 1, VOCABULARY, 2e-5);
  assert_true(check_row_error(aside, base, 1, VOCABULARY) > 0.05);
  made_free(&model);
  still_adapter_destroy(adapter);
}

static void scale_gates(still_adapter *adapter, const still_model_config *config, float factor) {
  uint64_t out, in;
  still_linear_shape(config, STILL_LINEAR_GATE, &out, &in);
  for (int i = 0; i < adapter->layer_count; i++)
    for (uint64_t j = 0; j < out * in; j++) adapter->layers[i].gate[j] *= factor;
}

static void drop_gates(still_adapter *adapter) {
  for (int i = 0; i < adapter->layer_count; i++) {
    still_free(adapter->layers[i].gate);
    adapter->layers[i].gate = NULL;
  }
}

/* sigmoid(0) = 1/2 everywhere differs from no gate, which is 1; and both from an untrained session. */
static void gate_weighs_the_linear_branch(void **state) {
  (void)state;
  const still_model_config config = small_config();
  still_adapter *adapter = make_still(&config, false);
  float trained[VOCABULARY], half[VOCABULARY], none[VOCABULARY], salient_only[VOCABULARY];
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.context = 256;
  const char *name = "gate.safetensors";
  logits_with(small_gguf(), write_adapter(adapter, &config, name, STILL_TENSOR_F32), &options,
              trained);
  scale_gates(adapter, &config, 0);
  logits_with(small_gguf(), write_adapter(adapter, &config, name, STILL_TENSOR_F32), &options,
              half);
  drop_gates(adapter);
  logits_with(small_gguf(), write_adapter(adapter, &config, name, STILL_TENSOR_F32), &options,
              none);
  options.attention = STILL_ATTENTION_STILL;
  options.chunk = 8;
  options.budget = 40;
  logits_with(small_gguf(), NULL, &options, salient_only);
  assert_true(check_row_error(trained, half, 1, VOCABULARY) > 1e-4);
  assert_true(check_row_error(half, none, 1, VOCABULARY) > 1e-4);
  assert_true(check_row_error(none, salient_only, 1, VOCABULARY) > 1e-4);
  still_adapter_destroy(adapter);
}

/* With everything kept the linear branch is empty: full attention, whatever was learned. */
static void all_kept_equals_full_attention(void **state) {
  (void)state;
  const still_model_config config = small_config();
  still_adapter *adapter = make_still(&config, false);
  adapter->attention.schedule = STILL_SCHEDULE_FIXED;
  adapter->attention.keep = adapter->attention.chunk;
  adapter->attention.budget = 0;
  float kept[VOCABULARY], full[VOCABULARY];
  logits_with(small_gguf(), write_adapter(adapter, &config, "all.safetensors", STILL_TENSOR_F32),
              NULL, kept);
  logits_with(small_gguf(), NULL, NULL, full);
  check_rows_close("all kept", kept, full, 1, VOCABULARY, 2e-5);
  still_adapter_destroy(adapter);
}

static void options_win_over_the_adapter(void **state) {
  (void)state;
  const still_model_config config = small_config();
  still_adapter *adapter = make_still(&config, false);
  still_model_options model_options = STILL_MODEL_OPTIONS_INIT;
  model_options.adapter = write_adapter(adapter, &config, "wins.safetensors", STILL_TENSOR_F32);
  model_run run;
  check_ok(still_model_open(&run.model, small_gguf(), &model_options));
  still_model_info info;
  still_model_get_info(run.model, &info);
  assert_int_equal(info.has_adapter, 1);
  const struct {
    int adapter_kinds, chunk, wanted_chunk;
    still_attention_kind attention, wanted;
  } cases[] = {{1, 64, 8, STILL_ATTENTION_FULL, STILL_ATTENTION_STILL},
               {1, 16, 16, STILL_ATTENTION_FULL, STILL_ATTENTION_STILL},
               {1, 64, 8, STILL_ATTENTION_SWA, STILL_ATTENTION_SWA},
               {0, 64, 64, STILL_ATTENTION_FULL, STILL_ATTENTION_FULL}};
  for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
    still_session_options options = STILL_SESSION_OPTIONS_INIT;
    options.adapter_kinds = cases[i].adapter_kinds;
    options.chunk = cases[i].chunk;
    options.attention = cases[i].attention;
    options.context = 256;
    check_ok(still_session_create(&run.session, run.model, &options));
    assert_int_equal(run.session->options.chunk, cases[i].wanted_chunk);
    assert_int_equal(still_attention_plan_options(run.session->layers[1].plan)->kind,
                     cases[i].wanted);
    still_session_destroy(run.session);
  }
  still_model_destroy(run.model);
  still_adapter_destroy(adapter);
}

/* The linear state goes through saving, checkpoints and splits as the rest does. */
/* The budget is spread over what the adapter was trained for, unless the caller says otherwise or a layer grows. */
static void context_of_the_adapter_sets_what_is_kept(void **state) {
  (void)state;
  const still_model_config config = small_config();
  still_adapter *adapter = make_still(&config, false);
  adapter->attention.context = 64;
  still_model_options model_options = STILL_MODEL_OPTIONS_INIT;
  model_options.adapter = write_adapter(adapter, &config, "context.safetensors", STILL_TENSOR_F32);
  model_run run;
  check_ok(still_model_open(&run.model, small_gguf(), &model_options));
  const struct {
    int context;
    const char *layer_kinds;
    int planned, of_session;
  } cases[] = {{0, NULL, 64, 64}, {128, NULL, 128, 128}, {0, "0:full", 64, config.trained_context}};
  for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
    still_session_options options = STILL_SESSION_OPTIONS_INIT;
    options.context = cases[i].context;
    options.layer_kinds = cases[i].layer_kinds;
    check_ok(still_session_create(&run.session, run.model, &options));
    assert_int_equal(still_attention_plan_options(run.session->layers[1].plan)->context,
                     cases[i].planned);
    assert_int_equal(run.session->options.context, cases[i].of_session);
    still_session_destroy(run.session);
  }
  still_model_destroy(run.model);
  still_adapter_destroy(adapter);
}

static void trained_sessions_split_and_save(void **state) {
  (void)state;
  const still_model_config config = small_config();
  still_adapter *adapter = make_still(&config, true);
  still_model_options model_options = STILL_MODEL_OPTIONS_INIT;
  model_options.adapter = write_adapter(adapter, &config, "split.safetensors", STILL_TENSOR_F32);
  still_token ids[LENGTH];
  random_ids(ids, LENGTH, VOCABULARY, 21);
  float whole[VOCABULARY];
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.context = 256;
  logits_with(small_gguf(), model_options.adapter, &options, whole);
  model_run run;
  check_ok(still_model_open(&run.model, small_gguf(), &model_options));
  check_ok(still_session_create(&run.session, run.model, &options));
  still_session *loaded;
  check_ok(still_session_create(&loaded, run.model, &options));
  for (size_t done = 0, piece; done < LENGTH; done += piece) {
    piece = done % 5 ? 1 : 9;
    if (piece > LENGTH - done) piece = LENGTH - done;
    check_ok(still_session_save(run.session, check_path("trained"), NULL, NULL));
    check_ok(still_session_load(loaded, check_path("trained"), NULL, NULL));
    check_ok(still_session_evaluate(run.session, ids + done, piece, NULL, NULL));
    check_ok(still_session_evaluate(loaded, ids + done, piece, NULL, NULL));
    assert_memory_equal(still_session_logits(run.session), still_session_logits(loaded),
                        sizeof whole);
  }
  check_rows_close("pieces", still_session_logits(run.session), whole, 1, VOCABULARY, 1e-5);
  still_session_usage usage;
  still_session_get_usage(run.session, &usage);
  assert_int_equal(usage.softmax_tokens + usage.linear_tokens, LENGTH);
  still_session_destroy(loaded);
  close_run(&run);
  still_adapter_destroy(adapter);
}

/* ---- what is wrong with a file ------------------------------------------------------------------ */

/* One tensor of zeros and the metadata of a good file, of which `key` (NULL: none) becomes `value` (NULL: goes
 * missing). */
static const char *bad_adapter(const char *tensor_name, uint32_t dimensions, const uint64_t *shape,
                               const char *key, const char *value) {
  static const still_safetensors_pair good[] = {{"still_adapter", "1"},
                                                {"kinds", "still,full"},
                                                {"chunk", "8"},
                                                {"budget", "40"},
                                                {"context", "256"},
                                                {"window", "64"},
                                                {"sinks", "0"},
                                                {"keep", "0"},
                                                {"keep_ratio", "0.125"},
                                                {"schedule", "budget"},
                                                {"metric", "saliency"},
                                                {"routing", "head"},
                                                {"lora_scale", "2"},
                                                {"feature_map", "norm-preserved"},
                                                {"base_hash", "0123456789abcdef"}};
  still_safetensors_pair pairs[CHECK_COUNT(good)];
  size_t count = 0;
  for (size_t i = 0; i < CHECK_COUNT(good); i++) {
    const bool is_key = key && !strcmp(good[i].key, key);
    if (is_key && !value) continue;
    pairs[count++] = (still_safetensors_pair){good[i].key, is_key ? value : good[i].value};
  }
  static float zeros[64 * 64];
  still_tensor tensor = {.name = tensor_name, .dimensions = dimensions, .data = zeros};
  memcpy(tensor.shape, shape, dimensions * sizeof *shape);
  tensor.bytes = sizeof(float) * still_tensor_items(&tensor);
  check_ok(still_safetensors_write(check_path("bad.safetensors"), &tensor, 1, pairs, count));
  return check_path("bad.safetensors");
}

static const uint64_t feature_shape[3] = {4, 16, 16};

static void check_metadata(const char *key, const char *value, still_status status,
                           const char *sentence) {
  const still_model_config config = small_config();
  still_adapter *adapter = NULL;
  check_fails(still_adapter_read(&adapter,
                                 bad_adapter("layers.0.feature_q", 3, feature_shape, key, value),
                                 &config),
              status, sentence);
  assert_null(adapter);
}

static void wrong_metadata_is_named(void **state) {
  (void)state;
  check_metadata("still_adapter", NULL, STILL_ERROR_FORMAT, "no STILL adapter");
  check_metadata("still_adapter", "2", STILL_ERROR_UNSUPPORTED, "adapter version '2' is not known");
  check_metadata("kinds", "still", STILL_ERROR_FORMAT, "'kinds' names 1 layers, the model has 2");
  check_metadata("kinds", "still,what", STILL_ERROR_ARGUMENT, "what");
  check_metadata("chunk", "0", STILL_ERROR_FORMAT, "'chunk' is '0', must be 1 ..");
  check_metadata("chunk", "8x", STILL_ERROR_FORMAT, "'chunk' is '8x'");
  check_metadata("budget", NULL, STILL_ERROR_FORMAT, "metadata 'budget' is missing");
  check_metadata("metric", "luck", STILL_ERROR_UNSUPPORTED, "'metric' is 'luck'");
  check_metadata("keep_ratio", "nan", STILL_ERROR_FORMAT, "'keep_ratio' is 'nan'");
  check_metadata("base_hash", "12", STILL_ERROR_FORMAT, "16 hexadecimal digits");
}

static void check_tensor_fails(const char *name, uint32_t dimensions, const uint64_t *shape,
                               still_status status, const char *sentence) {
  const still_model_config config = small_config();
  still_adapter *adapter = NULL;
  check_fails(
      still_adapter_read(&adapter, bad_adapter(name, dimensions, shape, NULL, NULL), &config),
      status, sentence);
  assert_null(adapter);
}

static void wrong_tensors_are_named(void **state) {
  (void)state;
  check_tensor_fails("layers.0.feature_q", 3, (uint64_t[]){4, 16, 8}, STILL_ERROR_FORMAT,
                     "'layers.0.feature_q' has shape [4, 16, 8], must have [4, 16, 16]");
  check_tensor_fails("layers.2.feature_q", 3, feature_shape, STILL_ERROR_UNSUPPORTED,
                     "'layers.2.feature_q' has no place");
  check_tensor_fails("layers.0.colour", 3, feature_shape, STILL_ERROR_UNSUPPORTED, "no place");
  check_tensor_fails("layers.99999999999999999999.gate", 3, feature_shape, STILL_ERROR_UNSUPPORTED,
                     "no place");
  check_tensor_fails(STILL_LORA_PREFIX "0.self_attn.q_proj.lora_A.weight", 2, (uint64_t[]){4, 48},
                     STILL_ERROR_FORMAT, "q_proj.lora_B.weight' is missing");
  check_tensor_fails(STILL_LORA_PREFIX "0.self_attn.q_proj.lora_A.weight", 2, (uint64_t[]){4, 47},
                     STILL_ERROR_FORMAT, "has shape [4, 47], must have [4, 48]");
  check_tensor_fails(STILL_LORA_PREFIX "0.self_attn.q_proj.lora_C.weight", 2, (uint64_t[]){4, 48},
                     STILL_ERROR_UNSUPPORTED, "no place");
  check_tensor_fails("base_model.model.lm_head.lora_A.weight", 2, (uint64_t[]){4, 48},
                     STILL_ERROR_UNSUPPORTED, "no place");
}

static void numbers_that_are_none_are_refused(void **state) {
  (void)state;
  const still_model_config config = small_config();
  still_adapter *adapter = make_still(&config, false), *read = NULL;
  adapter->layers[1].feature_k[17] = NAN;
  check_fails(
      still_adapter_read(
          &read, write_adapter(adapter, &config, "nan.safetensors", STILL_TENSOR_F32), &config),
      STILL_ERROR_NUMERIC, "'layers.1.feature_k': value 17 is not finite");
  still_adapter_destroy(adapter);
}

static void note_hash(void *user, still_log_level level, const char *message) {
  if (level == STILL_LOG_WARNING && strstr(message, "another base model")) ++*(int *)user;
}

static void another_base_model_is_warned_of(void **state) {
  (void)state;
  const still_model_config config = small_config();
  still_adapter *adapter = make_still(&config, false);
  float logits[VOCABULARY];
  int warnings = 0;
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.context = 256;
  still_set_log(note_hash, &warnings, STILL_LOG_WARNING);
  logits_with(small_gguf(), write_adapter(adapter, &config, "hash.safetensors", STILL_TENSOR_F32),
              &options, logits);
  assert_int_equal(warnings, 1);
  still_model_weights *weights;
  check_ok(still_model_weights_open(&weights, small_gguf(), true));
  adapter->base_hash = weights->hash;
  still_model_weights_close(weights);
  logits_with(small_gguf(), write_adapter(adapter, &config, "hash.safetensors", STILL_TENSOR_F32),
              &options, logits);
  assert_int_equal(warnings, 1);
  still_set_log(NULL, NULL, STILL_LOG_ERROR);
  still_adapter_destroy(adapter);
}

/* ---- PEFT --------------------------------------------------------------------------------------- */

/* A folder with one pair of rank 4 at layer 1's v_proj, and this adapter_config.json. */
static const char *peft_folder(const char *json) {
  const still_model_config config = small_config();
  still_adapter *adapter;
  check_ok(still_adapter_create(&adapter, &config));
  add_lora(adapter, &config, 1, STILL_LINEAR_V, 4, 1, 50);
  const still_lora *lora = &adapter->layers[1].lora[STILL_LINEAR_V];
  const still_tensor tensors[2] = {{.name = STILL_LORA_PREFIX "1.self_attn.v_proj.lora_A.weight",
                                    .dimensions = 2,
                                    .shape = {4, 48},
                                    .data = lora->a,
                                    .bytes = 4 * 48 * sizeof(float)},
                                   {.name = STILL_LORA_PREFIX "1.self_attn.v_proj.lora_B.weight",
                                    .dimensions = 2,
                                    .shape = {32, 4},
                                    .data = lora->b,
                                    .bytes = 32 * 4 * sizeof(float)}};
  check_file("peft/adapter_config.json", json, strlen(json));
  check_ok(
      still_safetensors_write(check_path("peft/adapter_model.safetensors"), tensors, 2, NULL, 0));
  still_adapter_destroy(adapter);
  return check_path("peft");
}

static void check_peft_scale(const char *json, double scale) {
  const still_model_config config = small_config();
  still_adapter *adapter;
  check_ok(still_adapter_read(&adapter, peft_folder(json), &config));
  assert_false(adapter->has_attention);
  assert_int_equal(adapter->layers[1].lora[STILL_LINEAR_V].rank, 4);
  assert_int_equal(adapter->layers[0].lora[STILL_LINEAR_V].rank, 0);
  const double got = adapter->layers[1].lora[STILL_LINEAR_V].scale;
  if (fabs(got - scale) > 1e-6) fail_msg("%s: scale %g, should be %g", json, got, scale);
  still_adapter_destroy(adapter);
}

static void peft_scales(void **state) {
  (void)state;
  check_peft_scale("{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 16}", 4);
  check_peft_scale("{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 16, \"use_rslora\": true}",
                   8);
  check_peft_scale("{\"r\": 4, \"lora_alpha\": 0}", 0);
  check_peft_scale("{\"r\": 8, \"lora_alpha\": 16, \"rank_pattern\": {\"v_proj\": 4}}", 4);
  check_peft_scale("{\"r\": 4, \"lora_alpha\": 16, \"rank_pattern\": {\"_proj\": 8},"
                   "\"alpha_pattern\": {\"model.layers.1.self_attn.v_proj\": 2}}",
                   0.5);
  check_peft_scale("{\"r\": 4, \"lora_alpha\": 16, \"lora_dropout\": 0.1, \"bias\": \"none\","
                   "\"target_modules\": [\"v_proj\"], \"modules_to_save\": null,"
                   "\"fan_in_fan_out\": false, \"loftq_config\": {}, \"megatron_core\": \"x\","
                   "\"init_lora_weights\": true, \"a_later_option\": null}",
                   4);
}

static void check_peft_refused(const char *more, still_status status, const char *sentence) {
  char json[512];
  snprintf(json, sizeof json, "{\"r\": 4, \"lora_alpha\": 16, %s}", more);
  const still_model_config config = small_config();
  still_adapter *adapter = NULL;
  check_fails(still_adapter_read(&adapter, peft_folder(json), &config), status, sentence);
  assert_null(adapter);
}

static void peft_options_that_would_change_the_result(void **state) {
  (void)state;
  check_peft_refused("\"use_dora\": true", STILL_ERROR_UNSUPPORTED, "'use_dora'");
  check_peft_refused("\"fan_in_fan_out\": true", STILL_ERROR_UNSUPPORTED, "'fan_in_fan_out'");
  check_peft_refused("\"modules_to_save\": [\"lm_head\"]", STILL_ERROR_UNSUPPORTED,
                     "'modules_to_save'");
  check_peft_refused("\"a_later_option\": 3", STILL_ERROR_UNSUPPORTED, "'a_later_option'");
  check_peft_refused("\"bias\": \"all\"", STILL_ERROR_UNSUPPORTED, "bias 'all'");
  check_peft_refused("\"peft_type\": \"IA3\"", STILL_ERROR_UNSUPPORTED, "peft_type 'IA3'");
  check_peft_refused("\"init_lora_weights\": \"pissa\"", STILL_ERROR_UNSUPPORTED,
                     "init_lora_weights 'pissa'");
  check_peft_refused("\"rank_pattern\": {\".*v_proj\": 4}", STILL_ERROR_UNSUPPORTED,
                     "pattern '.*v_proj'");
  check_peft_refused("\"rank_pattern\": {\"v_proj\": 3}", STILL_ERROR_FORMAT,
                     "has rank 4, the configuration says 3");
}

/* Members without names. */
static void peft_configuration_that_is_no_object(void **state) {
  (void)state;
  const still_model_config config = small_config();
  still_adapter *adapter = NULL;
  check_fails(still_adapter_read(&adapter, peft_folder("[0, 928]"), &config), STILL_ERROR_FORMAT,
              "adapter_config.json is no object");
  assert_null(adapter);
}

static void peft_works_on_a_model(void **state) {
  (void)state;
  float none[VOCABULARY], with[VOCABULARY], zero[VOCABULARY];
  logits_with(small_gguf(), NULL, NULL, none);
  logits_with(small_gguf(), peft_folder("{\"r\": 4, \"lora_alpha\": 16}"), NULL, with);
  logits_with(small_gguf(), peft_folder("{\"r\": 4, \"lora_alpha\": 0}"), NULL, zero);
  assert_true(check_row_error(with, none, 1, VOCABULARY) > 1e-3);
  assert_memory_equal(zero, none, sizeof none);
}

/* ---- GGUF ---------------------------------------------------------------------------------------- */

/* The adapter's pairs as llama.cpp's converter writes them: q and k in interleaved order. */
static const char *gguf_adapter(const still_adapter *adapter, const still_model_config *config,
                                const char *type, const char *architecture, float alpha) {
  static char names[2 * STILL_BASE_LINEARS * MADE_LAYERS][64];
  static float *reordered[2 * MADE_LAYERS];
  size_t used = 0, copies = 0;
  still_gguf_writer *writer;
  check_ok(still_gguf_writer_create(&writer));
  check_ok(still_gguf_put_string(writer, "general.type", "adapter", 7));
  check_ok(still_gguf_put_string(writer, "adapter.type", type, strlen(type)));
  check_ok(
      still_gguf_put_string(writer, "general.architecture", architecture, strlen(architecture)));
  check_ok(still_gguf_put_f32(writer, "adapter.lora.alpha", alpha));
  for (int i = 0; i < adapter->layer_count; i++)
    for (int l = 0; l < STILL_BASE_LINEARS; l++) {
      const still_lora *lora = &adapter->layers[i].lora[l];
      if (!lora->rank) continue;
      const uint64_t rank = (uint64_t)lora->rank;
      uint64_t out, in;
      still_linear_shape(config, l, &out, &in);
      float *b = lora->b;
      if (l == STILL_LINEAR_Q || l == STILL_LINEAR_K) {
        b = reordered[copies++] = malloc(out * rank * sizeof *b);
        still_rows_to_gguf(b, lora->b, (size_t)out / (size_t)config->head_dim,
                           (size_t)config->head_dim, rank * sizeof *b);
      }
      for (int half = 0; half < 2; half++) {
        snprintf(names[used], sizeof names[0], "blk.%d.%s.weight.lora_%c", i, still_linear_gguf(l),
                 "ab"[half]);
        const still_tensor tensor = {.name = names[used++],
                                     .dimensions = 2,
                                     .shape = {half ? out : rank, half ? rank : in},
                                     .data = half ? b : lora->a,
                                     .bytes = (half ? out : in) * rank * sizeof(float)};
        check_ok(still_gguf_put_tensor(writer, &tensor));
      }
    }
  check_ok(still_gguf_write(writer, check_path("lora.gguf")));
  still_gguf_writer_destroy(writer);
  while (copies) free(reordered[--copies]);
  return check_path("lora.gguf");
}

static void check_gguf_refused(const still_adapter *adapter, const still_model_config *config,
                               const char *type, const char *architecture, still_status status,
                               const char *sentence) {
  still_adapter *read = NULL;
  check_fails(
      still_adapter_read(&read, gguf_adapter(adapter, config, type, architecture, 8), config),
      status, sentence);
  assert_null(read);
}

static still_adapter *make_pairs(const still_model_config *config) {
  still_adapter *adapter;
  check_ok(still_adapter_create(&adapter, config));
  for (int i = 0; i < adapter->layer_count; i++)
    for (int l = 0; l < STILL_BASE_LINEARS; l++)
      add_lora(adapter, config, i, (still_linear)l, 4, 2, 500 + (uint64_t)(100 * i + 2 * l));
  return adapter;
}

static void gguf_pairs_are_read(void **state) {
  (void)state;
  const still_model_config config = small_config();
  still_adapter *adapter = make_pairs(&config), *read;
  check_ok(still_adapter_read(&read, gguf_adapter(adapter, &config, "lora", "llama", 8), &config));
  assert_false(read->has_attention);
  assert_int_equal(still_adapter_hash(read, &config), still_adapter_hash(adapter, &config));
  still_adapter_destroy(read);
  check_ok(still_adapter_read(&read, gguf_adapter(adapter, &config, "lora", "llama", 0), &config));
  assert_true(read->layers[0].lora[STILL_LINEAR_Q].scale == 1);
  still_adapter_destroy(read);
  check_gguf_refused(adapter, &config, "control_vector", "llama", STILL_ERROR_UNSUPPORTED,
                     "adapter.type is 'control_vector', must be 'lora'");
  check_gguf_refused(adapter, &config, "lora", "qwen2", STILL_ERROR_UNSUPPORTED,
                     "general.architecture is 'qwen2', must be 'llama'");
  check_fails(still_adapter_read(&read, small_gguf(), &config), STILL_ERROR_FORMAT,
              "no adapter: general.type is missing");
  still_adapter_destroy(adapter);
}

/* On a quantised base the pairs compute what they compute on the floats those blocks stand for. */
static void lora_on_a_quantised_base(void **state) {
  (void)state;
  made_model model = made_shape();
  model.width = 64;
  made_fill(&model, 1);
  const char *quantised = made_gguf(&model, "base.Q8_0.gguf", STILL_TENSOR_Q8_0);
  still_model_weights *weights;
  check_ok(still_model_weights_open(&weights, quantised, true));
  const still_model_config config = weights->config;
  still_adapter *adapter = make_pairs(&config);
  for (int i = 0; i < model.layers; i++)
    for (int l = 0; l < STILL_BASE_LINEARS; l++) {
      const still_tensor *tensor = &weights->layers[i].linear[l];
      check_ok(still_tensor_to_f32(tensor, 0, still_tensor_items(tensor),
                                   base_linear(&model.layer[i], l)));
    }
  check_ok(still_tensor_to_f32(&weights->embedding, 0, still_tensor_items(&weights->embedding),
                               model.embedding));
  const char *lora = gguf_adapter(adapter, &config, "lora", "llama", 8);
  float aside[VOCABULARY], floats_aside[VOCABULARY], base[VOCABULARY];
  check_ok(still_set_cpu_level("portable")); /* the others round activations */
  logits_with(quantised, lora, NULL, aside);
  logits_with(quantised, NULL, NULL, base);
  logits_with(made_gguf(&model, "base.F32.gguf", STILL_TENSOR_F32), lora, NULL, floats_aside);
  check_ok(still_set_cpu_level(NULL));
  check_rows_close("LoRA on Q8_0", aside, floats_aside, 1, VOCABULARY, 1e-4);
  assert_true(check_row_error(aside, base, 1, VOCABULARY) > 0.05);
  still_adapter_destroy(adapter);
  still_model_weights_close(weights);
  made_free(&model);
}

/* ---- the authors' checkpoints -------------------------------------------------------------------- */

enum { DIM = 16, HEADS = 4 };

/* Layer 1 of the small model in the names of the authors' code: random matrices and, for k, reflections. skip
 * leaves names out that hold it. */
typedef struct authors_file {
  float w[2][HEADS][DIM * DIM], u[HEADS][DIM], gate[64 * 48];
} authors_file;

static const char *write_authors(authors_file *content, const char *skip, const char *gate_name) {
  static char names[3 * HEADS + 1][128];
  still_tensor tensors[3 * HEADS + 1];
  size_t count = 0;
  for (int h = 0; h < HEADS; h++)
    for (int part = 0; part < 3; part++) { /* q, k, reflection of k */
      char *name = names[count];
      snprintf(name, sizeof names[0], "model.layers.1.self_attn.feature_map_%c.mlp.linears.%d.%s",
               part ? 'k' : 'q', h, part == 2 ? "hh.u" : "weight");
      if (skip && strstr(name, skip)) continue;
      float *data = part == 2 ? content->u[h] : content->w[part][h];
      check_normal(data, part == 2 ? DIM : DIM * DIM, (uint64_t)(10 * h + part));
      tensors[count++] = (still_tensor){.name = name,
                                        .dimensions = part == 2 ? 1 : 2,
                                        .shape = {DIM, DIM},
                                        .data = data,
                                        .bytes = (part == 2 ? DIM : DIM * DIM) * sizeof(float)};
    }
  check_normal(content->gate, 64 * 48, 99);
  snprintf(names[count], sizeof names[0], "model.layers.1.self_attn.%s", gate_name);
  tensors[count] = (still_tensor){.name = names[count],
                                  .dimensions = 2,
                                  .shape = {64, 48},
                                  .data = content->gate,
                                  .bytes = sizeof content->gate};
  const char *path = check_path("authors.safetensors");
  check_ok(still_safetensors_write(path, tensors, count + 1, NULL, 0));
  return path;
}

/* x reflected at u's plane, then through W, equals x through the folded A. */
static void check_folded(const float *a, const float *w, const float *u) {
  float x[DIM];
  check_normal(x, DIM, 5);
  double along = 0, norm = 0;
  for (int d = 0; u && d < DIM; d++) along += (double)x[d] * u[d], norm += (double)u[d] * u[d];
  for (int e = 0; e < DIM; e++) {
    double want = 0, got = 0;
    for (int d = 0; d < DIM; d++) {
      want += (double)w[e * DIM + d] * (x[d] - (u ? 2 * along / norm * u[d] : 0));
      got += (double)x[d] * a[d * DIM + e];
    }
    assert_true(fabs(want - got) < 1e-5);
  }
}

static void authors_checkpoints_are_folded(void **state) {
  (void)state;
  static authors_file content;
  const still_model_config config = small_config();
  still_adapter *adapter;
  check_ok(still_adapter_read(&adapter, write_authors(&content, NULL, "g_proj.weight"), &config));
  assert_true(adapter->has_attention);
  assert_int_equal(adapter->layers[0].kind, STILL_ATTENTION_FULL);
  assert_int_equal(adapter->layers[1].kind, STILL_ATTENTION_STILL);
  for (int h = 0; h < HEADS; h++) {
    check_folded(adapter->layers[1].feature_q + h * DIM * DIM, content.w[0][h], NULL);
    check_folded(adapter->layers[1].feature_k + h * DIM * DIM, content.w[1][h], content.u[h]);
  }
  assert_memory_equal(adapter->layers[1].gate, content.gate, sizeof content.gate);
  still_adapter_destroy(adapter);
  adapter = NULL;
  check_fails(still_adapter_read(&adapter,
                                 write_authors(&content, "map_k.mlp.linears.2.w", "g_proj.weight"),
                                 &config),
              STILL_ERROR_FORMAT, "feature_map_k.mlp.linears.2.weight' is missing");
  check_fails(
      still_adapter_read(&adapter, write_authors(&content, "map_k", "g_proj.weight"), &config),
      STILL_ERROR_FORMAT, "layer 1: feature_map_k is missing");
  check_fails(still_adapter_read(&adapter, write_authors(&content, NULL, "r_proj.weight"), &config),
              STILL_ERROR_UNSUPPORTED, "r_proj.weight' has no place");
  assert_null(adapter);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(written_and_read_is_the_same),
      cmocka_unit_test(lora_aside_equals_lora_merged),
      cmocka_unit_test(gate_weighs_the_linear_branch),
      cmocka_unit_test(all_kept_equals_full_attention),
      cmocka_unit_test(options_win_over_the_adapter),
      cmocka_unit_test(context_of_the_adapter_sets_what_is_kept),
      cmocka_unit_test(trained_sessions_split_and_save),
      cmocka_unit_test(wrong_metadata_is_named),
      cmocka_unit_test(wrong_tensors_are_named),
      cmocka_unit_test(numbers_that_are_none_are_refused),
      cmocka_unit_test(another_base_model_is_warned_of),
      cmocka_unit_test(peft_scales),
      cmocka_unit_test(peft_options_that_would_change_the_result),
      cmocka_unit_test(peft_configuration_that_is_no_object),
      cmocka_unit_test(peft_works_on_a_model),
      cmocka_unit_test(gguf_pairs_are_read),
      cmocka_unit_test(lora_on_a_quantised_base),
      cmocka_unit_test(authors_checkpoints_are_folded),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
