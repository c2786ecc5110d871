/* SPDX-License-Identifier: MIT */
#include "gpu/gpu_fixtures.h"

#include "backend/vulkan/vulkan_device.h"

#include <stdio.h>
#include <stdlib.h>

const char *gpu_device(void) {
  const char *device = getenv("STILL_TEST_DEVICE");
  return device ? device : "vulkan:0";
}

static still_vulkan *held;

void gpu_release(void) {
  still_vulkan_close(held);
  held = NULL;
}

void gpu_hold(void) {
  check_ok(still_vulkan_open(&held, gpu_device()));
}

unsigned gpu_features(void) {
  return held->features;
}

int gpu_run_tests(const struct CMUnitTest *tests, size_t count) {
  if (still_vulkan_open(&held, gpu_device())) {
    printf("skipped: %s\n", still_last_error());
    return 77;
  }
  const int failed = _cmocka_run_group_tests("gpu", tests, count, NULL, NULL);
  still_vulkan_close(held);
  if (still_allocated_bytes()) {
    printf("%llu bytes are still allocated\n", (unsigned long long)still_allocated_bytes());
    return 1;
  }
  return failed;
}
