/* SPDX-License-Identifier: MIT
 * still-bench: what its sub-commands share. Every figure is a median of repeated runs, beside
 * limits of the machine that were measured in the same run. */
#ifndef STILL_BENCH_H
#define STILL_BENCH_H

#include <still/attention.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* One sub-command: argv[0] is its name. Exit status. */
typedef int bench_command(int argc, char **argv);
bench_command bench_attention, bench_memory, bench_model, bench_ratios;

/* ---- bench_statistics.c */

double bench_now(void); /* seconds */

typedef struct bench_times {
  double median, p10, p90;
} bench_times;
/* Sorts `seconds`. */
bench_times bench_summary(double *seconds, size_t count);

/* ---- bench_machine.c */

typedef struct bench_machine {
  char cpu[128];
  const char *blas_kernel;         /* what OpenBLAS runs; "none" without it */
  double sgemm_flops, triad_bytes; /* a second, with the given threads; 0 = not measured */
} bench_machine;
/* Measures for about half a second. */
bench_machine bench_measure_machine(int threads);
void bench_print_machine(const bench_machine *machine, int threads);

/* ---- bench_sequence.c: a sequence of random tokens through one cache, however long */

typedef struct bench_sequence {
  still_attention_options options;
  still_attention_plan *plan;
  still_attention_cache *cache;
  float *memory;
  still_attention_inputs inputs; /* of a block of tokens that comes again and again */
  float *y;
  size_t block;
} bench_sequence;

enum { BENCH_BLOCK = 4096 };
/* Prints the library's sentence and exits on failure. */
void bench_check(still_status status);
void bench_sequence_open(bench_sequence *s, const still_attention_options *options, size_t block);
void bench_sequence_close(bench_sequence *s);
/* Seconds that the next `tokens` tokens take, in calls of at most `step` tokens (0 = a block). */
double bench_sequence_run(bench_sequence *s, int64_t tokens, size_t step);

/* What the mathematics needs for tokens first .. last-1: multiplications and additions of all
 * products. */
double bench_useful_flops(const bench_sequence *s, int64_t first, int64_t last);

/* ---- bench_options.c */

enum { BENCH_MOST_VALUES = 32 };
typedef struct bench_arguments {
  still_attention_options base;
  still_attention_kind kinds[BENCH_MOST_VALUES];
  int64_t tokens[BENCH_MOST_VALUES];
  int kind_count, token_count;
  bool decode, json;
  int repeats;
  const char *plot;
} bench_arguments;
/* Ends the program with a sentence on bad flags, after --help with the usage. */
bench_arguments bench_parse(int argc, char **argv, const char *usage);
still_attention_options bench_options_for(const bench_arguments *a, still_attention_kind kind,
                                          int64_t tokens);

/* ---- bench_plot.c: one panel of lines over tokens, both axes logarithmic */

typedef struct bench_line {
  const char *name;
  double x[BENCH_MOST_VALUES], y[BENCH_MOST_VALUES];
  int count;
} bench_line;
typedef struct bench_panel {
  const char *title, *unit;
  bench_line lines[BENCH_MOST_VALUES];
  int count;
} bench_panel;
bool bench_plot(const char *path, const bench_panel *panels, int count);

#endif
