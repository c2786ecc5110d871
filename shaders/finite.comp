#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// worst = n - r where r is the first of n rows that has a value which is not finite; it stays 0 where all are.
#include "shader_common.glsl"
layout(push_constant) uniform block { dense_push push; };
layout(set = 0, binding = 0) buffer b0 { uint worst; };
layout(set = 0, binding = 1) readonly buffer b1 { uint x[]; };

void main() {
  for (uint row = gl_WorkGroupID.x; row < push.n; row += gl_NumWorkGroups.x) {
    bool special = false;
    for (uint c = gl_LocalInvocationID.x; c < push.columns; c += STILL_GROUP)
      special = special || (x[row * push.columns + c] & 0x7f800000u) == 0x7f800000u;
    if (special) atomicMax(worst, push.n - row);
  }
}
