/* SPDX-License-Identifier: MIT
 * Attention on the device: what one sequence has left behind in one layer, and new tokens through it. */
#ifndef STILL_VULKAN_ATTENTION_H
#define STILL_VULKAN_ATTENTION_H

#include "attention/attention_plan.h"
#include "backend/vulkan/vulkan_device.h"
#include "shaders/scan_interface.h"
#include "shaders/shader_interface.h"

/* Work space of the attention stages, shared by all layers of a device: they run one after the other. */
typedef struct still_vulkan_work {
  still_vulkan_buffer keys, values; /* (G, rows, D): near and new tokens side by side */
  still_vulkan_buffer query_tiles,  /* by coopmat: shaders/query_tiles.glsl */
      key_tiles, value_tiles;       /* these, then the kept ones, by coopmat: shaders/tiles.comp */
  still_vulkan_buffer scores;       /* (H, rows) */
  still_vulkan_buffer mask;         /* (R, rows): 0 for kept tokens */
  still_vulkan_buffer features;     /* (H, rows, F): of routed keys, then of queries */
  still_vulkan_buffer key_features; /* (H, rows, F), decays (G, rows, D): vulkan_attention_scan.c */
  still_vulkan_buffer decays;
  still_vulkan_buffer states; /* (slots, H, F D + F); of segments by coopmat */
  still_vulkan_buffer linear; /* (H, rows, D) and (H, rows); by coopmat f16 tiles, and */
  still_vulkan_buffer feature_sums, normalizers; /* (chunks, H, F) and (chunks, H, C) */
  still_vulkan_buffer parts;                     /* decode: partial results */
} still_vulkan_work;
uint64_t still_vulkan_work_bytes(const still_vulkan_work *work);
/* The device's work space, made at the first use. */
still_status still_vulkan_work_get(still_vulkan *vulkan, still_vulkan_work **work);
void still_vulkan_work_destroy(still_vulkan *vulkan);
/* Makes *buffer hold at least `bytes`; the content is lost. */
still_status still_vulkan_work_reserve(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                       uint64_t bytes);

typedef struct still_vulkan_attention {
  still_vulkan *vulkan;
  const still_attention_plan *plan;
  attention_push shape; /* options, and start, base and rows of the block that ran last */
  bool coopmat;         /* the *_coopmat shaders fit this plan */
  bool f16;             /* keys, values and features are stored as f16 */
  int64_t tokens;
  uint32_t
      near_rows; /* rows of each head in near_k: 2 C, 2 W, or the capacity of full attention; 0 for kinds
                         that attend to nothing exactly */
  still_vulkan_buffer near_k, near_v;           /* (G, near_rows, D) */
  still_vulkan_buffer near_scores;              /* (H, 2 C) */
  still_vulkan_buffer kept_k, kept_v;           /* (R, kept_rows, D) */
  still_vulkan_buffer kept_positions;           /* (R, kept_rows) */
  still_vulkan_buffer state;                    /* (H, F D + F): S, then z */
  still_vulkan_buffer map_q_tiles, map_k_tiles; /* f16 copies for cooperative matrices */
  still_vulkan_buffer map_q, map_k;             /* (H, D, D) */
  still_vulkan_buffer bias_q, bias_k;           /* (H, D): T2R */
  still_vulkan_buffer window_factor;            /* (H): LOLCATS */
} still_vulkan_attention;

/* UNSUPPORTED for kinds, dimensions and options that have no shader: the sentence names it. */
still_status still_vulkan_attention_check(const still_vulkan *vulkan,
                                          const still_attention_plan *plan);
/* An empty cache, after a self-check of the shaders it needs (vulkan_check.h). The plan must outlive it. The caller holds vulkan->lock in every call here, and the device must outlive the object. */
still_status still_vulkan_attention_create(still_vulkan_attention **attention, still_vulkan *vulkan,
                                           const still_attention_plan *plan);
still_status still_vulkan_attention_create_unchecked(still_vulkan_attention **attention,
                                                     still_vulkan *vulkan,
                                                     const still_attention_plan *plan);
/* Whether the *_coopmat shaders are written for such a plan and the device has what they need. */
bool still_vulkan_fits_coopmat(const still_vulkan *vulkan, const still_attention_options *options);
void still_vulkan_attention_destroy(still_vulkan_attention *attention);
still_status still_vulkan_attention_reset(still_vulkan_attention *attention);

/* Arrays of one call: (n, H D) and (n, G D); gate may be NULL, q_raw and k_raw are of LIGER_GLA only. */
typedef struct still_vulkan_rows {
  still_vulkan_buffer *q, *k, *v, *gate, *out, *q_raw, *k_raw;
} still_vulkan_rows;

/* Records n >= 1 tokens. scores (H, n): NULL, or host memory, which waits for the device. */
still_status still_vulkan_attention_forward(still_vulkan_attention *attention,
                                            const still_vulkan_rows *rows, size_t n, float *scores);

void still_vulkan_attention_usage(const still_vulkan_attention *attention,
                                  still_attention_usage *usage);
/* Device bytes of a cache of this plan once it holds `tokens` tokens. */
uint64_t still_vulkan_attention_bytes_at(const still_attention_plan *plan, int64_t tokens);

/* vulkan_attention_scan.c: the linear part of all kinds but STILL. */
bool still_vulkan_scans(const still_attention_plan *plan);
/* Takes the block's tokens into the state; what queries read goes to work->linear, as the softmax branch merges it. */
still_status still_vulkan_scan(still_vulkan_attention *attention, const still_vulkan_rows *rows,
                               const attention_push *push);
/* Makes the outputs from that for the kinds that the softmax branch does not merge. */
still_status still_vulkan_scan_merge(still_vulkan_attention *attention,
                                     const still_vulkan_rows *rows, const attention_push *push);

/* vulkan_attention_state.c: copies to and from the host; all wait for the device. */
size_t still_vulkan_attention_snapshot_bytes(const still_vulkan_attention *attention);
still_status still_vulkan_attention_snapshot(still_vulkan_attention *attention, void *snapshot);
still_status still_vulkan_attention_restore(still_vulkan_attention *attention,
                                            const void *snapshot);
size_t still_vulkan_attention_save_bytes(const still_vulkan_attention *attention);
still_status still_vulkan_attention_save(still_vulkan_attention *attention, void *bytes);
still_status still_vulkan_attention_load(still_vulkan_attention *attention, const void *bytes,
                                         size_t count);
size_t still_vulkan_attention_kept(still_vulkan_attention *attention, int head, int64_t *positions,
                                   size_t capacity);
still_status still_vulkan_attention_state(still_vulkan_attention *attention, int head, float *state,
                                          float *normalizer);

/* Room for `tokens` tokens in kinds that grow. */
still_status still_vulkan_attention_reserve(still_vulkan_attention *attention, int64_t tokens);

/* vulkan_attention_prefill.c: one block of new tokens, whose first row in the arrays is row0. */
still_status still_vulkan_prefill_block(still_vulkan_attention *attention,
                                        const still_vulkan_rows *rows, uint32_t row0,
                                        uint32_t count);
/* vulkan_attention_decode.c: one token, where it can be done without a block. */
bool still_vulkan_can_decode(const still_vulkan_attention *attention);
still_status still_vulkan_decode(still_vulkan_attention *attention, const still_vulkan_rows *rows,
                                 uint32_t row0);
/* The most tokens that one block may have now. */
uint32_t still_vulkan_block_tokens(const still_vulkan_attention *attention);

static inline uint32_t still_vulkan_element(const still_vulkan_attention *attention) {
  return attention->f16 ? 2 : 4;
}

#endif
