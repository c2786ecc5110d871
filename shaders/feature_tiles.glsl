// SPDX-License-Identifier: MIT
// Inside a main(): from x[DIM_TILES] (MATRIX_A, 16 rows) and u[DIM_TILES] (MATRIX_SUM, x A) makes phi[2 * DIM_TILES] (MATRIX_A),
// the numerators of feature_map.comp, at most 1, and the rows' factors for its halves: factor_a and factor_b.
float factor_a[ELEMENTS], factor_b[ELEMENTS];
{
  float norm[ELEMENTS], squares[ELEMENTS], most[ELEMENTS], least[ELEMENTS], scale[ELEMENTS];
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    norm[e] = squares[e] = 0;
    most[e] = least[e] = u[0][e];
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      norm[e] += float(x[j][e]) * float(x[j][e]);
      squares[e] += u[j][e] * u[j][e];
      most[e] = max(most[e], u[j][e]);
      least[e] = min(least[e], u[j][e]);
    }
    least[e] = -least[e];
  }
  row_max(most);
  row_max(least);
  const float LOG2E = 1.4426950408889634;
  if ((push.flags & STILL_FLAG_NORM) != 0) {
    row_sum(norm);
    row_sum(squares);
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++) scale[e] = LOG2E * sqrt(norm[e]) / max(sqrt(squares[e]), TINY);
  } else {
    [[unroll]] for (uint e = 0; e < ELEMENTS; e++) scale[e] = LOG2E;
  }
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    float top = scale[e] * most[e], bottom = scale[e] * least[e];
    factor_a[e] = factor_b[e] = 0;
    [[unroll]] for (uint j = 0; j < DIM_TILES; j++) {
      float a = exp2(scale[e] * u[j][e] - top), b = exp2(-scale[e] * u[j][e] - bottom);
      factor_a[e] += a;
      factor_b[e] += b;
      phi[j][e] = float16_t(a);
      phi[DIM_TILES + j][e] = float16_t(b);
    }
  }
  row_sum(factor_a);
  row_sum(factor_b);
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) {
    factor_a[e] = 1.0 / factor_a[e];
    factor_b[e] = 1.0 / factor_b[e];
  }
}
