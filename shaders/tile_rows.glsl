// SPDX-License-Identifier: MIT
// Rows of 16 x 16 tiles whose elements lie in the registers of a subgroup: element e of invocation i is in row i / 4 or the one
// 8 below, in column 2 (i mod 4) and the three at distances 1, 8 and 9, for sums, for MATRIX_A and, rows and columns exchanged,
// for MATRIX_B: the registers of a MATRIX_B are those of its transpose as MATRIX_A or as a sum. That is how an H200 lays them out
// (driver 580.159); a device that does otherwise fails the self-check.
#extension GL_KHR_shader_subgroup_shuffle : require
const uint ELEMENTS = 8, ROWS = 2;  // of a tile in an invocation

uint own(uint e) { return e / 4; }  // which of the invocation's rows
uint row_at(uint r) { return gl_SubgroupInvocationID / 4 + 8 * r; }
uint row_of(uint e) { return row_at(own(e)); }
uint column_of(uint e) { return 2 * (gl_SubgroupInvocationID % 4) + e % 2 + 8 * (e / 2 % 2); }
// The 16 components of a head in a tile stand in another order (dim_order.glsl): an invocation's four are neighbours in memory.
uint own_dims() { return 4 * (gl_SubgroupInvocationID % 4); }

// Over the four invocations that share a row.
void row_sum(inout float x[ROWS]) {
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    x[r] += subgroupShuffleXor(x[r], 1);
    x[r] += subgroupShuffleXor(x[r], 2);
  }
}
void row_max(inout float x[ROWS]) {
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    x[r] = max(x[r], subgroupShuffleXor(x[r], 1));
    x[r] = max(x[r], subgroupShuffleXor(x[r], 2));
  }
}

// Makes a matrix of what lies in memory in that order, an invocation's 8 halves in a uvec4.
#define UNPACK(matrix, words)                           \
  {                                                     \
    uvec4 w_ = words;                                   \
    [[unroll]] for (uint n_ = 0; n_ < 4; n_++) {        \
      f16vec2 pair_ = unpackFloat2x16(w_[n_]);          \
      matrix[2 * n_] = pair_.x;                         \
      matrix[2 * n_ + 1] = pair_.y;                     \
    }                                                   \
  }
