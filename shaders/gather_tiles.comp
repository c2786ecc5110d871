#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// gather.comp and tiles.comp in one for keys and values: rows base .. start + count - 1, as rows and as tiles.
// Invocations x: 32 for each tile; groups y: key/value head.
#extension GL_EXT_control_flow_attributes : require
#include "shader_common.glsl"
#include "attention_common.glsl"
#include "register_tiles.glsl"
#include "dim_order.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { f16vec4 near_k[]; };  // (G, 2 C, D)
layout(set = 0, binding = 1) readonly buffer b1 { f16vec4 near_v[]; };
layout(set = 0, binding = 2) readonly buffer b2 { vec4 in_k[]; };  // (n, G D)
layout(set = 0, binding = 3) readonly buffer b3 { vec4 in_v[]; };
layout(set = 0, binding = 4) writeonly buffer b4 { f16vec4 work_k[]; };  // (G, rows, D)
layout(set = 0, binding = 5) writeonly buffer b5 { f16vec4 work_v[]; };
layout(set = 0, binding = 6) writeonly buffer b6 { uvec4 tile_k[]; };  // near_tile
layout(set = 0, binding = 7) writeonly buffer b7 { uvec4 tile_v[]; };

shared float block_v[STILL_GROUP / 32][16][17];  // a tile's values: rows, components

// Four components from `column` on of a row; 0 behind the last.
void load_row(uint row, uint head, uint column, out f16vec4 k, out f16vec4 v) {
  uint p = push.base + row, end = push.start + push.count;
  k = v = f16vec4(0);
  if (p >= end) return;
  if (p < push.start) {
    uint from = (near_row(head, p) * D + column) / 4;
    k = near_k[from];
    v = near_v[from];
  } else {
    uint from = ((input_row(p) * push.kv_heads + head) * D + column) / 4;
    k = f16vec4(in_k[from]);
    v = f16vec4(in_v[from]);
  }
  uint to = ((head * push.rows + row) * D + column) / 4;
  work_k[to] = k;
  work_v[to] = v;
}

void main() {
  uint lane = gl_LocalInvocationID.x % 32, tile = gl_LocalInvocationID.x / 32, head = gl_WorkGroupID.y, c = 4 * (lane % 4);
  uint end = blocks_of(push.start + push.count - push.base) * 2 * D;  // a multiple of the workgroup's invocations
  for (uint i = gl_GlobalInvocationID.x; i < end; i += gl_NumWorkGroups.x * STILL_GROUP) {
    uint column = i / 32 % (D / 16) * 16, row = i / (2 * D) * 16;
    uvec4 k, v;
    barrier();
    [[unroll]] for (uint r = 0; r < 2; r++) {
      uint own = lane / 4 + 8 * r;
      f16vec4 own_k, own_v;
      load_row(row + own, head, column + c, own_k, own_v);
      k[2 * r] = packFloat2x16(own_k.xy);
      k[2 * r + 1] = packFloat2x16(own_k.zw);
      [[unroll]] for (uint n = 0; n < 4; n++) block_v[tile][own][c + n] = float(own_v[n]);
    }
    barrier();
    [[unroll]] for (uint n = 0; n < 4; n++) {  // tile_rows.glsl: columns are rows here
      uint own = 2 * (lane % 4) + 8 * (n % 2), dim = dim_at(lane / 4 + 8 * (n / 2));
      v[n] = packHalf2x16(vec2(block_v[tile][own][dim], block_v[tile][own + 1][dim]));
    }
    tile_k[near_tile(head, 0) + i] = k;
    tile_v[near_tile(head, 0) + i] = v;
  }
}
