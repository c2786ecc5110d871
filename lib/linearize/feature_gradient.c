/* SPDX-License-Identifier: MIT */
#include "linearize/feature_gradient.h"

#include "simd/kernels.h"

#include <math.h>
#include <string.h>

static const float tiny = 1e-12f; /* floor of norms (spec section 4) */

size_t still_map_features(still_map_kind kind, size_t dim) {
  return kind == STILL_MAP_RELU ? dim : 2 * dim;
}

void still_map_forward(const still_map *map, float *phi, float *pre, float *norm, const float *x,
                       size_t x_row, size_t rows, size_t dim) {
  const still_kernels *kernels = still_kernels_get();
  kernels->matmul(pre, dim, x, x_row, 1, map->weight, dim, rows, dim, dim, 0);
  if (map->kind == STILL_MAP_RELU) {
    for (size_t i = 0; i < rows; i++)
      for (size_t d = 0; d < dim; d++) {
        float *at = &pre[i * dim + d];
        if (map->bias) *at += map->bias[d];
        phi[i * dim + d] = *at > 0 ? *at : 0;
      }
    return;
  }
  const int preserve = map->kind == STILL_MAP_NORM_PRESERVED;
  if (preserve) kernels->row_norms(norm, x, x_row, rows, dim);
  kernels->feature_rows(phi, 2 * dim, pre, dim, preserve ? norm : NULL, rows, dim);
}

/* du of [softmax(u), softmax(-u)]: the softmax Jacobian twice, the second with the sign turned. */
static void softmax_pair_backward(const still_kernels *kernels, float *du, const float *phi,
                                  const float *dphi, size_t dim) {
  const float plus = kernels->dot(phi, dphi, dim);
  const float minus = kernels->dot(phi + dim, dphi + dim, dim);
  for (size_t d = 0; d < dim; d++)
    du[d] = phi[d] * (dphi[d] - plus) - phi[dim + d] * (dphi[dim + d] - minus);
}

/* u = ||x|| y / ||y||: turns du into dy in place and returns d||x||. */
static float preserve_backward(const still_kernels *kernels, float *du, const float *y,
                               float x_norm, size_t dim) {
  const float y_norm = sqrtf(kernels->dot(y, y, dim));
  if (y_norm <= tiny) { /* the floor is active: u = ||x|| y / tiny */
    const float along = kernels->dot(du, y, dim) / tiny;
    for (size_t d = 0; d < dim; d++) du[d] *= x_norm / tiny;
    return along;
  }
  const float along = kernels->dot(du, y, dim) / y_norm;
  const float scale = x_norm / y_norm, shrink = along / y_norm;
  for (size_t d = 0; d < dim; d++) du[d] = scale * (du[d] - shrink * y[d]);
  return along;
}

void still_map_backward(const still_map *map, const float *transposed, float *dphi, float *dpre,
                        const float *phi, const float *pre, const float *norm, const float *x,
                        size_t x_row, size_t rows, size_t dim, float *dweight, float *dbias,
                        float *dx, size_t dx_row) {
  const still_kernels *kernels = still_kernels_get();
  for (size_t i = 0; i < rows; i++) {
    float *du = dpre + i * dim;
    if (map->kind == STILL_MAP_RELU) {
      for (size_t d = 0; d < dim; d++) du[d] = pre[i * dim + d] > 0 ? dphi[i * dim + d] : 0;
      continue;
    }
    softmax_pair_backward(kernels, du, phi + i * 2 * dim, dphi + i * 2 * dim, dim);
    if (map->kind != STILL_MAP_NORM_PRESERVED) continue;
    const float dnorm = preserve_backward(kernels, du, pre + i * dim, norm[i], dim);
    if (!dx || norm[i] <= 0) continue;
    const float factor = dnorm / norm[i];
    for (size_t d = 0; d < dim; d++) dx[i * dx_row + d] += factor * x[i * x_row + d];
  }
  if (dweight) kernels->matmul(dweight, dim, x, 1, x_row, dpre, dim, dim, dim, rows, 1);
  if (dbias) kernels->column_sums(dbias, dpre, dim, rows, dim);
  if (dx) kernels->matmul(dx, dx_row, dpre, dim, 1, transposed, dim, rows, dim, dim, 1);
}

void still_transpose(float *out, size_t out_row, const float *x, size_t x_row, size_t rows,
                     size_t columns) {
  enum { BLOCK = 8 };
  for (size_t i0 = 0; i0 < rows; i0 += BLOCK)
    for (size_t j = 0; j < columns; j++) {
      const size_t end = i0 + BLOCK < rows ? i0 + BLOCK : rows;
      for (size_t i = i0; i < end; i++) out[j * out_row + i] = x[i * x_row + j];
    }
}
