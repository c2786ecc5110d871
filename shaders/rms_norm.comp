#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
// out = in / sqrt(mean(in^2) + eps) * weight. One workgroup a row; columns is a multiple of 4.
#include "shader_common.glsl"
#include "group_reduce.glsl"
layout(push_constant) uniform block { dense_push push; };
layout(set = 0, binding = 0) readonly buffer b0 { vec4 weight[]; };
layout(set = 0, binding = 1) readonly buffer b1 { vec4 inputs[]; };
layout(set = 0, binding = 2) writeonly buffer b2 { vec4 outputs[]; };

void main() {
  uint tid = gl_LocalInvocationID.x, columns4 = push.columns / 4;
  for (uint row = gl_WorkGroupID.x; row < push.n; row += gl_NumWorkGroups.x) {
    float sum = 0;
    for (uint c = tid; c < columns4; c += STILL_GROUP) {
      vec4 x = inputs[row * columns4 + c];
      sum += dot(x, x);
    }
    float scale = inversesqrt(group_sum(tid, sum) / float(push.columns) + push.factor);
    for (uint c = tid; c < columns4; c += STILL_GROUP)
      outputs[row * columns4 + c] = inputs[row * columns4 + c] * scale * weight[c];
  }
}
