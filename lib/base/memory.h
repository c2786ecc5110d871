/* SPDX-License-Identifier: MIT
 * Counted, aligned memory from the host's allocator, and checked arithmetic for sizes. */
#ifndef STILL_BASE_MEMORY_H
#define STILL_BASE_MEMORY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STILL_ALIGNMENT = 64 }; /* of every block: a cache line, an AVX-512 register */

/* count * size bytes, zeroed, aligned to STILL_ALIGNMENT. *out is NULL on failure, and for 0 bytes.
 * MEMORY; the sentence says how many bytes and what for. */
still_status still_alloc(void **out, size_t count, size_t size, const char *what);

/* The same without zeroes, for what is overwritten at once: of large blocks the first touch takes long. */
still_status still_alloc_raw(void **out, size_t bytes, const char *what);

/* Asks the system to hold this memory in large pages, where it has them. */
void still_advise_large_pages(void *data, size_t bytes);

/* Typed form: STILL_ALLOC(&array, n, "scores"). */
#define STILL_ALLOC(out, count, what) still_alloc((void **)(out), (count), sizeof(**(out)), (what))

/* Grows (or shrinks) a block to count * size bytes, keeping its content; new bytes are zero. On failure
 * the old block stays. */
still_status still_realloc(void **block, size_t count, size_t size, const char *what);
#define STILL_REALLOC(block, count, what)                                                          \
  still_realloc((void **)(block), (count), sizeof(**(block)), (what))

/* NULL is fine. */
void still_free(void *block);

/* A counted copy of a string; NULL source gives NULL. */
still_status still_copy_string(char **out, const char *source);

/* Checked size arithmetic: false on overflow, *out then untouched. */
static inline bool still_mul_size(size_t a, size_t b, size_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}
static inline bool still_add_size(size_t a, size_t b, size_t *out) {
  return !__builtin_add_overflow(a, b, out);
}
static inline bool still_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}
static inline bool still_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
  return !__builtin_add_overflow(a, b, out);
}

static inline size_t still_smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

/* Rounds up to a multiple of unit (> 0). */
static inline size_t still_round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

#endif
