#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
// softmax_branch.comp for f16 keys and values. Weights are taken against a reference that follows the row's maximum only when
// that has moved by more than LAG, so the sums are rarely rescaled; the end knows the true maximum.
// Groups: x = tile of 64 queries, y = head.
#include "shader_common.glsl"
#include "coopmat_common.glsl"
const uint D = DIM, D4 = DIM / 4;
layout(push_constant) uniform block { attention_push push; };
#include "attention_sets.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };        // (n, H D)
layout(set = 0, binding = 1) readonly buffer b1 { uvec4 kept_k[]; };  // (R, kept_rows, D)
layout(set = 0, binding = 2) readonly buffer b2 { uvec4 kept_v[]; };
layout(set = 0, binding = 3) readonly buffer b3 { uvec4 work_k[]; };  // (G, rows, D)
layout(set = 0, binding = 4) readonly buffer b4 { uvec4 work_v[]; };
layout(set = 0, binding = 5) readonly buffer b5 { vec4 linear[]; };  // (H, rows, D), then (H, rows)
layout(set = 0, binding = 5) readonly buffer b5_floats { float linear_floats[]; };
layout(set = 0, binding = 6) readonly buffer b6 { vec4 gate[]; };      // (n, H D)
layout(set = 0, binding = 7) writeonly buffer b7 { vec4 outputs[]; };  // (n, H D)

const float LAG = 5.0;  // weights up to e^5 are safe in f16
const uint P_ROW = 72;  // halves of a row of weights
const uint STAGED = 64 * DIM8 / STILL_GROUP;  // uvec4 of a tile of keys that an invocation moves
const uint COLUMNS = DIM / 32;                // tiles of 16 output columns of a subgroup
shared f16vec4 tile[64 * KEY_ROW / 4];        // keys, then values
shared vec4 logits[64 * LOGIT_ROW / 4];       // logits, then rescaling factors, then results
shared f16vec4 weights[64 * P_ROW / 4];
shared float row_max[64], row_reference[64], row_total[64];
shared float part[STILL_GROUP];
shared uint rescale;

uvec4 staged[STAGED];

// A tile of keys or values on its way: key i of the range lies in row first + i - from.
#define FETCH(name, rows)                                                          \
  void name(uint tid, uint first, uint key0, uint from, uint end) {                \
    [[unroll]] for (uint i = 0; i < STAGED; i++) {                                            \
      uint at = tid + i * STILL_GROUP, key = key0 + at / DIM8;                     \
      bool inside = key >= from && key < end;                                      \
      staged[i] = inside ? rows[(first + key - from) * DIM8 + at % DIM8] : uvec4(0); \
    }                                                                              \
  }
FETCH(fetch_kept_k, kept_k)
FETCH(fetch_kept_v, kept_v)
FETCH(fetch_near_k, work_k)
FETCH(fetch_near_v, work_v)

void put_staged(uint tid) {
  [[unroll]] for (uint i = 0; i < STAGED; i++) {
    uint at = tid + i * STILL_GROUP, to = (at / DIM8 * KEY_ROW + at % DIM8 * 8) / 4;
    tile[to] = f16vec4(unpackFloat2x16(staged[i].x), unpackFloat2x16(staged[i].y));
    tile[to + 1] = f16vec4(unpackFloat2x16(staged[i].z), unpackFloat2x16(staged[i].w));
  }
}

MATRIX_A query[2][DIM / 16];
MATRIX_SUM acc[2][COLUMNS];
bool multiplies;
uint wr, wc;

void multiply_keys() {
  [[unroll]] for (uint j = 0; j < 2; j++) {
    MATRIX_SUM s[2];
    [[unroll]] for (uint i = 0; i < 2; i++) s[i] = MATRIX_SUM(0.0);
    [[unroll]] for (uint k = 0; k < DIM / 16; k++) {
      MATRIX_B b;
      coopMatLoad(b, tile, ((32 * wc + 16 * j) * KEY_ROW + 16 * k) / 4, KEY_ROW / 4, COLUMN_MAJOR);
      [[unroll]] for (uint i = 0; i < 2; i++) s[i] = coopMatMulAdd(query[i][k], b, s[i]);
    }
    [[unroll]] for (uint i = 0; i < 2; i++)
      coopMatStore(s[i], logits, ((32 * wr + 16 * i) * LOGIT_ROW + 32 * wc + 16 * j) / 4, LOGIT_ROW / 4, ROW_MAJOR);
  }
}

void multiply_values() {
  [[unroll]] for (uint k = 0; k < 4; k++) {
    MATRIX_A p[2];
    [[unroll]] for (uint i = 0; i < 2; i++)
      coopMatLoad(p[i], weights, ((32 * wr + 16 * i) * P_ROW + 16 * k) / 4, P_ROW / 4, ROW_MAJOR);
    [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
      MATRIX_B b;
      coopMatLoad(b, tile, (16 * k * KEY_ROW + (wc * COLUMNS + j) * 16) / 4, KEY_ROW / 4, ROW_MAJOR);
      [[unroll]] for (uint i = 0; i < 2; i++) acc[i][j] = coopMatMulAdd(p[i], b, acc[i][j]);
    }
  }
}

// Logits of keys begin .. end-1 of the row's tile become weights. Two invocations share a row, half of the keys each.
void weigh(uint tid, uint begin, uint end) {
  uint row = tid % 64, first4 = tid / 64 * 8;
  float most = MINUS_INFINITY;
  vec4 x[8];
  [[unroll]] for (uint j = 0; j < 8; j++) {
    uvec4 key = 4 * (first4 + j) + uvec4(0, 1, 2, 3);
    x[j] = mix(vec4(MINUS_INFINITY), logits[row * (LOGIT_ROW / 4) + first4 + j],
               lessThan(key - begin, uvec4(end - begin)));  // begin <= key < end, unsigned
    most = max(most, max(max(x[j].x, x[j].y), max(x[j].z, x[j].w)));
  }
  part[tid] = most;
  if (tid == 0) rescale = 0;
  barrier();
  most = max(row_max[row], max(part[tid], part[tid ^ 64]));
  float before = row_reference[row];
  bool moves = most > before + LAG || (before == MINUS_INFINITY && most > before);
  float reference = moves ? most : before;
  float factor = !moves ? 1.0 : before == MINUS_INFINITY ? 0.0 : exp(before - most);
  if (moves) rescale = 1;
  float sum = 0;
  [[unroll]] for (uint j = 0; j < 8; j++) {
    vec4 weight = mix(vec4(0), exp(x[j] - reference), greaterThan(x[j], vec4(MINUS_INFINITY)));
    sum += weight.x + weight.y + weight.z + weight.w;
    weights[row * (P_ROW / 4) + first4 + j] = f16vec4(weight);
  }
  barrier();
  part[tid] = sum;
  barrier();
  if (tid < 64) {
    row_max[row] = most;
    row_reference[row] = reference;
    row_total[row] = row_total[row] * factor + sum + part[tid + 64];
  }
  if (rescale != 0) {  // the same for all: nobody writes it after the barrier above
    for (uint j = 0; j < 2; j++) logits[row * (LOGIT_ROW / 4) + 2 * (tid / 64) + j] = vec4(factor);
    barrier();
    if (multiplies)
      [[unroll]] for (uint i = 0; i < 2; i++) {
        MATRIX_SUM factors;
        coopMatLoad(factors, logits, (32 * wr + 16 * i) * LOGIT_ROW / 4, LOGIT_ROW / 4, ROW_MAJOR);
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) acc[i][j] *= factors;
      }
  }
}

uint inside_tile(uint x, uint key0) { return clamp(x, key0, key0 + 64) - key0; }

void load_queries(uint tid, uint head, uint t0) {
  for (uint i = tid; i < 64 * D4; i += STILL_GROUP) {
    uint r = i / D4, c = i % D4, t = t0 + r;
    bool inside = t >= push.start && t < push.start + push.count;
    tile[r * (KEY_ROW / 4) + c] =
        f16vec4(inside ? push.scale * q[((push.row0 + t - push.start) * push.heads + head) * D4 + c] : vec4(0));
  }
  if (tid < 64) {
    row_max[tid] = row_reference[tid] = MINUS_INFINITY;
    row_total[tid] = 0.0;
  }
  barrier();
  if (multiplies) {
    [[unroll]] for (uint i = 0; i < 2; i++)
      [[unroll]] for (uint k = 0; k < DIM / 16; k++)
        coopMatLoad(query[i][k], tile, ((32 * wr + 16 * i) * KEY_ROW + 16 * k) / 4, KEY_ROW / 4, ROW_MAJOR);
    [[unroll]] for (uint i = 0; i < 2; i++)
      [[unroll]] for (uint j = 0; j < COLUMNS; j++) acc[i][j] = MATRIX_SUM(0.0);
  }
  barrier();
}

// Half of the columns at a time through shared memory: columns j of each subgroup's COLUMNS tiles.
void merge(uint tid, uint head, uint t0) {
  bool hybrid = (push.flags & STILL_FLAG_LINEAR) != 0;
  [[unroll]] for (uint part_ = 0; part_ < COLUMNS / 2; part_++) {
    barrier();
    if (multiplies)
      [[unroll]] for (uint i = 0; i < 2; i++)
        [[unroll]] for (uint j = 0; j < 2; j++)
          coopMatStore(acc[i][2 * part_ + j], logits, ((32 * wr + 16 * i) * LOGIT_ROW + 32 * wc + 16 * j) / 4, LOGIT_ROW / 4, ROW_MAJOR);
    barrier();
    for (uint i = tid; i < 64 * 16; i += STILL_GROUP) {
      uint r = i / 16, c = i % 16, t = t0 + r;  // c: vec4 of the 64 columns, half of them of each subgroup
      if (t < push.start || t >= push.start + push.count) continue;
      uint column = ((c / 8) * COLUMNS + 2 * part_) * 4 + c % 8;
      float correct = exp(row_reference[r] - row_max[r]), total = row_total[r] * correct;
      vec4 y = correct * logits[r * (LOGIT_ROW / 4) + c];
      uint row = head * push.rows + t - push.start;
      uint at = ((push.row0 + t - push.start) * push.heads + head) * D4 + column;
      if (hybrid) {
        total += linear_floats[4 * push.heads * push.rows * D4 + row];
        y += ((push.flags & STILL_FLAG_GATE) != 0 ? gate[at] : vec4(1)) * linear[row * D4 + column];
      }
      outputs[at] = y / total;
    }
  }
}

void main() {
  uint tid = gl_LocalInvocationID.x, head = gl_WorkGroupID.y;
  multiplies = gl_SubgroupID < 4;
  wr = gl_SubgroupID / 2;
  wc = gl_SubgroupID % 2;
  // the last tiles see the most keys: they go first
  uint t0 = (push.start / 64 + gl_NumWorkGroups.x - 1 - gl_WorkGroupID.x) * 64;
  uint t_first = max(t0, push.start), t_last = min(t0 + 64, push.start + push.count) - 1;
  uint t = clamp(t0 + tid % 64, t_first, t_last);
  load_queries(tid, head, t0);

  uint first = route_head(head) * push.kept_rows, end = kept_visible(t_last), mine = kept_visible(t);
  fetch_kept_k(tid, first, 0, 0, end);
  for (uint key0 = 0; key0 < end; key0 += 64) {
    put_staged(tid);
    fetch_kept_v(tid, first, key0, 0, end);
    barrier();
    if (multiplies) multiply_keys();
    barrier();
    put_staged(tid);
    fetch_kept_k(tid, first, key0 + 64, 0, end);
    weigh(tid, 0, inside_tile(mine, key0));
    barrier();
    if (multiplies) multiply_values();
    barrier();
  }
  first = kv_head(head) * push.rows;
  end = t_last + 1;
  uint begin = near_begin(t_first) / 64 * 64;
  fetch_near_k(tid, first, begin, push.base, end);
  for (uint key0 = begin; key0 < end; key0 += 64) {
    put_staged(tid);
    fetch_near_v(tid, first, key0, push.base, end);
    barrier();
    if (multiplies) multiply_keys();
    barrier();
    put_staged(tid);
    fetch_near_k(tid, first, key0 + 64, push.base, end);
    weigh(tid, inside_tile(near_begin(t), key0), inside_tile(t + 1, key0));
    barrier();
    if (multiplies) multiply_values();
    barrier();
  }
  merge(tid, head, t0);
}
