#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// softmax_branch.comp for f16 keys and values. Each subgroup owns 16 queries, whose logits, weights and results stay in
// registers. Weights are taken against a reference that follows the row's maximum only when that has moved by more than LAG,
// so rows seldom talk; the end knows the true maximum. The block begins at a multiple of 64.
// Groups: x = tile of QUERIES queries, y = head.
#define GROUP STILL_WIDE_GROUP
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
#include "attention_sets.glsl"
const uint SUBGROUPS = GROUP / 32, QUERIES = 16 * SUBGROUPS;
#include "tile_rows.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };          // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 kept_k[]; };    // (R, kept_rows, D)
layout(set = 0, binding = 2) readonly buffer b2 { uvec4 kept_v[]; };
layout(set = 0, binding = 3) readonly buffer b3 { uvec4 work_k[]; };    // (G, rows, D)
layout(set = 0, binding = 4) readonly buffer b4 { uvec4 work_v[]; };
layout(set = 0, binding = 5) readonly buffer b5 { float linear[]; };    // (H, rows, D), then (H, rows)
layout(set = 0, binding = 6) readonly buffer b6 { float gate[]; };      // (n, H D)
layout(set = 0, binding = 7) writeonly buffer b7 { float outputs[]; };  // (n, H D)

const float LAG = 8.0;                        // weights up to 2^8 are safe in f16
const float LOWEST = -1e30;                   // a maximum of nothing: finite, so that differences are numbers
const uint STAGED = 64 * DIM8 / GROUP;  // uvec4 of a tile of keys that an invocation moves
const uint VALUES = 64 * KEY_ROW / 8;         // where the values begin in tile
shared uvec4 tile[2 * VALUES];                // keys and values; first the queries

uvec4 staged[STAGED];

// Tile i of the keys or values on its way: first the kept ones, then the near ones.
#define FETCH(name, kept, work)                                                                     \
  void name(uint tid, uint i, uint kept_tiles, uint kept0, uint near0, uint begin, uint end, uint kept_end) { \
    bool old = i < kept_tiles;                                                                      \
    uint key0 = old ? 64 * i : begin + 64 * (i - kept_tiles);                                       \
    uint from = old ? 0 : push.base, to = old ? kept_end : end;                                     \
    [[unroll]] for (uint n = 0; n < STAGED; n++) {                                                  \
      uint at = tid + n * GROUP, key = key0 + at / DIM8;                                      \
      uvec4 x = uvec4(0);                                                                           \
      if (key >= from && key < to)                                                                  \
        x = old ? kept[(kept0 + key) * DIM8 + at % DIM8] : work[(near0 + key - from) * DIM8 + at % DIM8]; \
      staged[n] = x;                                                                                \
    }                                                                                               \
  }
FETCH(fetch_keys, kept_k, work_k)
FETCH(fetch_values, kept_v, work_v)

void put_staged(uint tid, uint to) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) {
    uint at = tid + n * GROUP;
    tile[to + at / DIM8 * (KEY_ROW / 8) + at % DIM8] = staged[n];
  }
}

#define LOAD(m, at, layout_) coopMatLoad(m, tile, (at) / 8, KEY_ROW / 8, layout_)

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, kv = kv_head(head);
  uint row0 = 16 * gl_SubgroupID;
  // the last tiles see the most keys: they go first
  uint t0 = push.start + (gl_NumWorkGroups.x - 1 - gl_WorkGroupID.x) * QUERIES;
  uint last = push.start + push.count - 1, t_last = min(t0 + QUERIES - 1, last);
  find_places();

  const float LOG2E = 1.4426950408889634;
  float q_scale = push.scale * LOG2E;
  [[unroll]] for (uint n = 0; n < QUERIES * DIM / 4 / GROUP; n++) {
    uint i = tid + n * GROUP, r = i / (DIM / 4), c = i % (DIM / 4), t = t0 + r;
    vec4 a = t <= last ? q_scale * q[((push.row0 + t - push.start) * push.heads + head) * (DIM / 4) + c] : vec4(0);
    uvec2 halves = uvec2(packFloat2x16(f16vec2(a.xy)), packFloat2x16(f16vec2(a.zw)));
    uint at = r * (KEY_ROW / 8) + c / 2;
    if (c % 2 == 0) tile[at].xy = halves;
    else tile[at].zw = halves;
  }
  barrier();
  MATRIX_A x[DIM_TILES];
  [[unroll]] for (uint k = 0; k < DIM_TILES; k++) LOAD(x[k], row0 * KEY_ROW + 16 * k, ROW_MAJOR);
  MATRIX_SUM acc[DIM_TILES];
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j] = MATRIX_SUM(0.0);
  float reference[ELEMENTS], most[ELEMENTS], total[ELEMENTS];
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    reference[e] = most[e] = LOWEST;
    total[e] = 0;
  }

  uint kept0 = route_head(head) * push.kept_rows, near0 = kv * push.rows, end = t_last + 1;
  uint kept_end = kept_visible(t_last), kept_tiles = (kept_end + 63) / 64;
  uint begin = near_begin(t0) / 64 * 64;
  // what all, and what any of this subgroup's queries see
  uint own_first = min(t0 + row0, last), own_last = min(own_first + 15, last);
  uint kept_all = kept_visible(own_first), kept_any = kept_visible(own_last);
  uint near_all = near_begin(own_last), near_any = near_begin(own_first);
  uint tiles = kept_tiles + (end - begin + 63) / 64;
  fetch_keys(tid, 0, kept_tiles, kept0, near0, begin, end, kept_end);
  barrier();
  for (uint i = 0; i < tiles; i++) {
    put_staged(tid, 0);
    barrier();
    fetch_values(tid, i, kept_tiles, kept0, near0, begin, end, kept_end);
    bool old = i < kept_tiles;
    uint key0 = old ? 64 * i : begin + 64 * (i - kept_tiles);
    bool all_ = old ? key0 + 64 <= kept_all : key0 >= near_all && key0 + 63 <= own_first;
    bool any_ = old ? key0 < kept_any : key0 + 63 >= near_any && key0 <= own_last;
    MATRIX_A p[4];
    if (any_) {
      MATRIX_SUM s[4];
      [[unroll]] for (uint j = 0; j < 4; j++) s[j] = MATRIX_SUM(0.0);
      [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
        [[unroll]] for (uint j = 0; j < 4; j++) {
          MATRIX_B b;
          LOAD(b, 16 * j * KEY_ROW + 16 * k, COLUMN_MAJOR);
          s[j] = coopMatMulAdd(x[k], b, s[j]);
        }
      if (!all_) {
        [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
          uint t = min(t0 + row0 + row_of(e), last);
          uint first = old ? 0 : near_begin(t), visible = (old ? kept_visible(t) : t + 1) - first;
          [[unroll]] for (uint j = 0; j < 4; j++)
            if (key0 + 16 * j + column_of(e) - first >= visible) s[j][e] = MINUS_INFINITY;  // also before first
        }
      }
      bool moves = false;
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
        most[e] = max(most[e], max(max(s[0][e], s[1][e]), max(s[2][e], s[3][e])));
        moves = moves || most[e] > reference[e] + LAG;
      }
      if (subgroupAny(moves)) {
        float now[ELEMENTS] = most;
        row_max(now);
        [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
          float factor = exp2(reference[e] - now[e]);
          reference[e] = now[e];
          total[e] *= factor;
          [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j][e] *= factor;
        }
      }
      [[unroll]] for (uint j = 0; j < 4; j++)
        [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
          float weight = exp2(s[j][e] - reference[e]);
          total[e] += weight;
          p[j][e] = float16_t(weight);
        }
    }
    put_staged(tid, VALUES);
    if (i + 1 < tiles) fetch_keys(tid, i + 1, kept_tiles, kept0, near0, begin, end, kept_end);
    barrier();
    if (any_)
      [[unroll]] for (uint k = 0; k < 4; k++)
        [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
          MATRIX_B b;
          LOAD(b, VALUES * 8 + 16 * k * KEY_ROW + 16 * j, ROW_MAJOR);
          acc[j] = coopMatMulAdd(p[k], b, acc[j]);
        }
  }
  row_sum(total);
  row_max(most);
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    float correct = exp2(reference[e] - most[e]);
    total[e] *= correct;
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j][e] *= correct;
  }

  uint stride = push.heads * DIM;
  uint at0 = (push.row0 + t0 + row0 - push.start) * stride + head * DIM;  // of this subgroup's rows
  uint linear0 = head * push.rows + t0 + row0 - push.start;
  bool inside = t0 + row0 + 15 <= last;
  if ((push.flags & STILL_FLAG_LINEAR) != 0) {
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
      if (t0 + row0 + row_of(e) <= last) total[e] += linear[push.heads * push.rows * DIM + linear0 + row_of(e)];
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      MATRIX_SUM g = MATRIX_SUM(1.0), y = MATRIX_SUM(0.0);
      bool gated = (push.flags & STILL_FLAG_GATE) != 0;
      if (inside) {
        coopMatLoad(y, linear, linear0 * DIM + 16 * j, DIM, ROW_MAJOR);
        if (gated) coopMatLoad(g, gate, at0 + 16 * j, stride, ROW_MAJOR);
      } else {
        [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
          if (t0 + row0 + row_of(e) > last) continue;
          y[e] = linear[(linear0 + row_of(e)) * DIM + 16 * j + column_of(e)];
          if (gated) g[e] = gate[at0 + 16 * j + row_of(e) * stride + column_of(e)];
        }
      }
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++) acc[j][e] += g[e] * y[e];
    }
  }

  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    float factor = 1.0 / total[e];
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j][e] *= factor;
  }
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
    if (inside) coopMatStore(acc[j], outputs, at0 + 16 * j, stride, ROW_MAJOR);
    else
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
        if (t0 + row0 + row_of(e) <= last) outputs[at0 + 16 * j + row_of(e) * stride + column_of(e)] = acc[j][e];
  }
}
