#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#extension GL_EXT_control_flow_attributes : require
// phi(q) . S and phi(q) . z of the new queries, S and z being the state before the previous chunk (spec section 4).
// Groups: x = 64 rows of one chunk (chunks * ceil(C / 64)), y = head.
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { STORE4 phi[]; };    // (H, rows, F), row 0 = start
layout(set = 0, binding = 1) readonly buffer b1 { vec4 states[]; };   // (slots, H, F D + F)
layout(set = 0, binding = 2) writeonly buffer b2 { vec4 linear[]; };  // (H, rows, D), then (H, rows)
layout(set = 0, binding = 2) writeonly buffer b2_floats { float linear_floats[]; };

const uint SLICES = 16 * 17 + 16 * 32 > 8 * 17 + 8 * 64 ? 16 * 17 + 16 * 32 : 8 * 17 + 8 * 64;
#include "tile_product.glsl"

// terms: of phi . z
void fetch(uint tid, uint head, uint t0, uint t_end, uint state, uint f, inout float terms[STAGED_A]) {
  for (uint n = 0; n < STAGED_A; n++) {
    uint t = t0 + staged_row(tid, n), f4 = f / 4 + staged_group(tid);
    bool inside = t >= push.start && t < t_end && f4 < F4;
    staged_a[n] = vec4(0);
    if (!inside) continue;
    staged_a[n] = vec4(phi[(head * push.rows + t - push.start) * F4 + f4]);
    terms[n] += dot(staged_a[n], states[state + F * D4 + f4]);
  }
  [[unroll]] for (uint n = 0; n < STAGED_B; n++) {
    uint i = tid + n * GROUP, k = i / B_ROW, c = i % B_ROW;
    staged_b[n] = f + k < F && c < D4 ? states[state + (f + k) * D4 + c] : vec4(0);
  }
}

void main() {
  uint tid = gl_LocalInvocationID.x, ty = tid / 16, tx = tid % 16, head = gl_WorkGroupID.y;
  uint tiles = (push.chunk + STILL_TILE - 1) / STILL_TILE;  // of a chunk
  uint chunk = chunks_before(push.start) + gl_WorkGroupID.x / tiles;
  uint t0 = chunk * push.chunk + gl_WorkGroupID.x % tiles * STILL_TILE;
  uint t_end = min((chunk + 1) * push.chunk, push.start + push.count);
  uint slot = chunk > push.route_first ? chunk - 1 - push.route_first : 0;
  uint state = (slot * push.heads + head) * (F * D4 + F4);
  float terms[STAGED_A], sums[OWN_ROWS];
  [[unroll]] for (uint n = 0; n < STAGED_A; n++) terms[n] = 0.0;
  clear_acc();
  fetch(tid, head, t0, t_end, state, 0, terms);
  for (uint f = 0; f < F; f += SLICE) {
    put_rows_and_b(tid);
    barrier();
    if (f + SLICE < F) fetch(tid, head, t0, t_end, state, f + SLICE, terms);
    multiply_slice(tid);
    barrier();
  }
  sum_staged(tid, terms, sums);
  for (uint i = 0; i < OWN_ROWS; i++) {
    uint t = t0 + ty * OWN_ROWS + i;
    if (t < push.start || t >= t_end) continue;
    uint row = head * push.rows + t - push.start;
    [[unroll]] for (uint j = 0; j < COLS; j++)
      if (tx + 16 * j < D4) linear[row * D4 + tx + 16 * j] = acc[i][j];
    if (tx == 0) linear_floats[4 * push.heads * push.rows * D4 + row] = sums[i];
  }
}
