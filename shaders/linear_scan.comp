#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// The linear part of the kinds that take in one token after the other (attention.h: LOLCATS, HEDGEHOG, T2R, LIGER_GLA):
//   S_t = diag(d_t) S_(t-1) + phi(k) v^T    z_t = z_(t-1) + phi(k)    linear_t = phi(q_t) S_t, phi(q_t) . z_t
// with the key and value of token t, or of token t - W where there is a window, and d only of LIGER_GLA. A workgroup holds
// 4 columns of S in registers, one row of S for each invocation (F > 128: several), and walks over the tokens.
// Groups: x = 4 columns, the last one z where there is one; y = head.
#include "shader_common.glsl"
#include "attention_common.glsl"
#include "scan_interface.h"
layout(constant_id = 1) const uint WIDTH = 128;   // F
layout(constant_id = 2) const bool WINDOW = false;  // tokens leave a window; linear is divided by the window's factor
layout(constant_id = 3) const bool DECAY = false;
layout(set = 0, binding = 0) readonly buffer b0 { float phi_q[]; };    // (H, rows, F)
layout(set = 0, binding = 1) readonly buffer b1 { float phi_k[]; };    // (H, rows, F); with DECAY (G, rows, F)
layout(set = 0, binding = 2) readonly buffer b2 { float decay[]; };    // (G, rows, F)
layout(set = 0, binding = 3) readonly buffer b3 { vec4 in_v[]; };      // (n, G D)
layout(set = 0, binding = 4) readonly buffer b4 { STORE4 work_v[]; };  // (G, rows, D)
layout(set = 0, binding = 5) buffer b5 { vec4 state[]; };              // (H, F D + F)
layout(set = 0, binding = 5) buffer b5_floats { float state_floats[]; };
layout(set = 0, binding = 6) writeonly buffer b6 { vec4 linear[]; };   // (H, rows, D), then (H, rows)
layout(set = 0, binding = 6) writeonly buffer b6_floats { float linear_floats[]; };
layout(set = 0, binding = 7) readonly buffer b7 { float factors[]; };  // (H), of the window

const uint ROWS = STILL_SCAN_ROWS;
const uint OWN = (WIDTH + STILL_GROUP - 1) / STILL_GROUP;  // rows of S of an invocation
shared vec4 parts[ROWS * STILL_GROUP];
vec4 s[OWN];

bool is_z() { return gl_WorkGroupID.x == D4; }
uint state_at() { return gl_WorkGroupID.y * (WIDTH * D4 + WIDTH / 4); }

vec4 value_of(uint row) {
  uint kv = kv_head(gl_WorkGroupID.y), c = gl_WorkGroupID.x;
  if (is_z()) return vec4(1, 0, 0, 0);
  if (WINDOW) return vec4(work_v[(kv * push.rows + row) * D4 + c]);
  return in_v[((push.row0 + row) * push.kv_heads + kv) * D4 + c];
}

void take_in(uint tid, uint row) {
  uint kv = kv_head(gl_WorkGroupID.y), head = DECAY ? kv : gl_WorkGroupID.y;
  vec4 v = value_of(row);
  for (uint o = 0; o < OWN; o++) {
    uint f = tid + o * STILL_GROUP;
    if (f >= WIDTH) continue;
    uint at = (head * push.rows + row) * WIDTH + f;
    if (DECAY) s[o] *= decay[at];
    s[o] += phi_k[at] * v;
  }
}

vec4 read_out(uint tid, uint row) {
  vec4 sum = vec4(0);
  for (uint o = 0; o < OWN; o++) {
    uint f = tid + o * STILL_GROUP;
    if (f < WIDTH) sum += phi_q[(gl_WorkGroupID.y * push.rows + row) * WIDTH + f] * s[o];
  }
  return sum;
}

void write(uint row, vec4 sum) {
  uint head = gl_WorkGroupID.y, at = head * push.rows + row;
  if (WINDOW) sum /= factors[head];
  if (is_z())
    linear_floats[4 * push.heads * push.rows * D4 + at] = sum.x;
  else
    linear[at * D4 + gl_WorkGroupID.x] = sum;
}

void load_state(uint tid) {
  for (uint o = 0; o < OWN; o++) {
    uint f = tid + o * STILL_GROUP;
    s[o] = vec4(0);
    if (f >= WIDTH) continue;
    if (is_z())
      s[o].x = state_floats[4 * (state_at() + WIDTH * D4) + f];
    else
      s[o] = state[state_at() + f * D4 + gl_WorkGroupID.x];
  }
}

void store_state(uint tid) {
  for (uint o = 0; o < OWN; o++) {
    uint f = tid + o * STILL_GROUP;
    if (f >= WIDTH) continue;
    if (is_z())
      state_floats[4 * (state_at() + WIDTH * D4) + f] = s[o].x;
    else
      state[state_at() + f * D4 + gl_WorkGroupID.x] = s[o];
  }
}

void main() {
  uint tid = gl_LocalInvocationID.x, lane = tid % 16;
  load_state(tid);
  for (uint t0 = 0; t0 < push.count; t0 += ROWS) {
    uint n = min(ROWS, push.count - t0);
    for (uint i = 0; i < n; i++) {
      uint key = push.start + t0 + i;  // its row is key - base; without a window base = start
      if (!WINDOW)
        take_in(tid, t0 + i);
      else if (key >= push.chunk)
        take_in(tid, key - push.chunk - push.base);
      parts[i * STILL_GROUP + tid] = read_out(tid, t0 + i);
    }
    barrier();
    vec4 sum = vec4(0);  // 16 invocations a token
    for (uint i = lane; i < STILL_GROUP; i += 16) sum += parts[tid / 16 * STILL_GROUP + i];
    barrier();
    parts[tid] = sum;
    barrier();
    if (lane == 0 && tid / 16 < n) {
      for (uint i = 1; i < 16; i++) sum += parts[tid + i];
      write(t0 + tid / 16, sum);
    }
    barrier();
  }
  store_state(tid);
}
