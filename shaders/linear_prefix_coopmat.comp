#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// linear_prefix.comp for the stages by cooperative matrices. What each segment adds (linear_branch_coopmat.comp) becomes the state
// before it; the sums of the features of each chunk (feature_map_coopmat.comp) become those of all chunks up to it; the cache gets
// what there is after all. Invocations x: F sums of a head, then (D / 16, F / 16 tiles, 32 invocations, 8 elements) of its
// state; groups y: head.
#extension GL_EXT_control_flow_attributes : require
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(set = 0, binding = 0) buffer b0 { float states[]; };  // (segments, H, ...), STILL_FEATURE_SCALE times sums
layout(set = 0, binding = 1) buffer b1 { float sums[]; };    // (chunks, H, F)
layout(set = 0, binding = 2) buffer b2 { float cache[]; };   // (H, F D + F)

const uint BATCH = 32;  // loads that are on their way at a time

void add_segments(uint head, uint i) {
  // tile_rows.glsl; rows are columns of the values here, and columns are features
  uint e = i % 8, lane = i / 8 % 32, column = i / (F * 16) * 16 + lane / 4 + 8 * (e / 4);
  uint feature = i / 256 % (F / 16) * 16 + 2 * (lane % 4) + e % 2 + 8 * (e / 2 % 2), at = head * F * (D + 1) + feature * D + column;
  float state = cache[at];
  for (uint segment = 0; segment < push.segments; segment++) {
    uint to = (segment * push.heads + head) * F * D + i;
    float own = states[to];
    states[to] = STILL_FEATURE_SCALE * state;
    state += own / STILL_FEATURE_SCALE;
  }
  cache[at] = state;
}

void add_chunks(uint head, uint feature) {
  uint at = head * F * (D + 1) + F * D + feature, size = push.heads * F, from = head * F + feature;
  float sum = cache[at];
  for (uint chunk = 0; chunk < push.route_count; chunk += BATCH) {
    float own[BATCH];
    [[unroll]] for (uint n = 0; n < BATCH; n++) own[n] = chunk + n < push.route_count ? sums[(chunk + n) * size + from] : 0;
    [[unroll]] for (uint n = 0; n < BATCH; n++) {
      sum += own[n];
      if (chunk + n < push.route_count) sums[(chunk + n) * size + from] = sum;
    }
  }
  cache[at] = sum;
}

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i < F) add_chunks(gl_WorkGroupID.y, i);  // they take longer
  else if (i < F * (D + 1)) add_segments(gl_WorkGroupID.y, i - F);
}
