#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// out = in W^T for up to STILL_MATVEC_ROWS rows of activations: 4 rows of W a workgroup, 32 invocations each.
// Groups: x = rows of W / 4.
#include "shader_common.glsl"
#include "weight_types.glsl"
layout(set = 0, binding = 1) readonly buffer b1 { vec4 inputs[]; };
layout(set = 0, binding = 2) buffer b2 { float outputs[]; };

shared float parts[STILL_MATVEC_ROWS * STILL_GROUP];

void main() {
  uint tid = gl_LocalInvocationID.x, lane = tid % 32, columns4 = push.columns / 4;
  uint row = gl_WorkGroupID.x * 4 + tid / 32;
  float sums[STILL_MATVEC_ROWS];
  for (uint i = 0; i < STILL_MATVEC_ROWS; i++) sums[i] = 0.0;
  if (row < push.rows)
    for (uint c = lane; c < columns4; c += 32) {
      vec4 w = load_weight(row, c);
      for (uint i = 0; i < push.n; i++) sums[i] += dot(w, inputs[(push.first + i) * columns4 + c]);
    }
  for (uint i = 0; i < STILL_MATVEC_ROWS; i++) parts[i * STILL_GROUP + tid] = sums[i];
  barrier();
  for (uint width = 16; width > 0; width /= 2) {
    if (lane < width)
      for (uint i = 0; i < push.n; i++)
        parts[i * STILL_GROUP + tid] += parts[i * STILL_GROUP + tid + width];
    barrier();
  }
  if (lane != 0 || row >= push.rows) return;
  for (uint i = 0; i < push.n; i++) {
    uint at = (push.first + i) * push.all_rows + push.row0 + row;
    outputs[at] = parts[i * STILL_GROUP + tid] + (push.accumulate != 0 ? outputs[at] : 0.0);
  }
}
