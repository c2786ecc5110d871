#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// One new token: the parts of a head under one maximum, and the linear branch (spec section 4). Groups: x = head.
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { vec4 parts[]; };   // (H, parts, D + 4)
layout(set = 0, binding = 1) readonly buffer b1 { vec4 linear[]; };  // (H, D), then (H)
layout(set = 0, binding = 1) readonly buffer b1_floats { float linear_floats[]; };
layout(set = 0, binding = 2) readonly buffer b2 { vec4 gate[]; };      // (1, H D)
layout(set = 0, binding = 3) writeonly buffer b3 { vec4 outputs[]; };  // (1, H D)
layout(set = 0, binding = 4) writeonly buffer b4 { float near_scores[]; };  // (H, 2 C)

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.x;
  uint count = push.kept_parts + push.near_parts, first = head * count * (D4 + 1);
  bool hybrid = (push.flags & STILL_FLAG_LINEAR) != 0;
  float most = MINUS_INFINITY;
  for (uint p = 0; p < count; p++) most = max(most, parts[first + p * (D4 + 1) + D4].x);
  for (uint c = tid; c < D4; c += STILL_GROUP) {
    vec4 sum = vec4(0);
    float total = hybrid ? linear_floats[4 * push.heads * D4 + head] : 0.0;
    for (uint p = 0; p < count; p++) {
      vec4 end = parts[first + p * (D4 + 1) + D4];
      if (end.y == 0.0) continue;  // a part without rows
      float weight = exp(end.x - most);
      sum += weight * parts[first + p * (D4 + 1) + c];
      total += weight * end.y;
    }
    uint at = (push.row0 * push.heads + head) * D4 + c;
    if (hybrid) sum += ((push.flags & STILL_FLAG_GATE) != 0 ? gate[at] : vec4(1)) * linear[head * D4 + c];
    outputs[at] = sum / total;
  }
  if (tid == 0 && push.lower == STILL_LOWER_CHUNK)
    near_scores[head * push.rows + push.start % push.rows] = parts[first + (count - 1) * (D4 + 1) + D4].z;
}
