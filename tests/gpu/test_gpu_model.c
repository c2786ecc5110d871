/* SPDX-License-Identifier: MIT
 * Whole models on vulkan:0 against the CPU: logits of prefill and decode, the same greedy text, each weight type. */
#include "gpu/gpu_fixtures.h"

#include "backend/vulkan/vulkan_device.h"
#include "harness/check.h"
#include "model/model_fixtures.h"

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

/* Prompt and greedy answer; the answer follows `forced` where that is given, so that logits can be compared. */
static run_result run(const char *path, const char *device, const still_session_options *options,
                      const still_token *forced) {
  still_model_options open = STILL_MODEL_OPTIONS_INIT;
  open.device = device;
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
                                        STILL_ATTENTION_STILL};
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
  made_free(&made);
}

static void needle_agrees_with_the_cpu(void **state) {
  (void)state;
  still_session_options options = session_of(STILL_ATTENTION_STILL);
  options.chunk = 32;
  options.budget = 96;
  compare("needle", needle_folder(), 2048, &options, 1e-3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kinds_agree_with_the_cpu),
      cmocka_unit_test(weight_types_agree_with_the_cpu),
      cmocka_unit_test(needle_agrees_with_the_cpu),
  };
  return gpu_run_tests(tests, CHECK_COUNT(tests));
}
