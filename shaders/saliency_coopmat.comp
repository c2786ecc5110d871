#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// saliency.comp for f16 keys. With p = a_t the score is p log((p + eps) / eps) + (1 - p) log(1 - p) up to what eps adds to the
// other terms, less than 1e-6, so the window's maximum and sum are enough. Each subgroup owns 16 tokens, whose windows lie in
// 5 tiles of 16 keys. The tiles of the queries are left for the stages behind. Groups: x = head, y = 64 tokens: rows of all heads
// are read together.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
#include "attention_sets.glsl"
#include "tile_rows.glsl"
const uint D = DIM;
#include "register_tiles.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };        // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 keys[]; };     // tiles.comp
layout(set = 0, binding = 2) writeonly buffer b2 { float scores[]; };  // (H, rows)
layout(set = 0, binding = 3) writeonly buffer b3 { uvec4 queries[]; };  // query_tile
#include "query_tiles.glsl"

void main() {
  uint lane = gl_SubgroupInvocationID, head = gl_WorkGroupID.x;
  uint t0 = push.start + gl_WorkGroupID.y * 64 + 16 * gl_SubgroupID, end = push.start + push.count;
  MATRIX_A x[DIM_TILES];
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++) {
    uvec4 words = pack_query(t0, head, k, lane);
    queries[query_tile(head, (t0 - push.start) / 16) + 32 * k + lane] = words;
    UNPACK(x[k], words);
  }
  MATRIX_SUM s[5];
  [[unroll]] for (uint j = 0; j < 5; j++) {
    s[j] = MATRIX_SUM(0.0);
    uint before_all = push.base + 64;  // nothing comes before the first tile: what is taken instead is masked below
    uint at = near_tile(kv_head(head), (max(t0 + 16 * j, before_all) - before_all) / 16) + lane;
    [[unroll]] for (uint k = 0; k < DIM_TILES; k++) {
      MATRIX_B b;
      UNPACK(b, keys[at + 32 * k]);
      s[j] = coopMatMulAdd(x[k], b, s[j]);
    }
  }
  // Column c of the 80 is the token at distance row + 64 - c; the token itself counts apart.
  float rest[ROWS], sum[ROWS], self_logits[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    rest[r] = MINUS_INFINITY;
    sum[r] = self_logits[r] = 0;
  }
  uint before = min(t0, 64);  // columns 64 - before and later exist
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    [[unroll]] for (uint j = 0; j < 5; j++) {
      uint c = 16 * j + column_of(e), r = row_of(e);
      if (c == r + 64) self_logits[own(e)] = s[j][e];
      if (c <= r || c >= r + 64 || c + before < 64) s[j][e] = MINUS_INFINITY;
      rest[own(e)] = max(rest[own(e)], s[j][e]);
    }
  }
  row_max(rest);
  row_sum(self_logits);  // one of the four has it
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    [[unroll]] for (uint j = 0; j < 5; j++) sum[own(e)] += s[j][e] == MINUS_INFINITY ? 0.0 : exp2(s[j][e] - rest[own(e)]);
  row_sum(sum);
  if (gl_SubgroupInvocationID % 4 != 0) return;
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    uint t = t0 + row_at(r);
    float self_logit = self_logits[r], most = max(self_logit, rest[r]);
    float others = sum[r] == 0 ? 0.0 : sum[r] * exp2(rest[r] - most);
    float self = exp2(self_logit - most), total = self + others, p = self / total, q_ = others / total;
    float score = p * log((p + EPSILON) / EPSILON) + (q_ > 0 ? q_ * log(q_) : 0.0);
    if (t < end) scores[head * push.rows + t - push.base] = push.metric == 1 ? p : push.metric == 2 ? self_logit / LOG2E : score;
  }
}
