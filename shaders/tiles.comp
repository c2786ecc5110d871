#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// Keys and values in 16 x 16 tiles, in the order of the registers of cooperative matrices (tile_rows.glsl): subgroups load them
// straight from memory, 16 bytes an invocation, with neither shared memory nor barriers. Rows that are not there yet are 0.
// Invocations x: 32 for each tile; groups y: head.
#include "shader_common.glsl"
#include "attention_common.glsl"
#include "register_tiles.glsl"
#include "dim_order.glsl"
layout(constant_id = 1) const uint KEPT = 0;  // 0: the near cache of full attention, 1: kept tokens
layout(set = 0, binding = 0) readonly buffer b0 { uint row_k[]; };       // f16 (G, rows, D) or (R, kept_rows, D)
layout(set = 0, binding = 1) readonly buffer b1 { float16_t row_v[]; };
layout(set = 0, binding = 2) writeonly buffer b2 { uvec4 tile_k[]; };    // near ones, then kept ones
layout(set = 0, binding = 3) writeonly buffer b3 { uvec4 tile_v[]; };

void main() {
  uint end = push.start + push.count, count = KEPT == 1 ? kept_visible(end - 1) : end - push.base;
  uint head = gl_WorkGroupID.y, row0 = head * (KEPT == 1 ? push.kept_rows : push.rows);
  uint to = KEPT == 1 ? kept_tile(head, 0) : near_tile(head, 0);
  for (uint i = gl_GlobalInvocationID.x; i < blocks_of(count) * 2 * D; i += gl_NumWorkGroups.x * STILL_GROUP) {
    uint lane = i % 32, column = i / 32 % (D / 16) * 16, row = i / (2 * D) * 16;
    uvec4 k, v;
    for (uint n = 0; n < 4; n++) {
      uint a = row + lane / 4 + 8 * (n / 2), c = column + dim_at(2 * (lane % 4) + 8 * (n % 2));
      k[n] = a < count ? row_k[((row0 + a) * D + c) / 2] : 0;
      a = row + 2 * (lane % 4) + 8 * (n % 2);
      c = column + dim_at(lane / 4 + 8 * (n / 2));
      v[n] = packFloat2x16(f16vec2(a < count ? row_v[(row0 + a) * D + c] : float16_t(0),
                                   a + 1 < count ? row_v[(row0 + a + 1) * D + c] : float16_t(0)));
    }
    tile_k[to + i] = k;
    tile_v[to + i] = v;
  }
}
