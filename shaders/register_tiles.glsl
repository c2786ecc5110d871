// SPDX-License-Identifier: MIT
// Where tiles.comp puts tiles: 32 uvec4 each, blocks of 16 rows by tiles of 16 columns. Needs the push constants and a number of
// columns D.
uint blocks_of(uint rows) { return (rows + 63) / 64 * 4; }  // four at a time are read
// Queries lie there times this: products with keys are logits in powers of two.
const float LOG2E = 1.4426950408889634;
float query_factor() { return push.scale * LOG2E; }
uint query_tile(uint head, uint block) { return (head * blocks_of(push.count) + block) * 2 * D; }
uint near_tile(uint kv, uint block) { return (kv * blocks_of(push.rows) + block) * 2 * D; }
uint kept_tile(uint route, uint block) {
  return (push.kv_heads * blocks_of(push.rows) + route * blocks_of(push.kept_rows) + block) * 2 * D;
}
