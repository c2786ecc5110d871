/* SPDX-License-Identifier: MIT
 * The model on a GPU, real or in software: the same logits as on the CPU, also where the device refuses a kind of
 * attention or a type of weights and the CPU steps in. Skipped where there is no Vulkan. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 90 };

static const char *gpu(void) {
  static still_device_info devices[8];
  size_t count;
  check_ok(still_list_devices(devices, CHECK_COUNT(devices), &count));
  if (count < 2) skip();
  return devices[1].name;
}

static still_model *open_on(const char *path, const char *device) {
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.device = device;
  still_model *model;
  check_ok(still_model_open(&model, path, &options));
  return model;
}

static still_session_options kind_options(still_attention_kind kind) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = kind;
  options.chunk = 8;
  options.budget = 40;
  options.context = 256;
  options.window = 12;
  options.block = 32;
  return options;
}

/* A prefill in blocks, then single tokens; the logits after the last. */
static void run(const still_model *model, const still_session_options *options, float *logits,
                size_t vocabulary) {
  still_token ids[LENGTH];
  random_ids(ids, LENGTH, (int)vocabulary, 3);
  still_session *session;
  check_ok(still_session_create(&session, model, options));
  check_ok(still_session_evaluate(session, ids, LENGTH - 4, NULL, NULL));
  for (int i = LENGTH - 4; i < LENGTH; i++)
    check_ok(still_session_evaluate(session, ids + i, 1, NULL, NULL));
  memcpy(logits, still_session_logits(session), vocabulary * sizeof *logits);
  still_session_destroy(session);
}

/* The device computes with floats; the CPU rounds the activations of quantised weights to 8 bits at
 * some levels (to 0.4 % of the largest of 32), in each of the products on the way. */
static double bound_of(still_tensor_type type) {
  return still_type_traits_get(type)->block_items > 1 ? 2e-2 : 1e-3;
}

static void check_kinds(const char *path, size_t vocabulary, still_tensor_type type) {
  static const still_attention_kind kinds[] = {STILL_ATTENTION_FULL, STILL_ATTENTION_SWA,
                                               STILL_ATTENTION_STILL, STILL_ATTENTION_LIGER_GLA};
  still_model *on_gpu = open_on(path, gpu()), *on_cpu = open_on(path, "cpu");
  float *want = malloc(vocabulary * sizeof *want), *got = malloc(vocabulary * sizeof *got);
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++) {
    char name[64];
    snprintf(name, sizeof name, "%s, %s", still_type_traits_get(type)->name,
             still_attention_kind_name(kinds[k]));
    const still_session_options options = kind_options(kinds[k]);
    run(on_cpu, &options, want, vocabulary);
    run(on_gpu, &options, got, vocabulary);
    check_rows_close(name, got, want, 1, vocabulary, bound_of(type));
  }
  free(want);
  free(got);
  still_model_destroy(on_gpu);
  still_model_destroy(on_cpu);
}

static void every_kind_and_type(void **state) {
  (void)state;
  gpu();
  static const still_tensor_type types[] = {STILL_TENSOR_F32, STILL_TENSOR_BF16, STILL_TENSOR_Q8_0,
                                            STILL_TENSOR_Q4_0};
  made_model model = made_shape();
  model.width = 64;
  made_fill(&model, 5);
  for (size_t i = 0; i < CHECK_COUNT(types); i++) {
    const char *type = still_type_traits_get(types[i])->name;
    check_kinds(made_gguf(&model, type, types[i]), (size_t)model.vocabulary, types[i]);
  }
  made_free(&model);
}

static void sessions_go_back_on_a_device_too(void **state) {
  (void)state;
  still_model *model = open_on(small_gguf(), gpu());
  const still_session_options options = kind_options(STILL_ATTENTION_STILL);
  still_session *session;
  still_checkpoint *checkpoint;
  still_token ids[60];
  float first[97];
  random_ids(ids, 60, 97, 4);
  check_ok(still_session_create(&session, model, &options));
  check_ok(still_session_evaluate(session, ids, 40, NULL, NULL));
  check_ok(still_session_checkpoint(session, &checkpoint));
  check_ok(still_session_save(session, check_path("gpu_session"), NULL, NULL));
  check_ok(still_session_evaluate(session, ids + 40, 20, NULL, NULL));
  memcpy(first, still_session_logits(session), sizeof first);
  check_ok(still_session_rollback(session, checkpoint));
  check_ok(still_session_evaluate(session, ids + 40, 20, NULL, NULL));
  assert_memory_equal(first, still_session_logits(session), sizeof first);
  check_ok(still_session_load(session, check_path("gpu_session"), NULL, NULL));
  check_ok(still_session_evaluate(session, ids + 40, 20, NULL, NULL));
  assert_memory_equal(first, still_session_logits(session), sizeof first);
  still_checkpoint_destroy(checkpoint);
  still_session_destroy(session);
  still_model_destroy(model);
}

static void unknown_devices_are_named(void **state) {
  (void)state;
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.device = "abacus";
  still_model *model = NULL;
  check_fails(still_model_open(&model, small_gguf(), &options), STILL_ERROR_ARGUMENT,
              "device 'abacus' is not known; known are: cpu, vulkan");
  /* Without any GPU the CPU takes its place; where there are some, a wrong number is an error. */
  size_t count;
  check_ok(still_list_devices(NULL, 0, &count));
  options.device = "vulkan:99";
  const still_status status = still_model_open(&model, small_gguf(), &options);
  assert_int_equal(status, count > 1 ? STILL_ERROR_DEVICE : STILL_OK);
  still_model_destroy(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_and_type),
      cmocka_unit_test(sessions_go_back_on_a_device_too),
      cmocka_unit_test(unknown_devices_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
