#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// out (n x columns) = rows ids[i] of the matrix; ids outside this part of the matrix are left to the others.
#include "shader_common.glsl"
#include "weight_types.glsl"
layout(set = 0, binding = 1) readonly buffer b1 { uint ids[]; };
layout(set = 0, binding = 2) writeonly buffer b2 { vec4 outputs[]; };

void main() {
  uint columns4 = push.columns / 4;
  for (uint i = gl_GlobalInvocationID.x; i < push.n * columns4; i += gl_NumWorkGroups.x * STILL_GROUP) {
    uint row = ids[i / columns4] - push.row0;
    if (row < push.rows) outputs[i] = load_weight(row, i % columns4);
  }
}
