/* SPDX-License-Identifier: MIT
 * GGUF files field by field, right or wrong, for tests of the reader. */
#ifndef STILL_TESTS_GGUF_BUILDER_H
#define STILL_TESTS_GGUF_BUILDER_H

#include "formats/gguf.h"

#include <stdlib.h>
#include <string.h>

typedef struct gguf_builder {
  uint8_t bytes[4096];
  size_t used;
} gguf_builder;

static inline void put(gguf_builder *b, const void *data, size_t bytes) {
  if (bytes > sizeof b->bytes - b->used) abort();
  memcpy(b->bytes + b->used, data, bytes);
  b->used += bytes;
}

static inline void put_u8(gguf_builder *b, uint8_t value) {
  put(b, &value, sizeof value);
}

static inline void put_u32(gguf_builder *b, uint32_t value) {
  put(b, &value, sizeof value);
}

static inline void put_u64(gguf_builder *b, uint64_t value) {
  put(b, &value, sizeof value);
}

static inline void put_text(gguf_builder *b, const char *text) {
  put_u64(b, strlen(text));
  put(b, text, strlen(text));
}

static inline void put_header(gguf_builder *b, uint32_t version, uint64_t tensors, uint64_t pairs) {
  b->used = 0;
  put(b, "GGUF", 4);
  put_u32(b, version);
  put_u64(b, tensors);
  put_u64(b, pairs);
}

/* The head of a pair; its value follows. */
static inline void put_key(gguf_builder *b, const char *key, uint32_t type) {
  put_text(b, key);
  put_u32(b, type);
}

static inline void put_array(gguf_builder *b, const char *key, uint32_t type, uint64_t count) {
  put_key(b, key, STILL_GGUF_ARRAY);
  put_u32(b, type);
  put_u64(b, count);
}

static inline void put_tensor(gguf_builder *b, const char *name, uint32_t dimensions,
                              const uint64_t *ne, uint32_t type, uint64_t offset) {
  put_text(b, name);
  put_u32(b, dimensions);
  for (uint32_t i = 0; i < dimensions; i++) put_u64(b, ne[i]);
  put_u32(b, type);
  put_u64(b, offset);
}

/* Zeros up to a multiple of `unit`, then `bytes` more. */
static inline void put_data(gguf_builder *b, size_t unit, size_t bytes) {
  while (b->used % unit) put_u8(b, 0);
  while (bytes--) put_u8(b, 0);
}

#endif
