// SPDX-License-Identifier: MIT
// Products of small tiles: acc (64 rows x D) += A (64 rows x K) B (K x D), a slice of K at a time in shared memory.
// Invocation tid holds rows OWN_ROWS ty .. and the vec4 columns tx + 16 j, with ty = tid / 16, tx = tid % 16.
// Needs GL_EXT_control_flow_attributes, D4 (columns / 4) and SLICES, the size of `slices` in vec4, before it is included.
const uint OWN_ROWS = STILL_TILE * 16 / GROUP, OWN_ROWS4 = OWN_ROWS / 4;
const uint COLS = (D4 + 15) / 16;  // vec4 columns of an invocation
const uint B_ROW = COLS * 16;
const uint A_ROW = STILL_TILE / 4 + 1;  // padded against bank conflicts
const uint SLICE = COLS <= 2 ? 16 : 8;  // channels of a slice
const uint B_SLICE = SLICE * A_ROW;     // where B begins in `slices`, for tile_product alone

shared vec4 slices[SLICES];
vec4 acc[OWN_ROWS][COLS];

void clear_acc() {
  [[unroll]] for (uint i = 0; i < OWN_ROWS; i++)
    [[unroll]] for (uint j = 0; j < COLS; j++) acc[i][j] = vec4(0);
}

// This invocation's values of one row k of A, times the row k of B at b.
void multiply_row(vec4 a[OWN_ROWS4], uint b, uint tx) {
  [[unroll]] for (uint j = 0; j < COLS; j++) {
    vec4 x = slices[b + tx + 16 * j];
    [[unroll]] for (uint r = 0; r < OWN_ROWS4; r++) {
      acc[4 * r][j] += a[r].x * x;
      acc[4 * r + 1][j] += a[r].y * x;
      acc[4 * r + 2][j] += a[r].z * x;
      acc[4 * r + 3][j] += a[r].w * x;
    }
  }
}

void multiply_slice(uint tid) {
  uint ty = tid / 16, tx = tid % 16;
  for (uint k = 0; k < SLICE; k++) {
    vec4 a[OWN_ROWS4];
    [[unroll]] for (uint r = 0; r < OWN_ROWS4; r++) a[r] = slices[k * A_ROW + OWN_ROWS4 * ty + r];
    multiply_row(a, B_SLICE + k * B_ROW, tx);
  }
}

// A given as rows: 4 channels k .. k+3 of row r.
void put_a(uint r, uint k, vec4 x) {
  [[unroll]] for (uint i = 0; i < 4; i++) slices[(k + i) * A_ROW + r / 4][r % 4] = x[i];
}

// The slices of A and B that are on their way while the ones before are multiplied.
const uint STAGED_A = (STILL_TILE * SLICE / 4 + GROUP - 1) / GROUP, STAGED_B = SLICE * B_ROW / GROUP;
vec4 staged_a[STAGED_A], staged_b[STAGED_B];

// Which row, and which of the slice's SLICE / 4 groups of channels, element n of staged_a is, for A given as rows.
// Rows from STILL_TILE on are none: there are more invocations than elements.
uint staged_row(uint tid, uint n) { return (tid + n * GROUP) / (SLICE / 4); }
uint staged_group(uint tid) { return tid % (SLICE / 4); }

void put_b(uint tid) {
  [[unroll]] for (uint n = 0; n < STAGED_B; n++) slices[B_SLICE + tid + n * GROUP] = staged_b[n];
}
void put_rows_and_b(uint tid) {
  [[unroll]] for (uint n = 0; n < STAGED_A; n++)
    if (staged_row(tid, n) < STILL_TILE) put_a(staged_row(tid, n), 4 * staged_group(tid), staged_a[n]);
  put_b(tid);
}

// Sums along the rows of A (of terms that each invocation has for the elements it staged), for this invocation's rows.
void sum_staged(uint tid, float terms[STAGED_A], out float sums[OWN_ROWS]) {
  [[unroll]] for (uint n = 0; n < STAGED_A; n++)
    if (staged_row(tid, n) < STILL_TILE) slices[staged_row(tid, n)][staged_group(tid)] = terms[n];
  barrier();
  [[unroll]] for (uint i = 0; i < OWN_ROWS; i++) {
    vec4 x = slices[tid / 16 * OWN_ROWS + i];
    sums[i] = x.x + x.y + (SLICE == 16 ? x.z + x.w : 0.0);
  }
  barrier();
}
