#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// The end of the kinds without a common denominator: LIGER_GLA's two halves, or HEDGEHOG's and T2R's own ratio (0 / 0 = 0).
// Groups: x = token, y = head.
#include "shader_common.glsl"
#include "attention_common.glsl"
#include "scan_interface.h"
layout(constant_id = 1) const uint MERGE = STILL_MERGE_HALVES;
layout(set = 0, binding = 0) readonly buffer b0 { vec4 linear[]; };  // (H, rows, D), then (H, rows)
layout(set = 0, binding = 0) readonly buffer b0_floats { float linear_floats[]; };
layout(set = 0, binding = 1) buffer b1 { vec4 outputs[]; };  // (n, H D)

void main() {
  uint head = gl_WorkGroupID.y, row = head * push.rows + gl_WorkGroupID.x;
  uint at = ((push.row0 + gl_WorkGroupID.x) * push.heads + head) * D4;
  for (uint c = gl_LocalInvocationID.x; c < D4; c += STILL_GROUP) {
    vec4 y = linear[row * D4 + c];
    if (MERGE == STILL_MERGE_HALVES) {
      outputs[at + c] = 0.5 * outputs[at + c] + 0.5 * y;
      continue;
    }
    float sum = linear_floats[4 * push.heads * push.rows * D4 + row];
    outputs[at + c] = sum == 0.0 ? vec4(0) : y / sum;
  }
}
