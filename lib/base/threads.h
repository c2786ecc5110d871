/* SPDX-License-Identifier: MIT
 * How many threads, and OpenMP where it is built in. */
#ifndef STILL_BASE_THREADS_H
#define STILL_BASE_THREADS_H

#include <still/still.h>

#ifdef _OPENMP
#include <omp.h>
#define STILL_PRAGMA(text) _Pragma(#text)
#define STILL_OMP(...) STILL_PRAGMA(omp __VA_ARGS__)
#else
#define STILL_OMP(...)
static inline int omp_get_thread_num(void) {
  return 0;
}
static inline int omp_get_num_threads(void) {
  return 1;
}
static inline int omp_get_max_threads(void) {
  return 1;
}
#endif

/* options.threads: 0 = the default; at least 1, at most 1024 (64 in a 32-bit program). */
int still_resolve_threads(int requested);

/* Parts of still_default_threads(), for tests: the quota in a cgroup file's text, in CPUs, 0 = none.
 * v2 "max 100000" / "200000 100000"; v1 quota and period. */
double still_cgroup_quota_v2(const char *text);
double still_cgroup_quota_v1(long long quota, long long period);

/* Tells OpenBLAS (where built in) to use this many threads; call before its products, never from inside a
 * parallel region. */
void still_blas_threads(int threads);

#endif
