/* SPDX-License-Identifier: MIT
 * The dense operations of a Llama layer over many rows, backward, and large matrix products. All
 * use the threads that still_blas_threads() and OpenMP were given; call from outside parallel
 * regions. */
#ifndef STILL_LINEARIZE_DENSE_GRADIENT_H
#define STILL_LINEARIZE_DENSE_GRADIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* C (m, n) = alpha op(A) op(B) + beta C, beta 0 or 1, row-major with row strides; op transposes where its flag is
 * set. By OpenBLAS where it is built in and knows the CPU, by our own kernels otherwise. */
void still_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha,
                const float *a, size_t a_row, const float *b, size_t b_row, float beta, float *c,
                size_t c_row);

/* Two products with one small operand, on which the threads of a general product find little to share:
 * the tokens are shared out instead, in pieces that do not depend on the threads.
 *
 * still_product_of_rows: C (rows, n) = scale A (rows, k) B (k, n).
 * still_sum_of_products: C (m, n) += scale sum over t of a_t b_t^T, a (tokens, m), b (tokens, n). work:
 * still_sum_work_floats(the largest m * n that it is used for). */
void still_product_of_rows(float *c, size_t c_row, const float *a, size_t a_row, const float *b,
                           size_t rows, size_t n, size_t k, float scale);
void still_sum_of_products(float *c, size_t c_row, const float *a, size_t a_row, size_t m,
                           const float *b, size_t b_row, size_t n, size_t tokens, float scale,
                           float *work);
size_t still_sum_work_floats(size_t most);

/* memcpy and memset 0 of many floats, by all threads. */
void still_copy_floats(float *out, const float *in, size_t count);
void still_clear_floats(float *out, size_t count);

void still_rms_norm(float *out, const float *x, const float *weight, float eps, size_t rows,
                    size_t dim);
/* dx += gradient of rms_norm(x) for dout. */
void still_rms_norm_backward(float *dx, const float *dout, const float *x, const float *weight,
                             float eps, size_t rows, size_t dim);

/* gate_up (rows, 2 ff): gate and up side by side; out (rows, ff). */
void still_swiglu(float *out, const float *gate_up, size_t rows, size_t ff);
/* dgate_up (rows, 2 ff) of dout (rows, ff). */
void still_swiglu_backward(float *dgate_up, const float *dout, const float *gate_up, size_t rows,
                           size_t ff);

/* Rotates (direction 1) or rotates back, which is the gradient (direction -1), heads of rows x in
 * place. at (rows): positions; cosine, sine (most positions, half). */
void still_rotate(float *x, size_t x_row, size_t rows, const int32_t *at, const float *cosine,
                  const float *sine, size_t heads, size_t dim, int direction);

/* logits (rows, vocabulary) become dlogits = factor[i] (softmax - onehot); losses (rows) =
 * factor[i] * loss; returns their sum. */
double still_cross_entropy(float *logits, const int32_t *target, const float *factor, size_t rows,
                           size_t vocabulary, double *losses);

#endif
