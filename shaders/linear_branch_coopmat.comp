#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// linear_state.comp and linear_branch.comp by cooperative matrices: walks over the chunks of a segment with the state in registers,
// transposed, so that there is no state of each chunk in memory. A pair of subgroups owns 32 columns of the values, each of them
// half of the features, so that a tile of features is read from shared memory once for both tiles of columns; they add up what
// queries take. With TOTALS it leaves what the segment's chunks add; else it begins with the state before the segment
// (linear_prefix_coopmat.comp) and leaves, for the queries behind each chunk, what they take from the state. Slower on an H200:
// loads two halves ahead.
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

const uint F_TILES = 2 * DIM_TILES, STAGED = HALF / GROUP, OWN = DIM_TILES / 2;  // OWN: tiles of a subgroup in each half
shared uvec4 halves[2 * HALF];  // one is multiplied while the next is on its way
#ifndef TOTALS
shared uvec4 sent[GROUP / 32][4][32];
#endif
uvec4 staged[STAGED];

#define FETCH(from, at) \
  [[unroll]] for (uint n_ = 0; n_ < STAGED; n_++) staged[n_] = from[(at) + tid + n_ * GROUP];

void put(uint tid, uint to) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) halves[to + tid + n * GROUP] = staged[n];
  barrier();
}

// The state takes in half of the features of 64 keys: s of the outer scope, columns of the values by features.
#define ADD_KEYS(half_)                                                                       \
  [[unroll]] for (uint k = 0; k < 4; k++)                                                     \
    [[unroll]] for (uint i = 0; i < OWN; i++) {                                               \
      MATRIX_B b;                                                                             \
      UNPACK(b, halves[(half_) * HALF + (k * DIM_TILES + member * OWN + i) * 32 + lane]);     \
      [[unroll]] for (uint c = 0; c < 2; c++)                                                 \
        s[c][(half_) * OWN + i] = coopMatMulAdd(v[c][k], b, s[c][(half_) * OWN + i]);         \
    }

// 64 queries take from it: y, rows by columns of the values.
#define TAKE(half_)                                                                           \
  [[unroll]] for (uint i = 0; i < OWN; i++) {                                                 \
    MATRIX_B b[2];                                                                            \
    [[unroll]] for (uint c = 0; c < 2; c++)                                                   \
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++) b[c][e] = float16_t(mean * s[c][(half_) * OWN + i][e]); \
    [[unroll]] for (uint r = 0; r < 4; r++) {                                                 \
      MATRIX_A a;                                                                             \
      UNPACK(a, halves[(half_) * HALF + (r * DIM_TILES + member * OWN + i) * 32 + lane]);     \
      [[unroll]] for (uint c = 0; c < 2; c++) y[c][r] = coopMatMulAdd(a, b[c], y[c][r]);      \
    }                                                                                         \
  }

// From the state's first tile of the pair's columns, in vec4.
uint state_tile(uint c, uint i, uint member) { return 64 * (c * F_TILES + i / OWN * DIM_TILES + member * OWN + i % OWN); }

void main() {
  uint tid = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID, head = gl_WorkGroupID.y;
  uint member = gl_SubgroupID % 2, column0 = gl_SubgroupID / 2 * 2;  // tiles of 16 columns
  uint length_ = (push.route_count + gl_NumWorkGroups.x - 1) / gl_NumWorkGroups.x;
  uint chunk = gl_WorkGroupID.x * length_, end = min(chunk + length_, push.route_count);
  uint state0 = (((gl_WorkGroupID.x * push.heads + head) * DIM_TILES + column0) * F_TILES * 32 + lane) * 2;
  MATRIX_SUM s[2][DIM_TILES];
  [[unroll]] for (uint c = 0; c < 2; c++)
    [[unroll]] for (uint i = 0; i < DIM_TILES; i++) {
#ifdef TOTALS
      s[c][i] = MATRIX_SUM(0.0);
#else
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++) s[c][i][e] = states[state0 + state_tile(c, i, member) + e / 4][e % 4];
#endif
    }
  if (chunk < end) FETCH(key_features, feature_half(chunk, head, 0))
  uint at = near_tile(kv_head(head), (64 * (push.route_first + chunk) - push.base) / 16) + column0 * 32 + lane;
  [[dont_unroll]] for (; chunk < end; chunk++) {
    MATRIX_A v[2][4];
    [[unroll]] for (uint c = 0; c < 2; c++)
      [[unroll]] for (uint k = 0; k < 4; k++) UNPACK(v[c][k], values[at + k * 2 * D + c * 32]);
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
    MATRIX_SUM y[2][4];
    [[unroll]] for (uint c = 0; c < 2; c++)
      [[unroll]] for (uint r = 0; r < 4; r++) y[c][r] = MATRIX_SUM(0.0);
    float mean = 1.0 / tokens_of(chunk);
    put(tid, 0);
    FETCH(query_features, feature_half(chunk, head, 1))
    TAKE(0)
    put(tid, HALF);
    if (chunk + 1 < end) FETCH(key_features, feature_half(chunk + 1, head, 0))
    TAKE(1)
    // each keeps one tile of columns and gives the other away
    [[unroll]] for (uint r = 0; r < 4; r++)
      [[unroll]] for (uint n = 0; n < 4; n++) {
        vec2 mine = vec2(y[0][r][2 * n], y[0][r][2 * n + 1]), other = vec2(y[1][r][2 * n], y[1][r][2 * n + 1]);
        sent[gl_SubgroupID][r][lane][n] = packHalf2x16((member == 0 ? other : mine) / STILL_FEATURE_SCALE);
      }
    barrier();
    [[unroll]] for (uint r = 0; r < 4; r++) {
      uvec4 w, got = sent[gl_SubgroupID ^ 1][r][lane];
      [[unroll]] for (uint n = 0; n < 4; n++) {
        vec2 mine = vec2(y[0][r][2 * n], y[0][r][2 * n + 1]), other = vec2(y[1][r][2 * n], y[1][r][2 * n + 1]);
        w[n] = packHalf2x16((member == 0 ? mine : other) / STILL_FEATURE_SCALE + unpackHalf2x16(got[n]));
      }
      linear[linear_tile(chunk, head) + (r * DIM_TILES + column0 + member) * 32 + lane] = w;
    }
#endif
  }
#ifdef TOTALS
  [[unroll]] for (uint c = 0; c < 2; c++)
    [[unroll]] for (uint i = 0; i < DIM_TILES; i++)
      [[unroll]] for (uint n = 0; n < 2; n++)
        states[state0 + state_tile(c, i, member) + n] =
            vec4(s[c][i][4 * n], s[c][i][4 * n + 1], s[c][i][4 * n + 2], s[c][i][4 * n + 3]);
#endif
}
