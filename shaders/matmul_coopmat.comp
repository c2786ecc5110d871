#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// matmul.comp by cooperative matrices: 128 rows of activations by 128 rows of W, 32 columns of both at a time in shared memory
// as f16, sums in f32; each of the four subgroups 64 x 64. Groups: x = rows of W / 128, y = n / 128.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
#include "weight_types.glsl"
layout(set = 0, binding = 1) readonly buffer b1 { vec4 inputs[]; };
layout(set = 0, binding = 2) buffer b2 { float outputs[]; };

const uint TILE = 128, SLICE4 = 8, ROW4 = SLICE4 + 2;  // a row of a slice and its padded pitch, in f16vec4
const uint MOVED = TILE * SLICE4 / STILL_GROUP;        // f16vec4 of each operand that an invocation moves
shared f16vec4 a_slice[TILE * ROW4], b_slice[TILE * ROW4];
shared float block_out[4 * 256];

f16vec4 a_staged[MOVED], b_staged[MOVED];

void fetch(uint tid, uint row0, uint n0, uint c0) {
  uint columns4 = push.columns / 4;
  [[unroll]] for (uint i = 0; i < MOVED; i++) {
    uint r = (tid + i * STILL_GROUP) / SLICE4, c = c0 + tid % SLICE4;
    bool inside = c < columns4;
    a_staged[i] = f16vec4(inside && n0 + r < push.n ? inputs[(push.first + n0 + r) * columns4 + c] : vec4(0));
    b_staged[i] = f16vec4(inside && row0 + r < push.rows ? load_weight(row0 + r, c) : vec4(0));
  }
}

void put_staged(uint tid) {
  [[unroll]] for (uint i = 0; i < MOVED; i++) {
    uint at = (tid + i * STILL_GROUP) / SLICE4 * ROW4 + tid % SLICE4;
    a_slice[at] = a_staged[i];
    b_slice[at] = b_staged[i];
  }
}

void main() {
  uint tid = gl_LocalInvocationID.x, row0 = gl_WorkGroupID.x * TILE, n0 = gl_WorkGroupID.y * TILE;
  uint wr = gl_SubgroupID / 2 * 64, wc = gl_SubgroupID % 2 * 64;
  bool multiplies = gl_SubgroupID < 4;
  MATRIX_SUM s[4][4];
  [[unroll]] for (uint i = 0; i < 4; i++)
    [[unroll]] for (uint j = 0; j < 4; j++) s[i][j] = MATRIX_SUM(0.0);
  fetch(tid, row0, n0, 0);
  for (uint c = 0; c < push.columns / 4; c += SLICE4) {
    put_staged(tid);
    barrier();
    fetch(tid, row0, n0, c + SLICE4);
    if (multiplies)
      [[unroll]] for (uint k = 0; k < 2; k++) {
        MATRIX_A a[4];
        [[unroll]] for (uint i = 0; i < 4; i++)
          coopMatLoad(a[i], a_slice, (wr + 16 * i) * ROW4 + 4 * k, ROW4, ROW_MAJOR);
        [[unroll]] for (uint j = 0; j < 4; j++) {
          MATRIX_B b;
          coopMatLoad(b, b_slice, (wc + 16 * j) * ROW4 + 4 * k, ROW4, COLUMN_MAJOR);
          [[unroll]] for (uint i = 0; i < 4; i++) s[i][j] = coopMatMulAdd(a[i], b, s[i][j]);
        }
      }
    barrier();
  }
  // 16 x 16 values of each subgroup at a time, since edges, strides and sums with what is there are per value
  [[unroll]] for (uint i = 0; i < 4; i++)
    [[unroll]] for (uint j = 0; j < 4; j++) {
      if (multiplies) coopMatStore(s[i][j], block_out, gl_SubgroupID * 256, 16, ROW_MAJOR);
      barrier();
      for (uint e = tid; e < 4 * 256; e += STILL_GROUP) {
        uint group = e / 256, n = n0 + group / 2 * 64 + 16 * i + e / 16 % 16;
        uint row = row0 + group % 2 * 64 + 16 * j + e % 16;
        if (n >= push.n || row >= push.rows) continue;
        uint at = (push.first + n) * push.all_rows + push.row0 + row;
        outputs[at] = block_out[e] + (push.accumulate != 0 ? outputs[at] : 0.0);
      }
      barrier();
    }
}
