/* SPDX-License-Identifier: MIT
 * test_gpu_subgroup [SIZE]: the self-checks of the shaders that reduce by subgroups pass where the device has subgroups of
 * this size, and the plain ones take their place without them (0). Without SIZE: whatever the device has. Exit 77 on a device
 * of another size. */
#include "gpu/gpu_fixtures.h"

#include "backend/backend.h"
#include "backend/vulkan/vulkan_device.h"

#include <stdio.h>
#include <stdlib.h>

enum { H = 1, D = 16 };

static void check_decode(void) {
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  float map[H * D * D];
  check_normal(map, H * D * D, 1);
  o.heads = H;
  o.head_dim = D;
  o.chunk = 16;
  o.context = 256;
  o.device = gpu_device();
  still_attention_weights w = STILL_ATTENTION_WEIGHTS_INIT;
  w.feature_q = w.feature_k = map;
  still_attention_plan *plan;
  still_attention_cache *cache;
  check_ok(still_attention_plan_create(&plan, &o, &w));
  check_ok(still_attention_cache_create(&cache, plan)); /* decode_linear */
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
}

/* Sizes that are given are checked by rms_norm alone: all of attention's shaders would have to be compiled anew for them. */
static void the_checks_pass(void **state) {
  const int size = **(const int **)state;
  still_backend *backend;
  check_ok(still_backend_create(&backend, gpu_device(), 1)); /* rms_norm */
  if (size <= 0) check_decode();
  assert_int_equal((gpu_features() & STILL_VULKAN_SUBGROUP) != 0, size != 0);
  still_backend_destroy(backend);
}

int main(int argc, char **argv) {
  static int size;
  size = argc > 1 ? atoi(argv[1]) : -1;
  still_vulkan *vulkan;
  if (still_vulkan_open(&vulkan, gpu_device())) {
    printf("skipped: %s\n", still_last_error());
    return 77;
  }
  const int here = (int)vulkan->limits.subgroup;
  still_vulkan_close(vulkan);
  if (size > 0 && here != size) {
    printf("skipped: subgroups of %d\n", here);
    return 77;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(the_checks_pass, &size)};
  return gpu_run_tests(tests, CHECK_COUNT(tests));
}
