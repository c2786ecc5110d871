/* SPDX-License-Identifier: MIT
 * The device itself: choice, machines without Vulkan, refused Vulkan calls (each one in turn), lowered limits, shaders that give wrong
 * results, bounded submissions. */
#include "gpu/gpu_fixtures.h"

#include "backend/backend.h"
#include "backend/vulkan/vulkan_attention.h"
#include "backend/vulkan/vulkan_check.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 2, D = 16, N = 40 };

/* ---- choice --------------------------------------------------------------------------------------------------- */

static void names_choose_devices(void **state) {
  (void)state;
  still_vulkan *vulkan;
  check_fails(still_vulkan_open(&vulkan, "cuda"), STILL_ERROR_ARGUMENT, "vulkan:N");
  check_fails(still_vulkan_open(&vulkan, "vulkan:x"), STILL_ERROR_DEVICE, "vulkan:0");
  check_fails(still_vulkan_open(&vulkan, "vulkan:99"), STILL_ERROR_DEVICE, "vulkan:0");
  still_device_info devices[16];
  size_t count;
  check_ok(still_list_devices(devices, 16, &count));
  assert_true(count >= 2);
  assert_string_equal(devices[0].name, "cpu");
  assert_string_equal(devices[1].name, "vulkan:0");
  bool real = false;
  for (size_t i = 1; i < count; i++) real |= devices[i].kind != STILL_DEVICE_SOFTWARE_GPU;
  if (real) skip(); /* then "vulkan" means that one */
  check_fails(still_vulkan_open(&vulkan, "vulkan"), STILL_ERROR_DEVICE, "run on the CPU");
}

/* In a process of its own: the loader reads its environment once. */
static int without_drivers(void) {
  still_vulkan *vulkan;
  still_device_info devices[4];
  size_t count;
  if (still_vulkan_open(&vulkan, "vulkan:0") != STILL_ERROR_DEVICE || !*still_last_error())
    return 1;
  if (still_list_devices(devices, 4, &count) || count != 1) return 1;
  printf("%s\n", still_last_error());
  return still_allocated_bytes() != 0;
}

static const char *program;

static void no_driver_is_a_sentence(void **state) {
  (void)state;
  const char *const argv[] = {program, "--without-drivers", NULL};
  const char *const environment[] = {"VK_ICD_FILENAMES=/dev/null", "VK_DRIVER_FILES=/dev/null",
                                     NULL};
  check_run_result result = check_run(argv, NULL, environment);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "vulkan"));
  check_run_free(&result);
}

/* ---- refused calls --------------------------------------------------------------------------------------------- */

static still_status open_and_close(void) {
  still_vulkan *vulkan;
  const uint32_t constants[STILL_VULKAN_CONSTANTS] = {0};
  const still_vulkan_pipeline *pipeline;
  STILL_TRY(still_vulkan_open(&vulkan, gpu_device()));
  const still_status status =
      still_vulkan_pipeline_get(vulkan, STILL_SHADER_probe_copy_f32, constants, &pipeline);
  still_vulkan_close(vulkan);
  return status;
}

/* A plan, a cache, prefill and decode. */
static still_status attend(void) {
  float x[H * N * D], y[H * N * D];
  check_normal(x, H * N * D, 1);
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.heads = H;
  o.head_dim = D;
  o.chunk = 16;
  o.budget = 32;
  o.context = 64;
  o.device = gpu_device();
  still_attention_plan *plan = NULL;
  still_attention_cache *cache = NULL;
  still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
  in.q = in.k = in.v = (still_rows){x, N * D, D};
  still_status status = still_attention_plan_create(&plan, &o, NULL);
  if (!status) status = still_attention_cache_create(&cache, plan);
  if (!status) status = still_attention_forward(plan, cache, N - 1, &in, y, N * D, D);
  if (!status) status = still_attention_forward(plan, cache, 1, &in, y, N * D, D);
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  return status;
}

/* Every Vulkan call of the scenario fails once: an error or a result without that call, and nothing is left over. */
static void fail_each_call(still_status (*scenario)(void), VkResult result) {
  const uint64_t before = still_allocated_bytes();
  check_ok(scenario()); /* once for what is done only once: shaders, self-checks */
  still_vulkan_fail_call(0, VK_SUCCESS);
  check_ok(scenario());
  const long calls = still_vulkan_calls();
  const uint64_t settled =
      still_allocated_bytes(); /* shaders stay with a device that is held open */
  assert_true(calls > 5);
  long errors = 0;
  for (long call = 1; call <= calls; call++) {
    still_vulkan_fail_call(call, result);
    const still_status status = scenario();
    still_vulkan_fail_call(0, VK_SUCCESS);
    if (status) errors++;
    if (status && status != STILL_ERROR_MEMORY && status != STILL_ERROR_DEVICE &&
        status != STILL_ERROR_UNSUPPORTED)
      fail_msg("call %ld: status %d: %s", call, (int)status, still_last_error());
    if (still_allocated_bytes() > (settled > before ? settled : before) + 4096)
      fail_msg("call %ld: %llu bytes are left", call,
               (unsigned long long)(still_allocated_bytes() - before));
  }
  assert_true(errors >
              calls / 2); /* some calls can be done without: timestamps, the pipeline cache */
  check_ok(scenario());
}

static void each_call_of_opening_may_fail(void **state) {
  (void)state;
  fail_each_call(open_and_close, VK_ERROR_OUT_OF_DEVICE_MEMORY);
  fail_each_call(open_and_close, VK_ERROR_INITIALIZATION_FAILED);
}

static still_vulkan *held;

static void each_call_of_attention_may_fail(void **state) {
  (void)state;
  check_ok(still_vulkan_open(&held, gpu_device()));
  fail_each_call(attend, VK_ERROR_OUT_OF_DEVICE_MEMORY);
  still_vulkan_close(held);
}

/* ---- limits ----------------------------------------------------------------------------------------------------- */

static void small_limits_are_kept(void **state) {
  (void)state;
  setenv("STILL_VULKAN_LIMITS", "range=65536,heap=4194304", 1);
  still_backend *backend;
  still_buffer *buffer, *in, *out;
  check_ok(still_backend_create(&backend, gpu_device(), 1));
  unsetenv("STILL_VULKAN_LIMITS");
  check_fails(backend->ops->buffer_create(backend, 20000, &buffer), STILL_ERROR_UNSUPPORTED,
              "binds at most");
  /* a matrix four times the size of a binding: its rows lie in several buffers */
  enum { ROWS = 1024, COLUMNS = 64 };
  float *w = malloc(sizeof(float) * ROWS * COLUMNS), x[COLUMNS], y[ROWS];
  assert_non_null(w);
  check_normal(w, ROWS * COLUMNS, 5);
  check_normal(x, COLUMNS, 6);
  const still_tensor tensor = {
      "w", STILL_TENSOR_F32, 2, {ROWS, COLUMNS}, w, sizeof(float) * ROWS * COLUMNS};
  still_weight *weight;
  check_ok(backend->ops->weight_create(backend, &tensor, &weight));
  check_ok(backend->ops->buffer_create(backend, COLUMNS, &in));
  check_ok(backend->ops->buffer_create(backend, ROWS, &out));
  check_ok(backend->ops->buffer_write(backend, in, 0, x, COLUMNS));
  check_ok(backend->ops->matmul(backend, out, weight, in, 1, 0));
  check_ok(backend->ops->buffer_read(backend, out, 0, y, ROWS));
  for (int r = 0; r < ROWS; r++) {
    double want = 0;
    for (int c = 0; c < COLUMNS; c++) want += (double)w[r * COLUMNS + c] * (double)x[c];
    assert_true(want - (double)y[r] < 1e-4 && (double)y[r] - want < 1e-4);
  }
  const int32_t last = ROWS - 1;
  check_ok(backend->ops->embed(backend, in, weight, &last, 1));
  check_ok(backend->ops->buffer_read(backend, in, 0, y, COLUMNS));
  assert_memory_equal(y, w + (size_t)last * COLUMNS, sizeof(float) * COLUMNS);
  /* the heap ends with a sentence, and what exists stays usable */
  still_buffer *many[512];
  int made = 0;
  still_status status = STILL_OK;
  while (made < 512 && !(status = backend->ops->buffer_create(backend, 16000, &many[made]))) made++;
  assert_int_equal(status, STILL_ERROR_MEMORY);
  assert_non_null(strstr(still_last_error(), "no room"));
  while (made) backend->ops->buffer_destroy(backend, many[--made]);
  check_ok(backend->ops->buffer_create(backend, 16000, &buffer));
  backend->ops->buffer_destroy(backend, buffer);
  backend->ops->buffer_destroy(backend, in);
  backend->ops->buffer_destroy(backend, out);
  backend->ops->weight_destroy(backend, weight);
  still_backend_destroy(backend);
  free(w);
}

/* ---- wrong shaders ------------------------------------------------------------------------------------------------ */

static char logged[1024];
static void keep_log(void *user, still_log_level level, const char *message) {
  (void)user;
  if (level <= STILL_LOG_WARNING) snprintf(logged, sizeof logged, "%s", message);
}

static void wrong_variants_are_switched_off(void **state) {
  (void)state;
  still_vulkan *vulkan;
  check_ok(still_vulkan_open(&vulkan, gpu_device()));
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.kind = STILL_ATTENTION_FULL;
  o.heads = H;
  o.head_dim = D;
  o.context = 64;
  o.device = gpu_device();
  o.cache_type = vulkan->features & STILL_VULKAN_F16 ? STILL_F16 : STILL_F32;
  still_attention_plan *plan;
  still_attention_cache *cache;
  still_set_log(keep_log, NULL, STILL_LOG_WARNING);
  still_vulkan_pretend_wrong(STILL_VULKAN_F16 | STILL_VULKAN_COOPMAT | STILL_VULKAN_F32);
  check_ok(still_attention_plan_create(&plan, &o, NULL));
  check_fails(still_attention_cache_create(&cache, plan), STILL_ERROR_UNSUPPORTED,
              "differs from the CPU");
  still_vulkan_pretend_wrong(0);
  still_set_log(NULL, NULL, STILL_LOG_ERROR);
  if (o.cache_type == STILL_F16) {
    assert_non_null(strstr(logged, "f16 switched off"));
    assert_false(vulkan->features & STILL_VULKAN_F16);
  }
  still_attention_plan_destroy(plan);
  still_vulkan_close(vulkan);
}

static void features_can_be_switched_off(void **state) {
  (void)state;
  still_vulkan *vulkan;
  setenv("STILL_VULKAN_DISABLE", "f16,coopmat", 1);
  check_ok(still_vulkan_open(&vulkan, gpu_device()));
  unsetenv("STILL_VULKAN_DISABLE");
  assert_int_equal(vulkan->features, 0);
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.heads = H;
  o.head_dim = D;
  o.device = gpu_device();
  o.cache_type = STILL_F16;
  still_attention_plan *plan;
  check_fails(still_attention_plan_create(&plan, &o, NULL), STILL_ERROR_UNSUPPORTED, "16-bit");
  still_vulkan_close(vulkan);
}

int main(int argc, char **argv) {
  program = argv[0];
  if (argc > 1 && !strcmp(argv[1], "--without-drivers")) return without_drivers();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_choose_devices),
      cmocka_unit_test(no_driver_is_a_sentence),
      cmocka_unit_test(small_limits_are_kept),
      cmocka_unit_test(features_can_be_switched_off),
      cmocka_unit_test(wrong_variants_are_switched_off),
      cmocka_unit_test(each_call_of_opening_may_fail),
      cmocka_unit_test(each_call_of_attention_may_fail),
  };
  still_vulkan *vulkan;
  if (still_vulkan_open(&vulkan, gpu_device())) {
    printf("skipped: %s\n", still_last_error());
    return 77;
  }
  still_vulkan_close(vulkan); /* not held open: most of these tests want a fresh device */
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (still_allocated_bytes()) {
    printf("%llu bytes are still allocated\n", (unsigned long long)still_allocated_bytes());
    return 1;
  }
  return failed;
}
