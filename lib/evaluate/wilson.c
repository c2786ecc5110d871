/* SPDX-License-Identifier: MIT */
#include <still/evaluate.h>

#include <math.h>

void still_wilson_interval(double right, int64_t count, double *low, double *high) {
  const double z = 1.959963984540054; /* the normal distribution's 97.5 % point */
  *low = 0, *high = 1;
  if (count <= 0) return;
  const double n = (double)count, share = right / n;
  const double centre = (share + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  /* At the ends the interval reaches them exactly, which rounding would miss. */
  if (right > 0) *low = fmax(0, centre - half);
  if (right < n) *high = fmin(1, centre + half);
}
