#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// feature_map.comp of the keys of a routed chunk and linear_state.comp in one: S (F x D) = phi_k^T V and z of the chunk, as f16
// times STILL_CHUNK_STATE_SCALE. Groups: x = routed chunk, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
#include "tile_rows.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { float16_t work_k[]; };   // (G, rows, D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 work_v[]; };       // (G, rows, D)
layout(set = 0, binding = 2) readonly buffer b2 { uvec4 map[]; };          // A (H, D, D)
layout(set = 0, binding = 3) readonly buffer b3 { float mask[]; };         // (R, rows)
layout(set = 0, binding = 4) writeonly buffer b4 { uvec4 states[]; };      // (slots, H, F D + F)
layout(set = 0, binding = 4) writeonly buffer b4_halves { float16_t state_halves[]; };

const uint F = 2 * DIM, ROW8 = KEY_ROW / 8, OWN = DIM / 64;  // tiles of 16 columns of the values that a subgroup owns
const uint PIECE = 32, PIECE_AT = PIECE * ROW8, STAGED = PIECE * DIM8 / STILL_GROUP;  // rows of the map that are multiplied at a time
shared uvec4 tile[64 * ROW8];  // the values; two pieces of the map in turn; half of the features, (64, D)
#define LOAD(m, at, layout_) coopMatLoad(m, tile, (at) / 8, ROW8, layout_)

uvec4 staged[STAGED];
void fetch_map(uint tid, uint from) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) staged[n] = map[from + tid + n * STILL_GROUP];
}
void put_map(uint tid, uint to) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) {
    uint i = tid + n * STILL_GROUP;
    tile[to + i / DIM8 * ROW8 + i % DIM8] = staged[n];
  }
}
// Invocation t of four neighbours gets word t of each, so that it has 16 bytes of a row to write rather than 4 bytes of four places.
uvec4 transpose_words(uvec4 w) {
  uint t = gl_SubgroupInvocationID & 3;
  bool odd = (t & 1) != 0, high = (t & 2) != 0;
  uint a = subgroupShuffleXor(odd ? w.x : w.y, 1), b = subgroupShuffleXor(odd ? w.z : w.w, 1);
  w = odd ? uvec4(a, w.y, b, w.w) : uvec4(w.x, a, w.z, b);
  a = subgroupShuffleXor(high ? w.x : w.z, 2);
  b = subgroupShuffleXor(high ? w.y : w.w, 2);
  return high ? uvec4(a, b, w.z, w.w) : uvec4(w.x, w.y, a, b);
}

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, kv = head / (push.heads / push.kv_heads);
  uint row0 = (push.route_first + gl_WorkGroupID.x) * 64 - push.base, own0 = 16 * gl_SubgroupID;
  uint state = (gl_WorkGroupID.x * push.heads + head) * F * (DIM + 1) / 8;
  [[unroll]] for (uint n = 0; n < 64 * DIM8 / STILL_GROUP; n++) {
    uint i = tid + n * STILL_GROUP;
    tile[i / DIM8 * ROW8 + i % DIM8] = work_v[(kv * push.rows + row0) * DIM8 + i];
  }
  MATRIX_A x[DIM_TILES];
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
    coopMatLoad(x[k], work_k, (kv * push.rows + row0 + own0) * DIM + 16 * k, DIM, ROW_MAJOR);
  barrier();
  fetch_map(tid, head * DIM * DIM8);
  MATRIX_B v[4][OWN];
  [[unroll]] for (uint k = 0; k < 4; k++)
    [[unroll]] for (uint j = 0; j < OWN; j++) LOAD(v[k][j], 16 * k * KEY_ROW + 16 * (gl_SubgroupID * OWN + j), ROW_MAJOR);
  barrier();
  MATRIX_SUM u[DIM_TILES];
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) u[j] = MATRIX_SUM(0.0);
  [[unroll]] for (uint i = 0; i < DIM / PIECE; i++) {
    put_map(tid, i % 2 * PIECE_AT);
    barrier();
    if (i + 1 < DIM / PIECE) fetch_map(tid, (head * DIM + PIECE * (i + 1)) * DIM8);
    [[unroll]] for (uint k = 0; k < PIECE / 16; k++)
      [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
        MATRIX_B b;
        LOAD(b, i % 2 * PIECE_AT * 8 + 16 * k * KEY_ROW + 16 * j, ROW_MAJOR);
        u[j] = coopMatMulAdd(x[PIECE / 16 * i + k], b, u[j]);
      }
  }
  const float x_scale = 1.0;
  MATRIX_A phi[2 * DIM_TILES];
#include "feature_tiles.glsl"
  uint masks = head / (push.heads / push.route_heads) * push.rows + row0 + own0;
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    float m = mask[masks + row_at(r)];
    factor_a[r] *= m;
    factor_b[r] *= m;
  }
  MATRIX_B ones = MATRIX_B(float16_t(1.0));
  [[unroll]] for (uint half_ = 0; half_ < 2; half_++) {
    barrier();
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      MATRIX_SUM_F16 f;
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
        f[e] = phi[half_ * DIM_TILES + j][e] * float16_t(half_ == 0 ? factor_a[own(e)] : factor_b[own(e)]);
      coopMatStore(f, tile, (own0 * KEY_ROW + 16 * j) / 8, ROW8, ROW_MAJOR);
    }
    barrier();
    [[unroll]] for (uint i = 0; i < DIM_TILES; i++) {  // 16 features by this subgroup's columns; one subgroup also sums them up
      MATRIX_SUM s[OWN], z = MATRIX_SUM(0.0);
      [[unroll]] for (uint j = 0; j < OWN; j++) s[j] = MATRIX_SUM(0.0);
      [[unroll]] for (uint k = 0; k < 4; k++) {
        MATRIX_A a;
        LOAD(a, 16 * k * KEY_ROW + 16 * i, COLUMN_MAJOR);
        [[unroll]] for (uint j = 0; j < OWN; j++) s[j] = coopMatMulAdd(a, v[k][j], s[j]);
        if (gl_SubgroupID == i % 4) z = coopMatMulAdd(a, ones, z);
      }
      uint f0 = half_ * DIM + 16 * i;
      if (gl_SubgroupID == i % 4 && gl_SubgroupInvocationID % 4 == 0)
        [[unroll]] for (uint r = 0; r < ROWS; r++)
          state_halves[8 * state + F * DIM + f0 + row_at(r)] = float16_t(STILL_CHUNK_STATE_SCALE * z[4 * r]);
      [[unroll]] for (uint j = 0; j < OWN; j++) s[j] *= STILL_CHUNK_STATE_SCALE;
#if DIM == 128
      [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uvec4 w = uvec4(packHalf2x16(vec2(s[0][4 * r], s[0][4 * r + 1])), packHalf2x16(vec2(s[0][4 * r + 2], s[0][4 * r + 3])),
                        packHalf2x16(vec2(s[1][4 * r], s[1][4 * r + 1])), packHalf2x16(vec2(s[1][4 * r + 2], s[1][4 * r + 3])));
        states[state + (f0 + row_at(r)) * DIM8 + 4 * gl_SubgroupID + gl_SubgroupInvocationID % 4] = transpose_words(w);
      }
#else
      coopMatStore(MATRIX_SUM_F16(s[0]), state_halves, 8 * state + f0 * DIM + 16 * gl_SubgroupID, DIM, ROW_MAJOR);
#endif
    }
  }
}
