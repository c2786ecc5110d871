#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// linear_state.comp for f16: S (F x D) of a chunk; a subgroup makes 32 x 64 of it at a time, from features and values as they lie
// in memory. Groups: x = routed chunk, y = head, z = 64 rows of S.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
layout(set = 0, binding = 0) readonly buffer b0 { float16_t phi[]; };     // (H, rows, F)
layout(set = 0, binding = 1) readonly buffer b1 { float16_t work_v[]; };  // (G, rows, D)
layout(set = 0, binding = 2) writeonly buffer b2 { float states[]; };     // (slots, H, F D + F)

const uint F = 2 * DIM, COLUMNS = DIM / 32;  // tiles of 16 columns of a subgroup

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, kv = head / (push.heads / push.kv_heads);
  uint row0 = (push.route_first + gl_WorkGroupID.x) * 64 - push.base, f0 = gl_WorkGroupID.z * 64;
  uint state = (gl_WorkGroupID.x * push.heads + head) * F * (DIM + 1);
  uint wr = gl_SubgroupID / 2, wc = gl_SubgroupID % 2;
  if (gl_SubgroupID < 4) {
    MATRIX_SUM s[2][COLUMNS];
    [[unroll]] for (uint i = 0; i < 2; i++)
      [[unroll]] for (uint j = 0; j < COLUMNS; j++) s[i][j] = MATRIX_SUM(0.0);
    for (uint t = 0; t < 64; t += 16) {
      MATRIX_A a[2];
      [[unroll]] for (uint i = 0; i < 2; i++)
        coopMatLoad(a[i], phi, (head * push.rows + row0 + t) * F + f0 + 32 * wr + 16 * i, F, COLUMN_MAJOR);
      [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
        MATRIX_B b;
        coopMatLoad(b, work_v, (kv * push.rows + row0 + t) * DIM + (wc * COLUMNS + j) * 16, DIM, ROW_MAJOR);
        [[unroll]] for (uint i = 0; i < 2; i++) s[i][j] = coopMatMulAdd(a[i], b, s[i][j]);
      }
    }
    [[unroll]] for (uint i = 0; i < 2; i++)
      [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        coopMatStore(s[i][j], states, state + (f0 + 32 * wr + 16 * i) * DIM + (wc * COLUMNS + j) * 16, DIM, ROW_MAJOR);
  }
  if (tid < 64) {
    float sum = 0;
    for (uint t = 0; t < 64; t++) sum += float(phi[(head * push.rows + row0 + t) * F + f0 + tid]);
    states[state + F * DIM + f0 + tid] = sum;
  }
}
