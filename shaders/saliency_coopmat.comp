#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// saliency.comp for f16 keys. With p = a_t the score is p log((p + eps) / eps) + (1 - p) log(1 - p) up to what eps adds to the
// other terms, less than 1e-6, so the window's maximum and sum are enough. Each subgroup owns 16 tokens, whose windows lie in
// 5 tiles of 16 keys. Groups: x = chunk, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
#include "tile_rows.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { float q[]; };        // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 work_k[]; };   // (G, rows, D)
layout(set = 0, binding = 2) writeonly buffer b2 { float scores[]; };  // (H, rows)

shared uvec4 keys[64 * KEY_ROW / 8];  // of the chunk before, then of this one
#include "query_tiles.glsl"

const uint STAGED = 64 * DIM8 / STILL_GROUP;
uvec4 staged[STAGED];
// 64 keys from position p0 - 64 on.
void fetch_keys(uint tid, uint kv, uint p0, uint end) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) {
    uint i = tid + n * STILL_GROUP, p = p0 + i / DIM8;
    staged[n] = p >= 64 && p < end + 64 ? work_k[(kv * push.rows + p - 64 - push.base) * DIM8 + i % DIM8] : uvec4(0);
  }
}
void put_keys(uint tid) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) {
    uint i = tid + n * STILL_GROUP;
    keys[i / DIM8 * (KEY_ROW / 8) + i % DIM8] = staged[n];
  }
}

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, kv = head / (push.heads / push.kv_heads);
  uint t0 = push.start + gl_WorkGroupID.x * 64, end = push.start + push.count, row0 = 16 * gl_SubgroupID;
  fetch_keys(tid, kv, t0, end);
  MATRIX_A x[DIM_TILES];
  load_queries(t0 + row0, head, push.scale, x);
  put_keys(tid);
  barrier();
  fetch_keys(tid, kv, t0 + 64, end);
  MATRIX_SUM s[5];
  [[unroll]] for (uint j = 0; j < 5; j++) s[j] = MATRIX_SUM(0.0);
  [[unroll]] for (uint half_ = 0; half_ < 2; half_++) {
    if (half_ == 1) {
      barrier();
      put_keys(tid);
      barrier();
    }
    [[unroll]] for (uint j = 0; j < 5; j++) {
      if ((gl_SubgroupID + j) / 4 != half_) continue;
      uint at = (gl_SubgroupID + j) % 4 * 16 * KEY_ROW;
      [[unroll]] for (uint k = 0; k < DIM_TILES; k++) {
        MATRIX_B b;
        coopMatLoad(b, keys, (at + 16 * k) / 8, KEY_ROW / 8, COLUMN_MAJOR);
        s[j] = coopMatMulAdd(x[k], b, s[j]);
      }
    }
  }
  // Column c of the 80 is the token at distance row + 64 - c; the token itself counts apart.
  float rest[ROWS], sum[ROWS], self_logits[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    rest[r] = MINUS_INFINITY;
    sum[r] = self_logits[r] = 0;
  }
  uint before = min(t0 + row0, 64);  // columns 64 - before and later exist
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
    [[unroll]] for (uint j = 0; j < 5; j++) sum[own(e)] += s[j][e] > MINUS_INFINITY ? exp(s[j][e] - rest[own(e)]) : 0.0;
  row_sum(sum);
  if (gl_SubgroupInvocationID % 4 != 0) return;
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    uint t = t0 + row0 + row_at(r);
    if (t >= end) continue;
    float self_logit = self_logits[r], most = max(self_logit, rest[r]);
    float others = sum[r] > 0 ? sum[r] * exp(rest[r] - most) : 0.0;
    float self = exp(self_logit - most), total = self + others, p = self / total, q_ = others / total;
    float score = p * log((p + EPSILON) / EPSILON) + (q_ > 0 ? q_ * log(q_) : 0.0);
    scores[head * push.rows + t - push.base] = push.metric == 1 ? p : push.metric == 2 ? self_logit : score;
  }
}
