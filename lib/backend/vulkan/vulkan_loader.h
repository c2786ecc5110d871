/* SPDX-License-Identifier: MIT
 * The Vulkan library and its instance, loaded when first wanted and shared by everything in the process. */
#ifndef STILL_VULKAN_LOADER_H
#define STILL_VULKAN_LOADER_H

#include "backend/vulkan/vulkan_result.h"

/* Loads libvulkan (dlopen) and makes the instance, at the first call; both stay. DEVICE with the reason when there is no loader, no
 * driver or only drivers below Vulkan 1.1. Then the functions of volk.h that take an instance or a physical device may be
 * called. Thread-safe. */
still_status still_vulkan_instance_get(VkInstance *instance);

/* All physical devices, in the driver's order; *devices is freed with still_free. DEVICE if there are none. */
still_status still_vulkan_physical_devices(VkInstance instance, VkPhysicalDevice **devices,
                                           uint32_t *count);

#endif
