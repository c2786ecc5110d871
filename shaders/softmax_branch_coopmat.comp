#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// softmax_branch.comp for f16 keys and values; with LINEAR also feature_map.comp of the queries and linear_branch.comp, with f16
// features and states (linear_prefix_coopmat.comp). Each subgroup owns 16 queries, whose logits, weights, features and results
// stay in registers. Weights are taken against a reference that follows the row's maximum only when that has moved by more than
// LAG, so rows seldom talk; the end knows the true maximum. The block begins at a multiple of 64.
// Little shared memory, so that several workgroups share a processor (an H200 has about 64 KB for all of them). Slower there:
// 32 queries a subgroup, two tiles of keys and values in turn, with LINEAR 12 subgroups a workgroup or tiles of 48 keys.
// Groups: x = tile of QUERIES queries, with LINEAR a chunk; y = head.
#ifdef LINEAR
#define GROUP STILL_GROUP
#define KEYS 32
#else
#define GROUP STILL_SOFTMAX_GROUP
#define KEYS 48
#endif
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
#include "attention_sets.glsl"
const uint QUERIES = GROUP / 2;  // 16 of 32 invocations
#include "tile_rows.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { float q[]; };         // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 kept_k[]; };    // (R, kept_rows, D)
layout(set = 0, binding = 2) readonly buffer b2 { uvec4 kept_v[]; };
layout(set = 0, binding = 3) readonly buffer b3 { uvec4 work_k[]; };    // (G, rows, D)
layout(set = 0, binding = 4) readonly buffer b4 { uvec4 work_v[]; };
#ifdef LINEAR
layout(set = 0, binding = 5) readonly buffer b5 { uvec4 states[]; };    // (slots, H, F D + F)
layout(set = 0, binding = 6) readonly buffer b6 { float gate[]; };      // (n, H D)
#endif
layout(set = 0, binding = 7) writeonly buffer b7 { float outputs[]; };  // (n, H D)
#ifdef LINEAR
layout(set = 0, binding = 8) readonly buffer b8 { uvec4 map[]; };       // A (H, D, D)
#endif
#include "query_tiles.glsl"

const float LAG = 8.0;                      // weights up to 2^8 are safe in f16
const float LOWEST = -1e30;                 // a maximum of nothing: finite, so that differences are numbers
const uint KEY_TILES = KEYS / 16, ROW8 = KEY_ROW / 8;
const uint STAGED = KEYS * DIM8 / GROUP;    // uvec4 of a tile of keys that an invocation moves
#ifdef LINEAR
const uint F = 2 * DIM, PARTS = 4;                                // parts of the columns of a state
const uint PART8 = DIM / (8 * PARTS), PART_ROW8 = PART8 + 1;      // a row of a part, and its pitch with room for z
const uint MAP_ROWS = 32, STATE_ROWS = 32 * PARTS;                // of the map and of a part that are multiplied at a time
const uint STATE_TILES = F / STATE_ROWS, STAGED_LINEAR = MAP_ROWS * DIM8 / GROUP;
const uint SECOND = max(KEYS * ROW8, STATE_ROWS * PART_ROW8);     // where the second tile begins
#else
const uint SECOND = KEYS * ROW8;
#endif
shared uvec4 tile[2 * SECOND + 1];          // keys and values; pieces of the map and of the state in turn

uvec4 staged[STAGED];

// Tile i of the keys or values on its way: first the kept ones, then the near ones.
#define FETCH(name, kept, work)                                                                     \
  void name(uint tid, uint i, uint kept_tiles, uint kept0, uint near0, uint begin, uint end, uint kept_end) { \
    bool old = i < kept_tiles;                                                                      \
    uint key0 = old ? KEYS * i : begin + KEYS * (i - kept_tiles);                                   \
    uint from = old ? 0 : push.base, to = old ? kept_end : end;                                     \
    [[unroll]] for (uint n = 0; n < STAGED; n++) {                                                  \
      uint at = tid + n * GROUP, key = key0 + at / DIM8;                                            \
      uvec4 x = uvec4(0);                                                                           \
      if (key >= from && key < to)                                                                  \
        x = old ? kept[(kept0 + key) * DIM8 + at % DIM8] : work[(near0 + key - from) * DIM8 + at % DIM8]; \
      staged[n] = x;                                                                                \
    }                                                                                               \
  }
FETCH(fetch_keys, kept_k, work_k)
FETCH(fetch_values, kept_v, work_v)

void put_keys(uint tid, uint to) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) {
    uint at = tid + n * GROUP;
    tile[to + at / DIM8 * ROW8 + at % DIM8] = staged[n];
  }
}

#ifdef LINEAR
// MAP_ROWS rows of the map.
void fetch_map(uint tid, uint from) {
  [[unroll]] for (uint n = 0; n < STAGED_LINEAR; n++) staged[n] = map[from + tid + n * GROUP];
}
void put_map(uint tid, uint to) {
  [[unroll]] for (uint n = 0; n < STAGED_LINEAR; n++) {
    uint at = tid + n * GROUP;
    tile[to + at / DIM8 * ROW8 + at % DIM8] = staged[n];
  }
}
// STATE_ROWS rows of a part of the columns of a state, and as many values of z, which go into the padding of the rows.
uvec4 z;
void fetch_state(uint tid, uint from) {
  [[unroll]] for (uint n = 0; n < STAGED_LINEAR; n++) {
    uint at = tid + n * GROUP;
    staged[n] = states[from + at / PART8 * DIM8 + at % PART8];
  }
}
void put_state(uint tid, uint to) {
  [[unroll]] for (uint n = 0; n < STAGED_LINEAR; n++) {
    uint at = tid + n * GROUP;
    tile[to + at / PART8 * PART_ROW8 + at % PART8] = staged[n];
  }
}
void fetch_normalizer(uint tid, uint from) { z = states[from + tid % (STATE_ROWS / 8)]; }
void put_normalizer(uint tid, uint to) {
  if (tid < STATE_ROWS / 8)
    [[unroll]] for (uint n = 0; n < 8; n++)
      tile[to + (8 * tid + n) * PART_ROW8 + PART8] = uvec4(n % 2 == 0 ? z[n / 2] & 0xffffu : z[n / 2] >> 16, 0, 0, 0);
}
#endif

#define LOAD(m, at, layout_) coopMatLoad(m, tile, (at) / 8, ROW8, layout_)

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, kv = kv_head(head);
  uint row0 = 16 * gl_SubgroupID;
  // the last tiles see the most keys: they go first
  uint t0 = push.start + (gl_NumWorkGroups.x - 1 - gl_WorkGroupID.x) * QUERIES;
  uint last = push.start + push.count - 1, t_last = min(t0 + QUERIES - 1, last);

  const float LOG2E = 1.4426950408889634;
  float x_scale = push.scale * LOG2E;
  MATRIX_A x[DIM_TILES];
  load_queries(t0 + row0, head, x_scale, x);
  MATRIX_SUM acc[DIM_TILES];
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j] = MATRIX_SUM(0.0);
  float reference[ROWS], most[ROWS], total[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    reference[r] = most[r] = LOWEST;
    total[r] = 0;
  }

  uint kept0 = route_head(head) * push.kept_rows, near0 = kv * push.rows, end = t_last + 1;
  uint kept_end = kept_visible(t_last), kept_tiles = (kept_end + KEYS - 1) / KEYS;
  uint begin = near_begin(t0) / 64 * 64;
  // what all, and what any of this subgroup's queries see
  uint own_first = min(t0 + row0, last), own_last = min(own_first + 15, last);
  uint kept_all = kept_visible(own_first), kept_any = kept_visible(own_last);
  uint near_all = near_begin(own_last), near_any = near_begin(own_first);
  uint tiles = kept_tiles + (end - begin + KEYS - 1) / KEYS;
#ifdef LINEAR
  uint map0 = head * DIM * DIM8, chunk = t0 / 64, slot = chunk > push.route_first ? chunk - 1 - push.route_first : 0;
  uint state0 = (slot * push.heads + head) * F * (DIM + 1) / 8;
#endif
  fetch_keys(tid, 0, kept_tiles, kept0, near0, begin, end, kept_end);
  for (uint i = 0; i < tiles; i++) {
    put_keys(tid, 0);
    barrier();
    fetch_values(tid, i, kept_tiles, kept0, near0, begin, end, kept_end);
    bool old = i < kept_tiles;
    uint key0 = old ? KEYS * i : begin + KEYS * (i - kept_tiles);
    bool all_ = old ? key0 + KEYS <= kept_all : key0 >= near_all && key0 + KEYS - 1 <= own_first;
    bool any_ = old ? key0 < kept_any : key0 + KEYS - 1 >= near_any && key0 <= own_last;
    MATRIX_A p[KEY_TILES];
    if (any_) {
      MATRIX_SUM s[KEY_TILES];
      [[unroll]] for (uint j = 0; j < KEY_TILES; j++) s[j] = MATRIX_SUM(0.0);
      [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
        [[unroll]] for (uint j = 0; j < KEY_TILES; j++) {
          MATRIX_B b;
          LOAD(b, 16 * j * KEY_ROW + 16 * k, COLUMN_MAJOR);
          s[j] = coopMatMulAdd(x[k], b, s[j]);
        }
      if (!all_) {
        [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
          uint t = min(t0 + row0 + row_of(e), last);
          uint first = old ? 0 : near_begin(t), visible = (old ? kept_visible(t) : t + 1) - first;
          [[unroll]] for (uint j = 0; j < KEY_TILES; j++)
            if (key0 + 16 * j + column_of(e) - first >= visible) s[j][e] = MINUS_INFINITY;  // also before first
        }
      }
      bool moves = false;
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
        [[unroll]] for (uint j = 0; j < KEY_TILES; j++) most[own(e)] = max(most[own(e)], s[j][e]);
      [[unroll]] for (uint r = 0; r < ROWS; r++) moves = moves || most[r] > reference[r] + LAG;
      if (subgroupAny(moves)) {
        float now[ROWS] = most, factor[ROWS];
        row_max(now);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
          factor[r] = exp2(reference[r] - now[r]);
          reference[r] = now[r];
          total[r] *= factor[r];
        }
        [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
          [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j][e] *= factor[own(e)];
      }
      [[unroll]] for (uint j = 0; j < KEY_TILES; j++)
        [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
          float weight = exp2(s[j][e] - reference[own(e)]);
          total[own(e)] += weight;
          p[j][e] = float16_t(weight);
        }
    }
    put_keys(tid, SECOND);
    if (i + 1 < tiles) fetch_keys(tid, i + 1, kept_tiles, kept0, near0, begin, end, kept_end);
#ifdef LINEAR
    else fetch_map(tid, map0);
#endif
    barrier();
    if (any_)
      [[unroll]] for (uint k = 0; k < KEY_TILES; k++)
        [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
          MATRIX_B b;
          LOAD(b, SECOND * 8 + 16 * k * KEY_ROW + 16 * j, ROW_MAJOR);
          acc[j] = coopMatMulAdd(p[k], b, acc[j]);
        }
  }
  row_sum(total);
  row_max(most);
  float correct[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    correct[r] = exp2(reference[r] - most[r]);
    total[r] *= correct[r];
  }
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j][e] *= correct[own(e)];

  uint stride = push.heads * DIM;
  uint at0 = (push.row0 + t0 + row0 - push.start) * stride + head * DIM;  // of this subgroup's rows
  bool inside = t0 + row0 + 15 <= last;
#ifdef LINEAR
  {
    MATRIX_SUM u[DIM_TILES];
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) u[j] = MATRIX_SUM(0.0);
    [[unroll]] for (uint i = 0; i < DIM / MAP_ROWS; i++) {
      uint to = i % 2 * SECOND;
      put_map(tid, to);
      barrier();
      if (i + 1 < DIM / MAP_ROWS) fetch_map(tid, map0 + (i + 1) * MAP_ROWS * DIM8);
      else {
        fetch_state(tid, state0);
        fetch_normalizer(tid, state0 + F * DIM8);
      }
      [[unroll]] for (uint k = 0; k < MAP_ROWS / 16; k++)
        [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
          MATRIX_B b;
          LOAD(b, to * 8 + 16 * k * KEY_ROW + 16 * j, ROW_MAJOR);
          u[j] = coopMatMulAdd(x[MAP_ROWS / 16 * i + k], b, u[j]);
        }
    }
    MATRIX_A phi[2 * DIM_TILES];
#include "feature_tiles.glsl"
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
      factor_a[r] /= factor_b[r];
      factor_b[r] /= STILL_STATE_SCALE;
    }
    bool gated = (push.flags & STILL_FLAG_GATE) != 0;
    [[unroll]] for (uint c = 0; c < PARTS; c++) {
      // with the first part comes z, in one more column
      const uint TILES = DIM_TILES / PARTS + (c == 0 ? 1 : 0);
      MATRIX_SUM y[DIM_TILES / PARTS + 1];
      [[unroll]] for (uint j = 0; j < TILES; j++) y[j] = MATRIX_SUM(0.0);
      [[unroll]] for (uint i = 0; i < STATE_TILES; i++) {
        const uint turn = DIM / MAP_ROWS + c * STATE_TILES + i;
        uint to = turn % 2 * SECOND;
        put_state(tid, to);
        if (c == 0) put_normalizer(tid, to);
        barrier();
        if (i + 1 < STATE_TILES) {
          fetch_state(tid, state0 + (i + 1) * STATE_ROWS * DIM8 + c * PART8);
          if (c == 0) fetch_normalizer(tid, state0 + F * DIM8 + (i + 1) * STATE_ROWS / 8);
        } else if (c + 1 < PARTS) fetch_state(tid, state0 + (c + 1) * PART8);
        [[unroll]] for (uint k = 0; k < STATE_ROWS / 16; k++) {
          if (STATE_ROWS / 16 * i + k == DIM_TILES)
            [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
              [[unroll]] for (uint j = 0; j < TILES; j++) y[j][e] *= factor_a[own(e)];
          [[unroll]] for (uint j = 0; j < TILES; j++) {
            MATRIX_B b;
            coopMatLoad(b, tile, to + 16 * k * PART_ROW8 + 2 * j, PART_ROW8, ROW_MAJOR);
            y[j] = coopMatMulAdd(phi[STATE_ROWS / 16 * i + k], b, y[j]);
          }
        }
      }
      if (c == 0) {
        float below[ROWS];
        [[unroll]] for (uint r = 0; r < ROWS; r++) below[r] = 0;
        [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
          if (column_of(e) == 0) below[own(e)] += factor_b[own(e)] * y[DIM_TILES / PARTS][e];
        row_sum(below);
        [[unroll]] for (uint r = 0; r < ROWS; r++) total[r] += below[r];
      }
      [[unroll]] for (uint j = 0; j < DIM_TILES / PARTS; j++) {
        uint column = 16 * (c * (DIM_TILES / PARTS) + j);
        MATRIX_SUM g = MATRIX_SUM(1.0);
        if (gated && inside) coopMatLoad(g, gate, at0 + column, stride, ROW_MAJOR);
        else if (gated)
          [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
            if (t0 + row0 + row_of(e) <= last) g[e] = gate[at0 + column + row_of(e) * stride + column_of(e)];
        [[unroll]] for (uint e = 0; e < ELEMENTS; e++) acc[c * (DIM_TILES / PARTS) + j][e] += g[e] * (factor_b[own(e)] * y[j][e]);
      }
    }
  }
#endif

  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    float factor = 1.0 / total[own(e)];
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j][e] *= factor;
  }
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
    if (inside) coopMatStore(acc[j], outputs, at0 + 16 * j, stride, ROW_MAJOR);
    else
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
        if (t0 + row0 + row_of(e) <= last) outputs[at0 + 16 * j + row_of(e) * stride + column_of(e)] = acc[j][e];
  }
}
