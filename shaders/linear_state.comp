#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#extension GL_EXT_control_flow_attributes : require
// What each routed chunk adds to the linear state: S (F x D) = phi_k^T V, z = sum of phi_k.
// Groups: x = routed chunk, y = head, z = 64 rows of S.
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { STORE4 phi[]; };     // (H, rows, F)
layout(set = 0, binding = 1) readonly buffer b1 { STORE4 work_v[]; };  // (G, rows, D)
layout(set = 0, binding = 2) writeonly buffer b2 { vec4 states[]; };   // (slots, H, F D + F)

const uint SLICES = 16 * 17 + 16 * 32 > 8 * 17 + 8 * 64 ? 16 * 17 + 16 * 32 : 8 * 17 + 8 * 64;
#include "tile_product.glsl"

// Rows t .. of the chunk that begins in row0: 64 features, all values.
void fetch(uint tid, uint head, uint row0, uint f0, uint t) {
  [[unroll]] for (uint n = 0; n < STAGED_A; n++) {
    uint i = tid + n * GROUP, k = i / (STILL_TILE / 4), f4 = f0 / 4 + i % (STILL_TILE / 4);
    bool inside = k < SLICE && t + k < push.chunk && f4 < F4;
    staged_a[n] = inside ? vec4(phi[(head * push.rows + row0 + t + k) * F4 + f4]) : vec4(0);
  }
  [[unroll]] for (uint n = 0; n < STAGED_B; n++) {
    uint i = tid + n * GROUP, k = i / B_ROW, c = i % B_ROW;
    bool inside = t + k < push.chunk && c < D4;
    staged_b[n] = inside ? vec4(work_v[(kv_head(head) * push.rows + row0 + t + k) * D4 + c]) : vec4(0);
  }
}

void main() {
  uint tid = gl_LocalInvocationID.x, ty = tid / 16, tx = tid % 16;
  uint slot = gl_WorkGroupID.x, head = gl_WorkGroupID.y, f0 = gl_WorkGroupID.z * STILL_TILE;
  uint row0 = (push.route_first + slot) * push.chunk - push.base;
  vec4 sum = vec4(0);  // of this invocation's part of the rows, features f0 + 4 tx ..
  clear_acc();
  fetch(tid, head, row0, f0, 0);
  for (uint t = 0; t < push.chunk; t += SLICE) {
    [[unroll]] for (uint n = 0; n < STAGED_A; n++) {
      uint i = tid + n * GROUP;
      if (i < SLICE * STILL_TILE / 4) slices[i / (STILL_TILE / 4) * A_ROW + i % (STILL_TILE / 4)] = staged_a[n];
      sum += staged_a[n];
    }
    put_b(tid);
    barrier();
    if (t + SLICE < push.chunk) fetch(tid, head, row0, f0, t + SLICE);
    multiply_slice(tid);
    barrier();
  }
  slices[tid] = sum;
  barrier();
  uint state = (slot * push.heads + head) * (F * D4 + F4);
  for (uint i = 0; i < OWN_ROWS; i++) {
    uint f = f0 + ty * OWN_ROWS + i;
    if (f >= F) continue;
    [[unroll]] for (uint j = 0; j < COLS; j++)
      if (tx + 16 * j < D4) states[state + f * D4 + tx + 16 * j] = acc[i][j];
  }
  if (tid < 16 && f0 / 4 + tid < F4) {
    sum = slices[tid];
    [[unroll]] for (uint i = 16; i < GROUP; i += 16) sum += slices[i + tid];
    states[state + F * D4 + f0 / 4 + tid] = sum;
  }
}
