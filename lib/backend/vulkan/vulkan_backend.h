/* SPDX-License-Identifier: MIT
 * What the files of the Vulkan backend share: the objects of backend.h as they lie on the device. */
#ifndef STILL_VULKAN_BACKEND_H
#define STILL_VULKAN_BACKEND_H

#include "backend/backend.h"
#include "backend/vulkan/vulkan_attention.h"

struct still_buffer {
  still_vulkan_buffer data;
  size_t floats;
};

/* Rows of a matrix in one buffer: more than one where the matrix is larger than a binding may be. */
typedef struct still_weight_part {
  still_vulkan_buffer data;
  uint32_t first, rows;
} still_weight_part;

struct still_weight {
  still_tensor_type type; /* as stored on the device: F32, F16, BF16, Q8_0 */
  uint32_t rows, columns; /* a vector has one row, and is F32 */
  still_weight_part *parts;
  uint32_t part_count;
  float *host; /* a vector's values */
};

struct still_layer_cache {
  still_vulkan_attention *attention;
};

typedef struct still_backend_vulkan {
  still_backend base;
  still_vulkan *vulkan;
  still_vulkan_buffer ids;
  /* the activations that were multiplied last, as f16, since several products share them: halved_items fours of the
   * buffer `halved` after its write number halved_at */
  still_vulkan_buffer halves;
  VkBuffer halved;
  uint64_t halved_at;
  uint64_t halved_dropped; /* recordings dropped until then: after one more it may never have run */
  size_t halved_items;
  still_vulkan_buffer worst; /* one number of finite.comp */
  /* cosines and sines of the block of positions that was rotated last: its layers share them */
  still_vulkan_buffer angles;
  const still_weight *frequencies;
  float scale;
  int64_t first;
  size_t n, half;
  uint64_t angles_dropped; /* as above */
} still_backend_vulkan;

static inline still_backend_vulkan *still_vulkan_of(still_backend *backend) {
  return (still_backend_vulkan *)backend;
}

/* vulkan_weights.c */
still_status still_vulkan_weight_create(still_backend *backend, const still_tensor *tensor,
                                        still_weight **weight);
still_status still_vulkan_weight_create_unchecked(still_backend *backend,
                                                  const still_tensor *tensor,
                                                  still_weight **weight);
void still_vulkan_weight_destroy(still_backend *backend, still_weight *weight);
uint64_t still_vulkan_weight_bytes(still_backend *backend, const still_tensor *tensor);

/* vulkan_dense.c: fills the dense part of the table. */
void still_vulkan_dense_operations(still_backend_ops *ops);
/* vulkan_layer.c: and the attention part. */
void still_vulkan_layer_operations(still_backend_ops *ops);

/* Runs `call` with the device locked: other backends and operators may record on it too. */
#define STILL_VULKAN_LOCKED(vulkan, status, call)                                                  \
  do {                                                                                             \
    pthread_mutex_lock(&(vulkan)->lock);                                                           \
    (status) = (call);                                                                             \
    pthread_mutex_unlock(&(vulkan)->lock);                                                         \
  } while (0)

/* The same for calls with checkpoints, at which the backend's owner may stop them. */
#define STILL_VULKAN_STOPPABLE(backend, status, call)                                              \
  do {                                                                                             \
    still_vulkan *const stoppable_ = still_vulkan_of(backend)->vulkan;                             \
    pthread_mutex_lock(&stoppable_->lock);                                                         \
    stoppable_->stops = (backend);                                                                 \
    (status) = (call);                                                                             \
    stoppable_->stops = NULL;                                                                      \
    pthread_mutex_unlock(&stoppable_->lock);                                                       \
  } while (0)

#endif
