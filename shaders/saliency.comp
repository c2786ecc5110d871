#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#extension GL_EXT_control_flow_attributes : require
// Routing score of the new tokens (spec section 2). One workgroup: ROWS tokens of a head, against the ROWS + C - 1 keys
// that their windows cover. Groups: x = tile of tokens, y = head.
#include "shader_common.glsl"
#include "attention_common.glsl"
#include "unroll.glsl"
layout(constant_id = 1) const uint C = 64;
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };       // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { STORE4 work_k[]; };  // (G, rows, D)
layout(set = 0, binding = 2) writeonly buffer b2 { float scores[]; };  // (H, rows)

const uint ROWS = 32, SLICE4 = 4;              // query rows of a tile; channels at a time, in vec4
const uint KEYS = (ROWS + C - 1 + 63) / 64 * 64;  // columns of the tile
const uint K_STEP = UNROLL < SLICE4 ? UNROLL : SLICE4;
const uint STEP = KEYS % 128 == 0 ? 128 : 64;     // columns whose logits are made together, STEP / 16 by an invocation
const uint S_ROW = KEYS + 1;

shared float s[ROWS * S_ROW];
shared vec4 q_slice[ROWS * (SLICE4 + 1)];
shared vec4 k_slice[STEP * (SLICE4 + 1)];
shared float part_a[STILL_GROUP], part_b[STILL_GROUP];

// 4 invocations work on each row; these give all 4 the row's maximum and sum.
float row_max(uint tid, float x) {
  part_a[tid] = x;
  barrier();
  uint i = tid & ~3u;
  float result = max(max(part_a[i], part_a[i + 1]), max(part_a[i + 2], part_a[i + 3]));
  barrier();
  return result;
}
float row_sum(uint tid, float x) {
  part_b[tid] = x;
  barrier();
  uint i = tid & ~3u;
  float result = part_b[i] + part_b[i + 1] + part_b[i + 2] + part_b[i + 3];
  barrier();
  return result;
}

vec4 staged_q, staged_k[STEP * SLICE4 / STILL_GROUP];  // the next slice, on its way while this one is multiplied

void fetch(uint tid, uint head, uint t0, uint first, uint last, uint c) {
  uint t = t0 + tid / SLICE4, qc = c + tid % SLICE4;
  staged_q = t < push.start + push.count && qc < D4
                 ? push.scale * q[(input_row(t) * push.heads + head) * D4 + qc]
                 : vec4(0);
  [[unroll]] for (uint n = 0; n < STEP * SLICE4 / STILL_GROUP; n++) {
    uint i = tid + n * STILL_GROUP, p = first + i / SLICE4, kc = c + i % SLICE4;
    staged_k[n] = p <= last && kc < D4 ? vec4(work_k[(kv_head(head) * push.rows + p - push.base) * D4 + kc]) : vec4(0);
  }
}

// s[row][key] = q . k / sqrt(D), key 0 at position `first`; an invocation: 4 rows x STEP / 16 keys.
void logits(uint tid, uint head, uint t0, uint first, uint last) {
  uint ty = tid / 16, tx = tid % 16;
  fetch(tid, head, t0, first, last, 0);
  for (uint tile = 0; tile < KEYS; tile += STEP) {
    float acc[4][STEP / 16];
    [[unroll]] for (uint i = 0; i < 4; i++)
      [[unroll]] for (uint j = 0; j < STEP / 16; j++) acc[i][j] = 0.0;
    for (uint c = 0; c < D4; c += SLICE4) {
      q_slice[tid / SLICE4 * (SLICE4 + 1) + tid % SLICE4] = staged_q;
      [[unroll]] for (uint n = 0; n < STEP * SLICE4 / STILL_GROUP; n++) {
        uint i = tid + n * STILL_GROUP;
        k_slice[i / SLICE4 * (SLICE4 + 1) + i % SLICE4] = staged_k[n];
      }
      barrier();
      if (c + SLICE4 < D4) fetch(tid, head, t0, first + tile, last, c + SLICE4);
      else fetch(tid, head, t0, first + tile + STEP, last, 0);
      for (uint k0 = 0; k0 < SLICE4; k0 += K_STEP) [[unroll]] for (uint n = 0; n < K_STEP; n++) {
        uint k = k0 + n;
        vec4 a[4], b[STEP / 16];
        [[unroll]] for (uint i = 0; i < 4; i++) a[i] = q_slice[(ty + 8 * i) * (SLICE4 + 1) + k];
        [[unroll]] for (uint j = 0; j < STEP / 16; j++) b[j] = k_slice[(tx + 16 * j) * (SLICE4 + 1) + k];
        [[unroll]] for (uint i = 0; i < 4; i++)
          [[unroll]] for (uint j = 0; j < STEP / 16; j++) acc[i][j] += dot(a[i], b[j]);
      }
      barrier();
    }
    [[unroll]] for (uint i = 0; i < 4; i++)
      [[unroll]] for (uint j = 0; j < STEP / 16; j++) s[(ty + 8 * i) * S_ROW + tile + tx + 16 * j] = acc[i][j];
  }
  barrier();
}

float key_norm(uint head, uint t) {
  float sum = 0;
  for (uint c = 0; c < D4; c++) {
    vec4 x = vec4(work_k[(kv_head(head) * push.rows + t - push.base) * D4 + c]);
    sum += dot(x, x);
  }
  return sqrt(sum);
}

// Evenly spaced in the chunk: floor((2 r + 1) C / (2 keep)) are the best.
float uniform_score(uint t) {
  for (uint r = 0; r < push.keep; r++)
    if ((2 * r + 1) * C / (2 * push.keep) == t % C) return 1.0;
  return 0.0;
}

float plog(float a, float b) { return a * log((a + EPSILON) / (b + EPSILON)); }

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
  uint t0 = push.start + gl_WorkGroupID.x * ROWS;
  uint last = min(t0 + ROWS, push.start + push.count) - 1;
  uint first = t0 + 1 - min(t0 + 1, C);
  logits(tid, head, t0, first, last);

  uint row = tid / 4, lane = tid % 4, t = min(t0 + row, last);
  uint begin = t + 1 - min(t + 1, C) - first, self = t - first;  // columns of the window, self last
  float rest = MINUS_INFINITY;  // the maximum without the token itself
  for (uint j = begin + lane; j < self; j += 4) rest = max(rest, s[row * S_ROW + j]);
  rest = row_max(tid, rest);
  float own = s[row * S_ROW + self], most = max(rest, own);
  float sum_a = 0, sum_b = 0;
  for (uint j = begin + lane; j < self; j += 4) {
    float x = s[row * S_ROW + j];
    sum_a += exp(x - most);
    sum_b += exp(x - rest);
  }
  float own_weight = exp(own - most);
  sum_a = row_sum(tid, sum_a) + own_weight;
  sum_b = row_sum(tid, sum_b);
  float divergence = 0;
  for (uint j = begin + lane; j < self; j += 4) {
    float x = s[row * S_ROW + j];
    divergence += plog(exp(x - most) / sum_a, exp(x - rest) / sum_b);
  }
  divergence = row_sum(tid, divergence) + plog(own_weight / sum_a, 0.0);
  if (lane != 0 || t0 + row > last) return;
  float result = divergence;
  if (push.metric == 1) result = own_weight / sum_a;
  if (push.metric == 2) result = own;
  if (push.metric == 3) result = key_norm(head, t);
  if (push.metric == 4) result = uniform_score(t);
  scores[head * push.rows + t - push.base] = result;
}
