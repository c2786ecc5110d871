/* SPDX-License-Identifier: MIT
 * What this machine can run. Never compiled with ISA flags. */
#ifndef STILL_SIMD_CPU_LEVEL_H
#define STILL_SIMD_CPU_LEVEL_H

#include <stdbool.h>

/* x86: the CPUID bits of the whole level and, by OSXSAVE and XGETBV, that the system saves its registers.
 *   avx2   = AVX2 + FMA + F16C, XCR0 bits 1, 2
 *   avx512 = avx2 + AVX512 F, BW, DQ, VL, XCR0 bits 5..7 too
 * ARM: HWCAP. */
bool still_cpu_has(const char *level);

#endif
