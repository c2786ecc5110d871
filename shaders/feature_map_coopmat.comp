#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// feature_map.comp by cooperative matrices, STILL_FEATURE_SCALE phi as f16 in the order of the registers (tile_rows.glsl): of the
// queries that see a state as MATRIX_A, and with them the denominators of the linear branch; with KEYS of the routed chunks' keys
// as MATRIX_B, times the mask, made as the transposed product, and their sums.
// Each subgroup takes 16 rows. Groups: x = routed chunk, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
#include "attention_sets.glsl"
#include "tile_rows.glsl"
const uint D = DIM;
#include "register_tiles.glsl"
#include "linear_tiles.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { uvec4 map[]; };      // A (H, D, D) in tiles, as MATRIX_B
layout(set = 0, binding = 1) writeonly buffer b1 { uvec4 features[]; };  // linear_tiles.glsl
#ifdef KEYS
layout(set = 0, binding = 2) readonly buffer b2 { uvec4 keys[]; };     // tiles.comp
layout(set = 0, binding = 3) writeonly buffer b3 { float sums[]; };    // (chunks, H, F)
layout(set = 0, binding = 4) readonly buffer b4 { float mask[]; };     // (R, rows)
#define X MATRIX_B
#define X_FACTOR 1.0  // of x
shared float parts[4][2 * DIM];  // of the sums, by subgroups
const uint OWNED = 4;            // rows of x whose features an invocation has
uint owned(uint e) { return e % 4; }
void owned_sum(inout float x[OWNED]) {
  [[unroll]] for (uint r = 0; r < OWNED; r++)
    [[unroll]] for (uint n = 2; n < 5; n++) x[r] += subgroupShuffleXor(x[r], 1 << n);
}
void owned_max(inout float x[OWNED]) {
  [[unroll]] for (uint r = 0; r < OWNED; r++)
    [[unroll]] for (uint n = 2; n < 5; n++) x[r] = max(x[r], subgroupShuffleXor(x[r], 1 << n));
}
#else
layout(set = 0, binding = 2) readonly buffer b2 { uvec4 queries[]; };  // query_tile
layout(set = 0, binding = 3) readonly buffer b3 { vec2 sums[]; };      // linear_prefix_coopmat.comp
layout(set = 0, binding = 4) writeonly buffer b4 { float normalizers[]; };  // (chunks, H, 64)
#define X MATRIX_A
#define X_FACTOR query_factor()
const uint OWNED = ROWS;
uint owned(uint e) { return own(e); }
#define owned_sum row_sum
#define owned_max row_max
#endif

// Squares of the norms of the rows of x. The elements of x lie in rows in either case.
void square_norms(X x[DIM_TILES], out float norms[OWNED]) {
  float sums[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; r++) sums[r] = 0;
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    [[unroll]] for (uint k = 0; k < DIM_TILES; k++) sums[own(e)] += float(x[k][e]) * float(x[k][e]);
  row_sum(sums);
#ifdef KEYS
  [[unroll]] for (uint r = 0; r < OWNED; r++) norms[r] = subgroupShuffle(sums[r / 2], 4 * (column_of(r) % 8));
#else
  norms = sums;
#endif
}

void main() {
  uint lane = gl_SubgroupInvocationID, head = gl_WorkGroupID.y, chunk = push.route_first + gl_WorkGroupID.x;
  X x[DIM_TILES];
#ifdef KEYS
  uint row = 64 * chunk - push.base + 16 * gl_SubgroupID, at = near_tile(kv_head(head), row / 16) + lane;
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++) UNPACK(x[k], keys[at + 32 * k]);
#else
  uint at = query_tile(head, (64 * (chunk + 2) - push.start) / 16 + gl_SubgroupID) + lane;
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++) UNPACK(x[k], queries[at + 32 * k]);
#endif
  float norms[OWNED];
  square_norms(x, norms);
  MATRIX_SUM u[DIM_TILES];
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) u[j] = MATRIX_SUM(0.0);
  uint map0 = head * DIM * DIM8 + lane;
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
#ifdef KEYS
      MATRIX_A a;
      UNPACK(a, map[map0 + (k * DIM_TILES + j) * 32]);
      u[j] = coopMatMulAdd(a, x[k], u[j]);
#else
      MATRIX_B b;
      UNPACK(b, map[map0 + (k * DIM_TILES + j) * 32]);
      u[j] = coopMatMulAdd(x[k], b, u[j]);
#endif
    }

  float squares[OWNED], most[OWNED], least[OWNED], scale[OWNED], sum_a[OWNED], sum_b[OWNED];
  [[unroll]] for (uint r = 0; r < OWNED; r++) {
    squares[r] = sum_a[r] = sum_b[r] = 0;
    most[r] = least[r] = -1e38;
  }
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      squares[owned(e)] += u[j][e] * u[j][e];
      most[owned(e)] = max(most[owned(e)], u[j][e]);
      least[owned(e)] = max(least[owned(e)], -u[j][e]);
    }
  owned_sum(squares);
  owned_max(most);
  owned_max(least);
  [[unroll]] for (uint r = 0; r < OWNED; r++) {
    float length_ = (push.flags & STILL_FLAG_NORM) != 0 ? sqrt(norms[r]) / max(sqrt(squares[r]), TINY) : 1.0;
    scale[r] = LOG2E * length_ / X_FACTOR;
    most[r] *= scale[r];
    least[r] *= scale[r];
  }
  float opposite[DIM_TILES][ELEMENTS];
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      float y = scale[owned(e)] * u[j][e];
      u[j][e] = exp2(y - most[owned(e)]);
      opposite[j][e] = exp2(-y - least[owned(e)]);
      sum_a[owned(e)] += u[j][e];
      sum_b[owned(e)] += opposite[j][e];
    }
  owned_sum(sum_a);
  owned_sum(sum_b);
  [[unroll]] for (uint r = 0; r < OWNED; r++) {
    float factor = STILL_FEATURE_SCALE;
#ifdef KEYS
    factor *= mask[route_head(head) * push.rows + row + column_of(r)];
#endif
    sum_a[r] = factor / sum_a[r];
    sum_b[r] = factor / sum_b[r];
  }
  uint to = feature_half(gl_WorkGroupID.x, head, 0) + gl_SubgroupID * DIM_TILES * 32 + lane;
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
      u[j][e] *= sum_a[owned(e)];
      opposite[j][e] *= sum_b[owned(e)];
    }
    uvec4 a, b;
    [[unroll]] for (uint n = 0; n < 4; n++) {
      a[n] = packHalf2x16(vec2(u[j][2 * n], u[j][2 * n + 1]));
      b[n] = packHalf2x16(vec2(opposite[j][2 * n], opposite[j][2 * n + 1]));
    }
    features[to + 32 * j] = a;
    features[to + 32 * j + HALF] = b;
  }
  uint z = (gl_WorkGroupID.x * push.heads + head) * 2 * DIM;
#ifdef KEYS
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
    float a[ROWS], b[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
      a[r] = u[j][4 * r] + u[j][4 * r + 1] + u[j][4 * r + 2] + u[j][4 * r + 3];
      b[r] = opposite[j][4 * r] + opposite[j][4 * r + 1] + opposite[j][4 * r + 2] + opposite[j][4 * r + 3];
    }
    // each of the four invocations of a row gets one of four sums
    bool second = lane % 2 != 0, opposites = lane % 4 > 1;
    float own_a = (second ? a[1] : a[0]) + subgroupShuffleXor(second ? a[0] : a[1], 1);
    float own_b = (second ? b[1] : b[0]) + subgroupShuffleXor(second ? b[0] : b[1], 1);
    parts[gl_SubgroupID][(opposites ? DIM : 0) + 16 * j + row_at(second ? 1 : 0)] =
        (opposites ? own_b : own_a) + subgroupShuffleXor(opposites ? own_a : own_b, 2);
  }
  barrier();
  for (uint f = gl_LocalInvocationID.x; f < 2 * DIM; f += STILL_GROUP)
    sums[z + f] = (parts[0][f] + parts[1][f] + parts[2][f] + parts[3][f]) / STILL_FEATURE_SCALE;
#else
  float below[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; r++) below[r] = 0;
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++)
    [[unroll]] for (uint n = 0; n < 4; n += 2) {
      vec2 a = sums[(z + 16 * j + column_of(n)) / 2], b = sums[(z + DIM + 16 * j + column_of(n)) / 2];
      [[unroll]] for (uint r = 0; r < ROWS; r++)
        below[r] += u[j][4 * r + n] * a.x + u[j][4 * r + n + 1] * a.y + opposite[j][4 * r + n] * b.x + opposite[j][4 * r + n + 1] * b.y;
    }
  row_sum(below);
  if (lane % 4 == 0)
    [[unroll]] for (uint r = 0; r < ROWS; r++)
      normalizers[(gl_WorkGroupID.x * push.heads + head) * 64 + 16 * gl_SubgroupID + row_at(r)] = below[r] / STILL_FEATURE_SCALE;
#endif
}
