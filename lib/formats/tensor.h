/* SPDX-License-Identifier: MIT
 * Tensor types (numbered as GGUF numbers them) and tensors that lie in a file. */
#ifndef STILL_FORMATS_TENSOR_H
#define STILL_FORMATS_TENSOR_H

#include "base/status.h"

#include <stdbool.h>

typedef enum still_tensor_type {
  STILL_TENSOR_F32 = 0,
  STILL_TENSOR_F16 = 1,
  STILL_TENSOR_Q4_0 = 2,
  STILL_TENSOR_Q4_1 = 3,
  STILL_TENSOR_Q5_0 = 6,
  STILL_TENSOR_Q5_1 = 7,
  STILL_TENSOR_Q8_0 = 8,
  STILL_TENSOR_Q2_K = 10,
  STILL_TENSOR_Q3_K = 11,
  STILL_TENSOR_Q4_K = 12,
  STILL_TENSOR_Q5_K = 13,
  STILL_TENSOR_Q6_K = 14,
  STILL_TENSOR_IQ4_NL = 20,
  STILL_TENSOR_I8 = 24,
  STILL_TENSOR_I16 = 25,
  STILL_TENSOR_I32 = 26,
  STILL_TENSOR_I64 = 27,
  STILL_TENSOR_F64 = 28,
  STILL_TENSOR_BF16 = 30,
  STILL_TENSOR_MXFP4 = 39,
  /* only in safetensors */
  STILL_TENSOR_U8 = 1000,
  STILL_TENSOR_BOOL = 1001
} still_tensor_type;

/* A row of the type table. */
typedef struct still_type_traits {
  still_tensor_type type;
  const char *name;        /* "Q8_0" */
  const char *safetensors; /* "F32", "BF16"; NULL where safetensors has no such type */
  uint32_t block_items;    /* values of one block; 1 for plain types */
  uint32_t block_bytes;
  bool is_weight; /* can be read as floats by still_tensor_to_f32 */
} still_type_traits;

/* NULL for a type that this build does not know. */
const still_type_traits *still_type_traits_get(uint32_t type);
const still_type_traits *still_type_traits_by_safetensors(const char *name);
/* The names of the types of GGUF files, or of safetensors files, with spaces between, for
 * sentences. */
const char *still_type_names(char *buffer, size_t bytes, bool safetensors);

enum { STILL_MOST_DIMENSIONS = 8 };

/* A tensor inside an open file. Shapes are row-major as in NumPy: shape[dimensions-1] is contiguous
 * (the reverse of GGUF's ne). data may be misaligned. */
typedef struct still_tensor {
  const char *name; /* owned by the file */
  still_tensor_type type;
  uint32_t dimensions;
  uint64_t shape[STILL_MOST_DIMENSIONS];
  const void *data;
  uint64_t bytes;
} still_tensor;

/* Checked: items and bytes of a tensor of this type and shape (no dimensions: one item). FORMAT on
 * overflow, a dimension that is 0, or a last dimension that is no multiple of the block;
 * UNSUPPORTED for an unknown type. */
still_status still_tensor_bytes(const char *name, uint32_t type, uint32_t dimensions,
                                const uint64_t *shape, uint64_t *items, uint64_t *bytes);
uint64_t still_tensor_items(const still_tensor *tensor);
bool still_tensor_has_shape(const still_tensor *tensor, uint32_t dimensions, const uint64_t *shape);
/* "[32, 64]" into buffer. */
const char *still_shape_text(char *buffer, size_t bytes, uint32_t dimensions,
                             const uint64_t *shape);

/* Where a tensor lies in its file's data, for the check that no two overlap (and, for safetensors,
 * that they cover the data from byte 0 without gaps). Sorts the spans. */
typedef struct still_tensor_span {
  uint64_t begin, end;
  const char *name;
} still_tensor_span;
still_status still_tensor_spans_check(still_tensor_span *spans, size_t count, bool may_leave_gaps);

/* Values first .. first+count-1 (in storage order; multiples of the block for quantised types) as
 * floats. */
still_status still_tensor_to_f32(const still_tensor *tensor, uint64_t first, uint64_t count,
                                 float *out);

/* Bytes of `count` values of plain or quantised type as floats; NULL if the type cannot be read. */
typedef void still_to_f32(float *out, const void *data, size_t count);
still_to_f32 *still_type_to_f32(still_tensor_type type);
/* And back, for F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K (count a multiple of the block): NULL
 * otherwise. */
typedef void still_from_f32(void *out, const float *data, size_t count);
still_from_f32 *still_type_from_f32(still_tensor_type type);

#endif
