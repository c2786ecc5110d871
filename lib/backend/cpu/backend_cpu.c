/* SPDX-License-Identifier: MIT */
#include "backend/cpu/backend_cpu.h"

#include "base/memory.h"
#include "base/threads.h"

#include <pthread.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------------------------------- */

static still_status buffer_create(still_backend *backend, size_t floats, still_buffer **out) {
  (void)backend;
  *out = NULL;
  still_buffer *buffer;
  STILL_TRY(STILL_ALLOC(&buffer, 1, "a buffer"));
  const still_status status = STILL_ALLOC(&buffer->data, floats, "activations");
  if (status) {
    still_free(buffer);
    return status;
  }
  buffer->floats = floats;
  *out = buffer;
  return STILL_OK;
}

static void buffer_destroy(still_backend *backend, still_buffer *buffer) {
  (void)backend;
  if (!buffer) return;
  still_free(buffer->data);
  still_free(buffer);
}

static still_status buffer_write(still_backend *backend, still_buffer *buffer, size_t offset,
                                 const float *data, size_t floats) {
  (void)backend;
  memcpy(buffer->data + offset, data, floats * sizeof *data);
  return STILL_OK;
}

static still_status buffer_read(still_backend *backend, const still_buffer *buffer, size_t offset,
                                float *data, size_t floats) {
  (void)backend;
  memcpy(data, buffer->data + offset, floats * sizeof *data);
  return STILL_OK;
}

static void weight_destroy(still_backend *backend, still_weight *weight) {
  (void)backend;
  if (!weight) return;
  still_free(weight->vector);
  still_free(weight->owned);
  still_free(weight);
}

/* Plain types are read as arrays of 2 or 4 bytes; in a file they may begin anywhere. */
static still_status align(still_weight *weight) {
  still_tensor *tensor = &weight->tensor;
  if ((uintptr_t)tensor->data % sizeof(float) == 0) return STILL_OK;
  STILL_TRY(still_alloc(&weight->owned, tensor->bytes, 1, tensor->name));
  memcpy(weight->owned, tensor->data, tensor->bytes);
  tensor->data = weight->owned;
  return STILL_OK;
}

static still_status fill_weight(still_weight *weight) {
  still_tensor *tensor = &weight->tensor;
  weight->to_f32 = still_type_to_f32(tensor->type);
  if (tensor->dimensions < 1 || tensor->dimensions > 2 || !weight->to_f32)
    return still_fail(STILL_ERROR_UNSUPPORTED, "tensor '%s' is no vector or matrix of numbers",
                      tensor->name);
  weight->columns = tensor->shape[tensor->dimensions - 1];
  weight->rows = tensor->dimensions == 2 ? tensor->shape[0] : 1;
  weight->row_bytes = tensor->bytes / weight->rows;
  if (tensor->dimensions == 2) return align(weight);
  STILL_TRY(STILL_ALLOC(&weight->vector, weight->columns, tensor->name));
  return still_tensor_to_f32(tensor, 0, weight->columns, weight->vector);
}

static still_status weight_create(still_backend *backend, const still_tensor *tensor,
                                  still_weight **out) {
  *out = NULL;
  still_weight *weight;
  STILL_TRY(STILL_ALLOC(&weight, 1, "a weight"));
  weight->tensor = *tensor;
  const still_status status = fill_weight(weight);
  if (status)
    weight_destroy(backend, weight);
  else
    *out = weight;
  return status;
}

static uint64_t weight_bytes(still_backend *backend, const still_tensor *tensor) {
  (void)backend;
  (void)tensor;
  return 0;
}

static uint64_t memory_free(still_backend *backend) {
  (void)backend;
  return UINT64_MAX;
}

static uint64_t buffer_most(const still_backend *backend) {
  (void)backend;
  return UINT64_MAX;
}

static int is_lost(const still_backend *backend) {
  (void)backend;
  return 0;
}

/* ---- the backend -------------------------------------------------------------------------------- */

static still_status nothing_pending(still_backend *backend) {
  (void)backend;
  return STILL_OK;
}

static void destroy(still_backend *backend) {
  still_backend_cpu *cpu = still_cpu(backend);
  still_free(cpu->angles.cosine);
  still_free(cpu->angles.sine);
  still_free(cpu->work);
  still_free(cpu->integers.values);
  still_free(cpu->integers.scales);
  still_free(cpu->integers.sums);
  still_free(cpu->integers.totals);
  still_free(cpu->pairs);
  still_free(cpu->pair_rooms);
  still_lane_memory_free(cpu->lane_memory);
  still_free(cpu);
}

static still_backend_ops operations = {
    .destroy = destroy,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .buffer_write = buffer_write,
    .buffer_read = buffer_read,
    .weight_create = weight_create,
    .weight_destroy = weight_destroy,
    .weight_arrange = still_cpu_weight_arrange,
    .weight_bytes = weight_bytes,
    .memory_free = memory_free,
    .buffer_most = buffer_most,
    .embed = still_cpu_embed,
    .rms_norm = still_cpu_rms_norm,
    .matmul = still_cpu_matmul,
    .copy_rows = still_cpu_copy_rows,
    .add_vector = still_cpu_add_vector,
    .add = still_cpu_add,
    .scale = still_cpu_scale,
    .swiglu = still_cpu_swiglu,
    .sigmoid = still_cpu_sigmoid,
    .first_not_finite = still_cpu_first_not_finite,
    .rotary = still_cpu_rotary,
    .checkpoint = nothing_pending,
    .finish = nothing_pending,
    .is_lost = is_lost,
};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void complete_operations(void) {
  still_cpu_attention_operations(&operations);
}

still_status still_backend_cpu_create(still_backend **out, int threads) {
  *out = NULL;
  pthread_once(&once, complete_operations);
  still_backend_cpu *cpu;
  STILL_TRY(STILL_ALLOC(&cpu, 1, "the CPU backend"));
  cpu->base =
      (still_backend){.ops = &operations, .name = "cpu", .threads = still_resolve_threads(threads)};
  const still_status status = STILL_ALLOC(
      &cpu->work, (size_t)cpu->base.threads * still_cpu_matmul_work(), "panels of weights");
  if (status) {
    still_free(cpu);
    return status;
  }
  *out = &cpu->base;
  return STILL_OK;
}

size_t still_backend_cpu_work_bytes(int threads, size_t n, size_t dim, size_t widest) {
  const size_t angles = 2 * n * (dim / 2); /* cosine and sine */
  threads = still_resolve_threads(threads);
  return ((size_t)threads * still_cpu_matmul_work() + angles) * sizeof(float) +
         still_cpu_activation_bytes(threads, n, widest);
}
