/* SPDX-License-Identifier: MIT
 * Parts of a layer's cache to and from host memory: checkpoints, files, and what tests and pictures look at. */
#include "backend/vulkan/vulkan_attention.h"

#include "base/memory.h"

#include <string.h>

/* ---- snapshots: what later tokens overwrite -------------------------------------------------------------- */

enum { SNAPSHOT_BUFFERS = 4 };

/* Full attention only appends, so its keys are not among them. */
static int overwritten(still_vulkan_attention *attention,
                       still_vulkan_buffer *list[SNAPSHOT_BUFFERS]) {
  int count = 0;
  if (attention->shape.lower != STILL_LOWER_ALL) {
    list[count++] = &attention->near_k;
    list[count++] = &attention->near_v;
  }
  if (attention->near_scores.handle) list[count++] = &attention->near_scores;
  if (attention->state.handle) list[count++] = &attention->state;
  return count;
}

size_t still_vulkan_attention_snapshot_bytes(const still_vulkan_attention *attention) {
  still_vulkan_buffer *list[SNAPSHOT_BUFFERS];
  const int count = overwritten((still_vulkan_attention *)attention, list);
  size_t bytes = sizeof(int64_t);
  for (int i = 0; i < count; i++) bytes += list[i]->bytes;
  return bytes;
}

still_status still_vulkan_attention_snapshot(still_vulkan_attention *attention, void *snapshot) {
  still_vulkan_buffer *list[SNAPSHOT_BUFFERS];
  const int count = overwritten(attention, list);
  char *at = snapshot;
  memcpy(at, &attention->tokens, sizeof attention->tokens);
  return still_vulkan_read_all(attention->vulkan, list, count, at + sizeof attention->tokens);
}

still_status still_vulkan_attention_restore(still_vulkan_attention *attention,
                                            const void *snapshot) {
  still_vulkan_buffer *list[SNAPSHOT_BUFFERS];
  const int count = overwritten(attention, list);
  const char *at = snapshot;
  int64_t tokens;
  memcpy(&tokens, at, sizeof tokens);
  if (tokens > attention->tokens || tokens < 0)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "snapshot: taken at token %lld, the cache holds only %lld", (long long)tokens,
                      (long long)attention->tokens);
  at += sizeof tokens;
  for (int i = 0; i < count; at += list[i++]->bytes)
    STILL_TRY(still_vulkan_write(attention->vulkan, list[i], 0, at, list[i]->bytes));
  attention->tokens = tokens;
  return STILL_OK;
}

/* ---- saving -------------------------------------------------------------------------------------------------- */

typedef struct save_header {
  char magic[8]; /* "STILLGPU" */
  int64_t tokens;
  uint64_t bytes; /* of everything */
} save_header;

/* Arrays (heads, rows, row_bytes) of which the first `used` rows of each head are saved. */
typedef struct saved_array {
  still_vulkan_buffer *buffer;
  size_t heads, rows, used, row_bytes;
} saved_array;
enum { SAVED_ARRAYS = 7 };

static int saved_arrays(still_vulkan_attention *attention, int64_t tokens,
                        saved_array list[SAVED_ARRAYS]) {
  const attention_push *s = &attention->shape;
  const size_t row = (size_t)attention->plan->options.head_dim * still_vulkan_element(attention);
  const bool full = s->lower == STILL_LOWER_ALL;
  const size_t near = full ? (size_t)tokens : attention->near_rows;
  const still_census census = still_attention_census(attention->plan, tokens);
  const size_t kept = s->lower == STILL_LOWER_CHUNK ? (size_t)census.kept : s->sinks;
  const saved_array all[SAVED_ARRAYS] = {
      {&attention->near_k, s->kv_heads, attention->near_rows, near, row},
      {&attention->near_v, s->kv_heads, attention->near_rows, near, row},
      {&attention->near_scores, s->heads, attention->near_rows, attention->near_rows, 4},
      {&attention->kept_k, s->route_heads, s->kept_rows, kept, row},
      {&attention->kept_v, s->route_heads, s->kept_rows, kept, row},
      {&attention->kept_positions, s->route_heads, s->kept_rows, kept, 4},
      {&attention->state, 1, 1, 1, attention->state.bytes}};
  int count = 0;
  for (int i = 0; i < SAVED_ARRAYS; i++)
    if (all[i].buffer->handle && all[i].used) list[count++] = all[i];
  return count;
}

static size_t saved_bytes(still_vulkan_attention *attention, int64_t tokens) {
  saved_array list[SAVED_ARRAYS];
  const int count = saved_arrays(attention, tokens, list);
  size_t bytes = sizeof(save_header);
  for (int i = 0; i < count; i++) bytes += list[i].heads * list[i].used * list[i].row_bytes;
  return bytes;
}

size_t still_vulkan_attention_save_bytes(const still_vulkan_attention *attention) {
  return saved_bytes((still_vulkan_attention *)attention, attention->tokens);
}

still_status still_vulkan_attention_save(still_vulkan_attention *attention, void *bytes) {
  saved_array list[SAVED_ARRAYS];
  const int count = saved_arrays(attention, attention->tokens, list);
  const save_header header = {"STILLGP", attention->tokens,
                              still_vulkan_attention_save_bytes(attention)};
  char *at = bytes;
  memcpy(at, &header, sizeof header);
  at += sizeof header;
  for (int i = 0; i < count; i++)
    for (size_t h = 0; h < list[i].heads; h++) {
      const size_t part = list[i].used * list[i].row_bytes;
      STILL_TRY(still_vulkan_read(attention->vulkan, list[i].buffer,
                                  h * list[i].rows * list[i].row_bytes, at, part));
      at += part;
    }
  return STILL_OK;
}

still_status still_vulkan_attention_load(still_vulkan_attention *attention, const void *bytes,
                                         size_t count) {
  save_header header;
  if (count < sizeof header)
    return still_fail(STILL_ERROR_FORMAT, "saved cache: %zu bytes, at least %zu are needed", count,
                      sizeof header);
  memcpy(&header, bytes, sizeof header);
  if (memcmp(header.magic, "STILLGP", 8) || header.bytes != count || header.tokens < 0 ||
      header.tokens > INT32_MAX || saved_bytes(attention, header.tokens) != count)
    return still_fail(STILL_ERROR_FORMAT,
                      "saved cache: %zu bytes that are not those of a GPU cache with these options",
                      count);
  STILL_TRY(still_vulkan_attention_reserve(attention, header.tokens));
  saved_array list[SAVED_ARRAYS];
  const int arrays = saved_arrays(attention, header.tokens, list);
  const char *at = (const char *)bytes + sizeof header;
  for (int i = 0; i < arrays; i++)
    for (size_t h = 0; h < list[i].heads; h++) {
      const size_t part = list[i].used * list[i].row_bytes;
      STILL_TRY(still_vulkan_write(attention->vulkan, list[i].buffer,
                                   h * list[i].rows * list[i].row_bytes, at, part));
      at += part;
    }
  attention->tokens = header.tokens;
  return STILL_OK;
}

/* ---- inspection -------------------------------------------------------------------------------------------- */

size_t still_vulkan_attention_kept(still_vulkan_attention *attention, int head, int64_t *positions,
                                   size_t capacity) {
  const attention_push *s = &attention->shape;
  if (s->lower != STILL_LOWER_CHUNK) return 0;
  const size_t count = (size_t)still_attention_census(attention->plan, attention->tokens).kept;
  const size_t wanted = count < capacity ? count : capacity;
  uint32_t *rows;
  if (!wanted || STILL_ALLOC(&rows, wanted, "kept positions")) return count;
  const size_t route = (uint32_t)head / (s->heads / s->route_heads);
  if (!still_vulkan_read(attention->vulkan, &attention->kept_positions, route * s->kept_rows * 4,
                         rows, wanted * 4))
    for (size_t i = 0; i < wanted; i++) positions[i] = rows[i];
  still_free(rows);
  return count;
}

still_status still_vulkan_attention_state(still_vulkan_attention *attention, int head, float *state,
                                          float *normalizer) {
  if (!attention->state.handle)
    return still_fail(STILL_ERROR_ARGUMENT, "attention of kind '%s' has no linear state here",
                      still_attention_kind_name(attention->plan->options.kind));
  const size_t dim = (size_t)attention->plan->options.head_dim;
  const size_t features = (size_t)attention->plan->features, matrix = features * dim;
  const size_t first = (size_t)head * (matrix + features) * sizeof(float);
  if (state)
    STILL_TRY(still_vulkan_read(attention->vulkan, &attention->state, first, state,
                                matrix * sizeof(float)));
  if (!normalizer) return STILL_OK;
  return still_vulkan_read(attention->vulkan, &attention->state, first + matrix * sizeof(float),
                           normalizer, features * sizeof(float));
}
