#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// out = in W^T for N <= STILL_MATVEC_ROWS rows of activations: 4 rows of W a workgroup, 32 invocations each.
// Groups: x = rows of W / 4.
#include "shader_common.glsl"
#include "weight_types.glsl"
layout(set = 0, binding = 1) readonly buffer b1 { vec4 inputs[]; };
layout(set = 0, binding = 2) buffer b2 { float outputs[]; };

layout(constant_id = 0) const uint N = 1;
shared float parts[N * STILL_GROUP];

void main() {
  uint tid = gl_LocalInvocationID.x, lane = tid % 32, columns4 = push.columns / 4;
  uint row = gl_WorkGroupID.x * 4 + tid / 32;
  float sums[N];
  for (uint i = 0; i < N; i++) sums[i] = 0.0;
  if (row < push.rows)
    for (uint c = lane; c < columns4; c += 4 * 32) {  // four loads on their way at a time
      vec4 w[4];
      for (uint k = 0; k < 4; k++) w[k] = load_weight(row, min(c + 32 * k, columns4 - 1));
      for (uint k = 0; k < 4; k++)
        if (c + 32 * k < columns4)
          for (uint i = 0; i < N; i++) sums[i] += dot(w[k], inputs[(push.first + i) * columns4 + c + 32 * k]);
    }
  for (uint i = 0; i < N; i++) parts[i * STILL_GROUP + tid] = sums[i];
  barrier();
  for (uint width = 16; width > 0; width /= 2) {
    if (lane < width)
      for (uint i = 0; i < N; i++)
        parts[i * STILL_GROUP + tid] += parts[i * STILL_GROUP + tid + width];
    barrier();
  }
  if (lane != 0 || row >= push.rows) return;
  for (uint i = 0; i < N; i++) {
    uint at = (push.first + i) * push.all_rows + push.row0 + row;
    outputs[at] = parts[i * STILL_GROUP + tid] + (push.accumulate != 0 ? outputs[at] : 0.0);
  }
}
