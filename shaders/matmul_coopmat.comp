#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// matmul.comp by cooperative matrices: TILE_N rows of activations, which halve.comp has made f16 (rows of `columns`
// values, up to whole tiles), by TILE_W rows of W. SLICE columns of both lie in shared memory while the next are on their way;
// each subgroup multiplies 64 x 64 with sums in f32. An invocation takes 8 columns of a row from there at once, which are four of
// each of two tiles: the columns of a tile stand in an order that both factors share, and its rows of W in that of dim_order.glsl,
// so that results are written 16 bytes at a time. columns is a multiple of SLICE. On an H200 two workgroups share a
// multiprocessor, so that one multiplies while the other waits. Slower there: coopMatLoad, 256 invocations, slices of 64, tiles of
// 128 x 256, two slices in shared memory, of which one is filled while the other is read.
// Groups: x = rows of W / TILE_W, y = n / TILE_N.
#define WEIGHT_UNITS
#define GROUP STILL_MATMUL_GROUP
#include "shader_common.glsl"
#include "coopmat_common.glsl"
#include "weight_types.glsl"
#include "tile_rows.glsl"
#include "dim_order.glsl"
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 inputs[]; };
layout(set = 0, binding = 2) buffer b2 { float outputs[]; };
layout(set = 0, binding = 2) buffer b2_rows { vec4 outputs4[]; };

const uint TILE_N = STILL_MATMUL_TILE_N, TILE_W = STILL_MATMUL_TILE_W, SLICE = STILL_MATMUL_SLICE, SUBGROUPS = GROUP / 32;
const uint SLICE8 = SLICE / 8;  // a row of a slice in uvec4: neighbouring rows lie in different banks
const uint MOVED_N = TILE_N * SLICE8 / GROUP, MOVED_W = TILE_W * SLICE8 / GROUP;  // uvec4 that an invocation moves
const uint W_ROWS = TILE_N * SLICE8;  // where the rows of W begin in a slice
const uint BAND = 8;  // tiles of activations that share the same rows of W at a time
const uint OWN_N = 64, OWN_W = 64, TILES_N = OWN_N / 16, TILES_W = OWN_W / 16;  // of a subgroup
shared uvec4 slices[(TILE_N + TILE_W) * SLICE8];
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
  [[unroll]] for (uint i = 0; i < MOVED_N; i++) slices[tid + i * GROUP] = n_staged[i];
  [[unroll]] for (uint i = 0; i < MOVED_W; i++) slices[W_ROWS + tid + i * GROUP] = unit_halves(w_staged[i]);
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
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++) edge[own + row_of(e) * 16 + own_dims() + e % 4] = s[i][j][e]; \
    subgroupMemoryBarrierShared();                                                            \
    subgroupBarrier();                                                                        \
    put_edge(n0 + own_n + 16 * i, row0 + own_w + 16 * j, at + 16 * i * push.all_rows + 16 * j); \
    subgroupBarrier();                                                                        \
  }

#define EDGES(i) EDGE(i, 0) EDGE(i, 1) EDGE(i, 2) EDGE(i, 3)

void put_edge(uint n, uint row, uint at) {
  for (uint e = gl_SubgroupInvocationID; e < 256; e += gl_SubgroupSize) {
    if (n + e / 16 >= push.n || row + e % 16 >= push.rows) continue;
    uint to = at + e / 16 * push.all_rows + e % 16;
    outputs[to] = edge[gl_SubgroupID * 256 + e] + (push.accumulate != 0 ? outputs[to] : 0.0);
  }
}

void main() {
  uint tid = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID, own = gl_SubgroupID * 256;
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
    [[unroll]] for (uint k = 0; k < SLICE8; k += 4) {
      MATRIX_A a[2][TILES_N];
      [[unroll]] for (uint i = 0; i < TILES_N; i++) {
        uint place = (own_n + 16 * i + lane / 4) * SLICE8 + k + lane % 4;
        uvec4 low = slices[place], high = slices[place + 8 * SLICE8];
        UNPACK(a[0][i], uvec4(low.xy, high.xy));
        UNPACK(a[1][i], uvec4(low.zw, high.zw));
      }
      [[unroll]] for (uint j = 0; j < TILES_W; j++) {
        uint place = W_ROWS + (own_w + 16 * j + dim_at(lane / 4)) * SLICE8 + k + lane % 4;
        uvec4 low = slices[place], high = slices[place + 2 * SLICE8];  // dim_at(8 + x) is two behind dim_at(x)
        MATRIX_B b[2];
        UNPACK(b[0], uvec4(low.xy, high.xy));
        UNPACK(b[1], uvec4(low.zw, high.zw));
        [[unroll]] for (uint h = 0; h < 2; h++)
          [[unroll]] for (uint i = 0; i < TILES_N; i++) s[i][j] = coopMatMulAdd(a[h][i], b[h], s[i][j]);
      }
    }
  }
  uint at = (push.first + n0 + own_n) * push.all_rows + push.row0 + row0 + own_w;
  bool aligned = (push.all_rows | push.row0) % 4 == 0;
  if (aligned && n0 + own_n + OWN_N <= push.n && row0 + own_w + OWN_W <= push.rows) {
    [[unroll]] for (uint i = 0; i < TILES_N; i++)
      [[unroll]] for (uint j = 0; j < TILES_W; j++) {
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
          uint to = (at + (16 * i + row_at(r)) * push.all_rows + 16 * j + own_dims()) / 4;
          vec4 row = vec4(s[i][j][4 * r], s[i][j][4 * r + 1], s[i][j][4 * r + 2], s[i][j][4 * r + 3]);
          if (push.accumulate != 0) row += outputs4[to];
          outputs4[to] = row;
        }
      }
  } else {
    EDGES(0) EDGES(1) EDGES(2) EDGES(3)
  }
}
