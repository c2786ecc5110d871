/* SPDX-License-Identifier: MIT
 * The device that the GPU tests use: environment STILL_TEST_DEVICE, else vulkan:0. */
#ifndef STILL_TESTS_GPU_FIXTURES_H
#define STILL_TESTS_GPU_FIXTURES_H

#include "harness/check.h"

const char *gpu_device(void);
/* still_vulkan_feature bits of the device, while tests run. */
unsigned gpu_features(void);
/* Lets go of the device that gpu_run_tests holds, so that the next one to open it gets a fresh one; holds it again. */
void gpu_release(void);
void gpu_hold(void);

/* Runs the tests with the device held open, so that shaders are compiled once, and checks that the library holds no
 * memory afterwards. Exit code for main(): 77 without the device. */
int gpu_run_tests(const struct CMUnitTest *tests, size_t count);

#endif
