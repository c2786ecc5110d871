#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// 4 n activations as f16, for matmul_coopmat.comp.
#include "shader_common.glsl"
layout(push_constant) uniform block { dense_push push; };
layout(set = 0, binding = 0) writeonly buffer b0 { uvec2 halves[]; };
layout(set = 0, binding = 1) readonly buffer b1 { vec4 x[]; };

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < push.n; i += gl_NumWorkGroups.x * STILL_GROUP)
    halves[i] = uvec2(packHalf2x16(x[i].xy), packHalf2x16(x[i].zw));
}
