/* SPDX-License-Identifier: MIT
 * check_kernels [--level L] [--kernel GLOB] [--seed N] [--list] [--bench]
 *
 * Runs every check (or those whose name fits GLOB) on one level's kernels; the best level when none
 * is named. --bench times them instead, beside the portable ones. Exit 0 all right, 1 a failure, 2
 * wrong usage, 77 this machine or build lacks the level. */
#define _GNU_SOURCE
#include "check_kernels.h"

#include <fnmatch.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

static const check_test *const groups[] = {check_products, check_attention, check_dense,
                                           check_convert, check_quantised};
enum { GROUPS = sizeof groups / sizeof groups[0], USAGE = 2, SKIPPED = 77 };

typedef struct options {
  const char *level, *kernel;
  uint64_t seed;
  bool list, bench;
} options;

static sigjmp_buf after_signal;
static volatile sig_atomic_t caught;

static void catch_signal(int number) {
  caught = number;
  siglongjmp(after_signal, 1);
}

static void watch_signals(void) {
  static const int numbers[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
  struct sigaction action = {.sa_handler = catch_signal, .sa_flags = SA_NODEFER};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    sigaction(numbers[i], &action, NULL);
}

/* Rounding and denormal modes, which a kernel must leave alone. */
static unsigned long float_modes(void) {
#if defined(__SSE__)
  return _mm_getcsr() & ~(unsigned)_MM_EXCEPT_MASK;
#elif defined(__aarch64__)
  unsigned long modes;
  __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
  return modes;
#else
  return 0;
#endif
}

static bool run_test(const check_test *test, const still_kernels *kernels, uint64_t seed) {
  static check c; /* outlives a jump out of a handler */
  check_case(&c, "start");
  c.kernels = kernels;
  c.failed = false;
  still_random_seed(&c.random, seed); /* the same data on every level */
  const unsigned long modes = float_modes();
  if (!sigsetjmp(after_signal, 1))
    test->run(&c);
  else
    check_fail(&c, "%s", strsignal(caught));
  if (float_modes() != modes) check_fail(&c, "the float control register was changed");
  if (c.failed)
    printf("%s %s: FAILED, seed %llu\n  %s\n", kernels->name, test->name, (unsigned long long)seed,
           c.failure);
  check_case(&c, "end");
  return !c.failed;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

enum { BATCHES = 15 };

/* Nanoseconds of one call in a batch. */
static double time_batch(const check_test *test, const still_kernels *kernels, float *out,
                         const float *in, int calls) {
  const double start = seconds();
  for (int i = 0; i < calls; i++) test->call(kernels, out, in);
  return (seconds() - start) / calls * 1e9;
}

/* Calls that take about a millisecond, after a warm-up of as long. */
static int size_batch(const check_test *test, const still_kernels *kernels, float *out,
                      const float *in) {
  const double start = seconds();
  int calls = 0;
  for (; seconds() - start < 1e-3; calls++) test->call(kernels, out, in);
  return calls;
}

/* Median nanoseconds of a call, and the median of its speed-up (where there is a portable one):
 * batches of both kinds take turns, so that whatever else the machine does meets them alike. */
static double time_call(const check_test *test, const still_kernels *kernels,
                        const still_kernels *portable, float *out, const float *in,
                        double *speedup) {
  double took[BATCHES], ratio[BATCHES];
  const int calls = size_batch(test, kernels, out, in);
  const bool compare = !test->has || test->has(portable);
  const int plain_calls = compare ? size_batch(test, portable, out, in) : 0;
  for (int b = 0; b < BATCHES; b++) {
    took[b] = time_batch(test, kernels, out, in, calls);
    if (compare) ratio[b] = time_batch(test, portable, out, in, plain_calls) / took[b];
  }
  qsort(took, BATCHES, sizeof took[0], ascending);
  if (compare) qsort(ratio, BATCHES, sizeof ratio[0], ascending);
  *speedup = compare ? ratio[BATCHES / 2] : 0;
  return took[BATCHES / 2];
}

/* Tests that the options ask for, of kernels that the level has. */
static bool wanted(const check_test *test, const options *o, const still_kernels *kernels) {
  const bool there = !test->has || test->has(kernels);
  return there && (!o->kernel || !fnmatch(o->kernel, test->name, 0));
}

static void run_bench(const options *o, const still_kernels *kernels) {
  const still_kernels *portable = still_kernels_level("portable");
  float *in = calloc(BENCH_FLOATS, sizeof *in), *out = calloc(BENCH_FLOATS, sizeof *out);
  still_random random;
  still_random_seed(&random, o->seed);
  for (size_t i = 0; in && i < BENCH_FLOATS; i++) in[i] = 2 * still_random_float(&random) - 1;
  double logs = 0;
  int count = 0;
  printf("%-22s %12s %14s %10s\n", kernels->name, "ns/call", "per ns", "speed-up");
  for (int g = 0; g < GROUPS && in && out; g++)
    for (const check_test *test = groups[g]; test->name; test++) {
      if (!wanted(test, o, kernels)) continue;
      double speedup = 0;
      const double mine = time_call(test, kernels, portable, out, in, &speedup);
      printf("%-22s %12.1f %7.2f %-7s", test->name, mine, test->work / mine, test->unit);
      if (!speedup) {
        printf(" %10s\n", "-"); /* nothing to compare with */
        continue;
      }
      printf(" %9.2fx\n", speedup);
      logs += log(speedup);
      count++;
    }
  if (count) printf("geometric mean of %d kernels: %.2fx portable\n", count, exp(logs / count));
  free(in);
  free(out);
}

static void print_list(void) {
  for (const char *const *level = still_kernels_levels(); *level; level++)
    printf("level %s\n", *level);
  for (int g = 0; g < GROUPS; g++)
    for (const check_test *test = groups[g]; test->name; test++)
      if (test->run) printf("kernel %s\n", test->name);
}

static int run_checks(const options *o, const still_kernels *kernels) {
  int run = 0, failed = 0;
  watch_signals();
  for (int g = 0; g < GROUPS; g++)
    for (const check_test *test = groups[g]; test->name; test++) {
      if (!test->run || !wanted(test, o, kernels)) continue;
      run++;
      failed += !run_test(test, kernels, o->seed);
    }
  if (!run) {
    fprintf(stderr, "check_kernels: no kernel fits '%s'\n", o->kernel);
    return USAGE;
  }
  printf("%s: %d of %d kernels right\n", kernels->name, run - failed, run);
  return failed ? 1 : 0;
}

static bool read_options(options *o, int count, char **words) {
  for (int i = 1; i < count; i++) {
    const char *value = i + 1 < count ? words[i + 1] : NULL;
    char *rest;
    if (!strcmp(words[i], "--list"))
      o->list = true;
    else if (!strcmp(words[i], "--bench"))
      o->bench = true;
    else if (!value)
      return false;
    else if (!strcmp(words[i], "--level"))
      o->level = words[++i];
    else if (!strcmp(words[i], "--kernel"))
      o->kernel = words[++i];
    else if (!strcmp(words[i], "--seed")) {
      o->seed = strtoull(words[++i], &rest, 10);
      if (*rest) return false;
    } else
      return false;
  }
  return true;
}

int main(int count, char **words) {
  options o = {.seed = 1};
  if (!read_options(&o, count, words)) {
    fprintf(stderr,
            "usage: check_kernels [--level L] [--kernel GLOB] [--seed N] [--list] [--bench]\n");
    return USAGE;
  }
  if (o.list) {
    print_list();
    return 0;
  }
  const still_kernels *kernels = o.level ? still_kernels_level(o.level) : still_kernels_get();
  if (!kernels) {
    printf("level %s: not in this build or not possible on this machine\n", o.level);
    return SKIPPED;
  }
  if (o.bench) {
    run_bench(&o, kernels);
    return 0;
  }
  return run_checks(&o, kernels);
}
