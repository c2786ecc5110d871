/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "simd/cpu_level.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifdef __has_feature
#if __has_feature(memory_sanitizer)
#define TILES_HIDE_STORES
#endif
#endif

bool still_x86_allows(const still_x86_facts *facts, const char *level) {
  if (!strcmp(level, "portable")) return true;
  if (!(facts->leaf1_ecx & bit_OSXSAVE)) return false;
  const uint32_t first = bit_AVX | bit_FMA | bit_F16C;
  const uint32_t wide = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  const bool avx2 = (facts->leaf1_ecx & first) == first && (facts->leaf7_ebx & bit_AVX2) &&
                    (facts->xcr0 & 0x6) == 0x6;
  if (!strcmp(level, "avx2")) return avx2;
  if (!strcmp(level, "avxvnni")) return avx2 && (facts->leaf7_1_eax & bit_AVXVNNI);
  const bool avx512 = avx2 && (facts->leaf7_ebx & wide) == wide && (facts->xcr0 & 0xe6) == 0xe6;
  if (!strcmp(level, "avx512")) return avx512;
  const bool vnni = avx512 && (facts->leaf7_ecx & bit_AVX512VNNI);
  if (!strcmp(level, "avx512vnni")) return vnni;
  const uint32_t tiles = bit_AMX_TILE | bit_AMX_BF16;
  if (!strcmp(level, "amx"))
    return vnni && (facts->leaf7_1_eax & bit_AVX512BF16) && (facts->leaf7_edx & tiles) == tiles &&
           (facts->xcr0 & 0x60000) == 0x60000;
  return false;
}

/* Allowed only where OSXSAVE is set. */
static uint64_t read_xcr0(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

/* Linux saves the 8 KiB of tiles only for a process that has asked. MemorySanitizer does not see what tiles store. */
static bool may_use_tiles(void) {
#if defined(__linux__) && defined(__x86_64__) && !defined(TILES_HIDE_STORES)
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM */
  return !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
#else
  return false;
#endif
}

bool still_cpu_has(const char *level) {
  still_x86_facts facts = {0};
  uint32_t a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d)) facts.leaf1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    facts.leaf7_ebx = b;
    facts.leaf7_ecx = c;
    facts.leaf7_edx = d;
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) facts.leaf7_1_eax = a;
  if (facts.leaf1_ecx & bit_OSXSAVE) facts.xcr0 = read_xcr0();
  return still_x86_allows(&facts, level) && (strcmp(level, "amx") || may_use_tiles());
}
#elif defined(__aarch64__)
#ifdef __linux__
#include <sys/auxv.h>
#endif

static bool has_dot_products(void) {
#ifdef __linux__
  enum { ASIMDDP = 1 << 20 };
  return getauxval(AT_HWCAP) & ASIMDDP;
#else
  return false;
#endif
}

bool still_cpu_has(const char *level) {
  if (!strcmp(level, "neondot")) return has_dot_products();
  return !strcmp(level, "portable") || !strcmp(level, "neon"); /* part of every AArch64 */
}
#else
bool still_cpu_has(const char *level) {
  return !strcmp(level, "portable");
}
#endif
