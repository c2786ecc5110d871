/* SPDX-License-Identifier: MIT */
#define VOLK_IMPLEMENTATION
#include "backend/vulkan/vulkan_loader.h"

#include "base/memory.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Both stay until the process ends: unloading drivers is not reliable, one of NVIDIA's (580.159) cannot be loaded any more after
 * it has been some dozens of times, and an instance takes half a second to make. */
static VkInstance shared_instance;

static still_status load(void) {
  static bool loaded;
  if (loaded) return STILL_OK;
  VkResult result;
  VK_RESULT(result, volkInitialize());
  if (result < 0)
    return still_fail(STILL_ERROR_DEVICE, "vulkan: libvulkan.so.1 is not installed (package "
                                          "libvulkan1) or cannot be loaded");
  loaded = true;
  return STILL_OK;
}

static still_status create(VkInstance *instance) {
  STILL_TRY(load());
  if (volkGetInstanceVersion() < VK_API_VERSION_1_1)
    return still_fail(STILL_ERROR_DEVICE,
                      "vulkan: the loader knows Vulkan 1.0 only, 1.1 is needed");
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                         .pEngineName = "libstill",
                                         .apiVersion = VK_API_VERSION_1_3};
  const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                     .pApplicationInfo = &application};
  VkResult result;
  VkInstance made;
  VK_RESULT(result, vkCreateInstance(&info, NULL, &made));
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
    return still_fail(STILL_ERROR_DEVICE, "vulkan: no driver is installed (no ICD file found)");
  if (result < 0) return still_vulkan_fail(result, "vkCreateInstance(");
  volkLoadInstanceOnly(made);
  *instance = made;
  return STILL_OK;
}

still_status still_vulkan_instance_get(VkInstance *instance) {
  pthread_mutex_lock(&lock);
  const still_status status = shared_instance ? STILL_OK : create(&shared_instance);
  *instance = shared_instance;
  pthread_mutex_unlock(&lock);
  return status;
}

still_status still_vulkan_physical_devices(VkInstance instance, VkPhysicalDevice **devices,
                                           uint32_t *count) {
  *devices = NULL;
  *count = 0;
  VK_TRY(vkEnumeratePhysicalDevices(instance, count, NULL));
  if (!*count) return still_fail(STILL_ERROR_DEVICE, "vulkan: the drivers found no device");
  STILL_TRY(STILL_ALLOC(devices, *count, "list of Vulkan devices"));
  VkResult result;
  VK_RESULT(result, vkEnumeratePhysicalDevices(instance, count, *devices));
  if (result < 0) {
    still_free(*devices);
    *devices = NULL;
    return still_vulkan_fail(result, "vkEnumeratePhysicalDevices(");
  }
  return STILL_OK;
}
