#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
// out = in / sqrt(mean(in^2) + eps) * weight. One workgroup a row.
#include "shader_common.glsl"
#include "group_reduce.glsl"
layout(push_constant) uniform block { dense_push push; };
layout(set = 0, binding = 0) readonly buffer b0 { float weight[]; };
layout(set = 0, binding = 1) readonly buffer b1 { float inputs[]; };
layout(set = 0, binding = 2) writeonly buffer b2 { float outputs[]; };

void main() {
  uint tid = gl_LocalInvocationID.x;
  for (uint row = gl_WorkGroupID.x; row < push.n; row += gl_NumWorkGroups.x) {
    float sum = 0;
    for (uint c = tid; c < push.columns; c += STILL_GROUP) {
      float x = inputs[row * push.columns + c];
      sum += x * x;
    }
    float scale = inversesqrt(group_sum(tid, sum) / float(push.columns) + push.factor);
    for (uint c = tid; c < push.columns; c += STILL_GROUP)
      outputs[row * push.columns + c] = inputs[row * push.columns + c] * scale * weight[c];
  }
}
