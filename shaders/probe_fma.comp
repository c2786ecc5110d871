#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// For bench_vulkan_stages: n rounds of 16 multiply-adds of a vec4, in registers.
#include "shader_common.glsl"
layout(push_constant) uniform block { dense_push push; };
layout(set = 0, binding = 0) writeonly buffer b0 { vec4 result[]; };
void main() {
  vec4 x[16];
  for (uint i = 0; i < 16; i++) x[i] = vec4(gl_GlobalInvocationID.x + i) * push.factor;
  for (uint round = 0; round < push.n; round++)
    for (uint i = 0; i < 16; i++) x[i] = fma(x[i], vec4(push.factor), vec4(0.5));
  vec4 sum = vec4(0);
  for (uint i = 0; i < 16; i++) sum += x[i];
  if (sum.x == 1.0) result[0] = sum;  // never; keeps the work alive
}
