/* SPDX-License-Identifier: MIT */
#include "backend/vulkan/vulkan_device.h"

#include "backend/backend.h"
#include "backend/vulkan/vulkan_attention.h"
#include "backend/vulkan/vulkan_features.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Open devices, shared by all plans and sessions of the process. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static still_vulkan *registry;

/* ---- choice --------------------------------------------------------------------------------------- */

static still_device_kind kind_of(VkPhysicalDevice device) {
  VkPhysicalDeviceProperties properties;
  vkGetPhysicalDeviceProperties(device, &properties);
  switch (properties.deviceType) {
  case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
  case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return STILL_DEVICE_DISCRETE_GPU;
  case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return STILL_DEVICE_INTEGRATED_GPU;
  default: return STILL_DEVICE_SOFTWARE_GPU;
  }
}

/* Index for "vulkan" or "vulkan:N". */
static still_status choose(const VkPhysicalDevice *devices, uint32_t count, const char *name,
                           uint32_t *index) {
  const char *number = name + strlen("vulkan");
  if (*number == ':') {
    char *end;
    const unsigned long wanted = strtoul(number + 1, &end, 10);
    if (end == number + 1 || *end || wanted >= count)
      return still_fail(STILL_ERROR_DEVICE,
                        "device '%s': there are %u Vulkan devices, vulkan:0 to vulkan:%u", name,
                        count, count - 1);
    *index = (uint32_t)wanted;
    return STILL_OK;
  }
  static const still_device_kind order[] = {STILL_DEVICE_DISCRETE_GPU, STILL_DEVICE_INTEGRATED_GPU};
  for (size_t kind = 0; kind < 2; kind++)
    for (uint32_t i = 0; i < count; i++)
      if (kind_of(devices[i]) == order[kind]) {
        *index = i;
        return STILL_OK;
      }
  return still_fail(STILL_ERROR_DEVICE,
                    "device 'vulkan': no GPU, only drivers that run on the CPU; name one "
                    "(vulkan:0) to use it all the same");
}

static void describe(still_device_info *info, VkPhysicalDevice device, uint32_t index) {
  VkPhysicalDeviceProperties properties;
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceProperties(device, &properties);
  vkGetPhysicalDeviceMemoryProperties(device, &memory);
  snprintf(info->name, sizeof info->name, "vulkan:%u", index);
  snprintf(info->description, sizeof info->description, "%.200s, Vulkan %u.%u, driver %#x",
           properties.deviceName, VK_API_VERSION_MAJOR(properties.apiVersion),
           VK_API_VERSION_MINOR(properties.apiVersion), properties.driverVersion);
  info->kind = kind_of(device);
  info->memory_bytes = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; i++)
    if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT &&
        memory.memoryHeaps[i].size > info->memory_bytes)
      info->memory_bytes = memory.memoryHeaps[i].size;
}

void still_vulkan_list(still_device_info *devices, size_t capacity, size_t *count) {
  VkInstance instance;
  VkPhysicalDevice *found;
  uint32_t found_count;
  if (still_vulkan_instance_get(&instance)) {
    still_log(STILL_LOG_DEBUG, "%s", still_last_error());
    return;
  }
  if (still_vulkan_physical_devices(instance, &found, &found_count))
    still_log(STILL_LOG_DEBUG, "%s", still_last_error());
  for (uint32_t i = 0; i < found_count; i++, (*count)++)
    if (*count < capacity) describe(&devices[*count], found[i], i);
  still_free(found);
}

/* ---- open and close ------------------------------------------------------------------------------ */

static still_status find_queue(still_vulkan *vulkan) {
  VkQueueFamilyProperties families[32];
  uint32_t count = 32;
  vkGetPhysicalDeviceQueueFamilyProperties(vulkan->physical, &count, families);
  for (uint32_t i = 0; i < count; i++)
    if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) {
      vulkan->family = i;
      vulkan->limits.timestamp_ns =
          families[i].timestampValidBits ? vulkan->properties.limits.timestampPeriod : 0;
      return STILL_OK;
    }
  return still_fail(STILL_ERROR_DEVICE, "%s: %s has no compute queue", vulkan->name,
                    vulkan->properties.deviceName);
}

static still_status find_physical(still_vulkan *vulkan, const char *name) {
  VkPhysicalDevice *devices;
  uint32_t count, index = 0;
  STILL_TRY(still_vulkan_instance_get(&vulkan->instance));
  STILL_TRY(still_vulkan_physical_devices(vulkan->instance, &devices, &count));
  const still_status status = choose(devices, count, name, &index);
  if (!status) vulkan->physical = devices[index];
  still_free(devices);
  STILL_TRY(status);
  snprintf(vulkan->name, sizeof vulkan->name, "vulkan:%u", index);
  vkGetPhysicalDeviceProperties(vulkan->physical, &vulkan->properties);
  if (vulkan->properties.apiVersion < VK_API_VERSION_1_1)
    return still_fail(STILL_ERROR_DEVICE, "%s: %s knows Vulkan 1.0 only, 1.1 is needed",
                      vulkan->name, vulkan->properties.deviceName);
  return find_queue(vulkan);
}

static void destroy(still_vulkan *vulkan) {
  if (vulkan->device) {
    if (vulkan->shared && !vulkan->lost && still_vulkan_finish(vulkan))
      still_log(STILL_LOG_WARNING, "%s", still_last_error());
    if (!vulkan->shared && !vulkan->lost) vulkan->call.vkDeviceWaitIdle(vulkan->device);
    still_vulkan_transfer_destroy(vulkan);
    still_vulkan_work_destroy(vulkan);
    still_vulkan_commands_destroy(vulkan);
    still_vulkan_timer_destroy(vulkan);
    still_vulkan_pipelines_destroy(vulkan);
    still_vulkan_memory_destroy(vulkan);
    if (!vulkan->shared) vulkan->call.vkDestroyDevice(vulkan->device, NULL);
  }
  pthread_mutex_destroy(&vulkan->lock);
  still_free(vulkan);
}

static still_status open_tools(still_vulkan *vulkan) {
  STILL_TRY(still_vulkan_memory_create(vulkan));
  STILL_TRY(still_vulkan_timer_create(vulkan));
  STILL_TRY(still_vulkan_commands_create(vulkan));
  STILL_TRY(still_vulkan_transfer_create(vulkan));
  return still_vulkan_pipelines_create(vulkan);
}

static still_status open_parts(still_vulkan *vulkan, const char *name) {
  STILL_TRY(find_physical(vulkan, name));
  STILL_TRY(still_vulkan_create_device(vulkan));
  return open_tools(vulkan);
}

static still_status open_new(still_vulkan **out, const char *name) {
  still_vulkan *vulkan;
  STILL_TRY(STILL_ALLOC(&vulkan, 1, "a Vulkan device"));
  pthread_mutex_init(&vulkan->lock, NULL);
  const still_status status = open_parts(vulkan, name);
  if (status) {
    destroy(vulkan);
    return status;
  }
  char features[64];
  still_log(STILL_LOG_INFO, "%s: %s, subgroups of %u, variants: %s", vulkan->name,
            vulkan->properties.deviceName, vulkan->limits.subgroup,
            still_vulkan_feature_list(vulkan->features, features, sizeof features));
  *out = vulkan;
  return STILL_OK;
}

/* "vulkan" and "vulkan:N" may mean the same device: names are compared once they are resolved. */
static still_vulkan *find_open(VkPhysicalDevice physical) {
  for (still_vulkan *open = registry; open; open = open->next)
    if (open->physical == physical && !open->lost && !open->shared) return open;
  return NULL;
}

static still_vulkan *find_shared(const char *name) {
  for (still_vulkan *open = registry; open; open = open->next)
    if (open->shared && !strcmp(open->name, name)) return open;
  return NULL;
}

static still_status open_locked(still_vulkan **out, const char *name) {
  still_vulkan *vulkan = find_shared(name);
  if (!vulkan && registry) {
    still_vulkan probe = {0};
    STILL_TRY(find_physical(&probe, name));
    vulkan = find_open(probe.physical);
  }
  if (!vulkan) {
    STILL_TRY(open_new(&vulkan, name));
    vulkan->next = registry;
    registry = vulkan;
  }
  vulkan->users++;
  *out = vulkan;
  return STILL_OK;
}

still_status still_vulkan_open(still_vulkan **vulkan, const char *name) {
  *vulkan = NULL;
  if (!name || strncmp(name, "vulkan", 6) || (name[6] && name[6] != ':'))
    return still_fail(STILL_ERROR_ARGUMENT, "device '%s': not 'vulkan' or 'vulkan:N'",
                      name ? name : "");
  pthread_mutex_lock(&registry_lock);
  const still_status status = open_locked(vulkan, name);
  pthread_mutex_unlock(&registry_lock);
  return status;
}

void still_vulkan_close(still_vulkan *vulkan) {
  if (!vulkan) return;
  pthread_mutex_lock(&registry_lock);
  if (--vulkan->users == 0) {
    still_vulkan **link = &registry;
    while (*link != vulkan) link = &(*link)->next;
    *link = vulkan->next;
    destroy(vulkan);
  }
  pthread_mutex_unlock(&registry_lock);
}

void still_vulkan_switch_off(still_vulkan *vulkan, unsigned features, const char *reason) {
  char text[64];
  still_log(STILL_LOG_WARNING, "%s: variants %s switched off: %s", vulkan->name,
            still_vulkan_feature_list(features, text, sizeof text), reason);
  vulkan->features &= ~features;
}

/* ---- devices of the application --------------------------------------------------------------------- */

static still_status check_shared(const still_shared_device *given) {
  const void *const handles[] = {given->instance, given->physical_device, given->device,
                                 given->queue};
  static const char *const names[] = {"instance", "physical_device", "device", "queue"};
  for (int i = 0; i < 4; i++)
    if (!handles[i]) return still_fail(STILL_ERROR_ARGUMENT, "shared device: %s is NULL", names[i]);
  if (!given->lock != !given->unlock)
    return still_fail(STILL_ERROR_ARGUMENT, "shared device: lock and unlock go together");
  return STILL_OK;
}

static still_status check_family(const still_vulkan *vulkan) {
  VkQueueFamilyProperties families[32];
  uint32_t count = 32;
  vkGetPhysicalDeviceQueueFamilyProperties(vulkan->physical, &count, families);
  if (vulkan->family < count && families[vulkan->family].queueFlags & VK_QUEUE_COMPUTE_BIT)
    return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT, "shared device: queue family %u of %u has no compute",
                    vulkan->family, count);
}

static still_status adopt(still_vulkan *vulkan, const still_shared_device *given) {
  /* The loader's functions serve every instance; ours sees to it that they are there. */
  STILL_TRY(still_vulkan_instance_get(&vulkan->instance));
  vulkan->instance = given->instance;
  vulkan->physical = given->physical_device;
  vkGetPhysicalDeviceProperties(vulkan->physical, &vulkan->properties);
  if (vulkan->properties.apiVersion < VK_API_VERSION_1_1)
    return still_fail(STILL_ERROR_DEVICE, "shared device: %s knows Vulkan 1.0 only, 1.1 is needed",
                      vulkan->properties.deviceName);
  vulkan->family = given->queue_family;
  STILL_TRY(check_family(vulkan));
  STILL_TRY(still_vulkan_adopt_features(vulkan, given->float16, given->cooperative_matrix));
  vulkan->device = given->device;
  vulkan->queue = given->queue;
  vulkan->lock_queue = given->lock;
  vulkan->unlock_queue = given->unlock;
  vulkan->queue_user = given->user;
  volkLoadDeviceTable(&vulkan->call, vulkan->device);
  return open_tools(vulkan);
}

static void enter(still_vulkan *vulkan) {
  int number = 0;
  pthread_mutex_lock(&registry_lock);
  do snprintf(vulkan->name, sizeof vulkan->name, "vulkan:shared%d", number++);
  while (find_shared(vulkan->name));
  vulkan->users = 1;
  vulkan->next = registry;
  registry = vulkan;
  pthread_mutex_unlock(&registry_lock);
}

still_status still_vulkan_share(const still_shared_device *given, char name[32]) {
  still_vulkan *vulkan;
  STILL_TRY(check_shared(given));
  STILL_TRY(STILL_ALLOC(&vulkan, 1, "a shared device"));
  pthread_mutex_init(&vulkan->lock, NULL);
  vulkan->shared = true;
  const still_status status = adopt(vulkan, given);
  if (status) {
    destroy(vulkan);
    return status;
  }
  enter(vulkan);
  snprintf(name, 32, "%s", vulkan->name);
  return STILL_OK;
}

still_status still_vulkan_unshare(const char *name) {
  pthread_mutex_lock(&registry_lock);
  still_vulkan *vulkan = find_shared(name);
  const int others = vulkan ? vulkan->users - 1 : 0;
  pthread_mutex_unlock(&registry_lock);
  if (!vulkan) return still_fail(STILL_ERROR_ARGUMENT, "no shared device is called '%s'", name);
  if (others)
    return still_fail(STILL_ERROR_ARGUMENT, "%s: %d plans or models still use the device", name,
                      others);
  still_vulkan_close(vulkan);
  return STILL_OK;
}
