#version 450
#extension GL_GOOGLE_include_directive : require
// SPDX-License-Identifier: MIT
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
// One new token: exact attention of a head over a part of its kept tokens or of its near ones. The part that holds the
// token itself also scores it and puts its key and value into the near cache, whose slot nobody else reads then.
// Neighbours read neighbouring columns, and the first values are on their way while the keys are multiplied.
// Groups: x = kept_parts + near_parts, y = head. Result: D sums of weighted values, then maximum, sum of weights, score.
#define GROUP STILL_WIDE_GROUP
#include "shader_common.glsl"
#include "attention_common.glsl"
#include "group_reduce.glsl"
layout(set = 0, binding = 0) readonly buffer b0 { vec4 q[]; };         // (1, H D)
layout(set = 0, binding = 1) buffer b1 { STORE4 near_k[]; };           // (G, near_rows, D)
layout(set = 0, binding = 2) buffer b2 { STORE4 near_v[]; };
layout(set = 0, binding = 3) readonly buffer b3 { STORE4 kept_k[]; };  // (R, kept_rows, D)
layout(set = 0, binding = 4) readonly buffer b4 { STORE4 kept_v[]; };
layout(set = 0, binding = 5) readonly buffer b5 { vec4 in_k[]; };      // (1, G D)
layout(set = 0, binding = 6) readonly buffer b6 { vec4 in_v[]; };
layout(set = 0, binding = 7) writeonly buffer b7 { vec4 parts[]; };    // (H, parts, D + 4)

const uint ROWS = STILL_DECODE_ROWS;
const uint LANES = GROUP / D4;                         // rows that are read side by side
const uint FLYING = 16;                                // loads of an invocation on their way at a time
const uint BATCH = FLYING * LANES < 128 ? FLYING * LANES : 128, PITCH = D4 + 1;  // rows of keys that are multiplied at a time
shared vec4 query[D4];
shared float s[ROWS];
shared float products[BATCH * PITCH];
shared vec4 lanes[GROUP];

bool kept;       // which cache this part is of
uint head, kv, rows0;

// Where the token's own key and value are.
uint self_at(uint c) { return (push.row0 * push.kv_heads + kv) * D4 + c; }

// Rows first, first + LANES, ... of a column of the keys or values; those behind the last are the last.
#define FETCH(name, kept_rows, near_rows, in_rows)                                                   \
  void name(uint first, uint last, uint column, out STORE4 rows[FLYING]) {                           \
    if (kept) {                                                                                      \
      for (uint n = 0; n < FLYING; n++) rows[n] = kept_rows[(rows0 + min(first + n * LANES, last)) * D4 + column]; \
    } else {                                                                                         \
      STORE4 self = STORE4(in_rows[self_at(column)]);                 \
      for (uint n = 0; n < FLYING; n++) rows[n] = near_rows[(rows0 + min(first + n * LANES, last) % push.rows) * D4 + column]; \
      for (uint n = 0; n < FLYING; n++)                                                              \
        if (min(first + n * LANES, last) == push.start) rows[n] = self;                              \
    }                                                                                                \
  }
FETCH(fetch_keys, kept_k, near_k, in_k)
FETCH(fetch_values, kept_v, near_v, in_v)

float plog(float a, float b) { return a * log((a + EPSILON) / (b + EPSILON)); }

// From the logits of rows begin .. start, of which the last C are the token's window (spec section 2).
float self_score(uint tid, uint begin) {
  uint self = push.start - begin;
  uint first = self + 1 - min(self + 1, push.chunk);
  float rest = MINUS_INFINITY, own = s[self], sum_a = 0, sum_b = 0, norm = 0, result = 0;
  for (uint i = first + tid; i < self; i += GROUP) rest = max(rest, s[i]);
  rest = group_max(tid, rest);
  float most = max(rest, own), own_weight = exp(own - most);
  for (uint i = first + tid; i < self; i += GROUP) {
    sum_a += exp(s[i] - most);
    sum_b += exp(s[i] - rest);
  }
  sum_a = group_sum(tid, sum_a) + own_weight;
  sum_b = group_sum(tid, sum_b);
  for (uint i = first + tid; i < self; i += GROUP)
    result += plog(exp(s[i] - most) / sum_a, exp(s[i] - rest) / sum_b);
  result = group_sum(tid, result) + plog(own_weight / sum_a, 0.0);
  if (push.metric == 1) return own_weight / sum_a;
  if (push.metric == 2) return own;
  if (push.metric == 3) {
    for (uint c = tid; c < D4; c += GROUP) {
      vec4 k = in_k[self_at(c)];
      norm += dot(k, k);
    }
    return sqrt(group_sum(tid, norm));
  }
  if (push.metric == 4) {
    for (uint r = 0; r < push.keep; r++)
      if ((2 * r + 1) * push.chunk / (2 * push.keep) == push.start % push.chunk) return 1.0;
    return 0.0;
  }
  return result;
}

void main() {
  uint tid = gl_LocalInvocationID.x, part = gl_WorkGroupID.x;
  head = gl_WorkGroupID.y;
  kv = kv_head(head);
  kept = part < push.kept_parts;
  uint count_parts = kept ? push.kept_parts : push.near_parts;
  uint index = kept ? part : part - push.kept_parts;
  uint range_begin = kept ? 0 : near_begin(push.start);
  uint range = (kept ? kept_visible(push.start) : push.start + 1) - range_begin;
  uint share = (range + count_parts - 1) / count_parts;
  uint begin = range_begin + min(range, index * share), end = range_begin + min(range, (index + 1) * share);
  rows0 = kept ? route_head(head) * push.kept_rows : kv * push.rows;
  bool holds_self = !kept && end == push.start + 1 && begin < end;

  for (uint c = tid; c < D4; c += GROUP) query[c] = push.scale * q[(push.row0 * push.heads + head) * D4 + c];
  barrier();
  float most = MINUS_INFINITY, total = 0, score = 0;
  uint column = tid % D4, lane = tid / D4;
  vec4 sum = vec4(0);
  for (uint row0 = begin; row0 < end; row0 += ROWS) {
    uint n = min(ROWS, end - row0);
    STORE4 flying[FLYING];
    fetch_values(row0 + lane, row0 + n - 1, column, flying);
    float own_most = MINUS_INFINITY;
    for (uint first = 0; first < n; first += BATCH) {
      STORE4 keys[FLYING];
      fetch_keys(row0 + first + lane, row0 + n - 1, column, keys);
      if (lane < LANES)
        for (uint k = 0; k < FLYING; k++)
          if (lane + k * LANES < BATCH) products[(lane + k * LANES) * PITCH + column] = dot(query[column], vec4(keys[k]));
      barrier();
      for (uint i = tid; i < min(BATCH, n - first); i += GROUP) {
        float logit = 0;
        for (uint c = 0; c < D4; c++) logit += products[i * PITCH + c];
        s[first + i] = logit;
        own_most = max(own_most, logit);
      }
      barrier();
    }
    if (push.lower == STILL_LOWER_CHUNK && holds_self) score = self_score(tid, begin);
    float before = most, own_total = 0;
    most = max(before, group_max(tid, own_most));
    for (uint i = tid; i < n; i += GROUP) {
      s[i] = exp(s[i] - most);
      own_total += s[i];
    }
    float rescale = before == MINUS_INFINITY ? 0.0 : exp(before - most);
    total = total * rescale + group_sum(tid, own_total);
    sum *= rescale;
    if (lane < LANES)
      for (uint i = lane; i < n; i += FLYING * LANES) {
        if (i != lane) fetch_values(row0 + i, row0 + n - 1, column, flying);
        for (uint k = 0; k < FLYING; k++)
          if (i + k * LANES < n) sum += s[i + k * LANES] * vec4(flying[k]);
      }
    barrier();
  }
  lanes[tid] = sum;
  barrier();
  uint at = (head * (push.kept_parts + push.near_parts) + part) * (D4 + 1);
  if (lane == 0) {
    for (uint l = 1; l < LANES; l++) sum += lanes[l * D4 + column];
    parts[at + column] = sum;
  }
  if (tid == 0) parts[at + D4] = vec4(most, total, score, 0);
  if (holds_self && head % (push.heads / push.kv_heads) == 0)
    for (uint c = tid; c < D4; c += GROUP) {
      near_k[(rows0 + push.start % push.rows) * D4 + c] = STORE4(in_k[self_at(c)]);
      near_v[(rows0 + push.start % push.rows) * D4 + c] = STORE4(in_v[self_at(c)]);
    }
}
