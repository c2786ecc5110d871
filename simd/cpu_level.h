/* SPDX-License-Identifier: MIT
 * What this machine can run. Never compiled with ISA flags. */
#ifndef STILL_SIMD_CPU_LEVEL_H
#define STILL_SIMD_CPU_LEVEL_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#ifndef bit_AVXVNNI /* what older compilers do not name */
#define bit_AVXVNNI (1 << 4)
#endif
#ifndef bit_AMX_TILE
#define bit_AMX_TILE (1 << 24)
#define bit_AMX_BF16 (1 << 22)
#endif
#endif

/* x86: the CPUID bits of the whole level and, by OSXSAVE and XGETBV, that the system saves its
 * registers.
 *   avx2     AVX2 + FMA + F16C; XCR0 bits 1, 2
 *   avxvnni  avx2 + AVX-VNNI
 *   avx512   avx2 + AVX512 F, BW, DQ, VL; XCR0 bits 5..7 too
 *   avx512vnni  avx512 + AVX512 VNNI
 *   amx         avx512vnni + AVX512 BF16, AMX tiles of bf16; XCR0 bits 17, 18; Linux's permission
 * AArch64: NEON is part of it; neondot: what Linux says of ASIMDDP. */
bool still_cpu_has(const char *level);

/* The rule for x86 by itself, so that tests can ask about machines they do not run on. */
typedef struct still_x86_facts {
  uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax; /* CPUID */
  uint64_t xcr0;                                                    /* 0 without OSXSAVE */
} still_x86_facts;
bool still_x86_allows(const still_x86_facts *facts, const char *level);

#endif
