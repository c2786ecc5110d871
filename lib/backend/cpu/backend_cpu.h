/* SPDX-License-Identifier: MIT
 * What the files of the CPU backend share. Every operation runs at once. Work is cut into pieces whose borders
 * depend on shapes alone and dealt out to threads, so any number of threads gives the same bits. */
#ifndef STILL_BACKEND_CPU_BACKEND_CPU_H
#define STILL_BACKEND_CPU_BACKEND_CPU_H

#include "backend/backend.h"
#include "simd/kernels.h"

struct still_buffer {
  float *data;
  size_t floats;
};

struct still_weight {
  still_tensor tensor;  /* data of the file, or of `owned` where that is misaligned */
  size_t rows, columns; /* a vector has one row */
  still_to_f32 *to_f32; /* of the tensor's type */
  size_t row_bytes;
  float *vector; /* a vector's values; NULL for a matrix */
  void *owned;
  const uint8_t *lanes; /* the rows side by side; NULL: they are read as they lie in the file */
};

struct still_layer_cache {
  const still_attention_plan *plan;
  still_attention_cache *cache;
};

/* Angles of the last block of positions: the layers of one forward share them. */
typedef struct still_angles {
  const still_weight *frequencies;
  float scale;
  int64_t first;
  size_t n, half;
  float *cosine, *sine; /* (n, half) */
  size_t capacity;      /* floats of each */
} still_angles;

typedef struct still_lane_memory still_lane_memory;

typedef struct still_backend_cpu {
  still_backend base;
  still_angles angles;
  float *work;                        /* threads x still_cpu_matmul_work() floats */
  still_integers integers;            /* activations of the product at work */
  size_t integer_capacity;            /* values */
  still_pair_tile *pairs;             /* the same as pairs of bf16 */
  size_t pair_capacity;               /* tiles */
  struct still_pair_room *pair_rooms; /* of the threads */
  still_lane_memory *lane_memory;     /* of the weights that have lanes */
} still_backend_cpu;

static inline still_backend_cpu *still_cpu(still_backend *backend) {
  return (still_backend_cpu *)backend;
}

/* matmul_cpu.c */
size_t still_cpu_matmul_work(void);
/* Bytes for n rows of activations as integers or pairs; columns: the widest of quantised weights, 0 = none. */
size_t still_cpu_activation_bytes(int threads, size_t n, size_t columns);
still_status still_cpu_matmul(still_backend *backend, still_buffer *out, const still_weight *weight,
                              const still_buffer *in, size_t n, int accumulate);

/* Whether the kernels of this CPU read the matrix's rows side by side. */
bool still_cpu_has_lanes(const still_weight *weight);

/* lanes.c */
size_t still_lanes_bytes(size_t rows, size_t row_bytes);
void still_lanes_write(uint8_t *out, const still_tensor *tensor, size_t rows, size_t row_bytes,
                       int threads);
/* `count` <= STILL_LANES rows back out of some blocks (row_bytes of each row) of lanes. */
void still_lanes_read(uint8_t *rows, const uint8_t *lanes, still_tensor_type type, size_t count,
                      size_t row_bytes);
void still_lane_memory_free(still_lane_memory *memory);
still_status still_cpu_weight_arrange(still_backend *backend, still_weight *weight);

/* operations_cpu.c */
still_status still_cpu_embed(still_backend *backend, still_buffer *out, const still_weight *weight,
                             const int32_t *ids, size_t n);
still_status still_cpu_rms_norm(still_backend *backend, still_buffer *out, const still_buffer *in,
                                const still_weight *weight, float eps, size_t n, size_t width);
still_status still_cpu_copy_rows(still_backend *backend, still_buffer *out, const still_buffer *in,
                                 size_t first, size_t n, size_t width);
still_status still_cpu_add_vector(still_backend *backend, still_buffer *x,
                                  const still_weight *vector, size_t n, size_t width);
still_status still_cpu_add(still_backend *backend, still_buffer *x, const still_buffer *y,
                           size_t floats);
still_status still_cpu_scale(still_backend *backend, still_buffer *x, float factor, size_t floats);
still_status still_cpu_swiglu(still_backend *backend, still_buffer *out, const still_buffer *gate,
                              const still_buffer *up, size_t floats);
still_status still_cpu_sigmoid(still_backend *backend, still_buffer *x, size_t floats);
still_status still_cpu_first_not_finite(still_backend *backend, const still_buffer *x, size_t n,
                                        size_t width, size_t *row);
still_status still_cpu_rotary(still_backend *backend, still_buffer *x,
                              const still_weight *frequencies, float scale, int64_t first, size_t n,
                              size_t heads, size_t dim, size_t half);

/* attention_cpu.c: fills the attention operations of the table */
void still_cpu_attention_operations(still_backend_ops *ops);

#endif
