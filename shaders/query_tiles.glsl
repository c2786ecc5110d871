// SPDX-License-Identifier: MIT
// An invocation's part of a tile of queries, q as vec4 (n, H D): 16 rows from position t on and columns 16 k, in the order of
// tile_rows.glsl and dim_order.glsl, times query_factor(). Rows behind the block's last are the last again.
uvec4 pack_query(uint t, uint head, uint k, uint lane) {
  uvec4 words;
  [[unroll]] for (uint r = 0; r < 2; r++) {
    uint row = input_row(min(t + lane / 4 + 8 * r, push.start + push.count - 1));
    vec4 part = query_factor() * q[((row * push.heads + head) * D + 16 * k) / 4 + lane % 4];
    words[2 * r] = packFloat2x16(f16vec2(part.xy));
    words[2 * r + 1] = packFloat2x16(f16vec2(part.zw));
  }
  return words;
}
