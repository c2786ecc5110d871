#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// linear_prefix.comp for the stages by cooperative matrices. What each segment adds (linear_branch_coopmat.comp) becomes the state
// before it; the sums of the features of each chunk (feature_map_coopmat.comp) become those of all chunks up to it; the cache gets
// what there is after all. Groups x: for 16 features of the sums each, then for 128 invocations' elements of the states,
// (D / 16, F / 16, 32) by 8; y: head.
#extension GL_EXT_control_flow_attributes : require
#include "shader_common.glsl"
#include "attention_common.glsl"
#include "dim_order.glsl"
layout(set = 0, binding = 0) buffer b0 { vec4 states[]; };  // (segments, H, ...), STILL_FEATURE_SCALE times sums
layout(set = 0, binding = 1) buffer b1 { float sums[]; };   // (chunks, H, F)
layout(set = 0, binding = 2) buffer b2 { float cache[]; };  // (H, F D + F)

const uint BATCH = 4;  // segments that are on their way at a time

void add_segments(uint head, uint i) {
  uint lane = i % 32, column0 = i / (F * 2) * 16, feature0 = i / 32 % (F / 16) * 16 + 2 * (lane % 4);
  uint at[8];  // tile_rows.glsl; rows are columns of the values here, and columns are features
  float state[8];
  [[unroll]] for (uint e = 0; e < 8; e++) {
    at[e] = head * F * (D + 1) + (feature0 + e % 2 + 8 * (e / 2 % 2)) * D + column0 + dim_at(lane / 4 + 8 * (e / 4));
    state[e] = cache[at[e]];
  }
  for (uint segment = 0; segment < push.segments; segment += BATCH) {
    vec4 own[2 * BATCH];
    [[unroll]] for (uint n = 0; n < 2 * BATCH; n++)
      own[n] = segment + n / 2 < push.segments ? states[((segment + n / 2) * push.heads + head) * F * D4 + 2 * i + n % 2] : vec4(0);
    [[unroll]] for (uint n = 0; n < 2 * BATCH; n++) {
      vec4 before;
      [[unroll]] for (uint e = 0; e < 4; e++) {
        before[e] = STILL_FEATURE_SCALE * state[4 * (n % 2) + e];
        state[4 * (n % 2) + e] += own[n][e] / STILL_FEATURE_SCALE;
      }
      if (segment + n / 2 < push.segments) states[((segment + n / 2) * push.heads + head) * F * D4 + 2 * i + n % 2] = before;
    }
  }
  [[unroll]] for (uint e = 0; e < 8; e++) cache[at[e]] = state[e];
}

// Each of 8 invocations has an eighth of the chunks of a feature.
const uint PARTS = 8, OWN = STILL_GROUP / PARTS, MOST = 32;  // features of a workgroup, loads that are on their way at a time
shared float parts[PARTS][OWN];

void add_chunks(uint head, uint feature) {
  uint part = gl_LocalInvocationID.x / OWN, size = push.heads * F, from = head * F + feature, own_part = gl_LocalInvocationID.x % OWN;
  uint length_ = (push.route_count + PARTS - 1) / PARTS, first = part * length_, end = min(first + length_, push.route_count);
  float sum = 0;
  for (uint chunk = first; chunk < end; chunk += MOST)
    [[unroll]] for (uint n = 0; n < MOST; n++) sum += chunk + n < end ? sums[(chunk + n) * size + from] : 0;
  parts[part][own_part] = sum;
  barrier();
  uint at = head * F * (D + 1) + F * D + feature;
  sum = cache[at];
  barrier();
  for (uint before = 0; before < part; before++) sum += parts[before][own_part];
  for (uint chunk = first; chunk < end; chunk += MOST) {
    float own[MOST];
    [[unroll]] for (uint n = 0; n < MOST; n++) own[n] = chunk + n < end ? sums[(chunk + n) * size + from] : 0;
    [[unroll]] for (uint n = 0; n < MOST; n++) {
      sum += own[n];
      if (chunk + n < end) sums[(chunk + n) * size + from] = sum;
    }
  }
  if (part == PARTS - 1) cache[at] = sum;
}

void main() {
  uint group = gl_WorkGroupID.x, head = gl_WorkGroupID.y, i = gl_LocalInvocationID.x;
  if (group < F / OWN) add_chunks(head, group * OWN + i % OWN);  // they take longer
  else add_segments(head, (group - F / OWN) * STILL_GROUP + i);
}
