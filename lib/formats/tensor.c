/* SPDX-License-Identifier: MIT */
#include "formats/tensor.h"

#include "base/memory.h"
#include "formats/dequantize.h"
#include "formats/quantize.h"
#include "simd/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files hold little-endian numbers, which are used as they are");

/* ---- the type table */

/* In the order of their numbers. Block layouts: dequantize.c. */
static const still_type_traits type_table[] = {
    {STILL_TENSOR_F32, "F32", "F32", 1, 4, true},
    {STILL_TENSOR_F16, "F16", "F16", 1, 2, true},
    {STILL_TENSOR_Q4_0, "Q4_0", NULL, 32, 18, true},
    {STILL_TENSOR_Q4_1, "Q4_1", NULL, 32, 20, true},
    {STILL_TENSOR_Q5_0, "Q5_0", NULL, 32, 22, true},
    {STILL_TENSOR_Q5_1, "Q5_1", NULL, 32, 24, true},
    {STILL_TENSOR_Q8_0, "Q8_0", NULL, 32, 34, true},
    {STILL_TENSOR_Q2_K, "Q2_K", NULL, 256, 84, true},
    {STILL_TENSOR_Q3_K, "Q3_K", NULL, 256, 110, true},
    {STILL_TENSOR_Q4_K, "Q4_K", NULL, 256, 144, true},
    {STILL_TENSOR_Q5_K, "Q5_K", NULL, 256, 176, true},
    {STILL_TENSOR_Q6_K, "Q6_K", NULL, 256, 210, true},
    {STILL_TENSOR_IQ4_NL, "IQ4_NL", NULL, 32, 18, true},
    {STILL_TENSOR_I8, "I8", "I8", 1, 1, false},
    {STILL_TENSOR_I16, "I16", "I16", 1, 2, false},
    {STILL_TENSOR_I32, "I32", "I32", 1, 4, false},
    {STILL_TENSOR_I64, "I64", "I64", 1, 8, false},
    {STILL_TENSOR_F64, "F64", "F64", 1, 8, true},
    {STILL_TENSOR_BF16, "BF16", "BF16", 1, 2, true},
    {STILL_TENSOR_MXFP4, "MXFP4", NULL, 32, 17, true},
    {STILL_TENSOR_U8, "U8", "U8", 1, 1, false},
    {STILL_TENSOR_BOOL, "BOOL", "BOOL", 1, 1, false},
};
enum { TYPES = sizeof type_table / sizeof type_table[0] };

const still_type_traits *still_type_traits_get(uint32_t type) {
  for (int i = 0; i < TYPES; i++)
    if (type_table[i].type == type) return &type_table[i];
  return NULL;
}

const still_type_traits *still_type_traits_by_safetensors(const char *name) {
  for (int i = 0; i < TYPES; i++)
    if (type_table[i].safetensors && !strcmp(type_table[i].safetensors, name))
      return &type_table[i];
  return NULL;
}

const char *still_type_names(char *buffer, size_t bytes, bool safetensors) {
  size_t used = 0;
  buffer[0] = 0;
  for (int i = 0; i < TYPES && used < bytes; i++) {
    const bool listed =
        safetensors ? type_table[i].safetensors != NULL : type_table[i].type < STILL_TENSOR_U8;
    if (listed)
      used +=
          (size_t)snprintf(buffer + used, bytes - used, used ? " %s" : "%s", type_table[i].name);
  }
  return buffer;
}

/* ---- shapes */

still_status still_tensor_bytes(const char *name, uint32_t type, uint32_t dimensions,
                                const uint64_t *shape, uint64_t *items, uint64_t *bytes) {
  char text[256];
  const still_type_traits *traits = still_type_traits_get(type);
  if (!traits)
    return still_fail(STILL_ERROR_UNSUPPORTED, "tensor '%s': type %u is unknown; known are %s",
                      name, type, still_type_names(text, sizeof text, false));
  if (dimensions > STILL_MOST_DIMENSIONS)
    return still_fail(STILL_ERROR_FORMAT, "tensor '%s': %u dimensions, at most %d are allowed",
                      name, dimensions, STILL_MOST_DIMENSIONS);
  still_shape_text(text, sizeof text, dimensions, shape);
  uint64_t product = 1;
  for (uint32_t i = 0; i < dimensions; i++) {
    if (!shape[i])
      return still_fail(STILL_ERROR_FORMAT, "tensor '%s': shape %s: a dimension is 0", name, text);
    if (!still_mul_u64(product, shape[i], &product))
      return still_fail(STILL_ERROR_FORMAT, "tensor '%s': shape %s: more than 2^64 values", name,
                        text);
  }
  const uint64_t row = dimensions ? shape[dimensions - 1] : 1;
  if (row % traits->block_items)
    return still_fail(STILL_ERROR_FORMAT,
                      "tensor '%s': shape %s: the last dimension must be a multiple of %u for %s",
                      name, text, traits->block_items, traits->name);
  *items = product;
  if (!still_mul_u64(product / traits->block_items, traits->block_bytes, bytes))
    return still_fail(STILL_ERROR_FORMAT, "tensor '%s': shape %s: more than 2^64 bytes", name,
                      text);
  return STILL_OK;
}

uint64_t still_tensor_items(const still_tensor *tensor) {
  uint64_t items = 1;
  for (uint32_t i = 0; i < tensor->dimensions; i++) items *= tensor->shape[i];
  return items;
}

bool still_tensor_has_shape(const still_tensor *tensor, uint32_t dimensions,
                            const uint64_t *shape) {
  return tensor->dimensions == dimensions &&
         !memcmp(tensor->shape, shape, dimensions * sizeof *shape);
}

const char *still_shape_text(char *buffer, size_t bytes, uint32_t dimensions,
                             const uint64_t *shape) {
  size_t used = (size_t)snprintf(buffer, bytes, "[");
  for (uint32_t i = 0; i < dimensions && used < bytes; i++)
    used += (size_t)snprintf(buffer + used, bytes - used, i ? ", %llu" : "%llu",
                             (unsigned long long)shape[i]);
  if (used < bytes) snprintf(buffer + used, bytes - used, "]");
  return buffer;
}

static int compare_spans(const void *a, const void *b) {
  const still_tensor_span *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

still_status still_tensor_spans_check(still_tensor_span *spans, size_t count, bool may_leave_gaps) {
  if (count) qsort(spans, count, sizeof *spans, compare_spans); /* qsort takes no NULL */
  uint64_t covered = 0;
  for (size_t i = 0; i < count; i++) {
    if (spans[i].begin < covered)
      return still_fail(STILL_ERROR_FORMAT, "tensors '%s' and '%s' overlap", spans[i - 1].name,
                        spans[i].name);
    if (spans[i].begin > covered && !may_leave_gaps)
      return still_fail(
          STILL_ERROR_FORMAT, "tensor '%s' begins at byte %llu of the data, must begin at %llu",
          spans[i].name, (unsigned long long)spans[i].begin, (unsigned long long)covered);
    covered = spans[i].end;
  }
  return STILL_OK;
}

/* ---- values */

static void f32_to_f32(float *out, const void *data, size_t count) {
  memcpy(out, data, count * sizeof *out);
}

static void f16_to_f32(float *out, const void *data, size_t count) {
  still_kernels_get()->f16_to_f32(out, data, count);
}

static void bf16_to_f32(float *out, const void *data, size_t count) {
  still_kernels_get()->bf16_to_f32(out, data, count);
}

static void f64_to_f32(float *out, const void *data, size_t count) {
  const double *in = data;
  for (size_t i = 0; i < count; i++) out[i] = (float)in[i];
}

static void q8_0_to_f32(float *out, const void *data, size_t count) {
  still_kernels_get()->q8_0_to_f32(out, data, count);
}

/* The CPU level's own conversion of a quantised type, NULL where it has none. */
static still_to_f32 *kernel_for(still_tensor_type type) {
  const still_kernels *kernels = still_kernels_get();
  switch (type) {
  case STILL_TENSOR_Q4_0: return kernels->q4_0_to_f32;
  case STILL_TENSOR_Q4_1: return kernels->q4_1_to_f32;
  case STILL_TENSOR_Q4_K: return kernels->q4_k_to_f32;
  case STILL_TENSOR_Q5_K: return kernels->q5_k_to_f32;
  case STILL_TENSOR_Q6_K: return kernels->q6_k_to_f32;
  default: return NULL;
  }
}

still_to_f32 *still_type_to_f32(still_tensor_type type) {
  switch (type) {
  case STILL_TENSOR_F32: return f32_to_f32;
  case STILL_TENSOR_F16: return f16_to_f32;
  case STILL_TENSOR_BF16: return bf16_to_f32;
  case STILL_TENSOR_F64: return f64_to_f32;
  case STILL_TENSOR_Q8_0: return q8_0_to_f32;
  default: break;
  }
  still_to_f32 *kernel = kernel_for(type);
  return kernel ? kernel : still_dequantizer(type);
}

static void f32_from_f32(void *out, const float *data, size_t count) {
  memcpy(out, data, count * sizeof *data);
}

static void f16_from_f32(void *out, const float *data, size_t count) {
  still_kernels_get()->f32_to_f16(out, data, count);
}

static void bf16_from_f32(void *out, const float *data, size_t count) {
  still_kernels_get()->f32_to_bf16(out, data, count);
}

still_from_f32 *still_type_from_f32(still_tensor_type type) {
  switch (type) {
  case STILL_TENSOR_F32: return f32_from_f32;
  case STILL_TENSOR_F16: return f16_from_f32;
  case STILL_TENSOR_BF16: return bf16_from_f32;
  case STILL_TENSOR_Q8_0: return still_quantize_q8_0;
  case STILL_TENSOR_Q4_0: return still_quantize_q4_0;
  case STILL_TENSOR_Q4_K: return still_quantize_q4_k;
  case STILL_TENSOR_Q6_K: return still_quantize_q6_k;
  default: return NULL;
  }
}

/* Copies a piece at a time to an aligned place: files align their data as they like. */
static void convert_misaligned(still_to_f32 *convert, const still_type_traits *traits, float *out,
                               const char *from, uint64_t count) {
  enum { PIECE = 1024 }; /* values; no type takes more than 8 bytes for one */
  _Alignas(8) char piece[PIECE * 8];
  while (count) {
    const size_t now = count < PIECE ? (size_t)count : PIECE;
    const size_t bytes = now / traits->block_items * traits->block_bytes;
    memcpy(piece, from, bytes);
    convert(out, piece, now);
    out += now;
    from += bytes;
    count -= now;
  }
}

still_status still_tensor_to_f32(const still_tensor *tensor, uint64_t first, uint64_t count,
                                 float *out) {
  const still_type_traits *traits = still_type_traits_get(tensor->type);
  still_to_f32 *convert = still_type_to_f32(tensor->type);
  if (!traits || !convert)
    return still_fail(STILL_ERROR_UNSUPPORTED, "tensor '%s': type %s cannot be read as numbers",
                      tensor->name, traits ? traits->name : "?");
  const uint64_t items = still_tensor_items(tensor);
  if (first > items || count > items - first || first % traits->block_items ||
      count % traits->block_items)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "tensor '%s': values %llu + %llu are asked for, it has %llu in blocks of %u",
                      tensor->name, (unsigned long long)first, (unsigned long long)count,
                      (unsigned long long)items, traits->block_items);
  const char *from = (const char *)tensor->data + first / traits->block_items * traits->block_bytes;
  const size_t alignment = traits->block_items > 1 ? 2 : traits->block_bytes;
  if ((uintptr_t)from % alignment)
    convert_misaligned(convert, traits, out, from, count);
  else
    convert(out, from, (size_t)count);
  return STILL_OK;
}
