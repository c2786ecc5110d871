/* SPDX-License-Identifier: MIT
 * The operator on a device other than the CPU, as the public functions of attention.h hand it on. lib/backend fills
 * the table; this room only knows its form. */
#ifndef STILL_ATTENTION_DEVICE_OPERATOR_H
#define STILL_ATTENTION_DEVICE_OPERATOR_H

#include <still/attention.h>

typedef struct still_device still_device;             /* an open device */
typedef struct still_device_cache still_device_cache; /* a cache that lies on it */

/* Arguments were checked against the plan before. The contracts are those of attention.h. */
typedef struct still_device_operator {
  /* Opens the device that the plan's options name and says UNSUPPORTED if it cannot run this plan. */
  still_status (*open)(still_device **device, const still_attention_plan *plan);
  void (*close)(still_device *device);

  still_status (*cache_create)(still_device_cache **cache, still_device *device,
                               const still_attention_plan *plan);
  void (*cache_destroy)(still_device_cache *cache);
  void (*cache_reset)(still_device_cache *cache);
  void (*cache_usage)(const still_device_cache *cache, still_attention_usage *usage);
  uint64_t (*cache_bytes)(still_device *device, const still_attention_plan *plan, int64_t tokens);
  size_t (*cache_kept)(const still_device_cache *cache, int head, int64_t *positions,
                       size_t capacity);
  still_status (*cache_state)(const still_device_cache *cache, int head, float *state,
                              float *normalizer);
  size_t (*snapshot_bytes)(const still_device_cache *cache);
  still_status (*snapshot)(const still_device_cache *cache, void *snapshot);
  still_status (*restore)(still_device_cache *cache, const void *snapshot);
  size_t (*save_bytes)(const still_device_cache *cache);
  still_status (*save)(const still_device_cache *cache, void *bytes);
  still_status (*load)(still_device_cache *cache, const void *bytes, size_t count);
  still_status (*forward)(still_device_cache *cache, size_t n, const still_attention_inputs *inputs,
                          float *y, size_t y_head_stride, size_t y_token_stride);
  still_status (*forward_buffers)(still_device_cache *cache, size_t n,
                                  const still_attention_buffers *buffers);
} still_device_operator;

/* Defined by lib/backend/vulkan; exists where STILL_HAVE_VULKAN is 1. */
const still_device_operator *still_vulkan_operator(void);

#endif
