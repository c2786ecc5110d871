/* SPDX-License-Identifier: MIT */
#include "base/memory.h"

#include "base/progress.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
  LARGE_BLOCK = 4 << 20,
  LARGE_PAGE = 2 << 20,
  PIECE = 4 << 20 /* zeroed in a few milliseconds, where pages are new and come slowly, too */
};

/* A header of one alignment unit before each block holds its size. */
typedef struct block_header {
  size_t total_bytes;
} block_header;

static void *default_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  void *block = NULL;
  if (bytes >= LARGE_BLOCK) alignment = LARGE_PAGE; /* else it would begin with small ones */
  return posix_memalign(&block, alignment, bytes) ? NULL : block;
}

static void default_release(void *user, void *block, size_t bytes) {
  (void)user;
  (void)bytes;
  free(block);
}

static still_allocator allocator = {default_allocate, default_release, NULL};
static atomic_uint_fast64_t allocated, peak;

still_status still_set_allocator(const still_allocator *replacement) {
  if (atomic_load(&allocated))
    return still_fail(STILL_ERROR_ARGUMENT,
                      "still_set_allocator: the library still holds %llu bytes",
                      (unsigned long long)atomic_load(&allocated));
  if (replacement && (!replacement->allocate || !replacement->release))
    return still_fail(STILL_ERROR_ARGUMENT, "still_set_allocator: both functions must be given");
  allocator =
      replacement ? *replacement : (still_allocator){default_allocate, default_release, NULL};
  return STILL_OK;
}

uint64_t still_allocated_bytes(void) {
  return atomic_load(&allocated);
}

uint64_t still_peak_bytes(void) {
  return atomic_load(&peak);
}

void still_reset_peak_bytes(void) {
  atomic_store(&peak, atomic_load(&allocated));
}

static void count_up(size_t bytes) {
  const uint64_t now = atomic_fetch_add(&allocated, bytes) + bytes;
  uint64_t seen = atomic_load(&peak);
  while (seen < now && !atomic_compare_exchange_weak(&peak, &seen, now)) {
  }
}

/* Large pages: 1 GB of small ones takes 70 ms to give back, when a call is cancelled. Only advice. */
static void advise_large_pages(char *block, size_t bytes) {
#ifdef MADV_HUGEPAGE
  const size_t skip = (LARGE_PAGE - (uintptr_t)block % LARGE_PAGE) % LARGE_PAGE;
  if (bytes >= LARGE_BLOCK)
    madvise(block + skip, (bytes - skip) / LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE);
#else
  (void)block, (void)bytes;
#endif
}

still_status still_alloc_raw(void **out, size_t bytes, const char *what) {
  *out = NULL;
  size_t total;
  if (!still_add_size(bytes, STILL_ALIGNMENT, &total) || total > PTRDIFF_MAX)
    return still_fail(STILL_ERROR_MEMORY, "%s: %zu bytes do not fit into memory", what, bytes);
  if (!bytes) return STILL_OK;
  char *block = allocator.allocate(allocator.user, total, STILL_ALIGNMENT);
  if (!block) return still_fail(STILL_ERROR_MEMORY, "%s: no memory for %zu bytes", what, bytes);
  advise_large_pages(block, total);
  ((block_header *)block)->total_bytes = total;
  count_up(total);
  *out = block + STILL_ALIGNMENT;
  return STILL_OK;
}

static still_status clear(char *block, size_t bytes) {
  for (size_t at = 0; at < bytes; at += PIECE) {
    if (at) STILL_TRY(still_progress_add(0));
    memset(block + at, 0, still_smaller(PIECE, bytes - at));
  }
  return STILL_OK;
}

still_status still_alloc(void **out, size_t count, size_t size, const char *what) {
  *out = NULL;
  size_t bytes;
  if (!still_mul_size(count, size, &bytes))
    return still_fail(STILL_ERROR_MEMORY, "%s: %zu x %zu bytes do not fit into memory", what, count,
                      size);
  STILL_TRY(still_alloc_raw(out, bytes, what));
  const still_status status = clear(*out, bytes);
  if (!status) return STILL_OK;
  still_free(*out);
  *out = NULL;
  return status;
}

still_status still_realloc(void **block, size_t count, size_t size, const char *what) {
  void *bigger;
  STILL_TRY(still_alloc(&bigger, count, size, what));
  if (*block && bigger) {
    const size_t had = ((block_header *)((char *)*block - STILL_ALIGNMENT))->total_bytes;
    const size_t has = ((block_header *)((char *)bigger - STILL_ALIGNMENT))->total_bytes;
    memcpy(bigger, *block, (had < has ? had : has) - STILL_ALIGNMENT);
  }
  still_free(*block);
  *block = bigger;
  return STILL_OK;
}

void still_free(void *block) {
  if (!block) return;
  char *start = (char *)block - STILL_ALIGNMENT;
  const size_t total = ((block_header *)start)->total_bytes;
  atomic_fetch_sub(&allocated, total);
  allocator.release(allocator.user, start, total);
}

still_status still_copy_string(char **out, const char *source) {
  *out = NULL;
  if (!source) return STILL_OK;
  const size_t bytes = strlen(source) + 1;
  STILL_TRY(still_alloc((void **)out, bytes, 1, "a string"));
  memcpy(*out, source, bytes);
  return STILL_OK;
}
