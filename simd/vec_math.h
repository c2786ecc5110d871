/* SPDX-License-Identifier: MIT
 * exp, log and loops over a row's vectors, in the operations of vec_<isa>.h. */
#ifndef STILL_SIMD_VEC_MATH_H
#define STILL_SIMD_VEC_MATH_H

#include <math.h>

/* e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln(2)/2.
 * e^r = 1 + r + r^2 q(r), q of degree 4 fitted for the least largest relative error (reweighted
 * least squares on 4000 Chebyshev points): 3.1e-9. ln 2 in two parts, the first nearest to it, so
 * that r carries one rounding. 1.0 ulp where the result is normal and finite; below -87.7 it is 0,
 * from 88.4 on infinity: the ends of vf_power_of_two. NaN stays. */
static inline vf vf_exp(vf x) {
  x = vf_max(vf_set(-88), vf_min(vf_set(89), x));
  const vf n = vf_round(vf_mul(x, vf_set(0x1.715476p+0f)));
  const vf r = vf_fma(n, vf_set(0x1.05c61p-29f), vf_fma(n, vf_set(-0x1.62e43p-1f), x));
  vf q = vf_fma(r, vf_set(0x1.6a23d0p-10f), vf_set(0x1.123a2p-7f));
  q = vf_fma(r, q, vf_set(0x1.5558f2p-5f));
  q = vf_fma(r, q, vf_set(0x1.555492p-3f));
  q = vf_fma(r, q, vf_set(0x1.fffffcp-2f));
  const vf small = vf_fma(vf_mul(r, r), q, r);
  return vf_mul(vf_add(small, vf_set(1)), vf_power_of_two(n));
}

/* log x = e ln 2 + 2 atanh(s), s = (m - 1)/(m + 1), for x = 2^e m with m in [sqrt(1/2), sqrt(2)).
 * |s| <= 0.172, so 2 s (1 + s^2/3 + s^4/5 + s^6/7 + s^8/9) leaves less than 2 s^11/11 = 8e-10 out.
 * 1.8 ulp. For normal x > 0. */
static inline vf vf_log(vf x) {
  vf e;
  vf m = vf_split(x, &e);
  const vf root = vf_set(0x1.6a09e6p+0f);
  e = vf_if_less(root, m, vf_add(e, vf_set(1)), e);
  m = vf_if_less(root, m, vf_mul(m, vf_set(0.5f)), m);
  const vf s = vf_div(vf_sub(m, vf_set(1)), vf_add(m, vf_set(1))), z = vf_mul(s, s);
  vf q = vf_fma(z, vf_set(2.f / 9), vf_set(2.f / 7));
  q = vf_fma(z, q, vf_set(2.f / 5));
  q = vf_fma(z, q, vf_set(2.f / 3));
  const vf tail = vf_fma(vf_mul(z, s), q, vf_mul(e, vf_set(-0x1.05c61p-29f)));
  return vf_fma(e, vf_set(0x1.62e43p-1f), vf_add(vf_add(s, s), tail));
}

/* log(1 + x), also for x so small that u = fl(1 + x) has lost digits of it: log(u) x / (u - 1),
 * since u - 1 is exact and log(u) / (u - 1) hardly moves between neighbours. 3.6 ulp. For x > -1. */
static inline vf vf_log1p(vf x) {
  const vf u = vf_add(vf_set(1), x), d = vf_sub(u, vf_set(1));
  const vf size = vf_max(d, vf_sub(vf_zero(), d)); /* |d| */
  const vf factor = vf_div(x, vf_if_less(vf_zero(), size, d, vf_set(1)));
  return vf_if_less(vf_zero(), size, vf_mul(vf_log(u), factor), x);
}

/* Runs a block for each vector of a row: first with n = VF, a constant, then once with what is
 * left, so that whole vectors are loaded and stored without a question. */
#define EACH_VECTOR(j, n, dim, ...)                                                                \
  do {                                                                                             \
    size_t j = 0;                                                                                  \
    for (; j + VF <= (dim); j += VF) {                                                             \
      const size_t n = VF;                                                                         \
      __VA_ARGS__                                                                                  \
    }                                                                                              \
    if (j < (dim)) {                                                                               \
      const size_t n = (dim)-j;                                                                    \
      __VA_ARGS__                                                                                  \
    }                                                                                              \
  } while (0)

/* The first n lanes where `room` >= n may be touched: of the rest, loads bring anything and stores
 * put v's lanes. Whole vectors where possible, since the pieces of vf_load_n are branches that rows
 * of growing length mispredict. */
static inline vf vf_load_near(const float *x, size_t n, size_t room) {
  return n == VF || room >= VF ? vf_load(x) : vf_load_n(x, n);
}
static inline void vf_store_near(float *x, vf v, size_t n, size_t room) {
  if (n == VF || room >= VF)
    vf_store(x, v);
  else
    vf_store_n(x, v, n);
}

/* max over x[0..n), NaN skipped; -inf for none. x[0..room) may be read. */
static inline float row_largest(const float *x, size_t n, size_t room) {
  const vf lowest = vf_set(-INFINITY);
  vf a = lowest, b = lowest;
  size_t j = 0;
  for (; j + 2 * VF <= n; j += 2 * VF) {
    a = vf_max(vf_load(x + j), a);
    b = vf_max(vf_load(x + j + VF), b);
  }
  for (; j + VF <= n; j += VF) a = vf_max(vf_load(x + j), a);
  if (j < n) b = vf_max(vf_first(vf_load_near(x + j, n - j, room - j), n - j, lowest), b);
  return vf_largest(vf_max(a, b));
}

/* Sum of x y; the order depends on n alone. */
static inline float row_dot(const float *x, const float *y, size_t n) {
  vf a = vf_zero(), b = vf_zero(), c = vf_zero(), d = vf_zero();
  size_t j = 0;
  for (; j + 4 * VF <= n; j += 4 * VF) {
    a = vf_fma(vf_load(x + j), vf_load(y + j), a);
    b = vf_fma(vf_load(x + j + VF), vf_load(y + j + VF), b);
    c = vf_fma(vf_load(x + j + 2 * VF), vf_load(y + j + 2 * VF), c);
    d = vf_fma(vf_load(x + j + 3 * VF), vf_load(y + j + 3 * VF), d);
  }
  for (; j + VF <= n; j += VF) a = vf_fma(vf_load(x + j), vf_load(y + j), a);
  if (j < n) b = vf_fma(vf_load_n(x + j, n - j), vf_load_n(y + j, n - j), b);
  return vf_sum(vf_add(vf_add(a, b), vf_add(c, d)));
}

#endif
