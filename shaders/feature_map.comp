#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#extension GL_EXT_control_flow_attributes : require
// Features of queries or of routed keys (spec section 4): u = ||x|| x A / ||x A||, phi = max([softmax(u), softmax(-u)], 1e-12),
// keys times their mask, so that kept tokens add nothing to the linear state.
// Groups: x = 64 tokens, y = head. KEYS: 0 = the new queries, rows from 0; 1 = keys of the routed chunks, work rows.
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(constant_id = 1) const uint KEYS = 0;
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };         // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { STORE4 work_k[]; };  // (G, rows, D)
layout(set = 0, binding = 2) readonly buffer b2 { vec4 map[]; };       // A (H, D, D)
layout(set = 0, binding = 3) readonly buffer b3 { float mask[]; };     // (R, rows)
layout(set = 0, binding = 4) writeonly buffer b4 { STORE4 phi[]; };    // (H, rows, F)

const uint SLICES = 16 * 17 + 16 * 32 > 8 * 17 + 8 * 64 ? 16 * 17 + 16 * 32 : 8 * 17 + 8 * 64;
#include "tile_product.glsl"
shared float part_a[16 * 65], part_b[16 * 65];

uint first_row() { return KEYS == 1 ? push.route_first * push.chunk - push.base : 0; }
uint row_count() { return KEYS == 1 ? push.route_count * push.chunk : push.count; }

vec4 load(uint head, uint i, uint c) {
  if (i >= row_count() || c >= D4) return vec4(0);
  if (KEYS == 1) return vec4(work_k[(kv_head(head) * push.rows + first_row() + i) * D4 + c]);
  return q[((push.row0 + i) * push.heads + head) * D4 + c];
}

// Every invocation brings a value for each of its rows; afterwards it has the row's.
void reduce(uint tid, inout float a[OWN_ROWS], inout float b[OWN_ROWS], bool maximum) {
  uint ty = tid / 16, tx = tid % 16;
  [[unroll]] for (uint i = 0; i < OWN_ROWS; i++) {
    part_a[tx * 65 + ty * OWN_ROWS + i] = a[i];
    part_b[tx * 65 + ty * OWN_ROWS + i] = b[i];
  }
  barrier();
  [[unroll]] for (uint i = 0; i < OWN_ROWS; i++)
    for (uint x = 0; x < 16; x++) {
      float pa = part_a[x * 65 + ty * OWN_ROWS + i], pb = part_b[x * 65 + ty * OWN_ROWS + i];
      if (x == 0) {
        a[i] = pa;
        b[i] = pb;
      } else {
        a[i] = maximum ? max(a[i], pa) : a[i] + pa;
        b[i] = maximum ? max(b[i], pb) : b[i] + pb;
      }
    }
  barrier();
}

float sum4(vec4 x) { return x.x + x.y + x.z + x.w; }
float max4(vec4 x) { return max(max(x.x, x.y), max(x.z, x.w)); }

void fetch(uint tid, uint head, uint row0, uint d) {
  [[unroll]] for (uint n = 0; n < STAGED_A; n++)
    staged_a[n] = load(head, row0 + staged_row(tid, n), d / 4 + staged_group(tid));
  [[unroll]] for (uint n = 0; n < STAGED_B; n++) {
    uint i = tid + n * GROUP, k = i / B_ROW, c = i % B_ROW;
    staged_b[n] = d + k < D && c < D4 ? map[(head * D + d + k) * D4 + c] : vec4(0);
  }
}

// acc = x A; norms: ||x||^2 of the rows.
void product(uint tid, uint head, uint row0, out float norms[OWN_ROWS]) {
  float terms[STAGED_A];
  [[unroll]] for (uint n = 0; n < STAGED_A; n++) terms[n] = 0.0;
  clear_acc();
  fetch(tid, head, row0, 0);
  for (uint d = 0; d < D; d += SLICE) {
    [[unroll]] for (uint n = 0; n < STAGED_A; n++) terms[n] += dot(staged_a[n], staged_a[n]);
    put_rows_and_b(tid);
    barrier();
    if (d + SLICE < D) fetch(tid, head, row0, d + SLICE);
    multiply_slice(tid);
    barrier();
  }
  sum_staged(tid, terms, norms);
}

void main() {
  uint tid = gl_LocalInvocationID.x, ty = tid / 16, tx = tid % 16;
  uint head = gl_WorkGroupID.y, row0 = gl_WorkGroupID.x * STILL_TILE;
  float norms[OWN_ROWS], a[OWN_ROWS], b[OWN_ROWS];
  product(tid, head, row0, norms);

  [[unroll]] for (uint i = 0; i < OWN_ROWS; i++) {
    a[i] = b[i] = 0.0;
    [[unroll]] for (uint j = 0; j < COLS; j++) a[i] += dot(acc[i][j], acc[i][j]);
  }
  reduce(tid, a, b, false);
  [[unroll]] for (uint i = 0; i < OWN_ROWS; i++) {
    float scale = (push.flags & STILL_FLAG_NORM) != 0 ? sqrt(norms[i]) / max(sqrt(a[i]), TINY) : 1.0;
    a[i] = b[i] = MINUS_INFINITY;
    [[unroll]] for (uint j = 0; j < COLS; j++) {
      acc[i][j] *= scale;
      if (tx + 16 * j < D4) {
        a[i] = max(a[i], max4(acc[i][j]));
        b[i] = max(b[i], max4(-acc[i][j]));
      }
    }
  }
  reduce(tid, a, b, true);
  float most_a[OWN_ROWS] = a, most_b[OWN_ROWS] = b;
  [[unroll]] for (uint i = 0; i < OWN_ROWS; i++) {
    a[i] = b[i] = 0.0;
    [[unroll]] for (uint j = 0; j < COLS; j++)
      if (tx + 16 * j < D4) {
        a[i] += sum4(exp(acc[i][j] - most_a[i]));
        b[i] += sum4(exp(-acc[i][j] - most_b[i]));
      }
  }
  reduce(tid, a, b, false);
  for (uint i = 0; i < OWN_ROWS; i++) {
    uint row = row0 + ty * OWN_ROWS + i;
    if (row >= row_count()) continue;
    uint at = head * push.rows + first_row() + row;
    float factor = KEYS == 1 ? mask[route_head(head) * push.rows + first_row() + row] : 1.0;
    for (uint j = 0; j < COLS; j++) {
      uint c = tx + 16 * j;
      if (c >= D4) continue;
      phi[at * F4 + c] = STORE4(factor * max(exp(acc[i][j] - most_a[i]) / a[i], vec4(TINY)));
      phi[at * F4 + D4 + c] = STORE4(factor * max(exp(-acc[i][j] - most_b[i]) / b[i], vec4(TINY)));
    }
  }
}
