#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// Rotates the pairs (i, i + half) of each head; angles (n, half): cosine, sine.
#include "shader_common.glsl"
layout(push_constant) uniform block { dense_push push; };
layout(set = 0, binding = 0) buffer b0 { float x[]; };
layout(set = 0, binding = 1) readonly buffer b1 { vec2 angles[]; };

void main() {
  uint pairs = push.n * push.heads * push.half_dim;
  for (uint i = gl_GlobalInvocationID.x; i < pairs; i += gl_NumWorkGroups.x * STILL_GROUP) {
    uint pair = i % push.half_dim, row = i / push.half_dim;  // row: (token, head)
    vec2 angle = angles[row / push.heads * push.half_dim + pair];
    uint at = row * push.dim + pair;
    float a = x[at], b = x[at + push.half_dim];
    x[at] = a * angle.x - b * angle.y;
    x[at + push.half_dim] = b * angle.x + a * angle.y;
  }
}
