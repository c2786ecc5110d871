#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
// One new token: phi(q) . S and phi(q) . z of a head, for a quarter of the columns of S.
// Groups: x = quarter, y = head.
#include "shader_common.glsl"
#include "attention_common.glsl"
#include "group_reduce.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };      // (1, H D)
layout(set = 0, binding = 1) readonly buffer b1 { vec4 map[]; };    // A (H, D, D)
layout(set = 0, binding = 2) readonly buffer b2 { vec4 state[]; };  // (H, F D + F)
layout(set = 0, binding = 2) readonly buffer b2_floats { float state_floats[]; };
layout(set = 0, binding = 3) writeonly buffer b3 { vec4 linear[]; };  // (H, D), then (H)
layout(set = 0, binding = 3) writeonly buffer b3_floats { float linear_floats[]; };

const uint LANES = STILL_GROUP / D4;
const uint WIDTH = (D4 + STILL_DECODE_LINEAR - 1) / STILL_DECODE_LINEAR;  // columns of a group, in vec4
const uint SHARES = STILL_GROUP / WIDTH;
const uint FLYING = 16;  // loads on their way at a time
shared vec4 query[D4];
shared vec4 u[D4];
shared float phi[F];
shared vec4 lanes[STILL_GROUP];

// u = x A, all columns: lanes share the sum over d.
void project(uint tid, uint head) {
  uint column = tid % D4, lane = tid / D4;
  vec4 sum = vec4(0);
  if (lane < LANES)
    for (uint d0 = lane; d0 < D; d0 += FLYING * LANES) {
      vec4 rows[FLYING];
      for (uint k = 0; k < FLYING; k++) rows[k] = map[(head * D + min(d0 + k * LANES, D - 1)) * D4 + column];
      for (uint k = 0; k < FLYING; k++) {
        uint d = d0 + k * LANES;
        if (d < D) sum += query[d / 4][d % 4] * rows[k];
      }
    }
  lanes[tid] = sum;
  barrier();
  if (lane == 0) {
    for (uint l = 1; l < LANES; l++) sum += lanes[l * D4 + column];
    u[column] = sum;
  }
  barrier();
}

// Rows of the state for an invocation, from f on.
void fetch_state(uint f, uint first, uint column, out vec4 rows[FLYING]) {
  for (uint k = 0; k < FLYING; k++) rows[k] = state[first + min(f + k * SHARES, F - 1) * D4 + min(column, D4 - 1)];
}

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
  uint first = head * (F * D4 + F4);
  uint column = gl_WorkGroupID.x * WIDTH + tid % WIDTH, lane = tid / WIDTH;
  vec4 rows[FLYING];
  fetch_state(lane, first, column, rows);  // on their way while phi is made
  float squares = 0, norm = 0, most_a = MINUS_INFINITY, most_b = MINUS_INFINITY, sum_a = 0, sum_b = 0;
  for (uint c = tid; c < D4; c += STILL_GROUP) {
    vec4 x = q[(push.row0 * push.heads + head) * D4 + c];
    query[c] = x;
    norm += dot(x, x);
  }
  norm = group_sum(tid, norm);
  project(tid, head);
  for (uint c = tid; c < D4; c += STILL_GROUP) squares += dot(u[c], u[c]);
  squares = group_sum(tid, squares);
  float scale = (push.flags & STILL_FLAG_NORM) != 0 ? sqrt(norm) / max(sqrt(squares), TINY) : 1.0;
  for (uint d = tid; d < D; d += STILL_GROUP) {
    float x = scale * u[d / 4][d % 4];
    most_a = max(most_a, x);
    most_b = max(most_b, -x);
  }
  most_a = group_max(tid, most_a);
  most_b = group_max(tid, most_b);
  for (uint d = tid; d < D; d += STILL_GROUP) {
    float x = scale * u[d / 4][d % 4];
    sum_a += exp(x - most_a);
    sum_b += exp(-x - most_b);
  }
  sum_a = group_sum(tid, sum_a);
  sum_b = group_sum(tid, sum_b);
  for (uint d = tid; d < D; d += STILL_GROUP) {
    float x = scale * u[d / 4][d % 4];
    phi[d] = max(exp(x - most_a) / sum_a, TINY);
    phi[D + d] = max(exp(-x - most_b) / sum_b, TINY);
  }
  barrier();
  vec4 sum = vec4(0);
  if (lane < SHARES && column < D4)
    for (uint f0 = lane; f0 < F; f0 += FLYING * SHARES) {
      if (f0 != lane) fetch_state(f0, first, column, rows);
      for (uint k = 0; k < FLYING; k++)
        if (f0 + k * SHARES < F) sum += phi[f0 + k * SHARES] * rows[k];
    }
  lanes[tid] = sum;
  float weight = 0;
  for (uint f = tid; f < F; f += STILL_GROUP) weight += phi[f] * state_floats[4 * (first + F * D4) + f];
  weight = group_sum(tid, weight);
  if (lane == 0 && column < D4) {
    for (uint l = 1; l < SHARES; l++) sum += lanes[l * WIDTH + tid % WIDTH];
    linear[head * D4 + column] = sum;
  }
  if (tid == 0 && gl_WorkGroupID.x == 0) linear_floats[4 * push.heads * D4 + head] = weight;
}
