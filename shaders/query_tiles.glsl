// SPDX-License-Identifier: MIT
// 16 rows of a head's queries times a factor, straight from memory: from position t on, 0 behind the block's last.
void load_queries(uint t, uint head, float factor, out MATRIX_A x[DIM_TILES]) {
  uint end = push.start + push.count, stride = push.heads * DIM, at = (push.row0 + t - push.start) * stride + head * DIM;
  if (t + 16 <= end) {
    MATRIX_SUM rows[DIM_TILES];
    [[unroll]] for (uint k = 0; k < DIM_TILES; k++) coopMatLoad(rows[k], q, at + 16 * k, stride, ROW_MAJOR);
    [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++) x[k][e] = float16_t(factor * rows[k][e]);
  } else {
    [[unroll]] for (uint k = 0; k < DIM_TILES; k++)
      [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
        x[k][e] = t + row_of(e) < end ? float16_t(factor * q[at + row_of(e) * stride + 16 * k + column_of(e)]) : float16_t(0.0);
  }
}
