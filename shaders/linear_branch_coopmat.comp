#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// feature_map.comp of the queries and linear_branch.comp in one, with f16 features and states (linear_prefix_coopmat.comp).
// Each subgroup owns 16 queries. Groups: x = chunk, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
const uint SUBGROUPS = 4;
#include "tile_rows.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };         // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 states[]; };   // (slots, H, F D + F)
layout(set = 0, binding = 2) writeonly buffer b2 { float linear[]; };  // (H, rows, D), then (H, rows)
layout(set = 0, binding = 3) readonly buffer b3 { uvec4 map[]; };      // A (H, D, D)

const uint F = 2 * DIM;
shared uvec4 tile[DIM * KEY_ROW / 8];  // the queries, the map, each half of the state
shared float normalizer[F];

// tile = a matrix (D, D)
#define LOAD_SQUARE(matrix, from)                                              \
  barrier();                                                                   \
  [[unroll]] for (uint n = 0; n < DIM * DIM8 / STILL_GROUP; n++) {             \
    uint i = tid + n * STILL_GROUP;                                            \
    tile[i / DIM8 * (KEY_ROW / 8) + i % DIM8] = matrix[(from) + i];            \
  }                                                                            \
  barrier();
// sum += factor (16, D) times the matrix in tile
#define MULTIPLY_SQUARE(factor, first, sum)                                    \
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++)                              \
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {                          \
      MATRIX_B b;                                                              \
      coopMatLoad(b, tile, (16 * k * KEY_ROW + 16 * j) / 8, KEY_ROW / 8, ROW_MAJOR); \
      sum[j] = coopMatMulAdd(factor[first + k], b, sum[j]);                    \
    }

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, row0 = 16 * gl_SubgroupID;
  uint t0 = push.start + gl_WorkGroupID.x * 64, end = push.start + push.count;
  find_places();
  [[unroll]] for (uint n = 0; n < 64 * DIM / 4 / STILL_GROUP; n++) {
    uint i = tid + n * STILL_GROUP, r = i / (DIM / 4), c = i % (DIM / 4), at = r * (KEY_ROW / 8) + c / 2;
    vec4 a = t0 + r < end ? q[((push.row0 + t0 + r - push.start) * push.heads + head) * (DIM / 4) + c] : vec4(0);
    uvec2 halves = uvec2(packFloat2x16(f16vec2(a.xy)), packFloat2x16(f16vec2(a.zw)));
    if (c % 2 == 0) tile[at].xy = halves;
    else tile[at].zw = halves;
  }
  uint chunk = t0 / 64, slot = chunk > push.route_first ? chunk - 1 - push.route_first : 0;
  uint state = (slot * push.heads + head) * F * (DIM + 1) / 8;
  if (tid < F / 8) {
    uvec4 z = states[state + F * DIM8 + tid];
    [[unroll]] for (uint n = 0; n < 4; n++) {
      vec2 two = unpackHalf2x16(z[n]);
      normalizer[8 * tid + 2 * n] = two.x;
      normalizer[8 * tid + 2 * n + 1] = two.y;
    }
  }
  barrier();
  MATRIX_A x[DIM_TILES];
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++) coopMatLoad(x[k], tile, (row0 * KEY_ROW + 16 * k) / 8, KEY_ROW / 8, ROW_MAJOR);
  MATRIX_SUM u[DIM_TILES], y[DIM_TILES];
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) u[j] = y[j] = MATRIX_SUM(0.0);
  LOAD_SQUARE(map, head * DIM * DIM8)
  MULTIPLY_SQUARE(x, 0, u)
  MATRIX_A phi[2 * DIM_TILES];
#include "feature_tiles.glsl"
  float below[ELEMENTS];
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    float a = 0, b = 0;
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      a += float(phi[j][e]) * normalizer[16 * j + column_of(e)];
      b += float(phi[DIM_TILES + j][e]) * normalizer[DIM + 16 * j + column_of(e)];
    }
    below[e] = (factor_a[e] * a + factor_b[e] * b) / STILL_STATE_SCALE;
  }
  row_sum(below);
  // The halves have factors of their own: between their products the sums are brought to those of the second.
  LOAD_SQUARE(states, state)
  MULTIPLY_SQUARE(phi, 0, y)
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) y[j][e] *= factor_a[e] / factor_b[e];
  LOAD_SQUARE(states, state + DIM * DIM8)
  MULTIPLY_SQUARE(phi, DIM_TILES, y)
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) y[j][e] *= factor_b[e] / STILL_STATE_SCALE;

  uint row = head * push.rows + gl_WorkGroupID.x * 64 + row0;
  bool inside = t0 + row0 + 15 < end;
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
    if (inside) coopMatStore(y[j], linear, row * DIM + 16 * j, DIM, ROW_MAJOR);
    else
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
        if (t0 + row0 + row_of(e) < end) linear[(row + row_of(e)) * DIM + 16 * j + column_of(e)] = y[j][e];
  }
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    if (column_of(e) == 0 && t0 + row0 + row_of(e) < end) linear[push.heads * push.rows * DIM + row + row_of(e)] = below[e];
}
