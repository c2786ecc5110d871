/* SPDX-License-Identifier: MIT
 * The driver's compiled pipelines on disk: our header, then what vkGetPipelineCacheData gave. */
#include "backend/vulkan/vulkan_device.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct cache_header {
  char magic[8]; /* "STILLVK1" */
  uint32_t vendor, device, driver, reserved;
  uint8_t uuid[VK_UUID_SIZE];
  uint64_t bytes, checksum; /* of what follows */
} cache_header;

static cache_header header_of(const still_vulkan *vulkan, const uint8_t *data, size_t bytes) {
  cache_header header = {.magic = "STILLVK",
                         .vendor = vulkan->properties.vendorID,
                         .device = vulkan->properties.deviceID,
                         .driver = vulkan->properties.driverVersion,
                         .bytes = bytes,
                         .checksum = still_hash_bytes(bytes, data, bytes)};
  header.magic[7] = '1';
  memcpy(header.uuid, vulkan->pipeline_uuid, VK_UUID_SIZE);
  return header;
}

/* The folder, made if it is not there; false without a place. */
static bool cache_folder(char *folder, size_t bytes) {
  const char *word = getenv("STILL_VULKAN_CACHE");
  if (word && !strcmp(word, "off")) return false;
  const char *own = getenv("STILL_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  int length = -1;
  if (own && *own)
    length = snprintf(folder, bytes, "%s", own);
  else if (xdg && *xdg)
    length = snprintf(folder, bytes, "%s/still", xdg);
  else if (home && *home)
    length = snprintf(folder, bytes, "%s/.cache/still", home);
  if (length < 0 || (size_t)length >= bytes) return false;
  for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    const bool made = !mkdir(folder, 0700) || errno == EEXIST;
    *slash = '/';
    if (!made) return false;
  }
  return !mkdir(folder, 0700) || errno == EEXIST;
}

static bool cache_path(const still_vulkan *vulkan, char *path, size_t bytes) {
  char folder[3840];
  if (!cache_folder(folder, sizeof folder)) return false;
  const int length =
      snprintf(path, bytes, "%s/vulkan-%04x-%04x-%08x.bin", folder, vulkan->properties.vendorID,
               vulkan->properties.deviceID, vulkan->properties.driverVersion);
  return length > 0 && (size_t)length < bytes;
}

void still_vulkan_cache_load(still_vulkan *vulkan, void **data, size_t *bytes) {
  *data = NULL;
  *bytes = 0;
  char path[4096];
  still_file file;
  if (!cache_path(vulkan, path, sizeof path) || !still_path_exists(path) ||
      still_file_open(&file, path, false))
    return;
  cache_header header;
  if (file.bytes >= sizeof header) {
    const uint8_t *body = file.data + sizeof header;
    const cache_header wanted = header_of(vulkan, body, file.bytes - sizeof header);
    memcpy(&header, file.data, sizeof header);
    if (!memcmp(&header, &wanted, sizeof header) && !still_alloc(data, 1, wanted.bytes, path)) {
      memcpy(*data, body, wanted.bytes);
      *bytes = wanted.bytes;
    }
  }
  if (!*data) still_log(STILL_LOG_DEBUG, "%s: not of this driver, ignored", path);
  still_file_close(&file);
}

static still_status save(still_vulkan *vulkan, const char *path, void **data) {
  size_t bytes = 0;
  VK_TRY(
      vulkan->call.vkGetPipelineCacheData(vulkan->device, vulkan->pipelines.cache, &bytes, NULL));
  if (bytes <= vulkan->pipelines.cache_bytes) return STILL_OK;
  STILL_TRY(still_alloc(data, 1, bytes, "pipeline cache"));
  VK_TRY(
      vulkan->call.vkGetPipelineCacheData(vulkan->device, vulkan->pipelines.cache, &bytes, *data));
  const cache_header header = header_of(vulkan, *data, bytes);
  still_output output;
  STILL_TRY(still_output_open(&output, path));
  still_status status = still_output_write(&output, &header, sizeof header);
  if (!status) status = still_output_write(&output, *data, bytes);
  if (!status) return still_output_commit(&output);
  still_output_abandon(&output);
  return status;
}

/* A convenience only: what goes wrong is logged and forgotten. */
void still_vulkan_cache_save(still_vulkan *vulkan) {
  char path[4096];
  void *data = NULL;
  if (!cache_path(vulkan, path, sizeof path)) return;
  if (save(vulkan, path, &data)) still_log(STILL_LOG_DEBUG, "%s", still_last_error());
  still_free(data);
}
