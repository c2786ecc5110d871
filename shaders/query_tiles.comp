#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// The block's queries in 16 x 16 tiles in the order of the registers of cooperative matrices, where saliency_coopmat.comp has not
// left them. Invocations x: 32 for each tile; groups y: head.
#extension GL_EXT_control_flow_attributes : require
#include "shader_common.glsl"
#include "attention_common.glsl"
#include "register_tiles.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };          // (n, H D)
layout(set = 0, binding = 1) writeonly buffer b1 { uvec4 queries[]; };  // query_tile
#include "query_tiles.glsl"

void main() {
  uint head = gl_WorkGroupID.y, to = query_tile(head, 0);
  for (uint i = gl_GlobalInvocationID.x; i < blocks_of(push.count) * 2 * D; i += gl_NumWorkGroups.x * STILL_GROUP)
    queries[to + i] = pack_query(push.start + i / (2 * D) * 16, head, i / 32 % (D / 16), i % 32);
}
