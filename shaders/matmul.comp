#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#extension GL_EXT_control_flow_attributes : require
// out (n x rows) = in W^T in tiles of 64 rows of activations by 128 rows of W. Groups: x = rows of W / 128, y = n / 64.
#include "shader_common.glsl"
#include "weight_types.glsl"
layout(set = 0, binding = 1) readonly buffer b1 { vec4 inputs[]; };
layout(set = 0, binding = 2) buffer b2 { float outputs[]; };

const uint D4 = 32, SLICES = 16 * 17 + 16 * 32;
#include "tile_product.glsl"

void main() {
  uint tid = gl_LocalInvocationID.x, ty = tid / 16, tx = tid % 16, columns4 = push.columns / 4;
  uint row0 = gl_WorkGroupID.x * 4 * D4, n0 = gl_WorkGroupID.y * STILL_TILE;
  clear_acc();
  for (uint k = 0; k < columns4; k += SLICE / 4) {
    for (uint i = tid; i < STILL_TILE * SLICE / 4; i += GROUP) {
      uint r = i % STILL_TILE, c = k + i / STILL_TILE;
      put_a(r, i / STILL_TILE * 4,
            n0 + r < push.n && c < columns4 ? inputs[(push.first + n0 + r) * columns4 + c] : vec4(0));
    }
    for (uint i = tid; i < 4 * D4 * SLICE / 4; i += GROUP) {
      uint r = i % (4 * D4), c = k + i / (4 * D4);
      vec4 w = row0 + r < push.rows && c < columns4 ? load_weight(row0 + r, c) : vec4(0);
      for (uint j = 0; j < 4; j++)
        slices[B_SLICE + (i / (4 * D4) * 4 + j) * B_ROW + r / 4][r % 4] = w[j];
    }
    barrier();
    multiply_slice(tid);
    barrier();
  }
  for (uint i = 0; i < OWN_ROWS; i++) {
    if (n0 + ty * OWN_ROWS + i >= push.n) break;
    uint at = (push.first + n0 + ty * OWN_ROWS + i) * push.all_rows + push.row0;
    for (uint j = 0; j < COLS; j++)
      for (uint e = 0; e < 4; e++) {
        uint row = row0 + 4 * (tx + 16 * j) + e;
        if (row >= push.rows) continue;
        outputs[at + row] = acc[i][j][e] + (push.accumulate != 0 ? outputs[at + row] : 0.0);
      }
  }
}
