#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// saliency.comp for f16 keys. With p = a_t the score is p log((p + eps) / eps) + (1 - p) log(1 - p) up to what eps adds to the
// other terms, less than 1e-6, so the window's maximum and sum are enough. Each subgroup owns 16 tokens, whose windows lie in
// 5 tiles of 16 keys. Groups: x = chunk, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
const uint SUBGROUPS = 4;
#include "tile_rows.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };         // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 work_k[]; };   // (G, rows, D)
layout(set = 0, binding = 2) writeonly buffer b2 { float scores[]; };  // (H, rows)

shared uvec4 keys[128 * KEY_ROW / 8];  // of the chunk before and this one; first the queries
shared float own_logits[64];
#define LOAD(m, at, layout_) coopMatLoad(m, keys, (at) / 8, KEY_ROW / 8, layout_)

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, kv = head / (push.heads / push.kv_heads);
  uint t0 = push.start + gl_WorkGroupID.x * 64, end = push.start + push.count, row0 = 16 * gl_SubgroupID;
  find_places();
  [[unroll]] for (uint n = 0; n < 64 * DIM / 4 / STILL_GROUP; n++) {
    uint i = tid + n * STILL_GROUP;
    uint r = i / (DIM / 4), c = i % (DIM / 4), t = t0 + r, at = r * (KEY_ROW / 8) + c / 2;
    vec4 a = t < end ? push.scale * q[((push.row0 + t - push.start) * push.heads + head) * (DIM / 4) + c] : vec4(0);
    uvec2 halves = uvec2(packFloat2x16(f16vec2(a.xy)), packFloat2x16(f16vec2(a.zw)));
    if (c % 2 == 0) keys[at].xy = halves;
    else keys[at].zw = halves;
  }
  barrier();
  MATRIX_A x[DIM_TILES];
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++) LOAD(x[k], row0 * KEY_ROW + 16 * k, ROW_MAJOR);
  barrier();
  [[unroll]] for (uint n = 0; n < 128 * DIM8 / STILL_GROUP; n++) {
    uint i = tid + n * STILL_GROUP;
    uint r = i / DIM8, c = i % DIM8, p = t0 + r;  // position + 64
    bool inside = p >= 64 && p < end + 64;
    keys[r * (KEY_ROW / 8) + c] = inside ? work_k[(kv * push.rows + p - 64 - push.base) * DIM8 + c] : uvec4(0);
  }
  barrier();
  MATRIX_SUM s[5];
  [[unroll]] for (uint j = 0; j < 5; j++) s[j] = MATRIX_SUM(0.0);
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
    [[unroll]] for (uint j = 0; j < 5; j++) {
      MATRIX_B b;
      LOAD(b, (row0 + 16 * j) * KEY_ROW + 16 * k, COLUMN_MAJOR);
      s[j] = coopMatMulAdd(x[k], b, s[j]);
    }
  // Column c of the 80 is the token at distance row + 64 - c; the token itself counts apart.
  float rest[ELEMENTS], sum[ELEMENTS];
  uint before = min(t0 + row0, 64);  // columns 64 - before and later exist
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    rest[e] = MINUS_INFINITY;
    [[unroll]] for (uint j = 0; j < 5; j++) {
      uint c = 16 * j + column_of(e), r = row_of(e);
      if (c == r + 64) own_logits[row0 + r] = s[j][e];
      if (c <= r || c >= r + 64 || c + before < 64) s[j][e] = MINUS_INFINITY;
      rest[e] = max(rest[e], s[j][e]);
    }
  }
  row_max(rest);
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    sum[e] = 0;
    [[unroll]] for (uint j = 0; j < 5; j++) sum[e] += s[j][e] > MINUS_INFINITY ? exp(s[j][e] - rest[e]) : 0.0;
  }
  row_sum(sum);
  uint r = 0;
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {  // the invocation with the row's first column writes
    if (column_of(e) != 0) continue;
    r = row0 + row_of(e);
    if (t0 + r >= end) continue;
    float own = own_logits[r], most = max(own, rest[e]);
    float others = sum[e] > 0 ? sum[e] * exp(rest[e] - most) : 0.0;
    float self = exp(own - most), total = self + others, p = self / total, q_ = others / total;
    float score = p * log((p + EPSILON) / EPSILON) + (q_ > 0 ? q_ * log(q_) : 0.0);
    scores[head * push.rows + t0 + r - push.base] = push.metric == 1 ? p : push.metric == 2 ? own : score;
  }
}
