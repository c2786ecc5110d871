/* SPDX-License-Identifier: MIT
 * Models from files: both formats, every family, what is missing or wrong. */
#include "backend/cpu/backend_cpu.h"
#include "harness/check.h"
#include "model/model_fixtures.h"
#include "model/model_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 40 };

/* ---- the same model from both formats, and in float64 ------------------------------------------- */

static void check_both_formats(made_model *model, const char *what) {
  char gguf[64], folder[64];
  snprintf(gguf, sizeof gguf, "%s.gguf", what);
  snprintf(folder, sizeof folder, "%s_hf", what);
  made_fill(model, 7);
  still_token ids[LENGTH];
  random_ids(ids, LENGTH, model->vocabulary, 3);
  const size_t count = LENGTH * (size_t)model->vocabulary;
  float *want = malloc(count * sizeof *want), *from_gguf = malloc(count * sizeof *want),
        *from_folder = malloc(count * sizeof *want);
  made_reference(model, ids, LENGTH, want);
  all_logits(made_gguf(model, gguf, STILL_TENSOR_F32), NULL, ids, LENGTH, from_gguf);
  all_logits(made_folder(model, folder, STILL_TENSOR_F32), NULL, ids, LENGTH, from_folder);
  check_rows_close(what, from_gguf, want, LENGTH, (size_t)model->vocabulary, 2e-5);
  assert_memory_equal(from_gguf, from_folder, count * sizeof *want);
  free(want);
  free(from_gguf);
  free(from_folder);
  made_free(model);
}

static void llama_equals_float64_in_both_formats(void **state) {
  (void)state;
  made_model model = made_shape();
  check_both_formats(&model, "llama");
}

static void untied_and_odd_sizes(void **state) {
  (void)state;
  made_model model = made_shape();
  model.tied = false;
  model.heads = 6;
  model.kv_heads = 3;
  model.head_dim = 10; /* 6 * 10 is not the width */
  model.width = 50;
  model.feed_forward = 131;
  check_both_formats(&model, "odd");
}

static void qwen2_has_biases(void **state) {
  (void)state;
  made_model model = made_shape();
  model.gguf_architecture = "qwen2";
  model.class_name = "Qwen2ForCausalLM";
  model.biases = true;
  check_both_formats(&model, "qwen2");
}

static void qwen3_has_head_norms(void **state) {
  (void)state;
  made_model model = made_shape();
  model.gguf_architecture = "qwen3";
  model.class_name = "Qwen3ForCausalLM";
  model.head_norms = true;
  check_both_formats(&model, "qwen3");
}

/* Rows of a matrix in 16 bits or Q8_0 are off by at most 2^-11, 2^-8 and 1/254 of themselves; through two layers of a
 * random model that stays below these bounds of a row's largest logit. */
static void smaller_types_stay_close(void **state) {
  (void)state;
  static const struct {
    still_tensor_type type;
    double bound;
  } cases[] = {{STILL_TENSOR_F16, 4e-3}, {STILL_TENSOR_BF16, 4e-2}, {STILL_TENSOR_Q8_0, 4e-2}};
  made_model model = made_shape();
  model.width = 64; /* a multiple of Q8_0's block */
  made_fill(&model, 5);
  still_token ids[LENGTH];
  random_ids(ids, LENGTH, model.vocabulary, 3);
  const size_t count = LENGTH * (size_t)model.vocabulary;
  float *want = malloc(count * sizeof *want), *got = malloc(count * sizeof *got);
  made_reference(&model, ids, LENGTH, want);
  for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
    const still_type_traits *traits = still_type_traits_get(cases[i].type);
    all_logits(made_gguf(&model, traits->name, cases[i].type), NULL, ids, LENGTH, got);
    const double error = check_row_error(got, want, LENGTH, (size_t)model.vocabulary);
    if (!(error <= cases[i].bound) || error < 1e-6)
      fail_msg("%s: error %g, bound %g (and not the exact weights)", traits->name, error,
               cases[i].bound);
  }
  free(want);
  free(got);
  made_free(&model);
}

/* ---- the order of q and k rows ------------------------------------------------------------------ */

static void row_order_round_trip(void **state) {
  (void)state;
  enum { DIM = 6, ROW = 3 };
  for (size_t heads = 1; heads <= 8; heads += 7) { /* key/value heads and query heads */
    float rows[8 * DIM * ROW], there[8 * DIM * ROW], back[8 * DIM * ROW];
    const size_t count = heads * DIM * ROW;
    check_normal(rows, count, heads);
    still_rows_to_gguf(there, rows, heads, DIM, ROW * sizeof *rows);
    still_rows_from_gguf(back, there, heads, DIM, ROW * sizeof *rows);
    assert_memory_equal(rows, back, count * sizeof *rows);
    /* GGUF's rows 0 and 1 of a head are the pair that Hugging Face has half a head apart. */
    assert_memory_equal(there + ROW, rows + DIM / 2 * ROW, ROW * sizeof *rows);
  }
}

/* ---- tied embeddings ---------------------------------------------------------------------------- */

static void tied_embedding_is_one_copy(void **state) {
  (void)state;
  still_model_weights *weights;
  check_ok(still_model_weights_open(&weights, small_gguf(), true));
  assert_ptr_equal(weights->output.data, weights->embedding.data);
  const still_model_config *c = &weights->config;
  const uint64_t per_layer =
      (uint64_t)c->width * (uint64_t)(2 * 64 + 2 * 32 + 3 * c->feed_forward + 2);
  assert_int_equal(weights->parameters, (uint64_t)c->vocabulary * (uint64_t)c->width +
                                            (uint64_t)c->width + 2 * per_layer);
  still_model_weights_close(weights);
}

/* ---- what is missing or wrong ------------------------------------------------------------------- */

/* The small model's folder with one thing changed in config.json. */
static const char *changed_config(const char *from, const char *to) {
  static int number;
  char name[64], file[96];
  snprintf(name, sizeof name, "changed_%d", number++);
  made_model model = made_shape();
  made_fill(&model, 1);
  const char *folder = made_folder(&model, name, STILL_TENSOR_F32);
  made_free(&model);
  snprintf(file, sizeof file, "%s/config.json", name);
  char *text = check_read(check_path(file), NULL), *at = strstr(text, from), changed[4096];
  assert_non_null(at);
  snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  free(text);
  check_file(file, changed, strlen(changed));
  return folder;
}

static void check_config_fails(const char *from, const char *to, still_status status,
                               const char *sentence) {
  still_model *model = NULL;
  check_fails(still_model_open(&model, changed_config(from, to), NULL), status, sentence);
  assert_null(model);
}

static void wrong_configurations_are_named(void **state) {
  (void)state;
  check_config_fails("LlamaForCausalLM", "GPTNeoXForCausalLM", STILL_ERROR_UNSUPPORTED,
                     "architecture 'GPTNeoXForCausalLM' is not known; known are: LlamaForCausalLM");
  check_config_fails("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4000000000",
                     STILL_ERROR_FORMAT, "num_hidden_layers is 4000000000, must be 1 .. 1024");
  check_config_fails("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", STILL_ERROR_FORMAT,
                     "'model.layers.2.self_attn.q_proj.weight' of shape [64, 48] is missing");
  check_config_fails("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", STILL_ERROR_FORMAT,
                     "4 query heads are no multiple of 3 key/value heads");
  check_config_fails("\"num_attention_heads\": 4", "\"num_attention_heads\": 8", STILL_ERROR_FORMAT,
                     "'model.layers.0.self_attn.q_proj.weight' has shape [64, 48], must have "
                     "[128, 48]");
  check_config_fails("\"head_dim\": 16", "\"head_dim\": 15", STILL_ERROR_FORMAT, "even number");
  check_config_fails("\"vocab_size\": 97", "\"vocab_size\": 0", STILL_ERROR_FORMAT,
                     "vocab_size is 0, must be 1 ..");
  check_config_fails("\"rms_norm_eps\": 1e-5", "\"rms_norm_eps\": -1", STILL_ERROR_FORMAT,
                     "epsilon");
  check_config_fails("\"rms_norm_eps\": 1e-5,", "\"rms_norm_eps\": 1e-5, \"hidden_act\": \"gelu\",",
                     STILL_ERROR_UNSUPPORTED, "hidden_act 'gelu'");
  check_config_fails("\"rms_norm_eps\": 1e-5,",
                     "\"rms_norm_eps\": 1e-5, \"rope_scaling\": {\"rope_type\": \"longrope\"},",
                     STILL_ERROR_UNSUPPORTED, "rope scaling 'longrope' is not known; known are:");
  check_config_fails("\"rms_norm_eps\": 1e-5,",
                     "\"rms_norm_eps\": 1e-5, \"rope_scaling\": {\"type\": \"linear\"},",
                     STILL_ERROR_FORMAT, "factor is 0, must be a positive number");
}

static void tensors_without_a_place_are_refused(void **state) {
  (void)state;
  made_model model =
      made_shape(); /* biases in a family that has none: not to be left out in silence */
  model.biases = true;
  made_fill(&model, 1);
  still_model *opened = NULL;
  check_fails(still_model_open(&opened, made_gguf(&model, "biased.gguf", STILL_TENSOR_F32), NULL),
              STILL_ERROR_UNSUPPORTED, "tensor 'blk.0.attn_q.bias' has no place in a model");
  made_free(&model);
}

static void untied_output_must_be_there(void **state) {
  (void)state;
  check_config_fails("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false",
                     STILL_ERROR_FORMAT, "'lm_head.weight' of shape [97, 48] is missing");
}

static void truncated_model_is_refused(void **state) {
  (void)state;
  size_t bytes;
  char *data = check_read(small_gguf(), &bytes);
  still_model *model = NULL;
  for (size_t left = bytes; left > bytes / 3; left -= bytes / 7) {
    const char *path = check_file("short.gguf", data, left - 1);
    const still_status status = still_model_open(&model, path, NULL);
    assert_int_equal(status, STILL_ERROR_FORMAT);
    assert_non_null(strstr(still_last_error(), "short.gguf"));
  }
  free(data);
}

static int stop_loading(void *user, uint64_t done, uint64_t total) {
  *(uint64_t *)user = total;
  return done > total / 4;
}

static void loading_can_be_stopped(void **state) {
  (void)state;
  uint64_t total = 0;
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.progress = stop_loading;
  options.progress_user = &total;
  still_model *model = NULL;
  check_fails(still_model_open(&model, small_gguf(), &options), STILL_ERROR_CANCELLED, "stopped");
  assert_null(model);
  assert_int_equal(total, 4 * (97 * 48 + 48 + 2 * 48 * (64 + 32 + 32 + 64 + 3 * 64 + 2)));
}

static void unmapped_weights_are_the_same(void **state) {
  (void)state;
  still_token ids[8];
  random_ids(ids, 8, 97, 1);
  float logits[2][97];
  for (int use_mmap = 0; use_mmap < 2; use_mmap++) {
    still_model_options options = STILL_MODEL_OPTIONS_INIT;
    options.use_mmap = use_mmap;
    model_run run;
    check_ok(still_model_open(&run.model, small_gguf(), &options));
    check_ok(still_session_create(&run.session, run.model, NULL));
    check_ok(still_session_evaluate(run.session, ids, 8, NULL, NULL));
    memcpy(logits[use_mmap], still_session_logits(run.session), sizeof logits[0]);
    close_run(&run);
  }
  assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
}

/* Weights in the order of the CPU's own kernels: the same numbers, added up in another order. Of 97 rows the last has
 * no company, and the embedding is read from the file. */
static void repacked_weights_stay_close(void **state) {
  (void)state;
  enum { TOKENS = 20, VOCABULARY = 97 };
  made_model model = made_shape();
  model.width = model.feed_forward = 64;
  made_fill(&model, 8);
  const char *path = made_gguf(&model, "nibbles.gguf", STILL_TENSOR_Q4_0);
  made_free(&model);
  still_token ids[TOKENS];
  random_ids(ids, TOKENS, VOCABULARY, 1);
  float logits[2][2][VOCABULARY];
  for (int repack = 0; repack < 2; repack++) {
    still_model_options options = STILL_MODEL_OPTIONS_INIT;
    options.repack = repack;
    model_run run;
    check_ok(still_model_open(&run.model, path, &options));
    check_ok(still_session_create(&run.session, run.model, NULL));
    check_ok(still_session_evaluate(run.session, ids, TOKENS - 1, NULL, NULL));
    memcpy(logits[repack][0], still_session_logits(run.session), sizeof logits[0][0]);
    check_ok(still_session_evaluate(run.session, ids + TOKENS - 1, 1, NULL, NULL));
    memcpy(logits[repack][1], still_session_logits(run.session), sizeof logits[0][1]);
    close_run(&run);
  }
  assert_true(check_row_error(logits[1][0], logits[0][0], 2, VOCABULARY) < 1e-3);
}

static void rows_side_by_side_come_back(void **state) {
  (void)state;
  static const still_tensor_type types[] = {STILL_TENSOR_Q4_0, STILL_TENSOR_Q4_1, STILL_TENSOR_Q4_K,
                                            STILL_TENSOR_Q5_K, STILL_TENSOR_Q6_K};
  enum { ROWS = 37, COLUMNS = 512 };
  for (size_t i = 0; i < CHECK_COUNT(types); i++) {
    const still_type_traits *traits = still_type_traits_get(types[i]);
    const size_t row_bytes = COLUMNS / traits->block_items * traits->block_bytes;
    const size_t block_row = 256 / traits->block_items * traits->block_bytes;
    uint8_t *rows = malloc(ROWS * row_bytes), back[STILL_LANES * 2 * 256];
    uint8_t *lanes = malloc(still_lanes_bytes(ROWS, row_bytes));
    assert_true(rows && lanes);
    for (size_t b = 0; b < ROWS * row_bytes; b++) rows[b] = (uint8_t)(b * 7919 >> 4);
    const still_tensor tensor = {.type = types[i], .data = rows};
    still_lanes_write(lanes, &tensor, ROWS, row_bytes, 2);
    for (size_t r = 0; r < ROWS; r += STILL_LANES) { /* the second half of the columns */
      const size_t count = ROWS - r < STILL_LANES ? ROWS - r : STILL_LANES;
      still_lanes_read(back, lanes + r * row_bytes + STILL_LANES * block_row, types[i], count,
                       block_row);
      for (size_t k = 0; k < count; k++)
        assert_memory_equal(back + k * block_row, rows + (r + k) * row_bytes + block_row,
                            block_row);
    }
    free(rows);
    free(lanes);
  }
}

/* A file that shrinks after it was opened cannot hurt a model that was read into memory. */
static void unmapped_file_may_shrink(void **state) {
  (void)state;
  size_t bytes;
  char *data = check_read(small_gguf(), &bytes);
  const char *path = check_file("shrinks.gguf", data, bytes);
  free(data);
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.use_mmap = 0;
  still_token ids[8];
  random_ids(ids, 8, 97, 1);
  float want[8 * 97];
  all_logits(small_gguf(), NULL, ids, 8, want);
  model_run run;
  check_ok(still_model_open(&run.model, path, &options));
  assert_int_equal(truncate(path, 100), 0);
  check_ok(still_session_create(&run.session, run.model, NULL));
  check_ok(still_session_evaluate(run.session, ids, 8, NULL, NULL));
  assert_memory_equal(still_session_logits(run.session), want + 7 * 97, 97 * sizeof *want);
  close_run(&run);
}

/* Mistral 7B v0.1's window: full attention does not look further back. */
static void full_attention_keeps_to_the_trained_window(void **state) {
  (void)state;
  enum { TOKENS = 60, VOCABULARY = 97 };
  static float plain[TOKENS * VOCABULARY], window[TOKENS * VOCABULARY], full[TOKENS * VOCABULARY];
  still_token ids[TOKENS];
  random_ids(ids, TOKENS, VOCABULARY, 5);
  made_model model = made_shape();
  made_fill(&model, 1);
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  all_logits(made_folder(&model, "plain", STILL_TENSOR_F32), &options, ids, TOKENS, plain);
  options.attention = STILL_ATTENTION_SWA;
  options.window = 12;
  all_logits(check_path("plain"), &options, ids, TOKENS, window);
  options.attention = STILL_ATTENTION_FULL;
  model.extra_json = "\"sliding_window\": 12,";
  const char *trained = made_folder(&model, "windowed", STILL_TENSOR_F32);
  all_logits(trained, &options, ids, TOKENS, full);
  assert_memory_equal(full, window, sizeof full);
  assert_true(check_row_error(full + (TOKENS - 1) * VOCABULARY, plain + (TOKENS - 1) * VOCABULARY,
                              1, VOCABULARY) > 1e-3);
  model.sliding_window = 12;
  all_logits(made_gguf(&model, "windowed.gguf", STILL_TENSOR_F32), &options, ids, TOKENS, full);
  assert_memory_equal(full, window, sizeof full);
  options.context = 12; /* never longer than the window */
  all_logits(trained, &options, ids, 12, full);
  assert_memory_equal(full, plain, 12 * VOCABULARY * sizeof *full);
  options.context = 0; /* Qwen2: the size is there, the switch is off */
  model.extra_json = "\"sliding_window\": 12, \"use_sliding_window\": false,";
  all_logits(made_folder(&model, "unused", STILL_TENSOR_F32), &options, ids, TOKENS, full);
  assert_memory_equal(full, plain, sizeof full);
  made_free(&model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(llama_equals_float64_in_both_formats),
      cmocka_unit_test(untied_and_odd_sizes),
      cmocka_unit_test(qwen2_has_biases),
      cmocka_unit_test(qwen3_has_head_norms),
      cmocka_unit_test(full_attention_keeps_to_the_trained_window),
      cmocka_unit_test(smaller_types_stay_close),
      cmocka_unit_test(row_order_round_trip),
      cmocka_unit_test(tied_embedding_is_one_copy),
      cmocka_unit_test(wrong_configurations_are_named),
      cmocka_unit_test(tensors_without_a_place_are_refused),
      cmocka_unit_test(untied_output_must_be_there),
      cmocka_unit_test(truncated_model_is_refused),
      cmocka_unit_test(loading_can_be_stopped),
      cmocka_unit_test(unmapped_weights_are_the_same),
      cmocka_unit_test(repacked_weights_stay_close),
      cmocka_unit_test(rows_side_by_side_come_back),
      cmocka_unit_test(unmapped_file_may_shrink),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
