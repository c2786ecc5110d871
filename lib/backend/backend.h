/* SPDX-License-Identifier: MIT
 *
 * The table of operations on device buffers. A model's forward is one readable function that calls these;
 * lib/backend/cpu runs each at once, lib/backend/vulkan records them and submits bounded pieces.
 *
 * Buffers hold float32 rows (rows x channels, contiguous). Weights are matrices (rows x columns) in the type the
 * file stores, or float vectors. All calls of one backend object come from one thread at a time.
 * An operation that a backend lacks for some shape or type returns STILL_ERROR_UNSUPPORTED from weight_create or
 * attention_create; the model then keeps that piece on the CPU and logs it once.
 */
#ifndef STILL_BACKEND_BACKEND_H
#define STILL_BACKEND_BACKEND_H

#include "formats/tensor.h"

#include <still/attention.h>

typedef struct still_backend still_backend;
typedef struct still_buffer still_buffer; /* activations */
typedef struct still_weight still_weight; /* a matrix or vector of the model */
typedef struct still_layer_cache
    still_layer_cache; /* one layer's attention cache of one sequence */

/* What a layer tells about itself: (H x n) each in host memory, NULL where nobody asked; as in
 * still_attention_inputs. */
typedef struct still_taps {
  float *scores, *linear_mass, *linear_output;
} still_taps;

typedef struct still_backend_ops {
  void (*destroy)(still_backend *backend);

  /* ---- memory ---- */
  still_status (*buffer_create)(still_backend *backend, size_t floats, still_buffer **buffer);
  void (*buffer_destroy)(still_backend *backend, still_buffer *buffer);
  still_status (*buffer_write)(still_backend *backend, still_buffer *buffer, size_t offset,
                               const float *data, size_t floats);
  /* Waits for everything before it. */
  still_status (*buffer_read)(still_backend *backend, const still_buffer *buffer, size_t offset,
                              float *data, size_t floats);
  /* The CPU keeps a pointer to tensor->data, a GPU uploads it. */
  still_status (*weight_create)(still_backend *backend, const still_tensor *tensor,
                                still_weight **weight);
  /* May copy a matrix of the backend into the order in which it multiplies fastest; its tensor's data are then read by
   * embed alone. The copy stays until the backend ends. NULL: the backend has no such order. */
  still_status (*weight_arrange)(still_backend *backend, still_weight *weight);
  void (*weight_destroy)(still_backend *backend, still_weight *weight);
  /* Bytes of the backend's own memory that such a weight would take, and that can still be taken. The CPU, which shares
   * the process's memory: 0, and no bound (UINT64_MAX). */
  uint64_t (*weight_bytes)(still_backend *backend, const still_tensor *tensor);
  uint64_t (*memory_free)(still_backend *backend);
  /* The most bytes of a buffer. */
  uint64_t (*buffer_most)(const still_backend *backend);

  /* ---- the dense part ---- */
  /* out (n x width) = rows ids[i] of the matrix. */
  still_status (*embed)(still_backend *backend, still_buffer *out, const still_weight *weight,
                        const int32_t *ids, size_t n);
  still_status (*rms_norm)(still_backend *backend, still_buffer *out, const still_buffer *in,
                           const still_weight *weight, float eps, size_t n, size_t width);
  /* out (n x rows) = in (n x columns) W^T. accumulate: += instead (LoRA, residual). */
  still_status (*matmul)(still_backend *backend, still_buffer *out, const still_weight *weight,
                         const still_buffer *in, size_t n, int accumulate);
  /* out[i] = row `first + i` of in: cuts single rows out, e.g. the last one before the logits. */
  still_status (*copy_rows)(still_backend *backend, still_buffer *out, const still_buffer *in,
                            size_t first, size_t n, size_t width);
  /* x (n x width) += vector (biases). */
  still_status (*add_vector)(still_backend *backend, still_buffer *x, const still_weight *vector,
                             size_t n, size_t width);
  still_status (*add)(still_backend *backend, still_buffer *x, const still_buffer *y,
                      size_t floats);
  still_status (*scale)(still_backend *backend, still_buffer *x, float factor, size_t floats);
  still_status (*swiglu)(still_backend *backend, still_buffer *out, const still_buffer *gate,
                         const still_buffer *up, size_t floats);
  still_status (*sigmoid)(still_backend *backend, still_buffer *x, size_t floats);
  /* *row: the first of n rows of x (n x width) that has a value which is not finite, n where there is none. Waits for
   * everything before it. */
  still_status (*first_not_finite)(still_backend *backend, const still_buffer *x, size_t n,
                                   size_t width, size_t *row);
  /* Rotates in place by the angles of positions first .. first+n-1; frequencies (half) in radians a token, scale
   * multiplies cosine and sine (yarn). Pairs (i, i + half) of each head (Hugging Face order). */
  still_status (*rotary)(still_backend *backend, still_buffer *x, const still_weight *frequencies,
                         float scale, int64_t first, size_t n, size_t heads, size_t dim,
                         size_t half);

  /* ---- attention ---- */
  still_status (*attention_create)(still_backend *backend, const still_attention_plan *plan,
                                   still_layer_cache **cache);
  void (*attention_destroy)(still_backend *backend, still_layer_cache *cache);
  /* out, q, gate, q_raw (n x H*D), k, v, k_raw (n x G*D), token-major; gate, q_raw, k_raw may be NULL.
   * taps: what the layer is to tell about itself; a backend that cannot says UNSUPPORTED. */
  still_status (*attention)(still_backend *backend, still_layer_cache *cache, still_buffer *out,
                            const still_buffer *q, const still_buffer *k, const still_buffer *v,
                            const still_buffer *gate, const still_buffer *q_raw,
                            const still_buffer *k_raw, size_t n, const still_taps *taps);
  void (*attention_usage)(still_backend *backend, const still_layer_cache *cache,
                          still_attention_usage *usage);
  void (*attention_reset)(still_backend *backend, still_layer_cache *cache);
  size_t (*attention_snapshot_bytes)(still_backend *backend, const still_layer_cache *cache);
  still_status (*attention_snapshot)(still_backend *backend, const still_layer_cache *cache,
                                     void *snapshot);
  still_status (*attention_restore)(still_backend *backend, still_layer_cache *cache,
                                    const void *snapshot);
  size_t (*attention_save_bytes)(still_backend *backend, const still_layer_cache *cache);
  still_status (*attention_save)(still_backend *backend, const still_layer_cache *cache,
                                 void *bytes);
  still_status (*attention_load)(still_backend *backend, still_layer_cache *cache,
                                 const void *bytes, size_t count);
  /* The host cache behind it, for scores and kept positions; NULL on a GPU. */
  still_attention_cache *(*attention_host)(still_backend *backend, still_layer_cache *cache);

  /* ---- order ---- */
  /* A good place to cut: a recording backend may submit here to keep pieces short. */
  still_status (*checkpoint)(still_backend *backend);
  /* Everything recorded is done when this returns. */
  still_status (*finish)(still_backend *backend);
  /* 1 when the device is gone for good: every later call that needs it fails. */
  int (*is_lost)(const still_backend *backend);
} still_backend_ops;

struct still_backend {
  const still_backend_ops *ops;
  const char *name; /* "cpu", "vulkan:0" */
  int threads;
  /* Where it says something else than 0, matmul and attention end with CANCELLED, their output undefined: on the CPU within
   * milliseconds, on a GPU between submissions. NULL: never. Asked on all threads. */
  int (*stop)(void *user);
  void *stop_user;
};

/* Of rows in host memory. */
bool still_all_finite(const float *x, size_t count);

static inline int still_backend_stops(const still_backend *backend) {
  return backend->stop && backend->stop(backend->stop_user);
}

/* device: NULL or "cpu", "vulkan", "vulkan:N". DEVICE with the reason if it cannot be had. */
still_status still_backend_create(still_backend **backend, const char *device, int threads);
void still_backend_destroy(still_backend *backend);
still_status still_backend_cpu_create(still_backend **backend, int threads);
still_status still_backend_vulkan_create(still_backend **backend, const char *device, int threads);
/* GPUs found: writes at most `capacity` entries, returns how many there are; 0 without Vulkan. These are compiled in
 * where STILL_HAVE_VULKAN is 1. */
size_t still_backend_vulkan_devices(still_device_info *devices, size_t capacity);
still_status still_vulkan_share(const still_shared_device *given, char name[32]);
still_status still_vulkan_unshare(const char *name);

/* Bytes of the CPU backend's own work space, once it has run blocks of n tokens with heads of dim channels and quantised
 * matrices of up to `widest` columns (0: none). */
size_t still_backend_cpu_work_bytes(int threads, size_t n, size_t dim, size_t widest);

#endif
