#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// Running sums over the routed chunks of a block: slot i becomes the state before chunk route_first + i, the last slot and
// the cache the state after all of them. With STATES_F16 the slots are copied as scaled f16 for linear_branch_coopmat.comp.
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(set = 0, binding = 0) buffer b0 { vec4 states[]; };  // (slots, H, F D + F)
layout(set = 0, binding = 1) buffer b1 { vec4 cache[]; };   // (H, F D + F)
#ifdef STATES_F16
layout(set = 0, binding = 2) writeonly buffer b2 { f16vec4 copies[]; };  // (slots, H, F D + F)
#define PUT(slot, x) copies[(slot) * size + i] = f16vec4(STILL_STATE_SCALE * (x))
#else
#define PUT(slot, x) states[(slot) * size + i] = x
#endif

void main() {
  uint size = push.heads * (F * D4 + F4), i = gl_GlobalInvocationID.x;
  if (i >= size) return;
  vec4 sum = cache[i];
  for (uint slot = 0; slot < push.route_count; slot++) {
    vec4 own = states[slot * size + i];
    PUT(slot, sum);
    sum += own;
  }
  PUT(push.route_count, sum);
  cache[i] = sum;
}
