// SPDX-License-Identifier: MIT
// Where the stages of the linear branch by cooperative matrices put their tiles, 32 uvec4 each. Needs the push constants and DIM.
const uint HALF = 4 * DIM_TILES * 32;  // one half of the features of a chunk, [softmax(u) or softmax(-u)]: rows by columns
uint feature_half(uint chunk, uint head, uint half_) { return ((chunk * push.heads + head) * 2 + half_) * HALF; }
// What 64 queries take from a state, rows by columns.
uint linear_tile(uint chunk, uint head) { return (chunk * push.heads + head) * HALF; }
// Tokens of the chunks up to this routed one, by which what queries take from its state is divided: kept ones count, too.
float tokens_of(uint chunk) { return float(64 * (push.route_first + chunk + 1)); }
