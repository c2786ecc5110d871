/* SPDX-License-Identifier: MIT
 * Half floats, bit for bit, against arithmetic in float64. */
#include "check_kernels.h"

#include <math.h>
#include <string.h>

/* A format of `fraction` bits below the leading one, exponents from `lowest` (of the smallest
 * normal number). */
typedef struct half_format {
  int fraction, lowest, highest;
} half_format;
static const half_format f16 = {10, -14, 15}, bf16 = {7, -126, 127};

static double half_value(half_format f, uint16_t bits) {
  const int fraction = bits & ((1 << f.fraction) - 1), exponent = (bits & 0x7fff) >> f.fraction;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == f.highest - f.lowest + 2) return fraction ? NAN : sign * INFINITY;
  if (!exponent) return sign * ldexp(fraction, f.lowest - f.fraction);
  return sign * ldexp(fraction + (1 << f.fraction), exponent - 1 + f.lowest - f.fraction);
}

/* The nearest value of the format, ties to even: x in units of its last place, rounded by rint. */
static double nearest_half(half_format f, double x) {
  if (!isfinite(x) || x == 0) return x;
  int exponent;
  frexp(x, &exponent);
  const int unit = (exponent - 1 > f.lowest ? exponent - 1 : f.lowest) - f.fraction;
  const double rounded = ldexp(rint(ldexp(x, -unit)), unit);
  return fabs(rounded) >= ldexp(2, f.highest) ? copysign(INFINITY, x) : rounded;
}

typedef void widen(float *out, const uint16_t *x, size_t n);
typedef void narrow(uint16_t *out, const float *x, size_t n);

static void check_widen(check *c, half_format f, widen *kernel) {
  enum { ALL = 65536 };
  for (size_t n = 1; n <= ALL; n = n < 70 ? n + 1 : n == ALL ? ALL + 1 : ALL) {
    check_case(c, "n %zu", n);
    uint16_t *x = check_input(c, n, sizeof *x);
    float *out = check_output(c, 1, n, n, sizeof *out);
    for (size_t i = 0; i < n; i++)
      x[i] = n == ALL ? (uint16_t)i : (uint16_t)still_random_u64(&c->random);
    check_seal(c);
    kernel(out, x, n);
    check_padding(c);
    for (size_t i = 0; i < n; i++) {
      const double want = half_value(f, x[i]);
      check_close(c, "float", x[i], 0, out[i], want, 0);
      if (want == 0 && !signbit(out[i]) != !signbit(want))
        check_fail(c, "the sign of zero is lost");
    }
  }
}

/* Floats near the places where rounding decides: values of the format, midpoints, their neighbours,
 * NaN, any bits. */
static float near_half(check *c, half_format f) {
  const uint64_t bits = still_random_u64(&c->random);
  const uint32_t any = (uint32_t)(bits >> 32);
  float value;
  memcpy(&value, &any, sizeof value);
  if (bits & 1) return value;
  if ((bits & 0xf0) == 0x10) { /* NaN whose few bits rounding would lose or carry away */
    const uint32_t nan = bits & 0x100 ? 0x7f800001 : bits & 0x200 ? 0xff80ffff : 0x7fffffff;
    memcpy(&value, &nan, sizeof value);
    return value;
  }
  value = (float)half_value(f, (uint16_t)(bits >> 8));
  const float next = (float)half_value(f, (uint16_t)((bits >> 8) + 1));
  if (bits & 2) value = (float)(((double)value + next) / 2);
  return bits & 4 ? nextafterf(value, bits & 8 ? INFINITY : -INFINITY) : value;
}

static void check_narrow(check *c, half_format f, narrow *kernel) {
  for (size_t n = 1; n <= 40000; n = n < 70 ? n + 1 : n * 24) {
    check_case(c, "n %zu", n);
    float *x = check_input(c, n, sizeof *x);
    uint16_t *out = check_output(c, 1, n, n, sizeof *out);
    for (size_t i = 0; i < n; i++) x[i] = near_half(c, f);
    check_seal(c);
    kernel(out, x, n);
    check_padding(c);
    for (size_t i = 0; i < n; i++) {
      const double want = nearest_half(f, x[i]), got = half_value(f, out[i]);
      if (isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want))
        check_fail(c, "%a becomes %a, should be %a", x[i], got, want);
    }
  }
}

static void run_f16_to_f32(check *c) {
  check_widen(c, f16, c->kernels->f16_to_f32);
}
static void run_bf16_to_f32(check *c) {
  check_widen(c, bf16, c->kernels->bf16_to_f32);
}
static void run_f32_to_f16(check *c) {
  check_narrow(c, f16, c->kernels->f32_to_f16);
}
static void run_f32_to_bf16(check *c) {
  check_narrow(c, bf16, c->kernels->f32_to_bf16);
}

static void call_f16_to_f32(const still_kernels *k, float *out, const float *in) {
  k->f16_to_f32(out, (const uint16_t *)in, 4096);
}
static void call_bf16_to_f32(const still_kernels *k, float *out, const float *in) {
  k->bf16_to_f32(out, (const uint16_t *)in, 4096);
}
static void call_f32_to_f16(const still_kernels *k, float *out, const float *in) {
  k->f32_to_f16((uint16_t *)out, in, 4096);
}
static void call_f32_to_bf16(const still_kernels *k, float *out, const float *in) {
  k->f32_to_bf16((uint16_t *)out, in, 4096);
}
const check_test check_convert[] = {
    {"f16_to_f32", run_f16_to_f32, call_f16_to_f32, 4096, "value", NULL},
    {"f32_to_f16", run_f32_to_f16, call_f32_to_f16, 4096, "value", NULL},
    {"bf16_to_f32", run_bf16_to_f32, call_bf16_to_f32, 4096, "value", NULL},
    {"f32_to_bf16", run_f32_to_bf16, call_f32_to_bf16, 4096, "value", NULL},
    {0},
};
