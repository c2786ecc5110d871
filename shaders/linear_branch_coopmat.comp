#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// linear_state.comp and linear_branch.comp by cooperative matrices: walks over the chunks of a segment with the state in registers,
// transposed, so that there is no state of each chunk in memory. Each subgroup owns 16 columns of the values. With TOTALS it leaves what the segment's chunks add; else it begins with the state before the segment
// (linear_prefix_coopmat.comp) and leaves, for the queries behind each chunk, what they take from the state.
// Groups: x = segment, y = head.
#define GROUP (2 * DIM)
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
#include "attention_sets.glsl"
#include "tile_rows.glsl"
const uint D = DIM;
#include "register_tiles.glsl"
#include "linear_tiles.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { uvec4 key_features[]; };
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 values[]; };          // tiles.comp
layout(set = 0, binding = 2) buffer b2 { vec4 states[]; };                    // (segments, H, D / 16, F / 16, 32, 8)
#ifndef TOTALS
layout(set = 0, binding = 3) readonly buffer b3 { uvec4 query_features[]; };
layout(set = 0, binding = 4) writeonly buffer b4 { uvec4 linear[]; };         // linear_tile
#endif

const uint F_TILES = 2 * DIM_TILES, STAGED = HALF / GROUP;
shared uvec4 halves[2 * HALF];  // one is multiplied while the next is on its way
uvec4 staged[STAGED];

#define FETCH(from, at) \
  [[unroll]] for (uint n_ = 0; n_ < STAGED; n_++) staged[n_] = from[(at) + tid + n_ * GROUP];

void put(uint tid, uint to) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) halves[to + tid + n * GROUP] = staged[n];
  barrier();
}

// The state takes in half of the features of 64 keys: s of the outer scope, columns of the values by features.
#define ADD_KEYS(half_)                                                            \
  [[unroll]] for (uint k = 0; k < 4; k++)                                          \
    [[unroll]] for (uint i = 0; i < DIM_TILES; i++) {                              \
      MATRIX_B b;                                                                  \
      UNPACK(b, halves[(half_) * HALF + (k * DIM_TILES + i) * 32 + lane]);         \
      s[(half_) * DIM_TILES + i] = coopMatMulAdd(v[k], b, s[(half_) * DIM_TILES + i]); \
    }

// 64 queries take from it: y, rows by columns of the values.
#define TAKE(half_)                                                                \
  [[unroll]] for (uint i = 0; i < DIM_TILES; i++) {                                \
    MATRIX_B b;                                                                    \
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++) b[e] = float16_t(mean * s[(half_) * DIM_TILES + i][e]); \
    [[unroll]] for (uint r = 0; r < 4; r++) {                                      \
      MATRIX_A a;                                                                  \
      UNPACK(a, halves[(half_) * HALF + (r * DIM_TILES + i) * 32 + lane]);         \
      y[r] = coopMatMulAdd(a, b, y[r]);                                            \
    }                                                                              \
  }

void main() {
  uint tid = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID, slice = gl_SubgroupID, head = gl_WorkGroupID.y;
  uint length_ = (push.route_count + gl_NumWorkGroups.x - 1) / gl_NumWorkGroups.x;
  uint chunk = gl_WorkGroupID.x * length_, end = min(chunk + length_, push.route_count);
  uint state0 = (((gl_WorkGroupID.x * push.heads + head) * DIM_TILES + slice) * F_TILES * 32 + lane) * 2;
  MATRIX_SUM s[F_TILES];
#ifdef TOTALS
  [[unroll]] for (uint i = 0; i < F_TILES; i++) s[i] = MATRIX_SUM(0.0);
#else
  [[unroll]] for (uint i = 0; i < F_TILES; i++)
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++) s[i][e] = states[state0 + 64 * i + e / 4][e % 4];
#endif
  if (chunk < end) FETCH(key_features, feature_half(chunk, head, 0))
  uint at = near_tile(kv_head(head), (64 * (push.route_first + chunk) - push.base) / 16) + slice * 32 + lane;
  for (; chunk < end; chunk++) {
    MATRIX_A v[4];
    [[unroll]] for (uint k = 0; k < 4; k++) UNPACK(v[k], values[at + k * 2 * D]);
    at += 8 * D;
    put(tid, 0);
    FETCH(key_features, feature_half(chunk, head, 1))
    ADD_KEYS(0)
    put(tid, HALF);
#ifdef TOTALS
    if (chunk + 1 < end) FETCH(key_features, feature_half(chunk + 1, head, 0))
    ADD_KEYS(1)
#else
    FETCH(query_features, feature_half(chunk, head, 0))
    ADD_KEYS(1)
    MATRIX_SUM y[4];
    [[unroll]] for (uint r = 0; r < 4; r++) y[r] = MATRIX_SUM(0.0);
    float mean = 1.0 / tokens_of(chunk);
    put(tid, 0);
    FETCH(query_features, feature_half(chunk, head, 1))
    TAKE(0)
    put(tid, HALF);
    if (chunk + 1 < end) FETCH(key_features, feature_half(chunk + 1, head, 0))
    TAKE(1)
    [[unroll]] for (uint r = 0; r < 4; r++) {
      uvec4 w;
      [[unroll]] for (uint n = 0; n < 4; n++)
        w[n] = packHalf2x16(vec2(y[r][2 * n], y[r][2 * n + 1]) / STILL_FEATURE_SCALE);
      linear[linear_tile(chunk, head) + (r * DIM_TILES + slice) * 32 + lane] = w;
    }
#endif
  }
#ifdef TOTALS
  [[unroll]] for (uint i = 0; i < F_TILES; i++)
    [[unroll]] for (uint n = 0; n < 2; n++)
      states[state0 + 64 * i + n] = vec4(s[i][4 * n], s[i][4 * n + 1], s[i][4 * n + 2], s[i][4 * n + 3]);
#endif
}
