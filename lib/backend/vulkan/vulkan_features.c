/* SPDX-License-Identifier: MIT */
#include "backend/vulkan/vulkan_features.h"

#include "base/log.h"
#include "base/memory.h"
#include "shaders/shader_interface.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The packaged headers may be older than VK_KHR_cooperative_matrix: its registry entries, where they lack. */
#ifndef VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR                          \
  ((VkStructureType)1000506000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR ((VkStructureType)1000506001)
typedef struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
  VkStructureType sType;
  void *pNext;
  VkBool32 cooperativeMatrix;
  VkBool32 cooperativeMatrixRobustBufferAccess;
} VkPhysicalDeviceCooperativeMatrixFeaturesKHR;
typedef struct VkCooperativeMatrixPropertiesKHR {
  VkStructureType sType;
  void *pNext;
  uint32_t MSize, NSize, KSize;
  int AType, BType, CType, ResultType; /* 0: f16, 1: f32 */
  VkBool32 saturatingAccumulation;
  int scope; /* 3: subgroup */
} VkCooperativeMatrixPropertiesKHR;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(
    VkPhysicalDevice, uint32_t *, VkCooperativeMatrixPropertiesKHR *);
#endif

static const struct {
  unsigned feature;
  const char *name;
} names[] = {{STILL_VULKAN_F16, "f16"},
             {STILL_VULKAN_SUBGROUP, "subgroup"},
             {STILL_VULKAN_COOPMAT, "coopmat"},
             {STILL_VULKAN_TRANSFER, "transfer"},
             {STILL_VULKAN_UNCHECKED, "unchecked"}};
enum { FEATURES = sizeof names / sizeof names[0] };

const char *still_vulkan_feature_list(unsigned features, char *buffer, size_t bytes) {
  size_t used = 0;
  snprintf(buffer, bytes, "f32 only");
  for (size_t i = 0; i < FEATURES && used < bytes; i++)
    if (features & names[i].feature)
      used +=
          (size_t)snprintf(buffer + used, bytes - used, "%s%s", used ? ", " : "", names[i].name);
  return buffer;
}

/* ---- environment ---------------------------------------------------------------------------------- */

static unsigned disabled_features(void) {
  unsigned off = 0;
  const char *text = getenv("STILL_VULKAN_DISABLE");
  while (text && *text) {
    const size_t length = strcspn(text, ",");
    bool known = !length;
    for (size_t i = 0; i < FEATURES; i++)
      if (strlen(names[i].name) == length && !strncmp(text, names[i].name, length)) {
        off |= names[i].feature;
        known = true;
      }
    if (!known)
      still_log(
          STILL_LOG_WARNING,
          "STILL_VULKAN_DISABLE: '%.*s' is none of f16, subgroup, coopmat, transfer, unchecked",
          (int)length, text);
    text += length + (text[length] == ',');
  }
  return off;
}

static void lower_limit(const char *text, const char *key, VkDeviceSize *limit) {
  const char *found = text ? strstr(text, key) : NULL;
  if (!found) return;
  const VkDeviceSize value = strtoull(found + strlen(key), NULL, 10);
  if (value && value < *limit) *limit = value;
}

static void read_limits(still_vulkan *vulkan) {
  VkPhysicalDeviceMaintenance3Properties maintenance = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES};
  VkPhysicalDeviceSubgroupProperties subgroup = {
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, .pNext = &maintenance};
  VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                            .pNext = &subgroup};
  vkGetPhysicalDeviceProperties2(vulkan->physical, &properties);
  still_vulkan_limits *limits = &vulkan->limits;
  limits->storage_range = properties.properties.limits.maxStorageBufferRange;
  limits->allocation = maintenance.maxMemoryAllocationSize;
  limits->heap = UINT64_MAX;
  limits->shared_bytes = properties.properties.limits.maxComputeSharedMemorySize;
  limits->subgroup = subgroup.subgroupSize;
  const VkSubgroupFeatureFlags needed =
      VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
  if (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT &&
      (subgroup.supportedOperations & needed) == needed)
    vulkan->features |= STILL_VULKAN_SUBGROUP;
  limits->shuffles = subgroup.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  memcpy(vulkan->pipeline_uuid, properties.properties.pipelineCacheUUID, VK_UUID_SIZE);
  const char *lowered = getenv("STILL_VULKAN_LIMITS");
  lower_limit(lowered, "range=", &limits->storage_range);
  lower_limit(lowered, "heap=", &limits->heap);
}

/* ---- features ------------------------------------------------------------------------------------- */

static still_status has_extension(still_vulkan *vulkan, const char *name, bool *has) {
  uint32_t count;
  VkExtensionProperties *list;
  *has = false;
  VK_TRY(vkEnumerateDeviceExtensionProperties(vulkan->physical, NULL, &count, NULL));
  STILL_TRY(STILL_ALLOC(&list, count + 1, "list of Vulkan extensions"));
  VkResult result;
  VK_RESULT(result, vkEnumerateDeviceExtensionProperties(vulkan->physical, NULL, &count, list));
  for (uint32_t i = 0; result >= 0 && i < count; i++) *has |= !strcmp(list[i].extensionName, name);
  still_free(list);
  return result < 0 ? still_vulkan_fail(result, "vkEnumerateDeviceExtensionProperties(") : STILL_OK;
}

/* f16 x f16 -> f32 tiles of 16 x 16 x 16 in a subgroup of 32, and shuffles: what the *_coopmat shaders are written
 * for. */
static still_status has_coopmat_tiles(still_vulkan *vulkan, bool *has) {
  *has = false;
  PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR query =
      (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)vkGetInstanceProcAddr(
          vulkan->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
  if (!query || vulkan->limits.subgroup != 32 || !vulkan->limits.shuffles) return STILL_OK;
  VkCooperativeMatrixPropertiesKHR shapes[64];
  memset(shapes, 0, sizeof shapes);
  for (int i = 0; i < 64; i++)
    shapes[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
  uint32_t count = 64;
  VK_TRY(query(vulkan->physical, &count, shapes));
  for (uint32_t i = 0; i < count; i++)
    *has |= shapes[i].MSize == 16 && shapes[i].NSize == 16 && shapes[i].KSize == 16 &&
            shapes[i].AType == 0 && shapes[i].BType == 0 && shapes[i].CType == 1 &&
            shapes[i].ResultType == 1 && shapes[i].scope == 3;
  return STILL_OK;
}

/* The structs that are both asked for and handed to vkCreateDevice. */
typedef struct feature_chain {
  VkPhysicalDeviceFeatures2 core;
  VkPhysicalDevice16BitStorageFeatures storage;
  VkPhysicalDeviceShaderFloat16Int8Features float16;
  VkPhysicalDeviceVulkanMemoryModelFeatures memory_model;
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR coopmat;
  VkPhysicalDevicePipelineRobustnessFeaturesEXT robustness;
} feature_chain;

static void link_chain(feature_chain *chain, bool newer, bool coopmat, bool robustness) {
  void *last = robustness ? &chain->robustness : NULL;
  chain->robustness.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_ROBUSTNESS_FEATURES_EXT;
  chain->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  chain->core.pNext = &chain->storage;
  chain->storage.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES;
  chain->storage.pNext = newer ? &chain->float16 : last;
  chain->float16.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
  chain->float16.pNext = &chain->memory_model;
  chain->memory_model.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES;
  chain->memory_model.pNext = coopmat ? &chain->coopmat : last;
  chain->coopmat.pNext = last;
  chain->coopmat.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
}

/* of the largest *_coopmat shader */
enum { COOPMAT_SHARED_BYTES = 48 << 10 };

static still_status choose_features(still_vulkan *vulkan, feature_chain *on) {
  const bool newer = vulkan->properties.apiVersion >= VK_API_VERSION_1_2;
  bool coopmat = false, robustness;
  STILL_TRY(has_extension(vulkan, VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME, &robustness));
  STILL_TRY(has_extension(vulkan, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, &vulkan->has_budget));
  if (newer) {
    STILL_TRY(has_extension(vulkan, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME, &coopmat));
    if (coopmat) STILL_TRY(has_coopmat_tiles(vulkan, &coopmat));
  }
  feature_chain has = {0};
  link_chain(&has, newer, coopmat, robustness);
  vkGetPhysicalDeviceFeatures2(vulkan->physical, &has.core);
  if (has.storage.storageBuffer16BitAccess && has.float16.shaderFloat16)
    vulkan->features |= STILL_VULKAN_F16;
  if (coopmat && has.coopmat.cooperativeMatrix && has.memory_model.vulkanMemoryModel &&
      vulkan->limits.shared_bytes >= COOPMAT_SHARED_BYTES)
    vulkan->features |= STILL_VULKAN_COOPMAT;
  if (robustness && has.robustness.pipelineRobustness) vulkan->features |= STILL_VULKAN_UNCHECKED;
  vulkan->features &= ~disabled_features();
  if (!(vulkan->features & STILL_VULKAN_F16)) vulkan->features &= ~(unsigned)STILL_VULKAN_COOPMAT;
  coopmat = vulkan->features & STILL_VULKAN_COOPMAT;
  robustness = vulkan->features & STILL_VULKAN_UNCHECKED;
  link_chain(on, newer, coopmat, robustness);
  on->storage.storageBuffer16BitAccess = on->float16.shaderFloat16 =
      (vulkan->features & STILL_VULKAN_F16) != 0;
  on->memory_model.vulkanMemoryModel = on->coopmat.cooperativeMatrix = coopmat;
  on->robustness.pipelineRobustness = robustness;
  return STILL_OK;
}

/* A family that copies and does nothing else: the driver's way to the copy engines. For tests the compute queue plays its
 * part with STILL_VULKAN_LIMITS="transfer=compute". */
static bool find_transfer_family(const still_vulkan *vulkan, uint32_t *family) {
  VkQueueFamilyProperties families[32];
  uint32_t count = 32;
  vkGetPhysicalDeviceQueueFamilyProperties(vulkan->physical, &count, families);
  for (*family = 0; *family < count; ++*family)
    if ((families[*family].queueFlags & (VK_QUEUE_TRANSFER_BIT | VK_QUEUE_COMPUTE_BIT |
                                         VK_QUEUE_GRAPHICS_BIT)) == VK_QUEUE_TRANSFER_BIT)
      return true;
  *family = vulkan->family;
  const char *limits = getenv("STILL_VULKAN_LIMITS");
  return limits && strstr(limits, "transfer=compute");
}

still_status still_vulkan_create_device(still_vulkan *vulkan) {
  feature_chain on = {0};
  uint32_t transfer;
  read_limits(vulkan);
  if (find_transfer_family(vulkan, &transfer)) vulkan->features |= STILL_VULKAN_TRANSFER;
  STILL_TRY(choose_features(vulkan, &on));
  const bool transfers = vulkan->features & STILL_VULKAN_TRANSFER;
  const float priority = 1;
  VkDeviceQueueCreateInfo queues[2] = {{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                        .queueFamilyIndex = vulkan->family,
                                        .queueCount = 1,
                                        .pQueuePriorities = &priority}};
  queues[1] = queues[0];
  queues[1].queueFamilyIndex = transfer;
  const char *extensions[2];
  uint32_t extension_count = 0;
  if (vulkan->features & STILL_VULKAN_COOPMAT)
    extensions[extension_count++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
  if (vulkan->features & STILL_VULKAN_UNCHECKED)
    extensions[extension_count++] = VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME;
  const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                   .pNext = &on.core,
                                   .queueCreateInfoCount =
                                       transfers && transfer != vulkan->family ? 2 : 1,
                                   .pQueueCreateInfos = queues,
                                   .enabledExtensionCount = extension_count,
                                   .ppEnabledExtensionNames = extensions};
  VK_TRY(vkCreateDevice(vulkan->physical, &info, NULL, &vulkan->device));
  volkLoadDeviceTable(&vulkan->call, vulkan->device);
  vulkan->call.vkGetDeviceQueue(vulkan->device, vulkan->family, 0, &vulkan->queue);
  vulkan->transfer.family = transfer;
  if (transfers)
    vulkan->call.vkGetDeviceQueue(vulkan->device, transfer, 0, &vulkan->transfer.queue);
  return STILL_OK;
}

still_status still_vulkan_adopt_features(still_vulkan *vulkan, bool float16, bool coopmat) {
  read_limits(vulkan);
  if (coopmat) STILL_TRY(has_coopmat_tiles(vulkan, &coopmat));
  if (float16) vulkan->features |= STILL_VULKAN_F16;
  if (float16 && coopmat && vulkan->limits.shared_bytes >= COOPMAT_SHARED_BYTES)
    vulkan->features |= STILL_VULKAN_COOPMAT;
  vulkan->features &= ~disabled_features();
  return STILL_OK;
}
