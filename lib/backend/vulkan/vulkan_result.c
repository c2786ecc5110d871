/* SPDX-License-Identifier: MIT */
#include "backend/vulkan/vulkan_result.h"

#include <stdatomic.h>
#include <string.h>

static atomic_long calls, failing_call;
static VkResult failing_result;

#define NAME(code)                                                                                 \
  case code: return #code

const char *still_vulkan_result_name(VkResult result) {
  switch (result) {
    NAME(VK_SUCCESS);
    NAME(VK_NOT_READY);
    NAME(VK_TIMEOUT);
    NAME(VK_INCOMPLETE);
    NAME(VK_ERROR_OUT_OF_HOST_MEMORY);
    NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY);
    NAME(VK_ERROR_INITIALIZATION_FAILED);
    NAME(VK_ERROR_DEVICE_LOST);
    NAME(VK_ERROR_MEMORY_MAP_FAILED);
    NAME(VK_ERROR_LAYER_NOT_PRESENT);
    NAME(VK_ERROR_EXTENSION_NOT_PRESENT);
    NAME(VK_ERROR_FEATURE_NOT_PRESENT);
    NAME(VK_ERROR_INCOMPATIBLE_DRIVER);
    NAME(VK_ERROR_TOO_MANY_OBJECTS);
    NAME(VK_ERROR_FRAGMENTED_POOL);
    NAME(VK_ERROR_OUT_OF_POOL_MEMORY);
    NAME(VK_ERROR_INVALID_SHADER_NV);
    NAME(VK_ERROR_UNKNOWN);
  default: return "VkResult";
  }
}

still_status still_vulkan_fail(VkResult result, const char *call) {
  const bool memory =
      result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY;
  /* The text begins with the table the function comes from: "vk->call.vkX(" or "vkX(". */
  const char *name = strstr(call, "vk");
  for (const char *next = name;
       next && (next = strstr(next + 1, "vk")) && next < strchr(call, '(');)
    name = next;
  if (!name) name = call;
  return still_fail(memory ? STILL_ERROR_MEMORY : STILL_ERROR_DEVICE, "vulkan: %.*s: %s (%d)",
                    (int)strcspn(name, "("), name, still_vulkan_result_name(result), (int)result);
}

void still_vulkan_fail_call(long count, VkResult result) {
  failing_result = result;
  atomic_store(&calls, 0);
  atomic_store(&failing_call, count);
}

long still_vulkan_calls(void) {
  return atomic_load(&calls);
}

bool still_vulkan_injected(VkResult *result) {
  const long call = atomic_fetch_add(&calls, 1) + 1;
  if (call != atomic_load(&failing_call)) return false;
  *result = failing_result;
  return true;
}
