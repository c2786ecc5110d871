#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// x op= y, value by value; n values. OP: one of STILL_OP_*.
#include "shader_common.glsl"
layout(push_constant) uniform block { dense_push push; };
layout(constant_id = 0) const uint OP = 0;
layout(set = 0, binding = 0) buffer b0 { float x[]; };
layout(set = 0, binding = 1) readonly buffer b1 { float y[]; };
layout(set = 0, binding = 2) readonly buffer b2 { float z[]; };

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < push.n; i += gl_NumWorkGroups.x * STILL_GROUP) {
    if (OP == STILL_OP_ADD) x[i] += y[i];
    if (OP == STILL_OP_SCALE) x[i] *= push.factor;
    if (OP == STILL_OP_SWIGLU) x[i] = y[i] / (1.0 + exp(-y[i])) * z[i];
    if (OP == STILL_OP_SIGMOID) x[i] = 1.0 / (1.0 + exp(-x[i]));
    if (OP == STILL_OP_ADD_VECTOR) x[i] += y[i % push.columns];
    if (OP == STILL_OP_COPY_ROWS) x[i] = y[push.first * push.columns + i];
  }
}
