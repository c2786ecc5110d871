/* SPDX-License-Identifier: MIT
 * The limits that figures are held against: OpenBLAS's sgemm, and a stream triad. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#if BENCH_HAVE_OPENBLAS
#include <cblas.h>
#endif

static void read_cpu_name(char *name, size_t bytes) {
  snprintf(name, bytes, "unknown CPU");
  FILE *file = fopen("/proc/cpuinfo", "r");
  char line[256];
  while (file && fgets(line, sizeof line, file)) {
    const char *value = strchr(line, ':');
    if (!value || strncmp(line, "model name", 10)) continue;
    snprintf(name, bytes, "%s", value + 2);
    name[strcspn(name, "\n")] = 0;
    break;
  }
  if (file) fclose(file);
}

static float *filled(size_t n, float value) {
  float *x = malloc(n * sizeof *x);
  if (!x) {
    fprintf(stderr, "still-bench: no memory for %zu floats\n", n);
    exit(1);
  }
  for (size_t i = 0; i < n; i++) x[i] = value + (float)(i % 7);
  return x;
}

#if BENCH_HAVE_OPENBLAS
static double sgemm_flops(int threads) {
  enum { N = 1152, RUNS = 7 };
  const size_t n = N;
  float *a = filled(n * n, 1), *b = filled(n * n, 2), *c = filled(n * n, 0);
  double seconds[RUNS];
  openblas_set_num_threads(threads);
  for (int i = -1; i < RUNS; i++) {
    const double start = bench_now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, N, N, 1, a, N, b, N, 0, c, N);
    if (i >= 0) seconds[i] = bench_now() - start;
  }
  free(a);
  free(b);
  free(c);
  /* the best run: a limit is what the machine can do */
  return 2.0 * N * N * N / (bench_summary(seconds, RUNS), seconds[0]);
}
#endif

/* a = b + s c over arrays far larger than the caches. */
static double triad_bytes(int threads) {
  enum { RUNS = 5 };
  const size_t n = (size_t)1 << 24;
  float *a = filled(n, 0), *b = filled(n, 1), *c = filled(n, 2);
  double seconds[RUNS];
  for (int run = 0; run < RUNS; run++) {
    const double start = bench_now();
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static)
#endif
    for (size_t i = 0; i < n; i++) a[i] = b[i] + 3 * c[i];
    seconds[run] = bench_now() - start;
  }
  (void)threads;
  free(a);
  free(b);
  free(c);
  return 3.0 * (double)n * sizeof(float) / (bench_summary(seconds, RUNS), seconds[0]);
}

bench_machine bench_measure_machine(int threads) {
  bench_machine m = {.blas_kernel = "none"};
  read_cpu_name(m.cpu, sizeof m.cpu);
#if BENCH_HAVE_OPENBLAS
  m.blas_kernel = openblas_get_corename();
  m.sgemm_flops = sgemm_flops(threads);
#endif
  m.triad_bytes = triad_bytes(threads);
  return m;
}

void bench_print_machine(const bench_machine *m, int threads) {
  printf("%s, %d threads, kernels %s | OpenBLAS (%s) sgemm %.1f GFLOP/s | triad %.1f GB/s\n",
         m->cpu, threads, still_cpu_level(), m->blas_kernel, m->sgemm_flops * 1e-9,
         m->triad_bytes * 1e-9);
}
