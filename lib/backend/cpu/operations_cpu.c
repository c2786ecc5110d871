/* SPDX-License-Identifier: MIT
 * The operations on rows and elements. */
#include "backend/cpu/backend_cpu.h"
#include "base/memory.h"
#include "base/threads.h"
#include "simd/kernels.h"

#include <math.h>
#include <string.h>

/* Elements of one piece; fewer than two pieces are not worth a team of threads. */
enum { PIECE = 8192 };

/* Rows of one piece. */
static size_t piece_rows(size_t width) {
  return width >= PIECE ? 1 : PIECE / width;
}

still_status still_cpu_embed(still_backend *backend, still_buffer *out, const still_weight *weight,
                             const int32_t *ids, size_t n) {
  (void)backend;
  const char *rows = weight->tensor.data;
  for (size_t i = 0; i < n; i++)
    weight->to_f32(out->data + i * weight->columns, rows + (size_t)ids[i] * weight->row_bytes,
                   weight->columns);
  return STILL_OK;
}

still_status still_cpu_rms_norm(still_backend *backend, still_buffer *out, const still_buffer *in,
                                const still_weight *weight, float eps, size_t n, size_t width) {
  const still_kernels *kernels = still_kernels_get();
  const size_t rows = piece_rows(width);
  STILL_OMP(parallel for schedule(static) num_threads(backend->threads) if (n > rows))
  for (size_t i = 0; i < n; i += rows)
    kernels->rms_norm(out->data + i * width, in->data + i * width, weight->vector, eps,
                      still_smaller(rows, n - i), width);
  (void)backend;
  return STILL_OK;
}

still_status still_cpu_copy_rows(still_backend *backend, still_buffer *out, const still_buffer *in,
                                 size_t first, size_t n, size_t width) {
  (void)backend;
  memcpy(out->data, in->data + first * width, n * width * sizeof(float));
  return STILL_OK;
}

still_status still_cpu_add_vector(still_backend *backend, still_buffer *x,
                                  const still_weight *vector, size_t n, size_t width) {
  (void)backend;
  const still_kernels *kernels = still_kernels_get();
  for (size_t i = 0; i < n; i++) kernels->add(x->data + i * width, vector->vector, width);
  return STILL_OK;
}

still_status still_cpu_add(still_backend *backend, still_buffer *x, const still_buffer *y,
                           size_t floats) {
  (void)backend;
  still_kernels_get()->add(x->data, y->data, floats);
  return STILL_OK;
}

still_status still_cpu_scale(still_backend *backend, still_buffer *x, float factor, size_t floats) {
  (void)backend;
  for (size_t i = 0; i < floats; i++) x->data[i] *= factor;
  return STILL_OK;
}

still_status still_cpu_swiglu(still_backend *backend, still_buffer *out, const still_buffer *gate,
                              const still_buffer *up, size_t floats) {
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static) num_threads(backend->threads) if (floats > PIECE))
  for (size_t i = 0; i < floats; i += PIECE)
    kernels->swiglu(out->data + i, gate->data + i, up->data + i, still_smaller(PIECE, floats - i));
  (void)backend;
  return STILL_OK;
}

still_status still_cpu_sigmoid(still_backend *backend, still_buffer *x, size_t floats) {
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static) num_threads(backend->threads) if (floats > PIECE))
  for (size_t i = 0; i < floats; i += PIECE)
    kernels->sigmoid(x->data + i, x->data + i, still_smaller(PIECE, floats - i));
  (void)backend;
  return STILL_OK;
}

/* ---- rotation ----------------------------------------------------------------------------------- */

static still_status grow_angles(still_angles *angles, size_t floats) {
  if (floats <= angles->capacity) return STILL_OK;
  angles->n = 0;
  STILL_TRY(STILL_REALLOC(&angles->cosine, floats, "cosines of positions"));
  STILL_TRY(STILL_REALLOC(&angles->sine, floats, "sines of positions"));
  angles->capacity = floats;
  return STILL_OK;
}

/* Products and functions in double: at position 10^5 a float angle is off by 0.004. */
static void fill_angles(still_angles *angles, int threads) {
  const float *frequencies = angles->frequencies->vector;
  const size_t half = angles->half;
  STILL_OMP(parallel for schedule(static) num_threads(threads) if (angles->n * half > PIECE))
  for (size_t i = 0; i < angles->n; i++)
    for (size_t d = 0; d < half; d++) {
      const double angle = (double)(angles->first + (int64_t)i) * frequencies[d];
      angles->cosine[i * half + d] = angles->scale * (float)cos(angle);
      angles->sine[i * half + d] = angles->scale * (float)sin(angle);
    }
  (void)threads;
}

static still_status find_angles(still_backend_cpu *cpu, const still_angles *wanted) {
  still_angles *angles = &cpu->angles;
  if (angles->frequencies == wanted->frequencies && angles->scale == wanted->scale &&
      angles->first == wanted->first && angles->n == wanted->n && angles->half == wanted->half)
    return STILL_OK;
  STILL_TRY(grow_angles(angles, wanted->n * wanted->half));
  angles->frequencies = wanted->frequencies;
  angles->scale = wanted->scale;
  angles->first = wanted->first;
  angles->n = wanted->n;
  angles->half = wanted->half;
  fill_angles(angles, cpu->base.threads);
  return STILL_OK;
}

still_status still_cpu_first_not_finite(still_backend *backend, const still_buffer *x, size_t n,
                                        size_t width, size_t *row) {
  (void)backend;
  for (*row = 0; *row < n; ++*row)
    if (!still_all_finite(x->data + *row * width, width)) break;
  return STILL_OK;
}

still_status still_cpu_rotary(still_backend *backend, still_buffer *x,
                              const still_weight *frequencies, float scale, int64_t first, size_t n,
                              size_t heads, size_t dim, size_t half) {
  still_backend_cpu *cpu = still_cpu(backend);
  STILL_TRY(find_angles(
      cpu, &(still_angles){
               .frequencies = frequencies, .scale = scale, .first = first, .n = n, .half = half}));
  const still_kernels *kernels = still_kernels_get();
  const size_t width = heads * dim, rows = piece_rows(width);
  STILL_OMP(parallel for schedule(static) num_threads(backend->threads) if (n > rows))
  for (size_t i = 0; i < n; i += rows)
    kernels->rotary(x->data + i * width, width, cpu->angles.cosine + i * half,
                    cpu->angles.sine + i * half, still_smaller(rows, n - i), heads, dim, half);
  return STILL_OK;
}
