#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// Puts the near tokens of the cache and the new tokens side by side: work rows base .. start+count-1, by key/value head.
// The near cache is a ring: position p lies in slot p mod 2 C. Groups y: keys and values, scores.
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { STORE4 near_k[]; };  // (G, 2 C, D)
layout(set = 0, binding = 1) readonly buffer b1 { STORE4 near_v[]; };
layout(set = 0, binding = 2) readonly buffer b2 { vec4 in_k[]; };  // (n, G D)
layout(set = 0, binding = 3) readonly buffer b3 { vec4 in_v[]; };
layout(set = 0, binding = 4) writeonly buffer b4 { STORE4 work_k[]; };  // (G, rows, D)
layout(set = 0, binding = 5) writeonly buffer b5 { STORE4 work_v[]; };
layout(set = 0, binding = 6) readonly buffer b6 { float near_scores[]; };  // (H, 2 C)
layout(set = 0, binding = 7) writeonly buffer b7 { float work_scores[]; };  // (H, rows)

layout(constant_id = 1) const uint SCORES = 0;  // 1: these alone

void main() {
  uint i = gl_GlobalInvocationID.x;
  uint used = push.start + push.count - push.base;
  if (gl_WorkGroupID.y + SCORES == 0) {
    uint head = i / (used * D4), row = i / D4 % used, c = i % D4;
    if (head >= push.kv_heads) return;
    uint p = push.base + row;
    uint to = (head * push.rows + push.work_row0 + row) * D4 + c;
    if (p < push.start) {
      uint from = near_row(head, p) * D4 + c;
      work_k[to] = near_k[from];
      work_v[to] = near_v[from];
    } else {
      uint from = (input_row(p) * push.kv_heads + head) * D4 + c;
      work_k[to] = STORE4(in_k[from]);
      work_v[to] = STORE4(in_v[from]);
    }
  } else {
    uint old = push.start - push.base;
    uint head = old == 0 ? push.heads : i / old;
    if (head >= push.heads) return;
    uint row = i % old;
    work_scores[head * push.rows + row] = near_scores[near_row(head, push.base + row)];
  }
}
