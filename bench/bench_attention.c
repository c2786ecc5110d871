/* SPDX-License-Identifier: MIT
 * The operator's time and memory over context length. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

typedef struct figure {
  const char *bench;
  still_attention_options options;
  int64_t tokens;
  bench_times times;
  double flops;
  still_attention_usage usage;
} figure;

static const char *const type_names[] = {"f32", "f16", "bf16"};

static void print_json(const figure *f, const bench_machine *m) {
  const still_attention_options *o = &f->options;
  printf(
      "{\"bench\":\"%s\",\"kind\":\"%s\",\"heads\":%d,\"kv_heads\":%d,\"dim\":%d,\"tokens\":%lld,"
      "\"chunk\":%d,\"budget\":%d,\"routing\":\"%s\",\"threads\":%d,\"device\":\"%s\","
      "\"level\":\"%s\",\"dtype\":\"%s\",\"median_s\":%.6g,\"p10_s\":%.6g,\"p90_s\":%.6g,"
      "\"flops\":%.6g,\"bytes\":%llu,\"cache_bytes\":%llu,\"sgemm_flops\":%.6g,"
      "\"triad_bytes\":%.6g}\n",
      f->bench, still_attention_kind_name(o->kind), o->heads, o->kv_heads, o->head_dim,
      (long long)f->tokens, o->chunk, o->budget,
      o->routing == STILL_ROUTING_PER_GROUP ? "group" : "head", o->threads,
      o->device ? o->device : "cpu", still_cpu_level(), type_names[o->cache_type], f->times.median,
      f->times.p10, f->times.p90, f->flops,
      (unsigned long long)(f->usage.bytes + f->usage.work_bytes),
      (unsigned long long)f->usage.bytes, m->sgemm_flops, m->triad_bytes);
  fflush(stdout);
}

static void print_row(const figure *f, const bench_machine *m) {
  const double rate = f->flops / f->times.median;
  printf("%-10s %8lld %11.5f %11.5f %11.5f %9.1f %7.0f %% %10.1f\n",
         still_attention_kind_name(f->options.kind), (long long)f->tokens, f->times.median,
         f->times.p10, f->times.p90, rate * 1e-9, m->sgemm_flops ? 100 * rate / m->sgemm_flops : 0,
         (double)f->usage.bytes / (1 << 20));
  fflush(stdout);
}

static void measure_prefill(figure *f, int repeats) {
  double *seconds = calloc((size_t)repeats, sizeof *seconds);
  bench_sequence s;
  bench_sequence_open(&s, &f->options, BENCH_BLOCK);
  bench_sequence_run(&s, f->tokens < 4096 ? f->tokens : 4096, 0); /* warms up */
  for (int i = 0; i < repeats; i++) {
    still_attention_cache_reset(s.cache);
    seconds[i] = bench_sequence_run(&s, f->tokens, 0);
  }
  f->times = bench_summary(seconds, (size_t)repeats);
  f->flops = bench_useful_flops(&s, 0, f->tokens);
  still_attention_cache_usage(s.cache, &f->usage);
  bench_sequence_close(&s);
  free(seconds);
}

/* Single tokens behind a context of `tokens`. */
static void measure_decode(figure *f, int repeats) {
  enum { STEPS = 16 };
  const size_t count = (size_t)repeats * STEPS;
  double *seconds = calloc(count, sizeof *seconds);
  bench_sequence s;
  bench_sequence_open(&s, &f->options, BENCH_BLOCK);
  bench_sequence_run(&s, f->tokens, 0);
  bench_sequence_run(&s, STEPS, 1);
  for (size_t i = 0; i < count; i++) seconds[i] = bench_sequence_run(&s, 1, 1);
  f->times = bench_summary(seconds, count);
  f->flops = bench_useful_flops(&s, f->tokens, f->tokens + 1);
  still_attention_cache_usage(s.cache, &f->usage);
  bench_sequence_close(&s);
  free(seconds);
}

static void add_point(bench_panel *panel, const char *name, double x, double y) {
  if (!panel->count || strcmp(panel->lines[panel->count - 1].name, name))
    panel->lines[panel->count++] = (bench_line){.name = name};
  bench_line *line = &panel->lines[panel->count - 1];
  line->x[line->count] = x;
  line->y[line->count++] = y;
}

int bench_attention(int argc, char **argv) {
  const bench_arguments a = bench_parse(argc, argv, "usage: still-bench attention [FLAGS]");
  const bench_machine m = bench_measure_machine(a.base.threads);
  static bench_panel panels[2];
  panels[0] =
      (bench_panel){.title = a.decode ? "time of one token" : "time of the prefill", .unit = "s"};
  panels[1] = (bench_panel){.title = "cache", .unit = "MiB"};
  if (!a.json) {
    bench_print_machine(&m, a.base.threads);
    printf("%-10s %8s %11s %11s %11s %9s %9s %10s\n", "kind", "tokens", "median s", "p10", "p90",
           "GFLOP/s", "of sgemm", "cache MiB");
  }
  for (int k = 0; k < a.kind_count; k++)
    for (int i = 0; i < a.token_count; i++) {
      figure f = {.bench = a.decode ? "attention-decode" : "attention",
                  .options = bench_options_for(&a, a.kinds[k], a.tokens[i]),
                  .tokens = a.tokens[i]};
      (a.decode ? measure_decode : measure_prefill)(&f, a.repeats);
      (a.json ? print_json : print_row)(&f, &m);
      const char *name = still_attention_kind_name(a.kinds[k]);
      add_point(&panels[0], name, (double)f.tokens, f.times.median);
      add_point(&panels[1], name, (double)f.tokens, (double)f.usage.bytes / (1 << 20));
    }
  return a.plot && !bench_plot(a.plot, panels, 2);
}

/* No sequence is run: what the library announces, which its tests hold it to. */
static void announce(figure *f, const bench_arguments *a, double *full_bytes) {
  const still_attention_options full = bench_options_for(a, STILL_ATTENTION_FULL, f->tokens);
  bench_sequence s, whole;
  bench_sequence_open(&s, &f->options, 1);
  bench_sequence_open(&whole, &full, 1);
  still_attention_cache_usage(s.cache, &f->usage);
  f->usage.bytes = still_attention_cache_bytes(s.plan, f->tokens);
  *full_bytes = (double)still_attention_cache_bytes(whole.plan, f->tokens);
  bench_sequence_close(&s);
  bench_sequence_close(&whole);
}

static void print_memory_row(const figure *f, double full_bytes) {
  printf("%-10s %8lld %12.2f %14.1f %12lld %12.2f\n", still_attention_kind_name(f->options.kind),
         (long long)f->tokens, (double)f->usage.bytes / (1 << 20),
         100 * (double)f->usage.bytes / full_bytes, (long long)f->usage.max_softmax_tokens,
         (double)f->usage.work_bytes / (1 << 20));
}

int bench_memory(int argc, char **argv) {
  const bench_arguments a = bench_parse(argc, argv, "usage: still-bench memory [FLAGS]");
  const bench_machine m = {.blas_kernel = "none"};
  static bench_panel panel = {.title = "cache", .unit = "MiB"};
  if (!a.json)
    printf("%-10s %8s %12s %14s %12s %12s\n", "kind", "tokens", "cache MiB", "of full, %", "exact",
           "work MiB");
  for (int k = 0; k < a.kind_count; k++)
    for (int i = 0; i < a.token_count; i++) {
      figure f = {.bench = "memory",
                  .options = bench_options_for(&a, a.kinds[k], a.tokens[i]),
                  .tokens = a.tokens[i]};
      double full_bytes;
      announce(&f, &a, &full_bytes);
      if (a.json)
        print_json(&f, &m);
      else
        print_memory_row(&f, full_bytes);
      add_point(&panel, still_attention_kind_name(a.kinds[k]), (double)f.tokens,
                (double)f.usage.bytes / (1 << 20));
    }
  return a.plot && !bench_plot(a.plot, &panel, 1);
}
