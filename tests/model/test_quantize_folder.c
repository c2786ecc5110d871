/* SPDX-License-Identifier: MIT
 * still_quantize of Hugging Face folders: the GGUF is the one that the same weights would have given, with all that a
 * model needs. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include "formats/safetensors.h"
#include "model/model_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <still/quantize.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 24 };

/* The needle's vocabulary beside the model. */
static void add_tokenizer(const char *folder) {
  static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
  for (size_t i = 0; i < CHECK_COUNT(names); i++) {
    size_t bytes;
    char name[256], *data = check_read(needle_file(names[i]), &bytes);
    snprintf(name, sizeof name, "%s/%s", strrchr(folder, '/') + 1, names[i]);
    check_file(name, data, bytes);
    free(data);
  }
}

static made_model wide_shape(void) {
  still_tokenizer *tokenizer;
  check_ok(still_tokenizer_open(&tokenizer, needle_folder(), NULL, NULL));
  made_model model = made_shape();
  model.width = model.feed_forward = 64;                  /* multiples of Q8_0's block */
  model.vocabulary = still_tokenizer_size(tokenizer) + 3; /* the last ids have no token */
  still_tokenizer_destroy(tokenizer);
  return model;
}

static void check_same_logits(const char *a, const char *b, int vocabulary) {
  still_token ids[LENGTH];
  const size_t count = LENGTH * (size_t)vocabulary;
  float *want = malloc(count * sizeof *want), *got = malloc(count * sizeof *got);
  random_ids(ids, LENGTH, vocabulary, 3);
  all_logits(a, NULL, ids, LENGTH, want);
  all_logits(b, NULL, ids, LENGTH, got);
  assert_memory_equal(want, got, count * sizeof *want);
  free(want);
  free(got);
}

static void check_family(const char *architecture, const char *class_name, bool biases,
                         bool head_norms, bool tied) {
  made_model model = wide_shape();
  model.gguf_architecture = architecture;
  model.class_name = class_name;
  model.biases = biases;
  model.head_norms = head_norms;
  model.tied = tied;
  made_fill(&model, 4);
  const char *folder = made_folder(&model, architecture, STILL_TENSOR_F32);
  add_tokenizer(folder);
  const char *output = check_path("quantised.gguf");
  still_quantize_options options = STILL_QUANTIZE_OPTIONS_INIT;
  options.type = "q8_0";
  check_ok(still_quantize(folder, output, &options));
  check_same_logits(made_gguf(&model, "straight.gguf", STILL_TENSOR_Q8_0), output,
                    model.vocabulary);
  made_free(&model);
}

static void equals_a_gguf_of_the_same_weights(void **state) {
  (void)state;
  check_family("llama", "LlamaForCausalLM", false, false, true);
  check_family("qwen2", "Qwen2ForCausalLM", true, false, false);
  check_family("qwen3", "Qwen3ForCausalLM", false, true, true);
}

/* Two files and their index, in bf16: vectors become F32. */
static const char *shard(const char *folder) {
  static char index[1 << 16];
  still_safetensors *whole;
  still_tensor parts[2][64];
  size_t counts[2] = {0, 0}, used = (size_t)sprintf(index, "{\"weight_map\": {");
  check_ok(still_safetensors_open(&whole, folder, true));
  for (size_t i = 0; i < still_safetensors_count(whole); i++) {
    const still_tensor *tensor = still_safetensors_tensor(whole, i);
    parts[i % 2][counts[i % 2]++] = *tensor;
    used += (size_t)sprintf(index + used, "%s\"%s\": \"model-0000%zu-of-00002.safetensors\"",
                            i ? ", " : "", tensor->name, i % 2 + 1);
  }
  sprintf(index + used, "}}");
  for (int s = 0; s < 2; s++) {
    char name[256];
    snprintf(name, sizeof name, "sharded/model-0000%d-of-00002.safetensors", s + 1);
    check_ok(still_safetensors_write(check_path(name), parts[s], counts[s], NULL, 0));
  }
  still_safetensors_close(whole);
  check_file("sharded/model.safetensors.index.json", index, strlen(index));
  return check_path("sharded");
}

static void shards_and_bf16(void **state) {
  (void)state;
  made_model model = wide_shape();
  made_fill(&model, 5);
  const char *folder = made_folder(&model, "sharded", STILL_TENSOR_BF16);
  add_tokenizer(folder);
  const char *whole = check_path("whole.gguf"), *output = check_path("of-shards.gguf");
  check_ok(still_quantize(folder, whole, NULL));
  const char *sharded = shard(folder);
  check_ok(still_quantize(sharded, output, NULL));
  check_same_logits(whole, output, model.vocabulary);
  still_gguf *gguf;
  check_ok(still_gguf_open(&gguf, output, true));
  assert_int_equal(still_gguf_find_tensor(gguf, "blk.0.attn_norm.weight")->type, STILL_TENSOR_F32);
  assert_int_equal(still_gguf_find_tensor(gguf, "blk.1.attn_q.weight")->type, STILL_TENSOR_Q8_0);
  still_gguf_close(gguf);
  made_free(&model);
}

/* What scalings make of the rotation comes through, also where GGUF has a tensor for it. */
static void rope_scalings_come_through(void **state) {
  (void)state;
  static const char *const scalings[] = {
      "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
      "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64},",
      "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4},",
      "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
      "\"original_max_position_embeddings\": 128},"};
  for (size_t i = 0; i < CHECK_COUNT(scalings); i++) {
    made_model model = wide_shape();
    model.extra_json = scalings[i];
    made_fill(&model, 6);
    const char *folder = made_folder(&model, "scaled", STILL_TENSOR_F32);
    add_tokenizer(folder);
    const char *output = check_path("scaled.gguf");
    check_ok(still_quantize(folder, output, NULL));
    still_model_weights *a, *b;
    check_ok(still_model_weights_open(&a, folder, true));
    check_ok(still_model_weights_open(&b, output, true));
    for (int d = 0; d < model.head_dim / 2; d++)
      assert_true(fabsf(a->frequencies[d] / b->frequencies[d] - 1) < 1e-6f);
    assert_true(fabsf(a->rope_scale - b->rope_scale) < 1e-6f);
    still_model_weights_close(a);
    still_model_weights_close(b);
    made_free(&model);
  }
}

/* The embedded model: its tokens of a text, and its answer. */
static void needle_answers_as_before(void **state) {
  (void)state;
  static const char text[] =
      "The special magic number for the mill is 1234567. The hills are old and the road is long. "
      "The special magic number for the mill is";
  const char *const paths[] = {needle_folder(), check_path("needle.gguf")};
  check_ok(still_quantize(paths[0], paths[1], NULL));
  still_token answers[2][6];
  for (int i = 0; i < 2; i++) {
    model_run run = open_run(paths[i], NULL);
    check_ok(still_session_evaluate_text(run.session, text, strlen(text), STILL_TOKENIZE_ADD_BOS,
                                         NULL, NULL));
    for (size_t t = 0; t < CHECK_COUNT(answers[i]); t++) {
      const float *logits = still_session_logits(run.session);
      still_token best = 0;
      for (int id = 1; id < still_tokenizer_size(still_model_tokenizer(run.model)); id++)
        if (logits[id] > logits[best]) best = id;
      answers[i][t] = best;
      check_ok(still_session_evaluate(run.session, &best, 1, NULL, NULL));
    }
    close_run(&run);
  }
  assert_memory_equal(answers[0], answers[1], sizeof answers[0]);
}

static void says_what_is_missing(void **state) {
  (void)state;
  made_model model = wide_shape();
  made_fill(&model, 7);
  const char *folder = made_folder(&model, "bare", STILL_TENSOR_F32);
  const char *output = check_path("never.gguf");
  check_fails(still_quantize(folder, output, NULL), STILL_ERROR_FILE,
              "bare: holds no tokenizer.json");
  add_tokenizer(folder);
  check_ok(still_quantize(folder, output, NULL));
  unlink(output);
  model.layers = 1;
  made_folder(&model, "bare", STILL_TENSOR_F32); /* a layer fewer than config.json will say */
  model.layers = 2;
  char *config;
  size_t bytes;
  config = check_read(check_path("bare/config.json"), &bytes);
  strstr(config, "\"num_hidden_layers\": 1")[21] = '2';
  check_file("bare/config.json", config, bytes);
  free(config);
  check_fails(still_quantize(folder, output, NULL), STILL_ERROR_FORMAT,
              "tensor 'model.layers.1.self_attn.q_proj.weight' of shape");
  unlink(check_path("bare/model.safetensors"));
  check_fails(still_quantize(folder, output, NULL), STILL_ERROR_FILE, "model.safetensors");
  unlink(check_path("bare/config.json"));
  check_fails(still_quantize(folder, output, NULL), STILL_ERROR_FILE, "config.json");
  assert_int_equal(access(output, F_OK), -1);
  made_free(&model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equals_a_gguf_of_the_same_weights), cmocka_unit_test(shards_and_bf16),
      cmocka_unit_test(rope_scalings_come_through), cmocka_unit_test(needle_answers_as_before),
      cmocka_unit_test(says_what_is_missing)};
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
