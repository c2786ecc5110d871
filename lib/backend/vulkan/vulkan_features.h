/* SPDX-License-Identifier: MIT
 * What a physical device offers, what the environment leaves of it, and the logical device that switches it on. */
#ifndef STILL_VULKAN_FEATURES_H
#define STILL_VULKAN_FEATURES_H

#include "backend/vulkan/vulkan_device.h"

/* Fills vulkan->limits and vulkan->features from vulkan->physical and makes vulkan->device and the queue. */
still_status still_vulkan_create_device(still_vulkan *vulkan);
/* The same for a device of the application, which says what it has switched on: limits and features only. */
still_status still_vulkan_adopt_features(still_vulkan *vulkan, bool float16, bool coopmat);

/* "f16, subgroup" into buffer; "f32 only" for none. */
const char *still_vulkan_feature_list(unsigned features, char *buffer, size_t bytes);

#endif
