#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// linear_branch.comp for f16 features and states (scaled by STILL_STATE_SCALE, linear_prefix.comp). Groups: x = chunk, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
layout(set = 0, binding = 0) readonly buffer b0 { float16_t phi[]; };     // (H, rows, F), row 0 = start
layout(set = 0, binding = 1) readonly buffer b1 { float16_t states[]; };  // (slots, H, F D + F)
layout(set = 0, binding = 2) writeonly buffer b2 { float linear[]; };     // (H, rows, D), then (H, rows)

const uint F = 2 * DIM, COLUMNS = DIM / 32;
shared float part[STILL_GROUP];

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
  uint chunk = push.start / 64 + gl_WorkGroupID.x, row0 = head * push.rows + gl_WorkGroupID.x * 64;
  uint slot = chunk > push.route_first ? chunk - 1 - push.route_first : 0;
  uint state = (slot * push.heads + head) * F * (DIM + 1);
  uint wr = gl_SubgroupID / 2, wc = gl_SubgroupID % 2;
  if (gl_SubgroupID < 4) {
    MATRIX_SUM s[2][COLUMNS];
    [[unroll]] for (uint i = 0; i < 2; i++)
      [[unroll]] for (uint j = 0; j < COLUMNS; j++) s[i][j] = MATRIX_SUM(0.0);
    for (uint f = 0; f < F; f += 16) {
      MATRIX_A a[2];
      [[unroll]] for (uint i = 0; i < 2; i++) coopMatLoad(a[i], phi, (row0 + 32 * wr + 16 * i) * F + f, F, ROW_MAJOR);
      [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
        MATRIX_B b;
        coopMatLoad(b, states, state + f * DIM + (wc * COLUMNS + j) * 16, DIM, ROW_MAJOR);
        [[unroll]] for (uint i = 0; i < 2; i++) s[i][j] = coopMatMulAdd(a[i], b, s[i][j]);
      }
    }
    [[unroll]] for (uint i = 0; i < 2; i++)
      [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
        s[i][j] *= 1.0 / STILL_STATE_SCALE;
        coopMatStore(s[i][j], linear, (row0 + 32 * wr + 16 * i) * DIM + (wc * COLUMNS + j) * 16, DIM, ROW_MAJOR);
      }
  }
  float sum = 0;
  for (uint f = tid % 2; f < F; f += 2)
    sum += float(phi[(row0 + tid / 2) * F + f]) * float(states[state + F * DIM + f]);
  part[tid] = sum;
  barrier();
  if (tid % 2 == 0)
    linear[push.heads * push.rows * DIM + row0 + tid / 2] = (sum + part[tid + 1]) / STILL_STATE_SCALE;
}
