#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// The end of a block: its last near tokens and their scores go back into the ring. Groups y as in gather.comp.
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(set = 0, binding = 0) writeonly buffer b0 { STORE4 near_k[]; };  // (G, 2 C, D)
layout(set = 0, binding = 1) writeonly buffer b1 { STORE4 near_v[]; };
layout(set = 0, binding = 2) readonly buffer b2 { STORE4 work_k[]; };  // (G, rows, D)
layout(set = 0, binding = 3) readonly buffer b3 { STORE4 work_v[]; };
layout(set = 0, binding = 4) writeonly buffer b4 { float near_scores[]; };  // (H, 2 C)
layout(set = 0, binding = 5) readonly buffer b5 { float work_scores[]; };  // (H, rows)

void main() {
  uint i = gl_GlobalInvocationID.x;
  uint end = push.start + push.count;
  uint first = max(push.start, near_begin(end - 1));  // older ones are in the ring already
  uint fresh = end - first;
  if (gl_WorkGroupID.y == 0) {
    uint head = i / (fresh * D4), row = i / D4 % fresh, c = i % D4;
    if (head >= push.kv_heads) return;
    uint to = near_row(head, first + row) * D4 + c;
    uint from = (head * push.rows + first + row - push.base) * D4 + c;
    near_k[to] = work_k[from];
    near_v[to] = work_v[from];
  } else {
    uint head = i / fresh, row = i % fresh;
    if (head >= push.heads) return;
    near_scores[near_row(head, first + row)] =
        work_scores[head * push.rows + first + row - push.base];
  }
}
