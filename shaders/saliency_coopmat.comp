#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// saliency.comp for f16 keys. With p = a_t the score is p log((p + eps) / eps) + (1 - p) log(1 - p) up to what eps adds to the
// other terms, less than 1e-6, so the window's maximum and sum are enough. Groups: x = chunk, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };         // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 work_k[]; };   // (G, rows, D)
layout(set = 0, binding = 2) writeonly buffer b2 { float scores[]; };  // (H, rows)

shared f16vec4 keys[64 * KEY_ROW / 4];
shared float logits[64 * LOGIT_ROW];
shared float part_max[STILL_GROUP], part_sum[STILL_GROUP];

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, kv = head / (push.heads / push.kv_heads);
  uint t0 = push.start + gl_WorkGroupID.x * 64, end = push.start + push.count;
  uint wr = gl_SubgroupID / 2, wc = gl_SubgroupID % 2;
  bool multiplies = gl_SubgroupID < 4;
  for (uint i = tid; i < 64 * DIM / 4; i += STILL_GROUP) {
    uint r = i / (DIM / 4), c = i % (DIM / 4), t = t0 + r;
    vec4 x = t < end ? push.scale * q[((push.row0 + t - push.start) * push.heads + head) * (DIM / 4) + c] : vec4(0);
    keys[r * (KEY_ROW / 4) + c] = f16vec4(x);
  }
  barrier();
  MATRIX_A query[2][DIM / 16];
  if (multiplies)
    [[unroll]] for (uint i = 0; i < 2; i++)
      [[unroll]] for (uint k = 0; k < DIM / 16; k++)
        coopMatLoad(query[i][k], keys, ((32 * wr + 16 * i) * KEY_ROW + 16 * k) / 4, KEY_ROW / 4, ROW_MAJOR);
  barrier();
  uint row = tid % 64, half_ = tid / 64, t = t0 + row;
  float rest = MINUS_INFINITY, own = 0, sum = 0;
  for (uint tile = t0 < 64 ? 1 : 0; tile < 2; tile++) {  // the chunk before, this chunk
    uint first = t0 + 64 * tile - 64;
    for (uint i = tid; i < 64 * DIM8; i += STILL_GROUP) {
      uint r = i / DIM8, c = i % DIM8;
      uvec4 x = first + r < end ? work_k[(kv * push.rows + first + r - push.base) * DIM8 + c] : uvec4(0);
      keys[r * (KEY_ROW / 4) + 2 * c] = f16vec4(unpackFloat2x16(x.x), unpackFloat2x16(x.y));
      keys[r * (KEY_ROW / 4) + 2 * c + 1] = f16vec4(unpackFloat2x16(x.z), unpackFloat2x16(x.w));
    }
    barrier();
    if (multiplies)
      [[unroll]] for (uint j = 0; j < 2; j++) {
        MATRIX_SUM s[2];
        [[unroll]] for (uint i = 0; i < 2; i++) s[i] = MATRIX_SUM(0.0);
        [[unroll]] for (uint k = 0; k < DIM / 16; k++) {
          MATRIX_B b;
          coopMatLoad(b, keys, ((32 * wc + 16 * j) * KEY_ROW + 16 * k) / 4, KEY_ROW / 4, COLUMN_MAJOR);
          [[unroll]] for (uint i = 0; i < 2; i++) s[i] = coopMatMulAdd(query[i][k], b, s[i]);
        }
        [[unroll]] for (uint i = 0; i < 2; i++)
          coopMatStore(s[i], logits, (32 * wr + 16 * i) * LOGIT_ROW + 32 * wc + 16 * j, LOGIT_ROW, ROW_MAJOR);
      }
    barrier();
    // the window: columns row + 1 .. of the chunk before, up to row of this one; the token itself apart
    uint from = tile == 0 ? row + 1 : 0, to = tile == 0 ? 64 : row;
    from = max(from, 32 * half_);
    to = min(to, 32 * half_ + 32);
    float most = rest;
    for (uint j = from; j < to; j++) most = max(most, logits[row * LOGIT_ROW + j]);
    if (most > rest) sum *= exp(rest - most);
    rest = most;
    for (uint j = from; j < to; j++) sum += exp(logits[row * LOGIT_ROW + j] - rest);
    if (tile == 1) own = logits[row * LOGIT_ROW + row];
    barrier();
  }
  part_max[tid] = rest;
  part_sum[tid] = sum;
  barrier();
  if (half_ != 0 || t >= end) return;
  float other = part_max[tid + 64], most = max(own, max(rest, other));
  float others = (sum > 0 ? sum * exp(rest - most) : 0.0) + (part_sum[tid + 64] > 0 ? part_sum[tid + 64] * exp(other - most) : 0.0);
  float self = exp(own - most), total = self + others, p = self / total, q_ = others / total;
  float score = p * log((p + EPSILON) / EPSILON) + (q_ > 0 ? q_ * log(q_) : 0.0);
  scores[head * push.rows + t - push.base] = push.metric == 1 ? p : push.metric == 2 ? own : score;
}
