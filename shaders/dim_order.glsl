// SPDX-License-Identifier: MIT
// Which of 16 components of a head has a place (a row or a column) of a tile: the places 2 c, 2 c + 1, 2 c + 8 and 2 c + 9, which
// one invocation holds (tile_rows.glsl), have 4 c and the three behind it, so that it moves all four between registers and rows in
// memory at once. Products do not mind an order that both factors share.
uint dim_at(uint place) { return place % 8 / 2 * 4 + place / 8 * 2 + place % 2; }
