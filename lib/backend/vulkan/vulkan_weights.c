/* SPDX-License-Identifier: MIT
 * Weights on the device: rows in the file's type where a shader reads it, else as f16, cut where a binding ends. */
#include "backend/vulkan/vulkan_backend.h"
#include "backend/vulkan/vulkan_check.h"
#include "base/memory.h"

#include <string.h>

enum { Q8_BLOCK = 32, Q8_BYTES = 34 };

/* How a type lies on the device: bytes of `rows` rows. */
static uint64_t device_bytes(still_tensor_type type, uint64_t rows, uint64_t columns) {
  switch (type) {
  case STILL_TENSOR_F32: return rows * columns * 4;
  case STILL_TENSOR_Q8_0: return rows * columns + (rows * columns / Q8_BLOCK + 1) / 2 * 4;
  default: return rows * columns * 2;
  }
}

/* Types without a shader become f16. */
static still_tensor_type stored_type(still_tensor_type type) {
  const bool stays = type == STILL_TENSOR_F32 || type == STILL_TENSOR_F16 ||
                     type == STILL_TENSOR_BF16 || type == STILL_TENSOR_Q8_0;
  return stays ? type : STILL_TENSOR_F16;
}

/* Q8_0 blocks (f16 scale, 32 bytes) apart: all bytes, then all scales, so that both can be read in words. */
static void split_q8_0(uint8_t *to, const uint8_t *blocks, size_t count) {
  uint8_t *scales = to + count * Q8_BLOCK;
  for (size_t i = 0; i < count; i++, blocks += Q8_BYTES) {
    memcpy(scales + 2 * i, blocks, 2);
    memcpy(to + Q8_BLOCK * i, blocks + 2, Q8_BLOCK);
  }
}

/* Rows first .. first+rows-1 of the tensor as they lie on the device. */
static still_status convert(const still_tensor *tensor, const still_weight *weight, uint32_t first,
                            uint32_t rows, void *out) {
  const uint64_t items = (uint64_t)rows * weight->columns;
  const uint64_t row_bytes = tensor->bytes / weight->rows;
  const uint8_t *from = (const uint8_t *)tensor->data + first * row_bytes;
  if (tensor->type == STILL_TENSOR_Q8_0 && weight->type == STILL_TENSOR_Q8_0)
    split_q8_0(out, from, items / Q8_BLOCK);
  else if (tensor->type == weight->type)
    memcpy(out, from, rows * row_bytes);
  else { /* through floats, row by row */
    float *row;
    STILL_TRY(STILL_ALLOC(&row, weight->columns, tensor->name));
    still_from_f32 *pack = still_type_from_f32(weight->type);
    for (uint32_t r = 0; r < rows; r++) {
      still_type_to_f32(tensor->type)(row, from + r * row_bytes, weight->columns);
      pack((uint8_t *)out + device_bytes(weight->type, r, weight->columns), row, weight->columns);
    }
    still_free(row);
  }
  return STILL_OK;
}

static still_status upload_part(still_vulkan *vulkan, const still_tensor *tensor,
                                const still_weight *weight, still_weight_part *part) {
  const uint64_t bytes = device_bytes(weight->type, part->rows, weight->columns);
  void *host;
  STILL_TRY(still_alloc(&host, 1, bytes, tensor->name));
  still_status status = convert(tensor, weight, part->first, part->rows, host);
  if (!status) status = still_vulkan_buffer_create(vulkan, &part->data, bytes, STILL_VULKAN_DEVICE);
  if (!status) status = still_vulkan_write(vulkan, &part->data, 0, host, bytes);
  still_free(host);
  return status;
}

/* Pieces bounded for the binding, and by 64 MiB for the host memory that the upload takes. */
static still_status upload(still_vulkan *vulkan, const still_tensor *tensor, still_weight *weight) {
  const uint64_t row = device_bytes(weight->type, 2, weight->columns) / 2 + 4;
  uint64_t rows = vulkan->limits.storage_range / row;
  if (!rows)
    return still_fail(STILL_ERROR_UNSUPPORTED, "%s: a row of tensor '%s' is larger than a binding",
                      vulkan->name, tensor->name);
  if (rows > weight->rows) rows = weight->rows;
  weight->part_count = (uint32_t)((weight->rows + rows - 1) / rows);
  STILL_TRY(STILL_ALLOC(&weight->parts, weight->part_count, tensor->name));
  for (uint32_t i = 0; i < weight->part_count; i++) {
    still_weight_part *part = &weight->parts[i];
    part->first = (uint32_t)(i * rows);
    part->rows = weight->rows - part->first < rows ? weight->rows - part->first : (uint32_t)rows;
    STILL_TRY(upload_part(vulkan, tensor, weight, part));
  }
  return STILL_OK;
}

static still_status fill(still_vulkan *vulkan, const still_tensor *tensor, still_weight *weight) {
  if (tensor->dimensions < 1 || tensor->dimensions > 2 || !still_type_to_f32(tensor->type))
    return still_fail(STILL_ERROR_UNSUPPORTED, "tensor '%s' is no vector or matrix of numbers",
                      tensor->name);
  const uint64_t columns = tensor->shape[tensor->dimensions - 1];
  const uint64_t rows = tensor->dimensions == 2 ? tensor->shape[0] : 1;
  if (tensor->dimensions == 2 && (columns % 4 || columns > INT32_MAX || rows > INT32_MAX))
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "%s: tensor '%s' has %llu columns, a GPU needs a multiple of 4", vulkan->name,
                      tensor->name, (unsigned long long)columns);
  weight->columns = (uint32_t)columns;
  weight->rows = (uint32_t)rows;
  weight->type = stored_type(tensor->type);
  if (tensor->dimensions == 2) return upload(vulkan, tensor, weight);
  STILL_TRY(STILL_ALLOC(&weight->host, weight->columns, tensor->name));
  STILL_TRY(still_tensor_to_f32(tensor, 0, columns, weight->host));
  weight->type = STILL_TENSOR_F32;
  still_tensor floats = *tensor;
  floats.type = STILL_TENSOR_F32;
  floats.data = weight->host;
  floats.bytes = columns * sizeof(float);
  return upload(vulkan, &floats, weight);
}

uint64_t still_vulkan_weight_bytes(still_backend *backend, const still_tensor *tensor) {
  (void)backend;
  const uint64_t columns = tensor->shape[tensor->dimensions - 1];
  if (tensor->dimensions < 2) return columns * sizeof(float);
  return device_bytes(stored_type(tensor->type), tensor->shape[0], columns);
}

void still_vulkan_weight_destroy(still_backend *backend, still_weight *weight) {
  still_vulkan *vulkan = still_vulkan_of(backend)->vulkan;
  if (!weight) return;
  pthread_mutex_lock(&vulkan->lock);
  for (uint32_t i = 0; weight->parts && i < weight->part_count; i++)
    still_vulkan_discard(vulkan, &weight->parts[i].data);
  pthread_mutex_unlock(&vulkan->lock);
  still_free(weight->parts);
  still_free(weight->host);
  still_free(weight);
}

still_status still_vulkan_weight_create(still_backend *backend, const still_tensor *tensor,
                                        still_weight **weight) {
  *weight = NULL;
  if (tensor->dimensions == 2)
    STILL_TRY(still_vulkan_check_weights(backend, stored_type(tensor->type)));
  return still_vulkan_weight_create_unchecked(backend, tensor, weight);
}

still_status still_vulkan_weight_create_unchecked(still_backend *backend,
                                                  const still_tensor *tensor, still_weight **out) {
  still_vulkan *vulkan = still_vulkan_of(backend)->vulkan;
  *out = NULL;
  still_weight *weight;
  STILL_TRY(STILL_ALLOC(&weight, 1, "a weight"));
  still_status status;
  STILL_VULKAN_LOCKED(vulkan, status, fill(vulkan, tensor, weight));
  if (status)
    still_vulkan_weight_destroy(backend, weight);
  else
    *out = weight;
  return status;
}
