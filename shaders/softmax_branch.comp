#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// Exact attention of 64 queries of a head over the kept tokens and the near ones, streamed in tiles of 64 keys with a running
// maximum, and the merge with the linear branch (spec section 4). Only the softmax part is rescaled when the maximum moves.
// Full and sliding-window attention are the same with other sets: see attention_common.glsl.
// Groups: x = tile of queries (the first begins at a multiple of 64), y = head.
#include "shader_common.glsl"
#include "attention_common.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };         // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { STORE4 kept_k[]; };  // (R, kept_rows, D)
layout(set = 0, binding = 2) readonly buffer b2 { STORE4 kept_v[]; };
layout(set = 0, binding = 3) readonly buffer b3 { STORE4 work_k[]; };  // (G, rows, D)
layout(set = 0, binding = 4) readonly buffer b4 { STORE4 work_v[]; };
layout(set = 0, binding = 5) readonly buffer b5 { vec4 linear[]; };  // (H, rows, D), then (H, rows)
layout(set = 0, binding = 5) readonly buffer b5_floats { float linear_floats[]; };
layout(set = 0, binding = 6) readonly buffer b6 { vec4 gate[]; };      // (n, H D)
layout(set = 0, binding = 7) writeonly buffer b7 { vec4 outputs[]; };  // (n, H D)

const uint SLICES = 2 * 16 * 17;  // >= 16 x 32 and 8 x 64 vec4 of values
#include "tile_product.glsl"
const uint QK_SLICE = 16, K_SLICE = QK_SLICE * A_ROW;
shared vec4 p[STILL_TILE * A_ROW];  // [key][query]: logits, then weights
shared float part[2 * STILL_TILE], row_max[STILL_TILE], row_total[STILL_TILE],
    row_scale[STILL_TILE];

// p = scale q k^T for keys key0 .. key0+63 of a head; key `from` lies in row rows0, and keys from .. end-1 exist.
#define LOGITS(name, keys)                                                                         \
  void name(uint tid, uint head, uint t0, uint rows0, uint key0, uint from, uint end) {            \
    uint ty = tid / 16, tx = tid % 16, last = push.start + push.count;                             \
    vec4 s[8];                                                                                     \
    for (uint i = 0; i < 8; i++) s[i] = vec4(0);                                                   \
    for (uint d = 0; d < D4; d += QK_SLICE / 4) {                                                  \
      for (uint i = tid; i < STILL_TILE * QK_SLICE / 4; i += STILL_GROUP) {                        \
        uint r = i % STILL_TILE, c = d + i / STILL_TILE, t = t0 + r;                               \
        bool inside = t >= push.start && t < last && c < D4;                                       \
        vec4 x =                                                                                   \
            inside ? q[((push.row0 + t - push.start) * push.heads + head) * D4 + c] : vec4(0);     \
        put_a(r, i / STILL_TILE * 4, x * push.scale);                                              \
        inside = key0 + r >= from && key0 + r < end && c < D4;                                     \
        x = inside ? vec4(keys[(rows0 + key0 + r - from) * D4 + c]) : vec4(0);                     \
        for (uint n = 0; n < 4; n++)                                                               \
          slices[K_SLICE + (i / STILL_TILE * 4 + n) * A_ROW + r / 4][r % 4] = x[n];                \
      }                                                                                            \
      barrier();                                                                                   \
      for (uint k = 0; k < QK_SLICE; k++) {                                                        \
        vec4 a0 = slices[k * A_ROW + 2 * ty], a1 = slices[k * A_ROW + 2 * ty + 1];                 \
        vec4 b = slices[K_SLICE + k * A_ROW + tx];                                                 \
        for (uint i = 0; i < 4; i++) {                                                             \
          s[i] += a0[i] * b;                                                                       \
          s[i + 4] += a1[i] * b;                                                                   \
        }                                                                                          \
      }                                                                                            \
      barrier();                                                                                   \
    }                                                                                              \
    for (uint j = 0; j < 4; j++) {                                                                 \
      p[(4 * tx + j) * A_ROW + 2 * ty] = vec4(s[0][j], s[1][j], s[2][j], s[3][j]);                 \
      p[(4 * tx + j) * A_ROW + 2 * ty + 1] = vec4(s[4][j], s[5][j], s[6][j], s[7][j]);             \
    }                                                                                              \
    barrier();                                                                                     \
  }

// acc += p V for the same keys.
#define VALUES(name, values)                                                                       \
  void name(uint tid, uint rows0, uint key0, uint from, uint end) {                                \
    uint ty = tid / 16, tx = tid % 16;                                                             \
    for (uint k0 = 0; k0 < STILL_TILE; k0 += SLICE) {                                              \
      for (uint i = tid; i < SLICE * B_ROW; i += STILL_GROUP) {                                    \
        uint key = key0 + k0 + i / B_ROW, c = i % B_ROW;                                           \
        bool inside = key >= from && key < end && c < D4;                                          \
        slices[i] = inside ? vec4(values[(rows0 + key - from) * D4 + c]) : vec4(0);                \
      }                                                                                            \
      barrier();                                                                                   \
      for (uint k = 0; k < SLICE; k++)                                                             \
        multiply_row(ty, p[(k0 + k) * A_ROW + 2 * ty], p[(k0 + k) * A_ROW + 2 * ty + 1],           \
                     k * B_ROW, tx);                                                               \
      barrier();                                                                                   \
    }                                                                                              \
  }
LOGITS(kept_logits, kept_k)
LOGITS(near_logits, work_k)
VALUES(kept_values, kept_v)
VALUES(near_values, work_v)

// Turns the logits of a tile into weights for the keys begin .. end-1 of the row's range and moves the row's maximum.
// Two invocations share a row.
void weigh(uint tid, uint begin, uint end) {
  uint row = tid % STILL_TILE, half_ = tid / STILL_TILE * (STILL_TILE / 2);
  uint from = clamp(begin, half_, half_ + STILL_TILE / 2);
  uint to = clamp(end, half_, half_ + STILL_TILE / 2);
  float most = MINUS_INFINITY;
  for (uint key = from; key < to; key++) most = max(most, p[key * A_ROW + row / 4][row % 4]);
  part[tid] = most;
  barrier();
  float old = row_max[row];
  most = max(old, max(part[row], part[row + STILL_TILE]));
  barrier();
  float sum = 0;
  for (uint key = half_; key < half_ + STILL_TILE / 2; key++) {
    float weight = 0.0;
    if (key >= from && key < to) weight = exp(p[key * A_ROW + row / 4][row % 4] - most);
    p[key * A_ROW + row / 4][row % 4] = weight;
    sum += weight;
  }
  part[tid] = sum;
  barrier();
  if (tid < STILL_TILE) {
    float rescale = old == MINUS_INFINITY ? 0.0 : exp(old - most);
    row_scale[row] = rescale;
    row_max[row] = most;
    row_total[row] = row_total[row] * rescale + part[row] + part[row + STILL_TILE];
  }
  barrier();
  uint ty = tid / 16;
  for (uint i = 0; i < 8; i++)
    for (uint j = 0; j < COLS; j++) acc[i][j] *= row_scale[ty * 8 + i];
}

// The part of a range begin .. end-1 that falls into the tile at key0, counted from key0.
uint inside_tile(uint x, uint key0) { return clamp(x, key0, key0 + STILL_TILE) - key0; }

void merge(uint tid, uint head, uint t0) {
  uint ty = tid / 16, tx = tid % 16;
  for (uint i = 0; i < 8; i++) {
    uint t = t0 + ty * 8 + i;
    if (t < push.start || t >= push.start + push.count) continue;
    uint row = head * push.rows + t - push.start;
    uint at = ((push.row0 + t - push.start) * push.heads + head) * D4;
    bool hybrid = (push.flags & STILL_FLAG_LINEAR) != 0;
    float total = row_total[ty * 8 + i];
    if (hybrid) total += linear_floats[4 * push.heads * push.rows * D4 + row];
    for (uint j = 0; j < COLS; j++) {
      uint c = tx + 16 * j;
      if (c >= D4) continue;
      vec4 y = acc[i][j];
      if (hybrid)
        y += ((push.flags & STILL_FLAG_GATE) != 0 ? gate[at + c] : vec4(1)) * linear[row * D4 + c];
      outputs[at + c] = y / total;
    }
  }
}

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
  uint t0 = (push.start / STILL_TILE + gl_WorkGroupID.x) * STILL_TILE;
  uint t_first = max(t0, push.start);
  uint t_last = min(t0 + STILL_TILE, push.start + push.count) - 1;
  uint t = clamp(t0 + tid % STILL_TILE, t_first, t_last);  // of this invocation's row in weigh()
  if (tid < STILL_TILE) {
    row_max[tid] = MINUS_INFINITY;
    row_total[tid] = 0.0;
  }
  clear_acc();
  barrier();
  uint rows0 = route_head(head) * push.kept_rows, end = kept_visible(t_last), mine = kept_visible(t);
  for (uint key0 = 0; key0 < end; key0 += STILL_TILE) {
    kept_logits(tid, head, t0, rows0, key0, 0, end);
    weigh(tid, 0, inside_tile(mine, key0));
    kept_values(tid, rows0, key0, 0, end);
  }
  // Tiles of near keys lie at multiples of 64 positions, so that sums do not depend on how the input was split.
  rows0 = kv_head(head) * push.rows;
  end = t_last + 1;
  for (uint key0 = near_begin(t_first) / STILL_TILE * STILL_TILE; key0 < end; key0 += STILL_TILE) {
    near_logits(tid, head, t0, rows0, key0, push.base, end);
    weigh(tid, inside_tile(near_begin(t), key0), inside_tile(t + 1, key0));
    near_values(tid, rows0, key0, push.base, end);
  }
  merge(tid, head, t0);
}
