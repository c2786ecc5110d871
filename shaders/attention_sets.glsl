// SPDX-License-Identifier: MIT
// Where tokens lie and which of them a query sees. Needs the push constants.
#ifndef CHUNK
#define CHUNK push.chunk
#endif
uint chunks_before(uint position) { return position / CHUNK; }

// Kept tokens of a head once `chunks` chunks have been routed.
uint kept_after(uint chunks) { return min(chunks * push.keep, push.cap); }

// Keys that the query at position t sees in the kept cache: rows 0 .. visible-1.
uint kept_visible(uint t) {
  if (push.lower == STILL_LOWER_ALL) return 0;
  if (push.lower == STILL_LOWER_WINDOW) return min(push.sinks, t + 1 - min(t + 1, CHUNK));
  uint c = chunks_before(t);
  return c < 2 ? 0 : kept_after(c - 1);
}

// First position of the near keys; they go on to t itself.
uint near_begin(uint t) {
  if (push.lower == STILL_LOWER_ALL) return 0;
  if (push.lower == STILL_LOWER_WINDOW) return t + 1 - min(t + 1, CHUNK);
  return (max(chunks_before(t), 1) - 1) * CHUNK;
}

// Row of the token at position p among the new ones: of q, k, v, gate and out.
uint input_row(uint p) { return push.row0 + p - push.start; }
// And in the near cache, a ring of two chunks for each head.
uint near_row(uint head, uint p) { return head * 2 * push.chunk + p % (2 * push.chunk); }

uint kv_head(uint head) { return head / (push.heads / push.kv_heads); }
uint route_head(uint head) { return head / (push.heads / push.route_heads); }
