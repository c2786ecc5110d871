#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// For bench_vulkan_stages: copies n vec4, one an invocation (rows of 65535 workgroups).
#include "shader_common.glsl"
layout(push_constant) uniform block { dense_push push; };
layout(set = 0, binding = 0) readonly buffer b0 { vec4 from[]; };
layout(set = 0, binding = 1) writeonly buffer b1 { vec4 to[]; };
void main() {
  uint i = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * STILL_GROUP + gl_LocalInvocationID.x;
  if (i < push.n) to[i] = from[i];
}
