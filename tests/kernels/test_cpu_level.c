/* SPDX-License-Identifier: MIT
 * Which kernels are chosen: the machine, STILL_CPU, still_set_cpu_level; and how many threads. */
#define _GNU_SOURCE
#include "harness/check.h"

#include "base/threads.h"
#include "simd/cpu_level.h"
#include "simd/kernels.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char
    *self; /* this program: run with a word, it prints the level in use and what was logged */

static void print_log(void *user, still_log_level level, const char *message) {
  (void)user, (void)level;
  puts(message);
}

static int print_level(void) {
  still_set_log(print_log, NULL, STILL_LOG_WARNING);
  puts(still_cpu_level());
  return 0;
}

static void expect_child(const char *environment, const char *output) {
  const char *const argv[] = {self, "print", NULL}, *const added[] = {environment, NULL};
  check_run_result run = check_run(argv, NULL, added);
  assert_int_equal(run.code, 0);
  assert_string_equal(run.out, output);
  check_run_free(&run);
}

static void test_environment_chooses(void **state) {
  (void)state;
  const char *const *levels = still_kernels_levels();
  char variable[64], line[64];
  for (; *levels; levels++) {
    snprintf(variable, sizeof variable, "STILL_CPU=%s", *levels);
    snprintf(line, sizeof line, "%s\n", *levels);
    expect_child(variable, line);
  }
}

static void test_unknown_word_is_logged(void **state) {
  (void)state;
  const char *const *levels = still_kernels_levels();
  while (levels[1]) levels++;
  char output[200];
  snprintf(output, sizeof output, "STILL_CPU=mmx is not possible here, using %s\n%s\n", *levels,
           *levels);
  expect_child("STILL_CPU=mmx", output);
}

static void test_set_level(void **state) {
  (void)state;
  const char *const *levels = still_kernels_levels();
  assert_string_equal(levels[0], "portable");
  for (; *levels; levels++) {
    check_ok(still_set_cpu_level(*levels));
    assert_string_equal(still_cpu_level(), *levels);
    assert_ptr_equal(still_kernels_get(), still_kernels_level(*levels));
  }
  check_ok(still_set_cpu_level("portable"));
  check_fails(still_set_cpu_level("mmx"), STILL_ERROR_ARGUMENT,
              "'mmx' is not possible here; one of: portable");
  check_fails(still_set_cpu_level(""), STILL_ERROR_ARGUMENT, "one of: portable");
  assert_string_equal(still_cpu_level(), "portable"); /* unchanged */
  check_ok(still_set_cpu_level(NULL));
  assert_string_equal(still_cpu_level(), levels[-1]); /* the best */
  assert_null(still_kernels_level("mmx"));
}

/* No level has less than the portable one, and that has all that is not marked optional. */
static void test_tables_are_full(void **state) {
  (void)state;
  enum { MEMBERS = sizeof(still_kernels) / sizeof(void *) };
  void *portable[MEMBERS], *members[MEMBERS];
  memcpy(portable, still_kernels_level("portable"), sizeof portable);
  int missing = 0;
  for (size_t i = 0; i < MEMBERS; i++) missing += !portable[i];
  assert_int_equal(missing,
                   32); /* all of quantised weights but Q8_0 to floats, the pairs, the lanes */
  for (const char *const *level = still_kernels_levels(); *level; level++) {
    memcpy(members, still_kernels_level(*level), sizeof members);
    for (size_t i = 0; i < MEMBERS; i++) assert_true(members[i] || !portable[i]);
  }
}

#if defined(__x86_64__) || defined(__i386__)

/* A hypervisor may show CPUID bits of registers that the system does not save. */
static void test_registers_must_be_saved(void **state) {
  (void)state;
  const uint32_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  const still_x86_facts all = {bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C,
                               bit_AVX2 | avx512,
                               bit_AVX512VNNI,
                               bit_AMX_TILE | bit_AMX_BF16,
                               bit_AVX512BF16 | bit_AVXVNNI,
                               0x600e7};
  assert_true(still_x86_allows(&all, "avx512"));
  assert_true(still_x86_allows(&all, "avx512vnni"));
  assert_true(still_x86_allows(&all, "amx"));
  assert_false(still_x86_allows(&all, "neon"));
  still_x86_facts facts = all;
  facts.xcr0 = 0x200e7;
  assert_false(still_x86_allows(&facts, "amx"));
  assert_true(still_x86_allows(&facts, "avx512vnni"));
  facts = all;
  facts.leaf7_edx = bit_AMX_TILE;
  assert_false(still_x86_allows(&facts, "amx"));
  facts = all;
  facts.leaf7_1_eax = 0;
  assert_false(still_x86_allows(&facts, "amx"));
  assert_false(still_x86_allows(&facts, "avxvnni"));
  facts = all;
  facts.xcr0 = 0x07;
  assert_false(still_x86_allows(&facts, "avx512"));
  assert_true(still_x86_allows(&facts, "avx2"));
  assert_true(still_x86_allows(&facts, "avxvnni"));
  facts.xcr0 = 0x03;
  assert_false(still_x86_allows(&facts, "avx2"));
  assert_true(still_x86_allows(&facts, "portable"));
  facts = all;
  facts.leaf1_ecx &= ~(uint32_t)bit_OSXSAVE;
  assert_false(still_x86_allows(&facts, "avx2"));
  const uint32_t needed[] = {bit_AVX512F, bit_AVX512BW, bit_AVX512DQ, bit_AVX512VL};
  for (size_t i = 0; i < CHECK_COUNT(needed); i++) { /* every feature that the level's code uses */
    facts = all;
    facts.leaf7_ebx &= ~needed[i];
    assert_false(still_x86_allows(&facts, "avx512"));
    assert_false(still_x86_allows(&facts, "avx512vnni"));
  }
  facts = all;
  facts.leaf7_ecx = 0;
  assert_false(still_x86_allows(&facts, "avx512vnni"));
  assert_false(still_x86_allows(&facts, "amx"));
  assert_true(still_x86_allows(&facts, "avx512"));
}
#else
static void test_registers_must_be_saved(void **state) {
  (void)state;
  skip();
}
#endif

static void test_quota_text(void **state) {
  (void)state;
  assert_true(still_cgroup_quota_v2("max 100000\n") == 0);
  assert_true(still_cgroup_quota_v2("200000 100000\n") == 2);
  assert_true(still_cgroup_quota_v2("765000 100000") == 7.65);
  assert_true(still_cgroup_quota_v2("50000 100000") == 0.5);
  assert_true(still_cgroup_quota_v2("") == 0);
  assert_true(still_cgroup_quota_v2("200000") == 0);
  assert_true(still_cgroup_quota_v2("-1 100000") == 0);
  assert_true(still_cgroup_quota_v2("100000 0") == 0);
  assert_true(still_cgroup_quota_v1(-1, 100000) == 0); /* no limit */
  assert_true(still_cgroup_quota_v1(150000, 100000) == 1.5);
}

static void test_requested_threads(void **state) {
  (void)state;
  assert_true(still_default_threads() >= 1);
  assert_int_equal(still_resolve_threads(0), still_default_threads());
  assert_int_equal(still_resolve_threads(-7), still_default_threads());
  assert_int_equal(still_resolve_threads(1), 1);
  assert_int_equal(still_resolve_threads(63), 63);
  assert_int_equal(still_resolve_threads(1 << 30), sizeof(void *) < 8 ? 64 : 1024);
}

static void test_affinity(void **state) {
  (void)state;
  cpu_set_t before, one;
  if (sched_getaffinity(0, sizeof before, &before)) skip();
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &before)) last--;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  const int threads = still_default_threads();
  sched_setaffinity(0, sizeof before, &before);
  assert_int_equal(threads, 1);
}

int main(int count, char **words) {
  if (count > 1) return print_level();
  static char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  self = length > 0 ? path : words[0];
  unsetenv("STILL_CPU");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_environment_chooses),
      cmocka_unit_test(test_unknown_word_is_logged),
      cmocka_unit_test(test_set_level),
      cmocka_unit_test(test_tables_are_full),
      cmocka_unit_test(test_registers_must_be_saved),
      cmocka_unit_test(test_quota_text),
      cmocka_unit_test(test_requested_threads),
      cmocka_unit_test(test_affinity),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
