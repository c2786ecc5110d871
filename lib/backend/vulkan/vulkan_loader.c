/* SPDX-License-Identifier: MIT */
#define VOLK_IMPLEMENTATION
#include "backend/vulkan/vulkan_loader.h"

#include "base/memory.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static VkInstance shared_instance;
static int users;

static still_status load(void) {
  static bool loaded; /* the library stays loaded: unloading drivers is not reliable */
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
  VK_RESULT(result, vkCreateInstance(&info, NULL, instance));
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
    return still_fail(STILL_ERROR_DEVICE, "vulkan: no driver is installed (no ICD file found)");
  if (result < 0) return still_vulkan_fail(result, "vkCreateInstance(");
  volkLoadInstanceOnly(*instance);
  return STILL_OK;
}

still_status still_vulkan_instance_acquire(VkInstance *instance) {
  pthread_mutex_lock(&lock);
  still_status status = users ? STILL_OK : create(&shared_instance);
  if (!status) {
    users++;
    *instance = shared_instance;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void still_vulkan_instance_release(void) {
  pthread_mutex_lock(&lock);
  if (--users == 0) {
    vkDestroyInstance(shared_instance, NULL);
    shared_instance = VK_NULL_HANDLE;
  }
  pthread_mutex_unlock(&lock);
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
