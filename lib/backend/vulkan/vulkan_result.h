/* SPDX-License-Identifier: MIT
 * Every VkResult is checked and named here; also where tests make the n-th call fail. */
#ifndef STILL_VULKAN_RESULT_H
#define STILL_VULKAN_RESULT_H

#include "base/status.h"

#include <stdbool.h>
#include <volk.h>

/* "VK_ERROR_DEVICE_LOST"; "VkResult" for values this build does not know. */
const char *still_vulkan_result_name(VkResult result);

/* Turns a failed result into a status and a sentence: out of device memory is MEMORY, the rest DEVICE. `call` is the
 * text of the call, of which the name up to the bracket is quoted. */
still_status still_vulkan_fail(VkResult result, const char *call);

/* For tests: the count-th next call that returns a VkResult (1 = the very next) fails with `result` without being
 * made; 0 switches it off. still_vulkan_calls() counts the calls since then. */
void still_vulkan_fail_call(long count, VkResult result);
long still_vulkan_calls(void);
/* Used by VK_RESULT: counts a call; true if it has to fail, *result is then what it returns. */
bool still_vulkan_injected(VkResult *result);

/* The VkResult of a call, or of the test that forbids it. */
#define VK_RESULT(result, call)                                                                    \
  do {                                                                                             \
    if (!still_vulkan_injected(&(result))) (result) = (call);                                      \
  } while (0)

/* Makes a Vulkan call; returns its failure as a status. Codes above zero (VK_INCOMPLETE, ...) are successes. */
#define VK_TRY(call)                                                                               \
  do {                                                                                             \
    VkResult vk_result_;                                                                           \
    VK_RESULT(vk_result_, call);                                                                   \
    if (vk_result_ < 0) return still_vulkan_fail(vk_result_, #call);                               \
  } while (0)

#endif
