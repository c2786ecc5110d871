/* SPDX-License-Identifier: MIT
 * Feature maps of the linear branch, forward and backward, on rows (spec sections 4 and 6). */
#ifndef STILL_LINEARIZE_FEATURE_GRADIENT_H
#define STILL_LINEARIZE_FEATURE_GRADIENT_H

#include <stddef.h>
#include <stdint.h>

typedef enum still_map_kind {
  STILL_MAP_NORM_PRESERVED, /* [softmax(u), softmax(-u)], u = ||x|| xA / ||xA|| */
  STILL_MAP_HEDGEHOG,       /* [softmax(xA), softmax(-xA)] */
  STILL_MAP_RELU            /* relu(xA + b) */
} still_map_kind;

typedef struct still_map {
  still_map_kind kind;
  const float *weight; /* A (D, D) */
  const float *bias;   /* RELU: (D), NULL = 0 */
} still_map;

/* F: 2 D, or D for RELU. */
size_t still_map_features(still_map_kind kind, size_t dim);

/* phi (rows, F) and pre (rows, D) = xA + b of rows x; norm (rows) work = ||x||. */
void still_map_forward(const still_map *map, float *phi, float *pre, float *norm, const float *x,
                       size_t x_row, size_t rows, size_t dim);

/* From dphi (rows, F; overwritten): dpre (rows, D) out; dweight (D, D) += x^T dpre; dbias (D) +=;
 * dx (rows, stride dx_row) += when not NULL, with transposed (D, D) = A^T. phi, pre, norm as
 * forward left them. */
void still_map_backward(const still_map *map, const float *transposed, float *dphi, float *dpre,
                        const float *phi, const float *pre, const float *norm, const float *x,
                        size_t x_row, size_t rows, size_t dim, float *dweight, float *dbias,
                        float *dx, size_t dx_row);

/* out (columns, rows; row stride out_row) = x^T of x (rows, columns; row stride x_row). */
void still_transpose(float *out, size_t out_row, const float *x, size_t x_row, size_t rows,
                     size_t columns);

#endif
