#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// matmul.comp by cooperative matrices: TILE_N rows of activations, which halve.comp has made f16 (rows of `columns`
// values, up to whole tiles), by TILE_W rows of W. SLICE columns of both lie in shared memory while the next are on their way
// (two slices there, one of them filled while the other is read, were slower); each subgroup multiplies 64 x 32 with sums in
// f32. columns is a multiple of SLICE.
// Groups: x = rows of W / TILE_W, y = n / TILE_N.
#define WEIGHT_UNITS
#define GROUP STILL_MATMUL_GROUP
#include "shader_common.glsl"
#include "coopmat_common.glsl"
#include "weight_types.glsl"
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 inputs[]; };
layout(set = 0, binding = 2) buffer b2 { float outputs[]; };

const uint TILE_N = STILL_MATMUL_TILE_N, TILE_W = STILL_MATMUL_TILE_W, SLICE = STILL_MATMUL_SLICE, SUBGROUPS = GROUP / 32;
const uint SLICE8 = SLICE / 8, ROW8 = SLICE8 + 1;  // a row of a slice and its padded pitch, in uvec4
const uint MOVED_N = TILE_N * SLICE8 / GROUP, MOVED_W = TILE_W * SLICE8 / GROUP;  // uvec4 that an invocation moves
const uint W_ROWS = TILE_N * ROW8;  // where the rows of W begin in a slice
const uint BAND = 8;  // tiles of activations that share the same rows of W at a time
const uint OWN_N = 64, OWN_W = 32, TILES_N = OWN_N / 16, TILES_W = OWN_W / 16;  // of a subgroup
shared uvec4 slices[(TILE_N + TILE_W) * ROW8];
shared float edge[SUBGROUPS * 256];

uvec4 n_staged[MOVED_N], w_staged[MOVED_W];

void fetch(uint tid, uint row0, uint n0, uint c0) {
  [[unroll]] for (uint i = 0; i < MOVED_N; i++) {
    uint at = tid + i * GROUP;
    n_staged[i] = inputs[(push.first + n0 + at / SLICE8) * (push.columns / 8) + c0 + at % SLICE8];
  }
  [[unroll]] for (uint i = 0; i < MOVED_W; i++) {
    uint at = tid + i * GROUP;
    w_staged[i] = load_unit(min(row0 + at / SLICE8, push.rows - 1), c0 + at % SLICE8);
  }
}

void put_staged(uint tid) {
  [[unroll]] for (uint i = 0; i < MOVED_N; i++) {
    uint at = tid + i * GROUP;
    slices[at / SLICE8 * ROW8 + at % SLICE8] = n_staged[i];
  }
  [[unroll]] for (uint i = 0; i < MOVED_W; i++) {
    uint at = tid + i * GROUP;
    slices[W_ROWS + at / SLICE8 * ROW8 + at % SLICE8] = unit_halves(w_staged[i]);
  }
}

// The tile of this workgroup: bands of BAND tiles of activations, each by all of W.
uvec2 find_tile() {
  uint id = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x, band = id / (BAND * gl_NumWorkGroups.x);
  uint rows = min(BAND, gl_NumWorkGroups.y - BAND * band), within = id - BAND * band * gl_NumWorkGroups.x;
  return uvec2(within / rows, BAND * band + within % rows);
}

// A tile at the edge, element by element. (Not a loop over tiles: with one inside it spirv-opt would not unroll it.)
#define EDGE(i, j)                                                                            \
  {                                                                                           \
    coopMatStore(s[i][j], edge, own, 16, ROW_MAJOR);                                          \
    subgroupMemoryBarrierShared();                                                            \
    subgroupBarrier();                                                                        \
    put_edge(n0 + own_n + 16 * i, row0 + own_w + 16 * j, at + 16 * i * push.all_rows + 16 * j); \
    subgroupBarrier();                                                                        \
  }

void put_edge(uint n, uint row, uint at) {
  for (uint e = gl_SubgroupInvocationID; e < 256; e += gl_SubgroupSize) {
    if (n + e / 16 >= push.n || row + e % 16 >= push.rows) continue;
    uint to = at + e / 16 * push.all_rows + e % 16;
    outputs[to] = edge[gl_SubgroupID * 256 + e] + (push.accumulate != 0 ? outputs[to] : 0.0);
  }
}

void main() {
  uint tid = gl_LocalInvocationID.x, own = gl_SubgroupID * 256;
  uvec2 place = find_tile();
  uint row0 = place.x * TILE_W, n0 = place.y * TILE_N;
  uint own_n = gl_SubgroupID / (TILE_W / OWN_W) * OWN_N, own_w = gl_SubgroupID % (TILE_W / OWN_W) * OWN_W;
  MATRIX_SUM s[TILES_N][TILES_W];
  [[unroll]] for (uint i = 0; i < TILES_N; i++)
    [[unroll]] for (uint j = 0; j < TILES_W; j++) s[i][j] = MATRIX_SUM(0.0);
  fetch(tid, row0, n0, 0);
  for (uint next = SLICE8; next <= push.columns / 8; next += SLICE8) {
    barrier();
    put_staged(tid);
    barrier();
    if (next < push.columns / 8) fetch(tid, row0, n0, next);
    [[unroll]] for (uint k = 0; k < SLICE8; k += 2) {
      MATRIX_A a[TILES_N];
      [[unroll]] for (uint i = 0; i < TILES_N; i++)
        coopMatLoad(a[i], slices, (own_n + 16 * i) * ROW8 + k, ROW8, ROW_MAJOR);
      [[unroll]] for (uint j = 0; j < TILES_W; j++) {
        MATRIX_B b;
        coopMatLoad(b, slices, W_ROWS + (own_w + 16 * j) * ROW8 + k, ROW8, COLUMN_MAJOR);
        [[unroll]] for (uint i = 0; i < TILES_N; i++) s[i][j] = coopMatMulAdd(a[i], b, s[i][j]);
      }
    }
  }
  uint at = (push.first + n0 + own_n) * push.all_rows + push.row0 + row0 + own_w;
  bool aligned = (push.all_rows | push.row0) % 4 == 0;
  if (aligned && n0 + own_n + OWN_N <= push.n && row0 + own_w + OWN_W <= push.rows) {
    [[unroll]] for (uint i = 0; i < TILES_N; i++)
      [[unroll]] for (uint j = 0; j < TILES_W; j++) {
        uint to = at + 16 * i * push.all_rows + 16 * j;
        if (push.accumulate != 0) {
          MATRIX_SUM before;
          coopMatLoad(before, outputs, to, push.all_rows, ROW_MAJOR);
          s[i][j] += before;
        }
        coopMatStore(s[i][j], outputs, to, push.all_rows, ROW_MAJOR);
      }
  } else {
    EDGE(0, 0) EDGE(0, 1) EDGE(1, 0) EDGE(1, 1) EDGE(2, 0) EDGE(2, 1) EDGE(3, 0) EDGE(3, 1)
  }
}
