/* SPDX-License-Identifier: MIT
 * Whole models on vulkan:0 against the CPU: logits of prefill and decode, perplexity, each kind and weight type, some of
 * the layers, too little memory, failing calls, a lost device. */
#include "gpu/gpu_fixtures.h"

#include "backend/vulkan/vulkan_device.h"
#include "base/memory.h"
#include "harness/check.h"
#include "model/adapter.h"
#include "model/model_fixtures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <still/model.h>
#include <string.h>

enum { PROMPT = 150, GREEDY = 24 };

typedef struct run_result {
  float *logits; /* (GREEDY + 1, vocabulary) */
  still_token tokens[GREEDY];
} run_result;

static still_token most_likely(const float *logits, int count) {
  int best = 0;
  for (int i = 1; i < count; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

static const char *adapter;    /* of the models that are opened */
static int device_layers = -1; /* the same */

/* Prompt and greedy answer; the answer follows `forced` where that is given, so that logits can be compared. */
static run_result run(const char *path, const char *device, const still_session_options *options,
                      const still_token *forced) {
  still_model_options open = STILL_MODEL_OPTIONS_INIT;
  open.device = device;
  open.device_layers = device_layers;
  open.adapter = adapter;
  still_model *model;
  still_session *session;
  still_model_info info;
  run_result result;
  check_ok(still_model_open(&model, path, &open));
  still_model_get_info(model, &info);
  check_ok(still_session_create(&session, model, options));
  result.logits = malloc(sizeof(float) * (GREEDY + 1) * (size_t)info.vocabulary);
  assert_non_null(result.logits);
  still_token prompt[PROMPT];
  for (int i = 0; i < PROMPT; i++) prompt[i] = (i * 31 + i * i % 17) % info.vocabulary;
  check_ok(still_session_evaluate(session, prompt, PROMPT, NULL, NULL));
  for (int i = 0; i <= GREEDY; i++) {
    const float *logits = still_session_logits(session);
    memcpy(result.logits + i * info.vocabulary, logits, sizeof(float) * (size_t)info.vocabulary);
    if (i == GREEDY) break;
    result.tokens[i] = most_likely(logits, info.vocabulary);
    const still_token next = forced ? forced[i] : result.tokens[i];
    check_ok(still_session_evaluate(session, &next, 1, NULL, NULL));
  }
  still_session_destroy(session);
  still_model_destroy(model);
  return result;
}

static void compare(const char *what, const char *path, int vocabulary,
                    const still_session_options *options, double bound) {
  run_result cpu = run(path, "cpu", options, NULL);
  run_result gpu = run(path, gpu_device(), options, cpu.tokens);
  /* cooperative matrices read activations as f16 */
  if (gpu_features() & STILL_VULKAN_COOPMAT) bound = 1e-2;
  check_rows_close(what, gpu.logits, cpu.logits, GREEDY + 1, (size_t)vocabulary, bound);
  free(cpu.logits);
  free(gpu.logits);
}

static still_session_options session_of(still_attention_kind kind) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = kind;
  options.chunk = 16;
  options.budget = 48;
  options.context = 256;
  options.window = 40;
  options.sinks = 4;
  return options;
}

static void kinds_agree_with_the_cpu(void **state) {
  (void)state;
  const char *path = small_gguf();
  const still_attention_kind kinds[] = {STILL_ATTENTION_FULL, STILL_ATTENTION_SWA,
                                        STILL_ATTENTION_STILL, STILL_ATTENTION_LIGER_GLA};
  for (size_t i = 0; i < CHECK_COUNT(kinds); i++) {
    const still_session_options options = session_of(kinds[i]);
    compare(still_attention_kind_name(kinds[i]), path, 97, &options, 2e-4);
  }
}

static void weight_types_agree_with_the_cpu(void **state) {
  (void)state;
  made_model made = made_shape();
  made.width = 64;
  made.feed_forward = 96;
  made_fill(&made, 3);
  const still_session_options options = session_of(STILL_ATTENTION_FULL);
  const still_tensor_type types[] = {STILL_TENSOR_F16, STILL_TENSOR_BF16, STILL_TENSOR_Q8_0};
  for (size_t i = 0; i < CHECK_COUNT(types); i++) {
    char name[32];
    snprintf(name, sizeof name, "gpu_%d.gguf", (int)types[i]);
    compare(name, made_gguf(&made, name, types[i]), 97, &options, 1e-3);
  }
  /* a device without 16-bit types reads half floats all the same */
  setenv("STILL_VULKAN_DISABLE", "f16,coopmat,subgroup", 1);
  gpu_release();
  gpu_hold();
  unsetenv("STILL_VULKAN_DISABLE");
  assert_int_equal(gpu_features() & (STILL_VULKAN_F16 | STILL_VULKAN_COOPMAT), 0);
  compare("f16 on f32 only", made_gguf(&made, "gpu_f16.gguf", STILL_TENSOR_F16), 97, &options,
          1e-3);
  gpu_release();
  gpu_hold();
  made_free(&made);
}

static void needle_agrees_with_the_cpu(void **state) {
  (void)state;
  still_session_options options = session_of(STILL_ATTENTION_STILL);
  options.chunk = 32;
  options.budget = 96;
  compare("needle", needle_folder(), 2048, &options, 1e-3);
}

/* ---- kinds that need an adapter ------------------------------------------------------------------------------ */

/* Of small_gguf's two layers. */
static const char *made_adapter(still_attention_kind first, still_attention_kind second) {
  const made_model shape = made_shape();
  const still_model_config config = {.layers = shape.layers,
                                     .heads = shape.heads,
                                     .kv_heads = shape.kv_heads,
                                     .head_dim = shape.head_dim,
                                     .width = shape.width,
                                     .feed_forward = shape.feed_forward,
                                     .vocabulary = shape.vocabulary};
  const size_t dim = (size_t)shape.head_dim, map = (size_t)shape.heads * dim * dim;
  still_adapter *made;
  check_ok(still_adapter_create(&made, &config));
  made->has_attention = true;
  made->attention.window = 20;
  for (int i = 0; i < 2; i++) {
    still_adapter_layer *layer = &made->layers[i];
    layer->kind = i ? second : first;
    check_ok(STILL_ALLOC(&layer->feature_q, map, "a feature map"));
    check_ok(STILL_ALLOC(&layer->feature_k, map, "a feature map"));
    check_normal(layer->feature_q, map, 20 + (uint64_t)i);
    check_normal(layer->feature_k, map, 30 + (uint64_t)i);
  }
  const char *path = check_path("gpu_adapter.safetensors");
  check_ok(still_adapter_write(made, path, &config, STILL_TENSOR_F32));
  still_adapter_destroy(made);
  return path;
}

static void adapted_kinds_agree_with_the_cpu(void **state) {
  (void)state;
  const still_session_options options =
      session_of(STILL_ATTENTION_FULL); /* what the adapter says */
  adapter = made_adapter(STILL_ATTENTION_LOLCATS, STILL_ATTENTION_HEDGEHOG);
  compare("lolcats, hedgehog", small_gguf(), 97, &options, 2e-4);
  adapter = made_adapter(STILL_ATTENTION_T2R, STILL_ATTENTION_STILL);
  compare("t2r, still", small_gguf(), 97, &options, 2e-4);
  adapter = NULL;
}

/* ---- some of the layers -------------------------------------------------------------------------------------- */

static int layers_on_device(const char *path, int wanted) {
  still_model_options open = STILL_MODEL_OPTIONS_INIT;
  open.device = gpu_device();
  open.device_layers = wanted;
  still_model *model;
  still_model_info info;
  check_ok(still_model_open(&model, path, &open));
  still_model_get_info(model, &info);
  still_model_destroy(model);
  return info.device_layers;
}

static void layers_are_shared_with_the_cpu(void **state) {
  (void)state;
  const char *path = small_gguf();
  assert_int_equal(layers_on_device(path, -1), 2);
  assert_int_equal(layers_on_device(path, 9), 2);
  assert_int_equal(layers_on_device(path, 1), 1);
  assert_int_equal(layers_on_device(path, 0), 0);
  const still_attention_kind kinds[] = {STILL_ATTENTION_FULL, STILL_ATTENTION_STILL,
                                        STILL_ATTENTION_LIGER_GLA};
  device_layers = 1;
  for (size_t i = 0; i < CHECK_COUNT(kinds); i++) {
    const still_session_options options = session_of(kinds[i]);
    compare("one layer of two", path, 97, &options, 2e-4);
  }
  device_layers = -1;
  still_model *model;
  still_model_options open = STILL_MODEL_OPTIONS_INIT;
  open.device_layers = -2;
  check_fails(still_model_open(&model, path, &open), STILL_ERROR_ARGUMENT, "device_layers");
}

/* ---- the same words ------------------------------------------------------------------------------------------ */

enum { WORDS = 300 };

typedef struct reading {
  double loss; /* sum of -log p over the tokens after the first */
  still_token ids[8192];
} reading;

static void add_loss(void *user, size_t index, const float *logits) {
  reading *r = user;
  const int vocabulary = 2048;
  double most = -INFINITY, sum = 0;
  if (index + 1 == WORDS) return;
  for (int i = 0; i < vocabulary; i++) most = fmax(most, (double)logits[i]);
  for (int i = 0; i < vocabulary; i++) sum += exp((double)logits[i] - most);
  r->loss += most + log(sum) - (double)logits[r->ids[index + 1]];
}

static double perplexity(const char *device, const still_session_options *options) {
  still_model_options open = STILL_MODEL_OPTIONS_INIT;
  open.device = device;
  still_model *model;
  still_session *session;
  check_ok(still_model_open(&model, needle_folder(), &open));
  check_ok(still_session_create(&session, model, options));
  static reading r;
  static char text[8192];
  r.loss = 0;
  FILE *file = fopen(needle_file("question.txt"), "r");
  assert_non_null(file);
  const size_t bytes = fread(text, 1, sizeof text, file);
  fclose(file);
  size_t count;
  check_ok(still_tokenize(still_model_tokenizer(model), text, bytes, STILL_TOKENIZE_ADD_BOS, r.ids,
                          8192, &count));
  assert_true(count >= WORDS);
  check_ok(still_session_evaluate_all(session, r.ids, WORDS, add_loss, &r));
  still_session_destroy(session);
  still_model_destroy(model);
  return exp(r.loss / (WORDS - 1));
}

static void perplexity_is_the_same(void **state) {
  (void)state;
  const still_attention_kind kinds[] = {STILL_ATTENTION_FULL, STILL_ATTENTION_STILL};
  for (size_t i = 0; i < CHECK_COUNT(kinds); i++) {
    still_session_options options = session_of(kinds[i]);
    options.context = 512;
    options.chunk = 32;
    options.budget = 96;
    const double cpu = perplexity("cpu", &options), gpu = perplexity(gpu_device(), &options);
    printf("%s: perplexity %.6f on the CPU, %.6f on the GPU\n", still_attention_kind_name(kinds[i]),
           cpu, gpu);
    assert_true(cpu > 1 && cpu < 2048 && fabs(gpu / cpu - 1) < 1e-3);
  }
}

/* ---- stops ------------------------------------------------------------------------------------------------------ */

typedef struct stop {
  still_session *session;
  int left;     /* calls until it stops */
  bool cancels; /* by still_session_cancel instead of the callback's result */
} stop;

static int stop_in_time(void *user, uint64_t done, uint64_t total) {
  stop *s = user;
  assert_true(done <= total);
  const bool now = s->left-- == 0;
  if (now && s->cancels) still_session_cancel(s->session);
  return now && !s->cancels;
}

/* An evaluation can be stopped between all its operations, and what follows is what it would have been. */
static void stops_lose_nothing(void **state) {
  (void)state;
  still_model_options open = STILL_MODEL_OPTIONS_INIT;
  open.device = gpu_device();
  still_model *model;
  still_session *session, *control;
  const still_session_options options = session_of(STILL_ATTENTION_STILL);
  still_token ids[80];
  random_ids(ids, 80, 97, 8);
  check_ok(still_model_open(&model, small_gguf(), &open));
  check_ok(still_session_create(&session, model, &options));
  check_ok(still_session_create(&control, model, &options));
  check_ok(still_session_evaluate(session, ids, 40, NULL, NULL));
  check_ok(still_session_evaluate(control, ids, 80, NULL, NULL));
  int stopped = 0;
  for (int round = 0; round < 1000; round++) {
    stop s = {session, round / 2, round % 2};
    const still_status status = still_session_evaluate(session, ids + 40, 40, stop_in_time, &s);
    if (!status) break; /* more calls than there are */
    assert_int_equal(status, STILL_ERROR_CANCELLED);
    assert_int_equal(still_session_position(session), 40);
    stopped++;
  }
  assert_true(stopped > 2 * 2 * 7); /* products of two layers */
  assert_int_equal(still_session_position(session), 80);
  check_rows_close("after stops", still_session_logits(session), still_session_logits(control), 1,
                   97, 1e-4);
  still_session_destroy(control);
  still_session_destroy(session);
  still_model_destroy(model);
}

/* ---- the block by default --------------------------------------------------------------------------------------- */

static int64_t block_on(const char *device) {
  still_model_options open = STILL_MODEL_OPTIONS_INIT;
  open.device = device;
  still_model *model;
  still_session *session;
  still_session_usage usage;
  check_ok(still_model_open(&model, small_gguf(), &open));
  check_ok(still_session_create(&session, model, NULL));
  still_session_get_usage(session, &usage);
  still_session_destroy(session);
  still_model_destroy(model);
  return usage.block;
}

static void check_lowered_block(const char *limits) {
  setenv("STILL_VULKAN_LIMITS", limits, 1);
  gpu_release();
  assert_in_range(block_on(gpu_device()), 512, 2048);
  unsetenv("STILL_VULKAN_LIMITS");
  gpu_hold();
}

static void refuse_block(void) {
  still_model_options open = STILL_MODEL_OPTIONS_INIT;
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  open.device = gpu_device();
  options.block = 65536;
  still_model *model;
  still_session *session;
  setenv("STILL_VULKAN_LIMITS", "range=524288", 1);
  gpu_release();
  check_ok(still_model_open(&model, small_gguf(), &open));
  check_fails(still_session_create(&session, model, &options), STILL_ERROR_ARGUMENT,
              "block 65536: too large for the device's buffers");
  still_model_destroy(model);
  unsetenv("STILL_VULKAN_LIMITS");
  gpu_hold();
}

/* As large as its memory and its bindings allow. */
static void a_gpu_with_memory_reads_large_blocks(void **state) {
  (void)state;
  assert_int_equal(block_on("cpu"), 512);
  assert_int_equal(block_on(gpu_device()), 4096);
  check_lowered_block("heap=30000000");
  check_lowered_block("range=524288");
  refuse_block();
}

/* ---- failures -------------------------------------------------------------------------------------------------- */

enum { TOKENS = 40 };

static void tokens_of(still_token ids[TOKENS]) {
  random_ids(ids, TOKENS, 97, 7);
}

/* Opens, reads and writes a token; logits of the last one. */
static still_status converse(float logits[97]) {
  still_model_options open = STILL_MODEL_OPTIONS_INIT;
  open.device = gpu_device();
  still_model *model = NULL;
  still_session *session = NULL;
  const still_session_options options = session_of(STILL_ATTENTION_STILL);
  still_token ids[TOKENS];
  tokens_of(ids);
  still_status status = still_model_open(&model, small_gguf(), &open);
  if (!status) status = still_session_create(&session, model, &options);
  if (!status) status = still_session_evaluate(session, ids, TOKENS - 1, NULL, NULL);
  if (!status) status = still_session_evaluate(session, ids + TOKENS - 1, 1, NULL, NULL);
  if (!status) memcpy(logits, still_session_logits(session), 97 * sizeof *logits);
  still_session_destroy(session);
  still_model_destroy(model);
  return status;
}

/* An error, or the right answer (by the CPU where the device had no memory); nothing is left over. */
static void each_call_of_a_model_may_fail(void **state) {
  (void)state;
  float want[97], got[97];
  check_ok(converse(want)); /* what is made once: shaders, self-checks */
  still_vulkan_fail_call(0, VK_SUCCESS);
  check_ok(converse(want));
  const long calls = still_vulkan_calls();
  const uint64_t before = still_allocated_bytes();
  long errors = 0;
  still_set_log(NULL, NULL, STILL_LOG_ERROR);
  for (long call = 1; call <= calls; call++) {
    still_vulkan_fail_call(call, VK_ERROR_OUT_OF_DEVICE_MEMORY);
    const still_status status = converse(got);
    still_vulkan_fail_call(0, VK_SUCCESS);
    errors += status != STILL_OK;
    if (!status) check_rows_close("after a failure", got, want, 1, 97, 2e-3);
    /* the device keeps pieces of memory and lists of old buffers; gpu_run_tests looks at the last byte */
    if (still_allocated_bytes() > before + (1 << 18))
      fail_msg("call %ld of %ld: %llu bytes are left", call, calls,
               (unsigned long long)(still_allocated_bytes() - before));
  }
  printf("%ld of %ld calls are errors\n", errors, calls);
  assert_true(errors > calls / 4);
  check_ok(converse(got));
}

/* The device is lost at some call of the second evaluation: that one fails, and the session goes on on the CPU as if nothing
 * had happened. */
static void lose_at(long call, const float *want) {
  still_model_options open = STILL_MODEL_OPTIONS_INIT;
  open.device = gpu_device();
  still_model *model;
  still_session *session, *other;
  const still_session_options options = session_of(STILL_ATTENTION_STILL);
  still_token ids[TOKENS];
  tokens_of(ids);
  check_ok(still_model_open(&model, small_gguf(), &open));
  check_ok(still_session_create(&session, model, &options));
  check_ok(still_session_evaluate(session, ids, 20, NULL, NULL));
  still_vulkan_fail_call(call, VK_ERROR_DEVICE_LOST);
  const still_status status = still_session_evaluate(session, ids + 20, 19, NULL, NULL);
  still_vulkan_fail_call(0, VK_SUCCESS);
  if (status) {
    assert_int_equal(status, STILL_ERROR_DEVICE);
    assert_int_equal(still_session_position(session), 20);
    check_ok(still_session_evaluate(session, ids + 20, 19, NULL, NULL));
  }
  check_ok(still_session_evaluate(session, ids + 39, 1, NULL, NULL));
  check_rows_close("after the loss", still_session_logits(session), want, 1, 97, 2e-3);
  /* and so do new sessions of the model */
  check_ok(still_session_create(&other, model, &options));
  check_ok(still_session_evaluate(other, ids, TOKENS, NULL, NULL));
  check_rows_close("another session", still_session_logits(other), want, 1, 97, 2e-3);
  still_session_destroy(other);
  still_session_destroy(session);
  still_model_destroy(model);
}

static void a_lost_device_leaves_the_cpu(void **state) {
  (void)state;
  float want[97];
  check_ok(converse(want));
  static const long calls[] = {1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  for (size_t i = 0; i < CHECK_COUNT(calls); i++) lose_at(calls[i], want);
}

static void little_memory_means_fewer_layers(void **state) {
  (void)state;
  float want[97], got[97];
  check_ok(converse(want));
  setenv("STILL_VULKAN_LIMITS", "heap=2000000", 1);
  gpu_release();
  const int layers = layers_on_device(small_gguf(), -1);
  printf("%d layers fit\n", layers);
  assert_int_equal(layers, 1);
  check_ok(converse(got));
  check_rows_close("a small heap", got, want, 1, 97, 2e-3);
  setenv("STILL_VULKAN_LIMITS", "heap=65536", 1);
  assert_int_equal(layers_on_device(small_gguf(), -1), 0);
  check_ok(converse(got));
  check_rows_close("a tiny heap", got, want, 1, 97, 2e-3);
  unsetenv("STILL_VULKAN_LIMITS");
  gpu_hold();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kinds_agree_with_the_cpu),
      cmocka_unit_test(adapted_kinds_agree_with_the_cpu),
      cmocka_unit_test(layers_are_shared_with_the_cpu),
      cmocka_unit_test(perplexity_is_the_same),
      cmocka_unit_test(each_call_of_a_model_may_fail),
      cmocka_unit_test(stops_lose_nothing),
      cmocka_unit_test(a_gpu_with_memory_reads_large_blocks),
      cmocka_unit_test(a_lost_device_leaves_the_cpu),
      cmocka_unit_test(little_memory_means_fewer_layers),
      cmocka_unit_test(weight_types_agree_with_the_cpu),
      cmocka_unit_test(needle_agrees_with_the_cpu),
  };
  return gpu_run_tests(tests, CHECK_COUNT(tests));
}
