#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#extension GL_EXT_control_flow_attributes : require
// Running sums over the routed chunks of a block: slot i becomes the state before chunk route_first + i, the last slot and
// the cache the state after all of them.
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(set = 0, binding = 0) buffer b0 { vec4 states[]; };  // (slots, H, F D + F)
layout(set = 0, binding = 1) buffer b1 { vec4 cache[]; };   // (H, F D + F)

const uint BATCH = 8;  // loads that are on their way at a time

void main() {
  uint size = push.heads * (F * D4 + F4), i = gl_GlobalInvocationID.x;
  if (i >= size) return;
  vec4 sum = cache[i];
  for (uint slot = 0; slot <= push.route_count; slot += BATCH) {
    vec4 own[BATCH];
    [[unroll]] for (uint n = 0; n < BATCH; n++)
      own[n] = slot + n < push.route_count ? states[(slot + n) * size + i] : vec4(0);
    [[unroll]] for (uint n = 0; n < BATCH; n++) {
      if (slot + n <= push.route_count) states[(slot + n) * size + i] = sum;
      sum += own[n];
    }
  }
  cache[i] = sum;
}
