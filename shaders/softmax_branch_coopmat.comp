#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// softmax_branch.comp for f16 keys and values; with LINEAR also feature_map.comp of the queries, linear_branch.comp and the merge,
// with f16 features and states (linear_prefix_coopmat.comp). Each subgroup owns 16 queries, whose logits, weights, features and
// results stay in registers; keys and values come from memory as tiles in the order of the registers (tiles.comp), so that
// subgroups do not wait for each other. Weights are taken against a reference that follows the row's maximum only when that has
// moved by more than LAG, so rows seldom talk; the end knows the true maximum. The block begins at a multiple of 64.
// Slower on an H200: 2 tiles of keys at a time, 8 or 16 subgroups, a linear branch of its own, map and states as tiles.
// Groups: x = 64 queries, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
layout(push_constant) uniform block { attention_push push; };
#include "attention_sets.glsl"
#include "tile_rows.glsl"
const uint D = DIM;
#include "register_tiles.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { float q[]; };         // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 keys[]; };      // tiles.comp
layout(set = 0, binding = 2) readonly buffer b2 { uvec4 values[]; };
layout(set = 0, binding = 3) writeonly buffer b3 { float outputs[]; };  // (n, H D)
#ifdef LINEAR
layout(set = 0, binding = 4) readonly buffer b4 { uvec4 states[]; };    // (slots, H, F D + F): linear_prefix_coopmat.comp
layout(set = 0, binding = 5) readonly buffer b5 { float gate[]; };      // (n, H D)
layout(set = 0, binding = 6) readonly buffer b6 { uvec4 map[]; };       // A (H, D, D)
#endif
#include "query_tiles.glsl"

const float LAG = 8.0;       // weights up to 2^8 are safe in f16
const float LOWEST = -1e30;  // a maximum of nothing: finite, so that differences are numbers
const uint KEY_TILES = 4, KEYS = 16 * KEY_TILES, STEP = KEY_TILES * DIM_TILES * 32;

#ifdef LINEAR
const uint F = 2 * DIM, PARTS = 4;                                // parts of the columns of a state
const uint ROW8 = KEY_ROW / 8, PART8 = DIM / (8 * PARTS), PART_ROW8 = PART8 + 1;  // rows of the map and of a part, with room for z
const uint MAP_ROWS = 32, STATE_ROWS = 32 * PARTS;                // of the map and of a part that are multiplied at a time
const uint STATE_TILES = F / STATE_ROWS, STAGED = MAP_ROWS * DIM8 / STILL_GROUP;
const uint SECOND = max(MAP_ROWS * ROW8, STATE_ROWS * PART_ROW8);  // where the second tile begins
shared uvec4 tile[2 * SECOND];                                     // pieces of the map and of the state in turn
uvec4 staged[STAGED];

// MAP_ROWS rows of the map.
void fetch_map(uint tid, uint from) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) staged[n] = map[from + tid + n * STILL_GROUP];
}
void put_map(uint tid, uint to) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) {
    uint at = tid + n * STILL_GROUP;
    tile[to + at / DIM8 * ROW8 + at % DIM8] = staged[n];
  }
}
// STATE_ROWS rows of a part of the columns of a state, and as many values of z, which go into the padding of the rows.
uvec4 z;
void fetch_state(uint tid, uint from) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) {
    uint at = tid + n * STILL_GROUP;
    staged[n] = states[from + at / PART8 * DIM8 + at % PART8];
  }
}
void put_state(uint tid, uint to) {
  [[unroll]] for (uint n = 0; n < STAGED; n++) {
    uint at = tid + n * STILL_GROUP;
    tile[to + at / PART8 * PART_ROW8 + at % PART8] = staged[n];
  }
}
void fetch_normalizer(uint tid, uint from) { z = states[from + tid % (STATE_ROWS / 8)]; }
void put_normalizer(uint tid, uint to) {
  if (tid < STATE_ROWS / 8)
    [[unroll]] for (uint n = 0; n < 8; n++)
      tile[to + (8 * tid + n) * PART_ROW8 + PART8] = uvec4(n % 2 == 0 ? z[n / 2] & 0xffffu : z[n / 2] >> 16, 0, 0, 0);
}
#define LOAD(m, at, layout_) coopMatLoad(m, tile, (at) / 8, ROW8, layout_)
#endif

void main() {
  uint tid = gl_LocalInvocationID.x, lane = gl_SubgroupInvocationID, head = gl_WorkGroupID.y;
  // the last queries see the most keys: they go first
  uint t = push.start + (gl_NumWorkGroups.x - 1 - gl_WorkGroupID.x) * 64 + 16 * gl_SubgroupID;
  uint last = push.start + push.count - 1;
#ifndef LINEAR
  if (t > last) return;
#endif

  const float LOG2E = 1.4426950408889634;
  float x_scale = push.scale * LOG2E;
  MATRIX_A x[DIM_TILES];
  load_queries(t, head, x_scale, x);
  MATRIX_SUM acc[DIM_TILES];
  [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j] = MATRIX_SUM(0.0);
  float reference[ROWS], most[ROWS], total[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    reference[r] = most[r] = LOWEST;
    total[r] = 0;
  }

  // of the first and the last of this subgroup's queries; keys count from the first tile's
  uint own_first = min(t, last), own_last = min(t + 15, last), kept_all = kept_visible(own_first), kept_any = kept_visible(own_last);
  uint near_any = near_begin(own_first), near_all = near_begin(own_last), begin = push.base + (near_any - push.base) / KEYS * KEYS;
  uint kept_steps = (kept_any + KEYS - 1) / KEYS, steps = kept_steps + (own_last - begin) / KEYS + 1;
  uint at = kept_tile(route_head(head), 0) + lane;
  for (uint i = 0; i < steps; i++) {
    bool old = i < kept_steps;
    if (i == kept_steps) at = near_tile(kv_head(head), (begin - push.base) / 16) + lane;
    uint key0 = old ? KEYS * i : begin + KEYS * (i - kept_steps);
    MATRIX_SUM s[KEY_TILES];
    [[unroll]] for (uint j = 0; j < KEY_TILES; j++) s[j] = MATRIX_SUM(0.0);
    [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
      [[unroll]] for (uint j = 0; j < KEY_TILES; j++) {
        MATRIX_B b;
        UNPACK(b, keys[at + (j * DIM_TILES + k) * 32]);
        s[j] = coopMatMulAdd(x[k], b, s[j]);
      }
    if (key0 + KEYS > (old ? kept_all : own_first + 1) || (!old && key0 < near_all)) {
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
        uint own_t = min(t + row_of(e), last), first = old ? 0 : near_begin(own_t);
        uint visible = (old ? kept_visible(own_t) : own_t + 1) - first;
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
    MATRIX_A p[KEY_TILES];
    [[unroll]] for (uint j = 0; j < KEY_TILES; j++)
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
        float weight = exp2(s[j][e] - reference[own(e)]);
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
  row_max(most);
  float correct[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    correct[r] = exp2(reference[r] - most[r]);
    total[r] *= correct[r];
  }
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j][e] *= correct[own(e)];

  uint stride = push.heads * DIM, at0 = (push.row0 + t - push.start) * stride + head * DIM;  // of this subgroup's rows
  bool inside = t + 15 <= last;
#ifdef LINEAR
  uint chunk = t / 64, slot = chunk > push.route_first ? chunk - 1 - push.route_first : 0;
  uint map0 = head * DIM * DIM8, state0 = (slot * push.heads + head) * F * (DIM + 1) / 8;
  fetch_map(tid, map0);
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
            if (t + row_of(e) <= last) g[e] = gate[at0 + column + row_of(e) * stride + column_of(e)];
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
        if (t + row_of(e) <= last) outputs[at0 + 16 * j + row_of(e) * stride + column_of(e)] = acc[j][e];
  }
}
