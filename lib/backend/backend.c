/* SPDX-License-Identifier: MIT
 * From a device's name to a backend, and the list of devices. */
#include "backend/backend.h"

#include "still_config.h"

#include <stdio.h>
#include <string.h>

still_status still_backend_create(still_backend **backend, const char *device, int threads) {
  *backend = NULL;
  if (!device || !strcmp(device, "cpu")) return still_backend_cpu_create(backend, threads);
  if (strncmp(device, "vulkan", 6) || (device[6] && device[6] != ':'))
    return still_fail(STILL_ERROR_ARGUMENT,
                      "device '%s' is not known; known are: cpu, vulkan, vulkan:0, vulkan:1 ...",
                      device);
#if STILL_HAVE_VULKAN
  return still_backend_vulkan_create(backend, device, threads);
#else
  return still_fail(STILL_ERROR_DEVICE, "device '%s': this build has no GPU backend", device);
#endif
}

bool still_all_finite(const float *x, size_t count) {
  uint32_t special = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    special |= (bits & 0x7f800000u) == 0x7f800000u;
  }
  return !special;
}

void still_backend_destroy(still_backend *backend) {
  if (backend) backend->ops->destroy(backend);
}

still_status still_list_devices(still_device_info *devices, size_t capacity, size_t *count) {
  if (!count || (capacity && !devices))
    return still_fail(STILL_ERROR_ARGUMENT, "still_list_devices: count or devices is NULL");
  if (capacity) {
    devices[0] = (still_device_info){.name = "cpu", .kind = STILL_DEVICE_CPU};
    snprintf(devices[0].description, sizeof devices[0].description, "CPU, %s kernels, %d threads",
             still_cpu_level(), still_default_threads());
  }
  *count = 1;
#if STILL_HAVE_VULKAN
  const size_t left = capacity ? capacity - 1 : 0;
  *count += still_backend_vulkan_devices(left ? devices + 1 : NULL, left);
#endif
  return STILL_OK;
}

still_status still_share_device(const still_shared_device *device, char name[32]) {
  if (!device || !name)
    return still_fail(STILL_ERROR_ARGUMENT, "still_share_device: device or name is NULL");
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(device, still_shared_device));
#if STILL_HAVE_VULKAN
  return still_vulkan_share(device, name);
#else
  return still_fail(STILL_ERROR_DEVICE, "still_share_device: this build has no GPU backend");
#endif
}

still_status still_unshare_device(const char *name) {
  if (!name) return still_fail(STILL_ERROR_ARGUMENT, "still_unshare_device: name is NULL");
#if STILL_HAVE_VULKAN
  return still_vulkan_unshare(name);
#else
  return still_fail(STILL_ERROR_ARGUMENT, "no shared device is called '%s'", name);
#endif
}
