#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// softmax_branch.comp for f16 keys and values; with LINEAR it merges what linear_branch_coopmat.comp left. Each subgroup owns 16
// queries, whose logits, weights and results stay in registers; keys and values come from memory as tiles in the order of the
// registers (tiles.comp), so that subgroups do not wait for each other. The block begins at a multiple of 64. Slower on an H200:
// 2 or 3 tiles of keys at a time, 8, 12 or 16 subgroups, 32 queries a subgroup (the driver spills) or a pair of them, touching the
// lines of the next step ahead, loops of their own for steps with and without a mask.
// Groups: x = 64 queries, y = head; with LINEAR x = head, y = 64 queries: rows of all heads are read and written together.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
#ifdef LINEAR
#define CHUNK 64
#endif
#include "attention_sets.glsl"
#include "tile_rows.glsl"
const uint D = DIM;
#include "register_tiles.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { uvec4 queries[]; };   // query_tile
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 keys[]; };      // tiles.comp
layout(set = 0, binding = 2) readonly buffer b2 { uvec4 values[]; };
layout(set = 0, binding = 3) writeonly buffer b3 { vec4 outputs[]; };   // (n, H D)
#ifdef LINEAR
layout(set = 0, binding = 4) readonly buffer b4 { uvec4 linear[]; };    // linear_branch_coopmat.comp
layout(set = 0, binding = 5) readonly buffer b5 { float normalizers[]; };  // feature_map_coopmat.comp
layout(set = 0, binding = 6) readonly buffer b6 { vec4 gate[]; };      // (n, H D)
#include "linear_tiles.glsl"
#endif

const float LOWEST = -1e30;  // a maximum of nothing: finite, so that differences are numbers
const uint KEY_TILES = 4, KEYS = 16 * KEY_TILES, STEP = KEY_TILES * DIM_TILES * 32;

void main() {
  uint lane = gl_SubgroupInvocationID;
  // the last queries see the most keys: they go first
#ifdef LINEAR
  uint head = gl_WorkGroupID.x, group = gl_NumWorkGroups.y - 1 - gl_WorkGroupID.y;
#else
  uint head = gl_WorkGroupID.y, group = gl_NumWorkGroups.x - 1 - gl_WorkGroupID.x;
#endif
  uint t = push.start + 64 * group + 16 * gl_SubgroupID, last = push.start + push.count - 1;
  if (t > last) return;

  MATRIX_A x[DIM_TILES];
  uint query = query_tile(head, (t - push.start) / 16) + lane;
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++) UNPACK(x[k], queries[query + 32 * k]);
  MATRIX_SUM acc[DIM_TILES];
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j] = MATRIX_SUM(0.0);
  float most[ROWS], total[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    most[r] = LOWEST;
    total[r] = 0;
  }

  // of the first and the last of this subgroup's queries; keys count from the first tile's
  uint own_first = min(t, last), own_last = min(t + 15, last), kept_all = kept_visible(own_first), kept_any = kept_visible(own_last);
  uint near_any = near_begin(own_first), near_all = near_begin(own_last), begin = push.base + (near_any - push.base) / KEYS * KEYS;
  uint kept_steps = (kept_any + KEYS - 1) / KEYS, steps = kept_steps + (own_last - begin) / KEYS + 1;
  uint at = kept_tile(route_head(head), 0) + lane;
  [[dont_unroll]] for (uint i = 0; i < steps; i++) {
    bool old = i < kept_steps;
    if (i == kept_steps) at = near_tile(kv_head(head), (begin - push.base) / 16) + lane;
    uint key0 = old ? KEYS * i : begin + KEYS * (i - kept_steps);
    MATRIX_SUM s[KEY_TILES];
    [[unroll]] for (uint j = 0; j < KEY_TILES; j++) s[j] = MATRIX_SUM(0.0);
    [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
      [[unroll]] for (uint j = 0; j < KEY_TILES; j++) {
#ifdef LINEAR
        if (k == DIM_TILES / 2 && j == 0) subgroupBarrier();  // else the driver has more loads on their way than registers
#endif
        MATRIX_B b;
        UNPACK(b, keys[at + (j * DIM_TILES + k) * 32]);
        s[j] = coopMatMulAdd(x[k], b, s[j]);
      }
    if (key0 + KEYS > (old ? kept_all : own_first + 1) || (!old && key0 < near_all)) {
#ifdef LINEAR
      // the first near key is that of a step
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
        int seen = int((old ? kept_all : t + row_of(e) + 1) - key0) - int(column_of(0));
        [[unroll]] for (uint j = 0; j < KEY_TILES; j++)
          if (int(16 * j + e % 2 + 8 * (e / 2 % 2)) >= seen) s[j][e] = MINUS_INFINITY;
      }
#else
      uint first[ROWS], visible[ROWS];
      [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint own_t = min(t + row_at(r), last);
        first[r] = old ? 0 : near_begin(own_t);
        visible[r] = (old ? kept_visible(own_t) : own_t + 1) - first[r];
      }
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
        [[unroll]] for (uint j = 0; j < KEY_TILES; j++)
          if (key0 + 16 * j + column_of(e) - first[own(e)] >= visible[own(e)]) s[j][e] = MINUS_INFINITY;  // also before first
#endif
    }
    float now[ROWS] = most;
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
      [[unroll]] for (uint j = 0; j < KEY_TILES; j++) now[own(e)] = max(now[own(e)], s[j][e]);
    row_max(now);
    // always, also by 1: a branch costs more, because the sums would have to lie in the same registers on both sides
    float factor[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
      factor[r] = exp2(most[r] - now[r]);
      most[r] = now[r];
      total[r] *= factor[r];
    }
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
      [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j][e] *= factor[own(e)];
    MATRIX_A p[KEY_TILES];
    [[unroll]] for (uint j = 0; j < KEY_TILES; j++)
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
        float weight = exp2(s[j][e] - now[own(e)]);
        total[own(e)] += weight;
        p[j][e] = float16_t(weight);
      }
    [[unroll]] for (uint k = 0; k < KEY_TILES; k++)
      [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
        MATRIX_B b;
        UNPACK(b, values[at + (k * DIM_TILES + j) * 32]);
        acc[j] = coopMatMulAdd(p[k], b, acc[j]);
      }
    at += STEP;
  }
  row_sum(total);

  uint rows0[ROWS];  // of the outputs, in vec4
  [[unroll]] for (uint r = 0; r < ROWS; r++)
    rows0[r] = ((input_row(min(t + row_at(r), last)) * push.heads + head) * DIM + own_dims()) / 4;
#ifdef LINEAR
  uint chunk = t / 64;
  if (chunk >= push.route_first + 2) {
    chunk -= push.route_first + 2;
    [[unroll]] for (uint r = 0; r < ROWS; r++)
      total[r] += normalizers[(chunk * push.heads + head) * 64 + t % 64 + row_at(r)];
    float factor = tokens_of(chunk) / STILL_FEATURE_SCALE;
    bool gated = (push.flags & STILL_FLAG_GATE) != 0;
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      uvec4 w = linear[linear_tile(chunk, head) + (t % 64 / 16 * DIM_TILES + j) * 32 + lane];
      [[unroll]] for (uint r = 0; r < ROWS; r++) {
        vec4 y = factor * vec4(unpackHalf2x16(w[2 * r]), unpackHalf2x16(w[2 * r + 1]));
        if (gated) y *= gate[rows0[r] + 4 * j];
        [[unroll]] for (uint n = 0; n < 4; n++) acc[j][4 * r + n] += y[n];
      }
    }
  }
#endif

  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    float factor = 1.0 / total[r];
    bool inside = t + row_at(r) <= last;
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      vec4 row = factor * vec4(acc[j][4 * r], acc[j][4 * r + 1], acc[j][4 * r + 2], acc[j][4 * r + 3]);
      if (inside) outputs[rows0[r] + 4 * j] = row;
    }
  }
}
