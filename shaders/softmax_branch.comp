#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#extension GL_EXT_control_flow_attributes : require
// Exact attention of 64 queries of a head over the kept tokens and the near ones, streamed in tiles of 64 keys with a running
// maximum, and the merge with the linear branch (spec section 4). Only the softmax part is rescaled when the maximum moves.
// Full and sliding-window attention are the same with other sets: see attention_common.glsl.
// Groups: x = tile of queries (the first begins at a multiple of 64), y = head.
#define GROUP STILL_WIDE_GROUP
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

const uint SLICES = 16 * 32;  // of values: 16 x 32 or 8 x 64 vec4
#include "tile_product.glsl"
#include "unroll.glsl"
const uint SLICE_STEP = UNROLL < SLICE ? UNROLL : SLICE;
const uint QK_SLICE4 = 4, K_SLICE = 4 * QK_SLICE4 * A_ROW;  // channels of a slice in vec4; where its keys begin
const uint STAGED_LOGITS = STILL_TILE * QK_SLICE4 / GROUP, STAGED_VALUES = SLICE * B_ROW / GROUP;
shared vec4 p[STILL_TILE * A_ROW];  // weights [key][query]; while logits are made, two slices of queries and keys
shared float row_max[STILL_TILE], row_total[STILL_TILE], row_scale[STILL_TILE];

// 64 keys of a head, at positions or kept rows key0 .. key0+63 of which from .. end-1 exist; row rows0 holds `from`.
struct key_tile {
  bool kept;
  uint rows0, key0, from, end;
};
bool exists(key_tile tile, uint i) { return tile.key0 + i >= tile.from && tile.key0 + i < tile.end; }
uint row_of(key_tile tile, uint i) { return tile.rows0 + tile.key0 + i - tile.from; }

vec4 staged[2 * STAGED_LOGITS > STAGED_VALUES ? 2 * STAGED_LOGITS : STAGED_VALUES];  // the next slice, on its way while this one is multiplied

// Channels 4 d .. of 64 queries, then of the keys.
void fetch_logits(uint tid, uint head, uint t0, key_tile tile, uint d) {
  [[unroll]] for (uint n = 0; n < STAGED_LOGITS; n++) {
    uint i = tid + n * GROUP, r = i / QK_SLICE4, c = d + i % QK_SLICE4, t = t0 + r;
    staged[n] = staged[STAGED_LOGITS + n] = vec4(0);
    if (t >= push.start && t < push.start + push.count && c < D4)
      staged[n] = push.scale * q[(input_row(t) * push.heads + head) * D4 + c];
    if (exists(tile, r) && c < D4) {
      uint at = row_of(tile, r) * D4 + c;
      staged[STAGED_LOGITS + n] = tile.kept ? vec4(kept_k[at]) : vec4(work_k[at]);
    }
  }
}
void put_logits(uint tid, uint slice) {
  [[unroll]] for (uint n = 0; n < STAGED_LOGITS; n++) {
    uint i = tid + n * GROUP, r = i / QK_SLICE4, c = i % QK_SLICE4;
    [[unroll]] for (uint m = 0; m < 4; m++) {
      p[slice + (4 * c + m) * A_ROW + r / 4][r % 4] = staged[n][m];
      p[slice + K_SLICE + (4 * c + m) * A_ROW + r / 4][r % 4] = staged[STAGED_LOGITS + n][m];
    }
  }
}
void multiply_logits(uint tid, uint slice, inout vec4 s[OWN_ROWS]) {
  uint ty = tid / 16, tx = tid % 16;
  const uint STEP = UNROLL < 4 * QK_SLICE4 ? UNROLL : 4 * QK_SLICE4;
  for (uint k0 = 0; k0 < 4 * QK_SLICE4; k0 += STEP)
    [[unroll]] for (uint n = 0; n < STEP; n++) {
      uint k = k0 + n;
      vec4 b = p[slice + K_SLICE + k * A_ROW + tx];
      [[unroll]] for (uint r = 0; r < OWN_ROWS4; r++) {
        vec4 a = p[slice + k * A_ROW + OWN_ROWS4 * ty + r];
        [[unroll]] for (uint i = 0; i < 4; i++) s[4 * r + i] += a[i] * b;
      }
    }
}

// Values of keys k0 .. k0 + SLICE - 1.
void fetch_values(uint tid, key_tile tile, uint k0) {
  [[unroll]] for (uint n = 0; n < STAGED_VALUES; n++) {
    uint i = tid + n * GROUP, key = k0 + i / B_ROW, c = i % B_ROW;
    staged[n] = vec4(0);
    if (exists(tile, key) && c < D4) {
      uint at = row_of(tile, key) * D4 + c;
      staged[n] = tile.kept ? vec4(kept_v[at]) : vec4(work_v[at]);
    }
  }
}
void put_values(uint tid) {
  [[unroll]] for (uint n = 0; n < STAGED_VALUES; n++) slices[tid + n * GROUP] = staged[n];
}
void multiply_values(uint tid, uint k0) {
  uint ty = tid / 16, tx = tid % 16;
  for (uint k1 = 0; k1 < SLICE; k1 += SLICE_STEP)
    [[unroll]] for (uint n = 0; n < SLICE_STEP; n++) {
      uint k = k1 + n;
      vec4 a[OWN_ROWS4];
      [[unroll]] for (uint r = 0; r < OWN_ROWS4; r++) a[r] = p[(k0 + k) * A_ROW + OWN_ROWS4 * ty + r];
      multiply_row(a, k * B_ROW, tx);
    }
}

float max4(vec4 x) { return max(max(x.x, x.y), max(x.z, x.w)); }
float sum4(vec4 x) { return x.x + x.y + x.z + x.w; }

// Every invocation brings a value for each of its rows into `slices`, [tx][row]; the row's invocation combines them.
void put_parts(uint tid, float x[OWN_ROWS]) {
  uint at = tid % 16 * A_ROW + OWN_ROWS4 * (tid / 16);
  [[unroll]] for (uint r = 0; r < OWN_ROWS4; r++) slices[at + r] = vec4(x[4 * r], x[4 * r + 1], x[4 * r + 2], x[4 * r + 3]);
}
float part(uint x, uint row) { return slices[x * A_ROW + row / 4][row % 4]; }

// Logits become weights; the rows' maxima move. In between two barriers; ends without one.
void weigh(uint tid, inout vec4 s[OWN_ROWS], inout float totals[OWN_ROWS]) {
  uint ty = tid / 16, tx = tid % 16;
  float most[OWN_ROWS];
  [[unroll]] for (uint i = 0; i < OWN_ROWS; i++) most[i] = max4(s[i]);
  put_parts(tid, most);
  barrier();
  if (tid < STILL_TILE) {
    float old = row_max[tid], now = old;
    for (uint x = 0; x < 16; x++) now = max(now, part(x, tid));
    row_max[tid] = now;
    row_scale[tid] = old == MINUS_INFINITY ? 0.0 : exp(old - now);
  }
  barrier();
  [[unroll]] for (uint i = 0; i < OWN_ROWS; i++) {
    float reference = row_max[ty * OWN_ROWS + i], factor = row_scale[ty * OWN_ROWS + i];
    [[unroll]] for (uint j = 0; j < 4; j++) s[i][j] = s[i][j] == MINUS_INFINITY ? 0.0 : exp(s[i][j] - reference);
    totals[i] = totals[i] * factor + sum4(s[i]);
    [[unroll]] for (uint j = 0; j < COLS; j++) acc[i][j] *= factor;
  }
  [[unroll]] for (uint j = 0; j < 4; j++)
    [[unroll]] for (uint r = 0; r < OWN_ROWS4; r++)
      p[(4 * tx + j) * A_ROW + OWN_ROWS4 * ty + r] = vec4(s[4 * r][j], s[4 * r + 1][j], s[4 * r + 2][j], s[4 * r + 3][j]);
}

void sum_totals(uint tid, float totals[OWN_ROWS]) {
  put_parts(tid, totals);
  barrier();
  if (tid < STILL_TILE) {
    float sum = 0;
    for (uint x = 0; x < 16; x++) sum += part(x, tid);
    row_total[tid] = sum;
  }
  barrier();
}

void merge(uint tid, uint head, uint t0) {
  uint ty = tid / 16, tx = tid % 16;
  for (uint i = 0; i < OWN_ROWS; i++) {
    uint t = t0 + ty * OWN_ROWS + i;
    if (t < push.start || t >= push.start + push.count) continue;
    uint row = head * push.rows + t - push.start;
    uint at = (input_row(t) * push.heads + head) * D4;
    bool hybrid = (push.flags & STILL_FLAG_LINEAR) != 0;
    float total = row_total[ty * OWN_ROWS + i];
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

// Tile i: first the kept keys, then the near ones, whose tiles lie at multiples of 64 positions, so that sums do not depend on how
// the input was split.
key_tile tile_of(uint i, uint head, uint kept_end, uint near0, uint near_end) {
  uint kept_tiles = (kept_end + STILL_TILE - 1) / STILL_TILE;
  if (i < kept_tiles) return key_tile(true, route_head(head) * push.kept_rows, i * STILL_TILE, 0, kept_end);
  return key_tile(false, kv_head(head) * push.rows, near0 + (i - kept_tiles) * STILL_TILE, push.base, near_end);
}

void main() {
  uint tid = gl_LocalInvocationID.x, ty = tid / 16, tx = tid % 16, head = gl_WorkGroupID.y;
  // the last tiles see the most keys: they go first
  uint t0 = (push.start / STILL_TILE + gl_NumWorkGroups.x - 1 - gl_WorkGroupID.x) * STILL_TILE;
  uint t_first = max(t0, push.start);
  uint t_last = min(t0 + STILL_TILE, push.start + push.count) - 1;
  if (tid < STILL_TILE) row_max[tid] = MINUS_INFINITY;
  clear_acc();
  float totals[OWN_ROWS];
  [[unroll]] for (uint i = 0; i < OWN_ROWS; i++) totals[i] = 0.0;
  uint kept_end = kept_visible(t_last), near0 = near_begin(t_first) / STILL_TILE * STILL_TILE, near_end = t_last + 1;
  uint tiles = (kept_end + STILL_TILE - 1) / STILL_TILE + (near_end - near0 + STILL_TILE - 1) / STILL_TILE;
  uint kept_all = kept_visible(t_first), near_all = near_begin(t_last);  // what all queries see
  key_tile tile = tile_of(0, head, kept_end, near0, near_end);
  fetch_logits(tid, head, t0, tile, 0);
  for (uint i = 0; i < tiles; i++) {
    vec4 s[OWN_ROWS];
    [[unroll]] for (uint j = 0; j < OWN_ROWS; j++) s[j] = vec4(0);
    for (uint d = 0; d < D4; d += QK_SLICE4) {
      uint slice = d / QK_SLICE4 % 2 * 2 * K_SLICE;
      put_logits(tid, slice);
      barrier();
      if (d + QK_SLICE4 < D4) fetch_logits(tid, head, t0, tile, d + QK_SLICE4);
      else fetch_values(tid, tile, 0);
      multiply_logits(tid, slice, s);
    }
    bool all_ = tile.kept ? tile.key0 + STILL_TILE <= kept_all : tile.key0 >= near_all && tile.key0 + STILL_TILE - 1 <= t_first;
    if (!all_)
      [[unroll]] for (uint j = 0; j < OWN_ROWS; j++) {
        uint t = clamp(t0 + OWN_ROWS * ty + j, t_first, t_last);
        uint first = tile.kept ? 0 : near_begin(t), visible = (tile.kept ? kept_visible(t) : t + 1) - first;
        [[unroll]] for (uint c = 0; c < 4; c++)
          if (tile.key0 + 4 * tx + c - first >= visible) s[j][c] = MINUS_INFINITY;  // also before first
      }
    weigh(tid, s, totals);
    key_tile next = tile_of(i + 1, head, kept_end, near0, near_end);
    for (uint k0 = 0; k0 < STILL_TILE; k0 += SLICE) {
      put_values(tid);
      barrier();
      if (k0 + SLICE < STILL_TILE) fetch_values(tid, tile, k0 + SLICE);
      else if (i + 1 < tiles) fetch_logits(tid, head, t0, next, 0);
      multiply_values(tid, k0);
      barrier();
    }
    tile = next;
  }
  sum_totals(tid, totals);
  merge(tid, head, t0);
}
