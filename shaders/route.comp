#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// Routes whole chunks (spec section 3): the best `keep` tokens of a chunk and head are appended to the kept cache in the order
// of their positions; mask is 0 for them and 1 for the others, which the linear state takes in.
// How many earlier chunks kept follows from their number alone, so all chunks of a block are routed at once.
// Groups: x = chunk of the block, y = route head.
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(constant_id = 1) const uint C = 64;
layout(set = 0, binding = 0) readonly buffer b0 { float scores[]; };  // (H, rows)
layout(set = 0, binding = 1) readonly buffer b1 { STORE4 work_k[]; };  // (G, rows, D)
layout(set = 0, binding = 2) readonly buffer b2 { STORE4 work_v[]; };
layout(set = 0, binding = 3) writeonly buffer b3 { STORE4 kept_k[]; };  // (R, kept_rows, D)
layout(set = 0, binding = 4) writeonly buffer b4 { STORE4 kept_v[]; };
layout(set = 0, binding = 5) writeonly buffer b5 { uint kept_positions[]; };  // (R, kept_rows)
layout(set = 0, binding = 6) writeonly buffer b6 { float mask[]; };  // (R, rows)

shared float score[C];
shared uint chosen[C];  // 1 if kept
shared uint list[C];    // kept ones, ascending

void main() {
  uint tid = gl_LocalInvocationID.x;
  uint chunk = push.route_first + gl_WorkGroupID.x, r = gl_WorkGroupID.y;
  uint group = push.heads / push.route_heads;
  uint row = chunk * C - push.base;
  uint used = kept_after(chunk), n = kept_after(chunk + 1) - used;
  for (uint i = tid; i < C; i += STILL_GROUP) {
    float sum = 0;
    for (uint h = r * group; h < (r + 1) * group; h++) sum += scores[h * push.rows + row + i];
    // a NaN is not worse than others: all of them would be chosen, more than there is room for
    score[i] = (floatBitsToUint(sum) & 0x7fffffffu) > 0x7f800000u ? MINUS_INFINITY : sum;
  }
  barrier();
  for (uint i = tid; i < C; i += STILL_GROUP) {
    uint better = 0;
    for (uint j = 0; j < C; j++)
      better += uint(score[j] > score[i] || (score[j] == score[i] && j < i));
    chosen[i] = uint(better < n);
    mask[r * push.rows + row + i] = better < n ? 0.0 : 1.0;
  }
  barrier();
  for (uint i = tid; i < C; i += STILL_GROUP) {
    if (chosen[i] == 0) continue;
    uint before = 0;
    for (uint j = 0; j < i; j++) before += chosen[j];
    list[before] = i;
    kept_positions[r * push.kept_rows + used + before] = chunk * C + i;
  }
  barrier();
  uint kv = r / (push.route_heads / push.kv_heads);
  for (uint i = tid; i < n * D4; i += STILL_GROUP) {
    uint from = (kv * push.rows + row + list[i / D4]) * D4 + i % D4;
    uint to = (r * push.kept_rows + used + i / D4) * D4 + i % D4;
    kept_k[to] = work_k[from];
    kept_v[to] = work_v[from];
  }
}
