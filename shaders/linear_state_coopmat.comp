#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// feature_map.comp of the keys of a routed chunk and linear_state.comp in one: S (F x D) = phi_k^T V and z of the chunk, as f16
// times STILL_CHUNK_STATE_SCALE. Groups: x = routed chunk, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
const uint SUBGROUPS = 4;
#include "tile_rows.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { float16_t work_k[]; };   // (G, rows, D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 work_v[]; };       // (G, rows, D)
layout(set = 0, binding = 2) readonly buffer b2 { uvec4 map[]; };          // A (H, D, D)
layout(set = 0, binding = 3) readonly buffer b3 { float mask[]; };         // (R, rows)
layout(set = 0, binding = 4) writeonly buffer b4 { float16_t states[]; };  // (slots, H, F D + F)

const uint F = 2 * DIM, VALUES = 64 * KEY_ROW / 8;  // where the values begin in tile
shared uvec4 tile[2 * VALUES];                      // the map; then half of the features, (64, D), and the values
#define LOAD(m, at, layout_) coopMatLoad(m, tile, (at) / 8, KEY_ROW / 8, layout_)

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, kv = head / (push.heads / push.kv_heads);
  uint row0 = (push.route_first + gl_WorkGroupID.x) * 64 - push.base, own0 = 16 * gl_SubgroupID;
  uint state = (gl_WorkGroupID.x * push.heads + head) * F * (DIM + 1);
  find_places();
  [[unroll]] for (uint n = 0; n < DIM * DIM8 / STILL_GROUP; n++) {
    uint i = tid + n * STILL_GROUP;
    tile[i / DIM8 * (KEY_ROW / 8) + i % DIM8] = map[head * DIM * DIM8 + i];
  }
  MATRIX_A x[DIM_TILES];
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
    coopMatLoad(x[k], work_k, (kv * push.rows + row0 + own0) * DIM + 16 * k, DIM, ROW_MAJOR);
  barrier();
  MATRIX_SUM u[DIM_TILES];
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) u[j] = MATRIX_SUM(0.0);
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      MATRIX_B b;
      LOAD(b, 16 * k * KEY_ROW + 16 * j, ROW_MAJOR);
      u[j] = coopMatMulAdd(x[k], b, u[j]);
    }
  barrier();
  [[unroll]] for (uint n = 0; n < 64 * DIM8 / STILL_GROUP; n++) {
    uint i = tid + n * STILL_GROUP;
    tile[VALUES + i / DIM8 * (KEY_ROW / 8) + i % DIM8] = work_v[(kv * push.rows + row0) * DIM8 + i];
  }
  MATRIX_A phi[2 * DIM_TILES];
#include "feature_tiles.glsl"
  uint masks = head / (push.heads / push.route_heads) * push.rows + row0 + own0;
  [[unroll]] for (uint half_ = 0; half_ < 2; half_++) {
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
      float16_t factor = float16_t(mask[masks + row_of(e)] * (half_ == 0 ? factor_a[e] : factor_b[e]));
      [[unroll]] for (uint j = 0; j < DIM_TILES; j++) phi[half_ * DIM_TILES + j][e] *= factor;
    }
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      MATRIX_SUM_F16 f;
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++) f[e] = phi[half_ * DIM_TILES + j][e];
      coopMatStore(f, tile, (own0 * KEY_ROW + 16 * j) / 8, KEY_ROW / 8, ROW_MAJOR);
    }
    barrier();
    // DIM / 4 rows of this half of S for each subgroup
    [[unroll]] for (uint i = 0; i < DIM / 64; i++) {
      uint f0 = gl_SubgroupID * (DIM / 4) + 16 * i;
      MATRIX_SUM s[DIM_TILES];
      [[unroll]] for (uint j = 0; j < DIM_TILES; j++) s[j] = MATRIX_SUM(0.0);
      [[unroll]] for (uint k = 0; k < 4; k++) {
        MATRIX_A a;
        LOAD(a, 16 * k * KEY_ROW + f0, COLUMN_MAJOR);
        [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
          MATRIX_B b;
          LOAD(b, VALUES * 8 + 16 * k * KEY_ROW + 16 * j, ROW_MAJOR);
          s[j] = coopMatMulAdd(a, b, s[j]);
        }
      }
      [[unroll]] for (uint j = 0; j < DIM_TILES; j++)
        coopMatStore(MATRIX_SUM_F16(STILL_CHUNK_STATE_SCALE * s[j]), states, state + (half_ * DIM + f0) * DIM + 16 * j, DIM, ROW_MAJOR);
    }
    for (uint f = tid; f < DIM / 2; f += STILL_GROUP) {  // two columns of the features at a time
      vec2 sum = vec2(0);
      [[unroll]] for (uint t = 0; t < 64; t++) sum += unpackHalf2x16(tile[t * (KEY_ROW / 8) + f / 4][f % 4]);
      states[state + F * DIM + half_ * DIM + 2 * f] = float16_t(STILL_CHUNK_STATE_SCALE * sum.x);
      states[state + F * DIM + half_ * DIM + 2 * f + 1] = float16_t(STILL_CHUNK_STATE_SCALE * sum.y);
    }
    barrier();
  }
}
