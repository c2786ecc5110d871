/* SPDX-License-Identifier: MIT
 * Keys and values of one kv head (or of one selection): keys in tiles for products along the key
 * axis, values in rows, both in the cache's type. Used as a list (kept tokens, full attention) or
 * as a ring (the near window): key i lies in tile (i / 32) % tiles, so a ring holds any `capacity`
 * keys in a row. */
#ifndef STILL_ATTENTION_KEY_STORE_H
#define STILL_ATTENTION_KEY_STORE_H

#include "base/status.h"
#include "simd/kernels.h"

#include <still/attention.h>

typedef struct still_key_store {
  void *keys;   /* [tile][D][32] */
  void *values; /* [tile][32][D] */
  still_dtype type;
  size_t dim;
  size_t tiles;
  size_t cut; /* tiles: pieces of values end at multiples of it, so that sums do not depend on the
                 ring's length, which is a multiple of it too; 0 = only where the store ends */
} still_key_store;

/* Tiles of a list of n keys, and of a ring that must hold any n keys in a row, of which the first
 * may lie at any multiple of `step`. */
size_t still_list_tiles(int64_t n);
size_t still_ring_tiles(int64_t n, int64_t step);
uint64_t still_key_store_bytes(still_dtype type, size_t dim, size_t tiles);

still_status still_key_store_create(still_key_store *store, still_dtype type, size_t dim,
                                    size_t tiles, const char *what);
void still_key_store_destroy(still_key_store *store);
/* A list grows to at least `tiles`. On failure it stays as it was. */
still_status still_key_store_grow(still_key_store *store, size_t tiles);

/* Writes rows (n x D) as keys first .. first+n-1; scratch: D floats, used for 16-bit types. */
void still_key_store_write(still_key_store *store, const still_kernels *kernels, int64_t first,
                           const float *k, size_t k_row, const float *v, size_t v_row, size_t n,
                           float *scratch);
/* Copies one key with its value between stores of one type. */
void still_key_store_copy(still_key_store *to, int64_t to_key, const still_key_store *from,
                          int64_t from_key);

/* A key's column packed to D values of the store's type, its value row after it; and back. */
void still_key_store_save(const still_key_store *store, int64_t key, void *bytes);
void still_key_store_load(still_key_store *store, int64_t key, const void *bytes);
static inline size_t still_key_bytes(still_dtype type, size_t dim) {
  return 2 * dim * (type == STILL_F32 ? sizeof(float) : sizeof(uint16_t));
}

/* Reads n keys as float rows (stride D): keys[i] says which. k or v may be NULL. */
void still_key_store_gather(const still_key_store *store, const still_kernels *kernels,
                            const int64_t *keys, size_t n, float *k, float *v, float *scratch);

/* One tile's keys, and `n` value rows from key `first` on that do not wrap, as floats: in place for
 * f32, otherwise converted into scratch (32 D, n D floats). */
const float *still_key_store_tile(const still_key_store *store, const still_kernels *kernels,
                                  int64_t key, float *scratch);
const float *still_key_store_values(const still_key_store *store, const still_kernels *kernels,
                                    int64_t first, size_t n, float *scratch);
/* Keys from `first` on, at most n, whose values lie in one piece. */
size_t still_key_store_piece(const still_key_store *store, int64_t first, size_t n);

#endif
