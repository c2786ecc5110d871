// SPDX-License-Identifier: MIT
// Products of small tiles: acc (64 rows x D) += A (64 rows x K) B (K x D), a slice of K at a time in shared memory.
// Invocation tid holds rows 8 ty .. 8 ty + 7 and the vec4 columns tx + 16 j, with ty = tid / 16, tx = tid % 16.
// Needs GL_EXT_control_flow_attributes, D4 (columns / 4) and SLICES, the size of `slices` in vec4, before it is included.
const uint COLS = (D4 + 15) / 16;  // vec4 columns of an invocation
const uint B_ROW = COLS * 16;
const uint A_ROW = STILL_TILE / 4 + 1;  // padded against bank conflicts
const uint SLICE = COLS <= 2 ? 16 : 8;  // channels of a slice
const uint B_SLICE = SLICE * A_ROW;     // where B begins in `slices`, for tile_product alone

shared vec4 slices[SLICES];
vec4 acc[8][COLS];

void clear_acc() {
  [[unroll]] for (uint i = 0; i < 8; i++)
    [[unroll]] for (uint j = 0; j < COLS; j++) acc[i][j] = vec4(0);
}

// One row k of A (64 values) and of B.
void multiply_row(uint ty, vec4 a0, vec4 a1, uint b, uint tx) {
  [[unroll]] for (uint j = 0; j < COLS; j++) {
    vec4 x = slices[b + tx + 16 * j];
    acc[0][j] += a0.x * x;
    acc[1][j] += a0.y * x;
    acc[2][j] += a0.z * x;
    acc[3][j] += a0.w * x;
    acc[4][j] += a1.x * x;
    acc[5][j] += a1.y * x;
    acc[6][j] += a1.z * x;
    acc[7][j] += a1.w * x;
  }
}

void multiply_slice(uint tid) {
  uint ty = tid / 16, tx = tid % 16;
  [[unroll]] for (uint k = 0; k < SLICE; k++)
    multiply_row(ty, slices[k * A_ROW + 2 * ty], slices[k * A_ROW + 2 * ty + 1],
                 B_SLICE + k * B_ROW, tx);
}

// A given as rows: 4 channels k .. k+3 of row r.
void put_a(uint r, uint k, vec4 x) {
  [[unroll]] for (uint i = 0; i < 4; i++) slices[(k + i) * A_ROW + r / 4][r % 4] = x[i];
}

// The slices of A and B that are on their way while the ones before are multiplied.
const uint STAGED_A = STILL_TILE * SLICE / 4 / STILL_GROUP, STAGED_B = SLICE * B_ROW / STILL_GROUP;
vec4 staged_a[STAGED_A], staged_b[STAGED_B];

// Which row, and which of the slice's SLICE / 4 groups of channels, element n of staged_a is, for A given as rows.
uint staged_row(uint tid, uint n) { return (tid + n * STILL_GROUP) / (SLICE / 4); }
uint staged_group(uint tid) { return tid % (SLICE / 4); }

void put_b(uint tid) {
  [[unroll]] for (uint n = 0; n < STAGED_B; n++) slices[B_SLICE + tid + n * STILL_GROUP] = staged_b[n];
}
void put_rows_and_b(uint tid) {
  [[unroll]] for (uint n = 0; n < STAGED_A; n++) put_a(staged_row(tid, n), 4 * staged_group(tid), staged_a[n]);
  put_b(tid);
}
