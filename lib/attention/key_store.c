/* SPDX-License-Identifier: MIT
 * Key tiles and value rows in f32, f16 or bf16. */
#include "attention/key_store.h"

#include "base/memory.h"

#include <string.h>

enum { TILE = STILL_KEY_TILE };

static size_t value_bytes(still_dtype type) {
  return type == STILL_F32 ? sizeof(float) : sizeof(uint16_t);
}

size_t still_list_tiles(int64_t n) {
  return (size_t)((n + TILE - 1) / TILE);
}

size_t still_ring_tiles(int64_t n, int64_t step) {
  /* n keys from slot s of a tile on touch ceil((s + n) / 32) tiles; s is a multiple of gcd(step,
   * 32), the lowest set bit of step. */
  const int64_t unit = step % TILE ? step & -step : TILE;
  return still_list_tiles(n + TILE - unit);
}

uint64_t still_key_store_bytes(still_dtype type, size_t dim, size_t tiles) {
  return (uint64_t)tiles * TILE * still_key_bytes(type, dim);
}

still_status still_key_store_create(still_key_store *store, still_dtype type, size_t dim,
                                    size_t tiles, const char *what) {
  *store = (still_key_store){.type = type, .dim = dim};
  return still_key_store_grow(store, tiles) ? still_fail_in(STILL_ERROR_MEMORY, "%s", what)
                                            : STILL_OK;
}

void still_key_store_destroy(still_key_store *store) {
  still_free(store->keys);
  still_free(store->values);
  *store = (still_key_store){0};
}

still_status still_key_store_grow(still_key_store *store, size_t tiles) {
  if (tiles <= store->tiles) return STILL_OK;
  const size_t item = TILE * store->dim * value_bytes(store->type);
  STILL_TRY(still_realloc(&store->keys, tiles, item, "keys of the cache"));
  STILL_TRY(still_realloc(&store->values, tiles, item, "values of the cache"));
  store->tiles = tiles;
  return STILL_OK;
}

/* Where key i lies, in values of the store's type: its slot 0 of channel 0, and its value row. */
static size_t key_offset(const still_key_store *s, int64_t key) {
  return (size_t)(key / TILE) % s->tiles * TILE * s->dim + (size_t)(key % TILE);
}

static size_t value_offset(const still_key_store *s, int64_t key) {
  return ((size_t)(key / TILE) % s->tiles * TILE + (size_t)(key % TILE)) * s->dim;
}

static void to_half(const still_kernels *kernels, still_dtype type, uint16_t *out, const float *x,
                    size_t n) {
  (type == STILL_F16 ? kernels->f32_to_f16 : kernels->f32_to_bf16)(out, x, n);
}

static void to_float(const still_kernels *kernels, still_dtype type, float *out, const uint16_t *x,
                     size_t n) {
  (type == STILL_F16 ? kernels->f16_to_f32 : kernels->bf16_to_f32)(out, x, n);
}

static void write_half(still_key_store *s, const still_kernels *kernels, int64_t key,
                       const float *k, const float *v, uint16_t *row) {
  uint16_t *column = (uint16_t *)s->keys + key_offset(s, key);
  to_half(kernels, s->type, row, k, s->dim);
  for (size_t d = 0; d < s->dim; d++) column[d * TILE] = row[d];
  to_half(kernels, s->type, (uint16_t *)s->values + value_offset(s, key), v, s->dim);
}

void still_key_store_write(still_key_store *s, const still_kernels *kernels, int64_t first,
                           const float *k, size_t k_row, const float *v, size_t v_row, size_t n,
                           float *scratch) {
  if (s->type != STILL_F32) {
    for (size_t i = 0; i < n; i++)
      write_half(s, kernels, first + (int64_t)i, k + i * k_row, v + i * v_row, (uint16_t *)scratch);
    return;
  }
  for (size_t i = 0; i < n; i++)
    memcpy((float *)s->values + value_offset(s, first + (int64_t)i), v + i * v_row,
           s->dim * sizeof(float));
  while (n) {
    const size_t slot = (size_t)(first % TILE), tile = (size_t)(first / TILE) % s->tiles;
    const size_t count = n < TILE - slot ? n : TILE - slot;
    kernels->pack_keys((float *)s->keys + tile * TILE * s->dim, slot, k, k_row, count, s->dim);
    k += count * k_row;
    first += (int64_t)count;
    n -= count;
  }
}

static void save_half(const uint16_t *column, size_t dim, uint16_t *out) {
  for (size_t d = 0; d < dim; d++) out[d] = column[d * TILE];
}

static void save_float(const float *column, size_t dim, float *out) {
  for (size_t d = 0; d < dim; d++) out[d] = column[d * TILE];
}

static void load_half(uint16_t *column, size_t dim, const uint16_t *in) {
  for (size_t d = 0; d < dim; d++) column[d * TILE] = in[d];
}

static void load_float(float *column, size_t dim, const float *in) {
  for (size_t d = 0; d < dim; d++) column[d * TILE] = in[d];
}

void still_key_store_save(const still_key_store *s, int64_t key, void *bytes) {
  const size_t row = s->dim * value_bytes(s->type);
  if (s->type == STILL_F32)
    save_float((const float *)s->keys + key_offset(s, key), s->dim, bytes);
  else
    save_half((const uint16_t *)s->keys + key_offset(s, key), s->dim, bytes);
  memcpy((char *)bytes + row, (const char *)s->values + value_offset(s, key) * value_bytes(s->type),
         row);
}

void still_key_store_load(still_key_store *s, int64_t key, const void *bytes) {
  const size_t row = s->dim * value_bytes(s->type);
  if (s->type == STILL_F32)
    load_float((float *)s->keys + key_offset(s, key), s->dim, bytes);
  else
    load_half((uint16_t *)s->keys + key_offset(s, key), s->dim, bytes);
  memcpy((char *)s->values + value_offset(s, key) * value_bytes(s->type), (const char *)bytes + row,
         row);
}

void still_key_store_copy(still_key_store *to, int64_t to_key, const still_key_store *from,
                          int64_t from_key) {
  const size_t a = key_offset(to, to_key), b = key_offset(from, from_key);
  const size_t item = value_bytes(to->type);
  if (to->type == STILL_F32)
    for (size_t d = 0; d < to->dim; d++)
      ((float *)to->keys)[a + d * TILE] = ((const float *)from->keys)[b + d * TILE];
  else
    for (size_t d = 0; d < to->dim; d++)
      ((uint16_t *)to->keys)[a + d * TILE] = ((const uint16_t *)from->keys)[b + d * TILE];
  memcpy((char *)to->values + value_offset(to, to_key) * item,
         (const char *)from->values + value_offset(from, from_key) * item, to->dim * item);
}

void still_key_store_gather(const still_key_store *s, const still_kernels *kernels,
                            const int64_t *keys, size_t n, float *k, float *v, float *scratch) {
  for (size_t i = 0; i < n; i++) {
    const size_t column = key_offset(s, keys[i]), row = value_offset(s, keys[i]);
    if (s->type == STILL_F32) {
      if (k) save_float((const float *)s->keys + column, s->dim, k + i * s->dim);
      if (v) memcpy(v + i * s->dim, (const float *)s->values + row, s->dim * sizeof(float));
      continue;
    }
    if (k) {
      save_half((const uint16_t *)s->keys + column, s->dim, (uint16_t *)scratch);
      to_float(kernels, s->type, k + i * s->dim, (const uint16_t *)scratch, s->dim);
    }
    if (v) to_float(kernels, s->type, v + i * s->dim, (const uint16_t *)s->values + row, s->dim);
  }
}

const float *still_key_store_tile(const still_key_store *s, const still_kernels *kernels,
                                  int64_t key, float *scratch) {
  const size_t offset = (size_t)(key / TILE) % s->tiles * TILE * s->dim;
  if (s->type == STILL_F32) return (const float *)s->keys + offset;
  to_float(kernels, s->type, scratch, (const uint16_t *)s->keys + offset, TILE * s->dim);
  return scratch;
}

const float *still_key_store_values(const still_key_store *s, const still_kernels *kernels,
                                    int64_t first, size_t n, float *scratch) {
  const size_t offset = value_offset(s, first);
  if (s->type == STILL_F32) return (const float *)s->values + offset;
  to_float(kernels, s->type, scratch, (const uint16_t *)s->values + offset, n * s->dim);
  return scratch;
}

size_t still_key_store_piece(const still_key_store *s, int64_t first, size_t n) {
  const size_t ring = (s->cut ? s->cut : s->tiles) * TILE, left = ring - (size_t)first % ring;
  return n < left ? n : left;
}
