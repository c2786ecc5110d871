// SPDX-License-Identifier: MIT
// Inside a main(): from x[DIM_TILES] (MATRIX_A, 16 rows times x_scale) and u[DIM_TILES] (MATRIX_SUM, x A) makes
// phi[2 * DIM_TILES] (MATRIX_A), the numerators of feature_map.comp, at most 1, and the rows' factors for its halves: factor_a
// and factor_b.
float factor_a[ROWS], factor_b[ROWS];
{
  float norm[ROWS], squares[ROWS], most[ROWS], least[ROWS], scale[ROWS];
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    norm[r] = squares[r] = 0;
    most[r] = least[r] = -1e38;
  }
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      norm[own(e)] += float(x[j][e]) * float(x[j][e]);
      squares[own(e)] += u[j][e] * u[j][e];
      most[own(e)] = max(most[own(e)], u[j][e]);
      least[own(e)] = max(least[own(e)], -u[j][e]);
    }
  row_max(most);
  row_max(least);
  float log2e = 1.4426950408889634 / x_scale;
  if ((push.flags & STILL_FLAG_NORM) != 0) {
    row_sum(norm);
    row_sum(squares);
    [[unroll]] for (uint r = 0; r < ROWS; r++) scale[r] = log2e * sqrt(norm[r]) / max(sqrt(squares[r]), TINY);
  } else {
    [[unroll]] for (uint r = 0; r < ROWS; r++) scale[r] = log2e;
  }
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    most[r] *= scale[r];
    least[r] *= scale[r];
    factor_a[r] = factor_b[r] = 0;
  }
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++)
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      float a = exp2(scale[own(e)] * u[j][e] - most[own(e)]), b = exp2(-scale[own(e)] * u[j][e] - least[own(e)]);
      factor_a[own(e)] += a;
      factor_b[own(e)] += b;
      phi[j][e] = float16_t(a);
      phi[DIM_TILES + j][e] = float16_t(b);
    }
  row_sum(factor_a);
  row_sum(factor_b);
  [[unroll]] for (uint r = 0; r < ROWS; r++) {
    factor_a[r] = 1.0 / factor_a[r];
    factor_b[r] = 1.0 / factor_b[r];
  }
}
