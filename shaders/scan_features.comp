#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// Features of single tokens for linear_scan.comp (attention.h: LOLCATS, HEDGEHOG, T2R, LIGER_GLA), and the decay
// exp(logsigmoid(k) / 16) of LIGER_GLA's keys. Groups: x = 8 tokens, y = head (of queries, of keys where the map is none).
#include "shader_common.glsl"
#include "attention_common.glsl"
#include "scan_interface.h"
layout(constant_id = 1) const uint MAP = STILL_MAP_HEDGEHOG;
layout(constant_id = 2) const uint SIDE = STILL_SIDE_QUERY;
layout(set = 0, binding = 0) readonly buffer b0 { vec4 inputs[]; };     // (n, H D) or (n, G D)
layout(set = 0, binding = 1) readonly buffer b1 { STORE4 work_k[]; };   // (G, rows, D)
layout(set = 0, binding = 2) readonly buffer b2 { float map[]; };       // A (H, D, D)
layout(set = 0, binding = 3) readonly buffer b3 { float bias[]; };      // (H, D)
layout(set = 0, binding = 4) writeonly buffer b4 { float phi[]; };      // (heads, rows, F)
layout(set = 0, binding = 5) writeonly buffer b5 { float decay[]; };    // (G, rows, D)

const uint ROWS = STILL_SCAN_ROWS;
const uint WIDTH = MAP == STILL_MAP_HEDGEHOG ? 2 * D : D;
shared float x[ROWS * D], u[ROWS * D], parts[STILL_GROUP];

uint row_count() {
  return SIDE == STILL_SIDE_LEAVING ? push.start + push.count - push.chunk - push.base : push.count;
}

vec4 load(uint head, uint row, uint c) {
  uint heads = SIDE == STILL_SIDE_QUERY ? push.heads : push.kv_heads;
  uint from = head / (gl_NumWorkGroups.y / heads);
  if (SIDE == STILL_SIDE_LEAVING) return vec4(work_k[(from * push.rows + row) * D4 + c]);
  return inputs[((push.row0 + row) * heads + from) * D4 + c];
}

void project(uint tid, uint head) {
  for (uint e = tid; e < D; e += STILL_GROUP) {
    float sums[ROWS];
    for (uint r = 0; r < ROWS; r++) sums[r] = MAP == STILL_MAP_RELU ? bias[head * D + e] : 0.0;
    for (uint d = 0; d < D; d++) {
      float a = map[(head * D + d) * D + e];
      for (uint r = 0; r < ROWS; r++) sums[r] += x[r * D + d] * a;
    }
    for (uint r = 0; r < ROWS; r++) u[r * D + e] = sums[r];
  }
}

// Over the 16 invocations of a row.
float row_reduce(uint tid, float value, bool maximum) {
  parts[tid] = value;
  barrier();
  uint first = tid / 16 * 16;
  float result = parts[first];
  for (uint i = 1; i < 16; i++)
    result = maximum ? max(result, parts[first + i]) : result + parts[first + i];
  barrier();
  return result;
}

// softmax(sign u) of the invocation's row, at least `least`, behind `at`.
void write_softmax(uint tid, uint at, float sign, float least, bool inside) {
  uint row = tid / 16, lane = tid % 16;
  float most = MINUS_INFINITY, sum = 0.0;
  for (uint d = lane; d < D; d += 16) most = max(most, sign * u[row * D + d]);
  most = row_reduce(tid, most, true);
  for (uint d = lane; d < D; d += 16) sum += exp(sign * u[row * D + d] - most);
  sum = row_reduce(tid, sum, false);
  for (uint d = lane; d < D; d += 16)
    if (inside) phi[at + d] = max(exp(sign * u[row * D + d] - most) / sum, least);
}

float decay_of(float k) { return exp(-(log(1.0 + exp(-abs(k))) + max(-k, 0.0)) / 16.0); }

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y, row0 = gl_WorkGroupID.x * ROWS;
  for (uint i = tid; i < ROWS * D4; i += STILL_GROUP) {
    uint r = i / D4, c = i % D4;
    vec4 value = row0 + r < row_count() ? load(head, row0 + r, c) : vec4(0);
    for (uint e = 0; e < 4; e++) {
      x[r * D + 4 * c + e] = value[e];
      if (MAP == STILL_MAP_SOFTMAX) u[r * D + 4 * c + e] = value[e];
    }
  }
  barrier();
  if (MAP != STILL_MAP_SOFTMAX) project(tid, head);
  barrier();
  uint row = row0 + tid / 16, at = (head * push.rows + row) * WIDTH;
  bool inside = row < row_count();
  if (MAP == STILL_MAP_RELU) {
    for (uint d = tid % 16; d < D && inside; d += 16) {
      float y = u[tid / 16 * D + d];
      phi[at + d] = y < 0.0 ? 0.0 : y;
    }
    return;
  }
  write_softmax(tid, at, 1.0, MAP == STILL_MAP_HEDGEHOG ? TINY : 0.0, inside);
  if (MAP == STILL_MAP_HEDGEHOG) write_softmax(tid, at + D, -1.0, TINY, inside);
  if (MAP != STILL_MAP_SOFTMAX || SIDE == STILL_SIDE_QUERY || !inside) return;
  for (uint d = tid % 16; d < D; d += 16) decay[at + d] = decay_of(x[tid / 16 * D + d]);
}
