/* SPDX-License-Identifier: MIT */
#ifndef STILL_SIMD_TRANSPOSE_AVX512_H
#define STILL_SIMD_TRANSPOSE_AVX512_H

#include <immintrin.h>
#include <stddef.h>

/* 16 x 16 of four bytes each: row r's four bytes i go to column r of row i of out. */
static inline void store_transposed(void *to, size_t stride, const __m512i *x) {
  char *out = to;
  __m512i t[16], u[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {
      u[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      u[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  for (int j = 0; j < 4; j++) {
    const __m512i even = _mm512_shuffle_i32x4(u[j], u[j + 4], 0x88);
    const __m512i odd = _mm512_shuffle_i32x4(u[j], u[j + 4], 0xdd);
    const __m512i even_too = _mm512_shuffle_i32x4(u[j + 8], u[j + 12], 0x88);
    const __m512i odd_too = _mm512_shuffle_i32x4(u[j + 8], u[j + 12], 0xdd);
    _mm512_storeu_si512(out + stride * (size_t)j, _mm512_shuffle_i32x4(even, even_too, 0x88));
    _mm512_storeu_si512(out + stride * (size_t)(j + 4), _mm512_shuffle_i32x4(odd, odd_too, 0x88));
    _mm512_storeu_si512(out + stride * (size_t)(j + 8), _mm512_shuffle_i32x4(even, even_too, 0xdd));
    _mm512_storeu_si512(out + stride * (size_t)(j + 12), _mm512_shuffle_i32x4(odd, odd_too, 0xdd));
  }
}

#endif
