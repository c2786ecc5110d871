#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// For bench_vulkan_stages: n rounds of 8 products of 16 x 16 x 16 in each subgroup, in registers.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { dense_push push; };
layout(set = 0, binding = 0) buffer b0 { float16_t values[]; };
layout(set = 0, binding = 1) buffer b1 { float result[]; };
void main() {
  MATRIX_A a[2];
  MATRIX_B b[4];
  MATRIX_SUM s[2][4];
  [[unroll]] for (uint i = 0; i < 2; i++) coopMatLoad(a[i], values, 256 * i, 16, ROW_MAJOR);
  [[unroll]] for (uint j = 0; j < 4; j++) coopMatLoad(b[j], values, 256 * j, 16, ROW_MAJOR);
  [[unroll]] for (uint i = 0; i < 2; i++)
    [[unroll]] for (uint j = 0; j < 4; j++) s[i][j] = MATRIX_SUM(0.0);
  for (uint round = 0; round < push.n; round++)
    [[unroll]] for (uint i = 0; i < 2; i++)
      [[unroll]] for (uint j = 0; j < 4; j++) s[i][j] = coopMatMulAdd(a[i], b[j], s[i][j]);
  MATRIX_SUM all = MATRIX_SUM(0.0);
  [[unroll]] for (uint i = 0; i < 2; i++)
    [[unroll]] for (uint j = 0; j < 4; j++) all += s[i][j];
  if (gl_WorkGroupID.x == 0) coopMatStore(all, result, 0, 16, ROW_MAJOR);
}
