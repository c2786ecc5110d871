#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// softmax_branch.comp for f16 keys and values; with LINEAR it merges what linear_branch_coopmat.comp left. Each subgroup owns 16
// queries, whose logits, weights and results stay in registers; keys and values come from memory as tiles in the order of the
// registers (tiles.comp), so that subgroups do not wait for each other. Weights are taken against a reference that follows the
// row's maximum only when that has moved by more than LAG, so rows seldom talk; the end knows the true maximum. The block begins
// at a multiple of 64. Slower on an H200: 2 or 3 tiles of keys at a time, 8, 12 or 16 subgroups, 32 queries a subgroup (the driver
// spills), touching the lines of the next step ahead: what is waited for is L1's 64 bytes a clock.
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
layout(set = 0, binding = 4) readonly buffer b4 { uvec4 linear[]; };    // linear_branch_coopmat.comp
layout(set = 0, binding = 5) readonly buffer b5 { float normalizers[]; };  // feature_map_coopmat.comp
layout(set = 0, binding = 6) readonly buffer b6 { float gate[]; };      // (n, H D)
#include "linear_tiles.glsl"
#endif
#include "query_tiles.glsl"

const float LAG = 8.0;       // weights up to 2^8 are safe in f16
const float LOWEST = -1e30;  // a maximum of nothing: finite, so that differences are numbers
const uint KEY_TILES = 4, KEYS = 16 * KEY_TILES, STEP = KEY_TILES * DIM_TILES * 32;

void main() {
  uint lane = gl_SubgroupInvocationID, head = gl_WorkGroupID.y;
  // the last queries see the most keys: they go first
  uint t = push.start + (gl_NumWorkGroups.x - 1 - gl_WorkGroupID.x) * 64 + 16 * gl_SubgroupID;
  uint last = push.start + push.count - 1;
  if (t > last) return;

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
  uint chunk = t / 64;
  if (chunk >= push.route_first + 2) {
    chunk -= push.route_first + 2;
    [[unroll]] for (uint r = 0; r < ROWS; r++)
      total[r] += normalizers[(chunk * push.heads + head) * 64 + t % 64 + row_at(r)];
    float factor = tokens_of(chunk) / STILL_FEATURE_SCALE;
    MATRIX_SUM g[DIM_TILES];
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) g[j] = MATRIX_SUM(1.0);
    if ((push.flags & STILL_FLAG_GATE) != 0) {
      if (inside) {
        [[unroll]] for (uint j = 0; j < DIM_TILES; j++) coopMatLoad(g[j], gate, at0 + 16 * j, stride, ROW_MAJOR);
      } else {
        [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
          [[unroll]] for (uint j = 0; j < DIM_TILES; j++)
            g[j][e] = t + row_of(e) <= last ? gate[at0 + 16 * j + row_of(e) * stride + column_of(e)] : 0.0;
      }
    }
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      uvec4 w = linear[linear_tile(chunk, head) + (t % 64 / 16 * DIM_TILES + j) * 32 + lane];
      [[unroll]] for (uint n = 0; n < 4; n++) {
        vec2 y = factor * unpackHalf2x16(w[n]);
        acc[j][2 * n] += g[j][2 * n] * y.x;
        acc[j][2 * n + 1] += g[j][2 * n + 1] * y.y;
      }
    }
  }
#endif

  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    float factor = 1.0 / total[own(e)];
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) acc[j][e] *= factor;
  }
  if (inside) {
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) coopMatStore(acc[j], outputs, at0 + 16 * j, stride, ROW_MAJOR);
  } else {
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
      [[unroll]] for (uint j = 0; j < DIM_TILES; j++)
        if (t + row_of(e) <= last) outputs[at0 + 16 * j + row_of(e) * stride + column_of(e)] = acc[j][e];
  }
}
