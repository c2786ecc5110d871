/* SPDX-License-Identifier: MIT */
#include "simd/cpu_level.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <stdint.h>

static uint64_t read_xcr0(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

bool still_cpu_has(const char *level) {
  if (!strcmp(level, "portable")) return true;
  uint32_t a, b, c, d, b7, c7, d7;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
  if (!(c & bit_OSXSAVE)) return false;
  const uint64_t saved = read_xcr0();
  if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return false;
  const uint32_t first = bit_AVX | bit_FMA | bit_F16C;
  const bool avx2 = (c & first) == first && (b7 & bit_AVX2) && (saved & 0x6) == 0x6;
  if (!strcmp(level, "avx2")) return avx2;
  const uint32_t wide = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  if (!strcmp(level, "avx512")) return avx2 && (b7 & wide) == wide && (saved & 0xe6) == 0xe6;
  return false;
}
#elif defined(__aarch64__)
bool still_cpu_has(const char *level) {
  return !strcmp(level, "portable") || !strcmp(level, "neon"); /* part of every AArch64 */
}
#else
bool still_cpu_has(const char *level) {
  return !strcmp(level, "portable");
}
#endif
