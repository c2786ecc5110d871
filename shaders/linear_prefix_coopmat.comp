#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// linear_prefix.comp for what linear_state_coopmat.comp makes and softmax_branch_coopmat.comp takes: f16 in and out, in place,
// sums in f32.
#extension GL_EXT_control_flow_attributes : require
#include "shader_common.glsl"
#include "attention_common.glsl"
// (slots, H, F D + F): what each chunk adds, times STILL_CHUNK_STATE_SCALE; then the state before it, times STILL_STATE_SCALE
layout(set = 0, binding = 0) buffer b0 { uvec4 states[]; };
layout(set = 0, binding = 1) buffer b1 { vec4 cache[]; };  // (H, F D + F)

const uint BATCH = 8;  // loads that are on their way at a time

void main() {
  uint size = push.heads * F * (D + 1) / 8, i = gl_GlobalInvocationID.x;
  if (i >= size) return;
  vec4 a = cache[2 * i], b = cache[2 * i + 1];
  for (uint slot = 0; slot <= push.route_count; slot += BATCH) {
    uvec4 own[BATCH];
    [[unroll]] for (uint n = 0; n < BATCH; n++) own[n] = slot + n < push.route_count ? states[(slot + n) * size + i] : uvec4(0);
    [[unroll]] for (uint n = 0; n < BATCH; n++) {
      vec4 x = STILL_STATE_SCALE * a, y = STILL_STATE_SCALE * b;
      if (slot + n <= push.route_count)
        states[(slot + n) * size + i] = uvec4(packHalf2x16(x.xy), packHalf2x16(x.zw), packHalf2x16(y.xy), packHalf2x16(y.zw));
      a += vec4(unpackHalf2x16(own[n].x), unpackHalf2x16(own[n].y)) / STILL_CHUNK_STATE_SCALE;
      b += vec4(unpackHalf2x16(own[n].z), unpackHalf2x16(own[n].w)) / STILL_CHUNK_STATE_SCALE;
    }
  }
  cache[2 * i] = a;
  cache[2 * i + 1] = b;
}
