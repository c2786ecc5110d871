/* SPDX-License-Identifier: MIT
 * Rows of quantised weights side by side (simd/kernels.h says how), and the memory in which they lie: large pages where the
 * system has them, for a decoded token reads every weight once and small pages cost a third of the memory's speed. */
#include "backend/cpu/backend_cpu.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/threads.h"

#include <string.h>

enum { WORD = 4, LANES = STILL_LANES };

/* A block of one row: whole words, in Q4_0 after a half float, in Q6_K before one. */
typedef struct block_layout {
  size_t bytes, words, first_word;
  size_t half, half_bytes; /* where the half float lies; 0 bytes: there is none */
} block_layout;

static block_layout layout_of(still_tensor_type type) {
  const size_t bytes = still_type_traits_get(type)->block_bytes, half_bytes = bytes % WORD;
  const bool last = type == STILL_TENSOR_Q6_K;
  return (block_layout){.bytes = bytes,
                        .words = bytes / WORD,
                        .first_word = last ? 0 : half_bytes,
                        .half = last ? bytes - half_bytes : 0,
                        .half_bytes = half_bytes};
}

/* ---- the layout --------------------------------------------------------------------------------- */

/* One block of `count` rows. */
static void lay_block(uint8_t *out, const uint8_t *rows, size_t row_bytes, size_t count,
                      const block_layout *layout) {
  uint8_t *halves = out + layout->words * LANES * WORD;
  for (size_t r = 0; r < count; r++) {
    const uint8_t *row = rows + r * row_bytes;
    for (size_t w = 0; w < layout->words; w++)
      memcpy(out + (w * LANES + r) * WORD, row + layout->first_word + w * WORD, WORD);
    memcpy(halves + r * layout->half_bytes, row + layout->half, layout->half_bytes);
  }
}

static void take_block(uint8_t *rows, size_t row_bytes, size_t count, const uint8_t *lanes,
                       const block_layout *layout) {
  const uint8_t *halves = lanes + layout->words * LANES * WORD;
  for (size_t r = 0; r < count; r++) {
    uint8_t *row = rows + r * row_bytes;
    for (size_t w = 0; w < layout->words; w++)
      memcpy(row + layout->first_word + w * WORD, lanes + (w * LANES + r) * WORD, WORD);
    memcpy(row + layout->half, halves + r * layout->half_bytes, layout->half_bytes);
  }
}

size_t still_lanes_bytes(size_t rows, size_t row_bytes) {
  return still_round_up(rows, LANES) * row_bytes;
}

void still_lanes_write(uint8_t *out, const still_tensor *tensor, size_t rows, size_t row_bytes,
                       int threads) {
  const block_layout layout = layout_of(tensor->type);
  const uint8_t *data = tensor->data;
  STILL_OMP(parallel for schedule(static) num_threads(threads))
  for (size_t r = 0; r < rows; r += LANES) {
    const size_t count = still_smaller(LANES, rows - r);
    uint8_t *to = out + r * row_bytes;
    if (count < LANES) memset(to, 0, LANES * row_bytes);
    for (size_t b = 0; b < row_bytes; b += layout.bytes)
      lay_block(to + LANES * b, data + r * row_bytes + b, row_bytes, count, &layout);
  }
  (void)threads;
}

void still_lanes_read(uint8_t *rows, const uint8_t *lanes, still_tensor_type type, size_t count,
                      size_t row_bytes) {
  const block_layout layout = layout_of(type);
  for (size_t b = 0; b < row_bytes; b += layout.bytes)
    take_block(rows + b, row_bytes, count, lanes + LANES * b, &layout);
}

/* ---- memory ------------------------------------------------------------------------------------- */

/* Weights lie in few large blocks, each of which begins with this. */
struct still_lane_memory {
  still_lane_memory *before;
  size_t bytes, used;
};

static size_t all_bytes(const still_lane_memory *memory) {
  size_t total = 0;
  for (; memory; memory = memory->before) total += memory->bytes;
  return total;
}

/* As much again as there is, up to MOST, so that little is left over and large pages fit. */
static still_status grow(still_lane_memory **memory, size_t bytes) {
  enum { MOST = 16 << 20 };
  const size_t wanted = still_smaller(all_bytes(*memory), MOST);
  bytes += STILL_ALIGNMENT;
  if (bytes < wanted) bytes = wanted;
  still_lane_memory *block;
  STILL_TRY(still_alloc_raw((void **)&block, bytes, "rearranged weights"));
  *block = (still_lane_memory){*memory, bytes, STILL_ALIGNMENT};
  *memory = block;
  return STILL_OK;
}

static still_status take(still_lane_memory **memory, size_t bytes, uint8_t **out) {
  bytes = still_round_up(bytes, STILL_ALIGNMENT);
  if (!*memory || (*memory)->bytes - (*memory)->used < bytes) STILL_TRY(grow(memory, bytes));
  *out = (uint8_t *)*memory + (*memory)->used;
  (*memory)->used += bytes;
  return STILL_OK;
}

void still_lane_memory_free(still_lane_memory *memory) {
  while (memory) {
    still_lane_memory *const before = memory->before;
    still_free(memory);
    memory = before;
  }
}

still_status still_cpu_weight_arrange(still_backend *backend, still_weight *weight) {
  if (!still_cpu_has_lanes(weight) || weight->lanes) return STILL_OK;
  uint8_t *lanes;
  STILL_TRY(take(&still_cpu(backend)->lane_memory,
                 still_lanes_bytes(weight->rows, weight->row_bytes), &lanes));
  /* bytes between two looks at whether loading goes on: some milliseconds */
  enum { SLAB = 8 << 20 };
  const size_t rows = (SLAB / weight->row_bytes / LANES + 1) * LANES;
  for (size_t first = 0; first < weight->rows; first += rows) {
    still_tensor slab = weight->tensor;
    slab.data = (const char *)slab.data + first * weight->row_bytes;
    still_lanes_write(lanes + first * weight->row_bytes, &slab,
                      still_smaller(rows, weight->rows - first), weight->row_bytes,
                      backend->threads);
    STILL_TRY(still_progress_add(0));
  }
  weight->lanes = lanes;
  return STILL_OK;
}
