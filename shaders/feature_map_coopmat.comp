#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// feature_map.comp for f16: 32 rows a workgroup, each subgroup a quarter of the columns. The map is f16 too.
// Groups: x = 32 tokens, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(constant_id = 1) const uint KEYS = 0;
layout(push_constant) uniform block { attention_push push; };
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };           // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { f16vec4 work_k[]; };   // (G, rows, D)
layout(set = 0, binding = 2) readonly buffer b2 { float16_t map[]; };    // A (H, D, D)
layout(set = 0, binding = 3) readonly buffer b3 { float mask[]; };       // (R, rows)
layout(set = 0, binding = 4) writeonly buffer b4 { float16_t phi[]; };   // (H, rows, 2 D)

const uint U_ROW = DIM + 4, COLUMNS = DIM / 64;  // tiles of 16 columns of a subgroup: DIM / 4 / 16
shared f16vec4 x_rows[32 * KEY_ROW / 4];
shared float u[32 * U_ROW];
shared float part[2 * STILL_GROUP];

void sums(uint tid, inout float a, inout float b, bool maximum) {  // over the 4 invocations of a row
  part[tid] = a;
  part[STILL_GROUP + tid] = b;
  barrier();
  uint i = tid & ~3u, j = STILL_GROUP + i;
  if (maximum) {
    a = max(max(part[i], part[i + 1]), max(part[i + 2], part[i + 3]));
    b = max(max(part[j], part[j + 1]), max(part[j + 2], part[j + 3]));
  } else {
    a = part[i] + part[i + 1] + part[i + 2] + part[i + 3];
    b = part[j] + part[j + 1] + part[j + 2] + part[j + 3];
  }
  barrier();
}

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, kv = head / (push.heads / push.kv_heads);
  uint first = KEYS == 1 ? push.route_first * push.chunk - push.base : 0;
  uint count = KEYS == 1 ? push.route_count * push.chunk : push.count;
  uint row = tid / 4, lane = tid % 4, i_row = gl_WorkGroupID.x * 32 + row;
  float norm = 0, squares = 0;
  for (uint c = lane; c < DIM / 4; c += 4) {
    vec4 x = vec4(0);
    if (i_row < count)
      x = KEYS == 1 ? vec4(work_k[(kv * push.rows + first + i_row) * (DIM / 4) + c])
                    : q[((push.row0 + i_row) * push.heads + head) * (DIM / 4) + c];
    norm += dot(x, x);
    x_rows[row * (KEY_ROW / 4) + c] = f16vec4(x);
  }
  barrier();
  if (gl_SubgroupID < 4)
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
      uint column = (gl_SubgroupID * COLUMNS + j) * 16;
      MATRIX_SUM s[2];
      [[unroll]] for (uint i = 0; i < 2; i++) s[i] = MATRIX_SUM(0.0);
      [[unroll]] for (uint k = 0; k < DIM / 16; k++) {
        MATRIX_B b;
        coopMatLoad(b, map, (head * DIM + 16 * k) * DIM + column, DIM, ROW_MAJOR);
        [[unroll]] for (uint i = 0; i < 2; i++) {
          MATRIX_A a;
          coopMatLoad(a, x_rows, (16 * i * KEY_ROW + 16 * k) / 4, KEY_ROW / 4, ROW_MAJOR);
          s[i] = coopMatMulAdd(a, b, s[i]);
        }
      }
      [[unroll]] for (uint i = 0; i < 2; i++) coopMatStore(s[i], u, 16 * i * U_ROW + column, U_ROW, ROW_MAJOR);
    }
  barrier();
  for (uint d = lane; d < DIM; d += 4) squares += u[row * U_ROW + d] * u[row * U_ROW + d];
  sums(tid, norm, squares, false);
  float scale = (push.flags & STILL_FLAG_NORM) != 0 ? sqrt(norm) / max(sqrt(squares), TINY) : 1.0;
  float most_a = MINUS_INFINITY, most_b = MINUS_INFINITY, sum_a = 0, sum_b = 0;
  for (uint d = lane; d < DIM; d += 4) {
    float x = scale * u[row * U_ROW + d];
    most_a = max(most_a, x);
    most_b = max(most_b, -x);
  }
  sums(tid, most_a, most_b, true);
  for (uint d = lane; d < DIM; d += 4) {
    float x = scale * u[row * U_ROW + d];
    sum_a += exp(x - most_a);
    sum_b += exp(-x - most_b);
  }
  sums(tid, sum_a, sum_b, false);
  if (i_row >= count) return;
  uint route = head / (push.heads / push.route_heads);
  float factor = KEYS == 1 ? mask[route * push.rows + first + i_row] : 1.0;
  uint at = (head * push.rows + first + i_row) * 2 * DIM;
  for (uint d = lane; d < DIM; d += 4) {
    float x = scale * u[row * U_ROW + d];
    phi[at + d] = float16_t(factor * exp(x - most_a) / sum_a);
    phi[at + DIM + d] = float16_t(factor * exp(-x - most_b) / sum_b);
  }
}
