/* SPDX-License-Identifier: MIT
 * The figures that matter, each as a ratio of two things measured alternately in one run, so that a
 * busy machine slows both. */
#include "bench.h"

#include <stdlib.h>

/* One side of a ratio: seconds of one run. */
typedef struct side {
  bench_sequence sequence;
  int64_t tokens; /* 0: of one decode step */
} side;

static side open_side(const still_attention_options *o, int64_t tokens) {
  side x = {.tokens = tokens};
  bench_sequence_open(&x.sequence, o, BENCH_BLOCK);
  return x;
}

static side open_decode(const still_attention_options *o, int64_t context) {
  side x = open_side(o, 0);
  bench_sequence_run(&x.sequence, context, 0);
  bench_sequence_run(&x.sequence, 16, 1); /* warms up */
  return x;
}

/* The median of a chunk's steps. The first one also routes, which this leaves out: p90 of
 * still-bench attention --decode is the place to look for it. */
static double decode_step(side *x) {
  double seconds[64];
  for (int i = 0; i < 64; i++) seconds[i] = bench_sequence_run(&x->sequence, 1, 1);
  return bench_summary(seconds, 64).median;
}

static double run_side(side *x) {
  if (!x->tokens) return decode_step(x);
  still_attention_cache_reset(x->sequence.cache);
  return bench_sequence_run(&x->sequence, x->tokens, 0);
}

typedef struct ratio {
  double value, low, high;
  double first_seconds, second_seconds;
} ratio;

/* Medians of a alternating with b; closes both. */
static ratio alternate(side *a, side *b, int repeats) {
  double *quotients = calloc((size_t)repeats * 3, sizeof *quotients);
  double *first = quotients + repeats, *second = first + repeats;
  for (int i = 0; i < repeats; i++) {
    first[i] = run_side(a);
    second[i] = run_side(b);
    quotients[i] = first[i] / second[i];
  }
  const bench_times times = bench_summary(quotients, (size_t)repeats);
  const ratio r = {times.median, times.p10, times.p90, bench_summary(first, (size_t)repeats).median,
                   bench_summary(second, (size_t)repeats).median};
  bench_sequence_close(&a->sequence);
  bench_sequence_close(&b->sequence);
  free(quotients);
  return r;
}

typedef struct context {
  bench_arguments arguments;
  int missed;
} context;

static void print_figure(context *c, const char *name, double value, double low, double high,
                         double bar, bool at_least) {
  const bool held = at_least ? value >= bar : value <= bar;
  if (!held) c->missed++;
  if (c->arguments.json)
    printf(
        "{\"bench\":\"ratio\",\"name\":\"%s\",\"value\":%.4g,\"p10\":%.4g,\"p90\":%.4g,\"bar\":%g,"
        "\"at_least\":%s,\"held\":%s,\"threads\":%d,\"level\":\"%s\"}\n",
        name, value, low, high, bar, at_least ? "true" : "false", held ? "true" : "false",
        c->arguments.base.threads, still_cpu_level());
  else
    printf("%-58s %7.3f (%.3f .. %.3f)  bar %s %.2f  %s\n", name, value, low, high,
           at_least ? ">=" : "<=", bar, held ? "held" : "MISSED");
  fflush(stdout);
}

static void print_ratio(context *c, const char *name, ratio r, double bar) {
  print_figure(c, name, r.value, r.low, r.high, bar, false);
}

static still_attention_options options_of(const context *c, still_attention_kind kind, int budget,
                                          int n_max) {
  still_attention_options o = c->arguments.base;
  o.kind = kind;
  o.budget = budget;
  o.context = n_max;
  return o;
}

/* Useful FLOP/s over sgemm, the limit measured again before each run. */
static void share_of_sgemm(context *c, const char *name, const still_attention_options *o,
                           int64_t tokens, double bar) {
  const int repeats = c->arguments.repeats;
  double *shares = calloc((size_t)repeats, sizeof *shares);
  side x = open_side(o, tokens);
  const double flops = bench_useful_flops(&x.sequence, 0, tokens);
  for (int i = 0; i < repeats; i++) {
    const bench_machine now = bench_measure_machine(o->threads);
    shares[i] = flops / run_side(&x) / now.sgemm_flops;
  }
  const bench_times t = bench_summary(shares, (size_t)repeats);
  print_figure(c, name, t.median, t.p10, t.p90, bar, true);
  bench_sequence_close(&x.sequence);
  free(shares);
}

static ratio compare(const context *c, const still_attention_options *a, int64_t a_tokens,
                     const still_attention_options *b, int64_t b_tokens) {
  side x = open_side(a, a_tokens), y = open_side(b, b_tokens);
  return alternate(&x, &y, c->arguments.repeats);
}

static ratio compare_decode(const still_attention_options *a, int64_t a_context,
                            const still_attention_options *b, int64_t b_context) {
  side x = open_decode(a, a_context), y = open_decode(b, b_context);
  return alternate(&x, &y, 9);
}

enum { K = 1024 };

static void prefill_ratios(context *c) {
  const still_attention_options full = options_of(c, STILL_ATTENTION_FULL, 0, 16 * K);
  const still_attention_options still = options_of(c, STILL_ATTENTION_STILL, 896, 16 * K);
  const still_attention_options wide = options_of(c, STILL_ATTENTION_STILL, 1088, 64 * K);
  share_of_sgemm(c, "full, 8K: share of sgemm", &full, 8 * K, 0.55);
  share_of_sgemm(c, "still, 16K, m 896: share of sgemm", &still, 16 * K, 0.45);
  print_ratio(c, "still over full, 16K, m 896", compare(c, &still, 16 * K, &full, 16 * K), 0.13);
  print_ratio(c, "still at 64K over still at 16K, m 1088", compare(c, &wide, 64 * K, &wide, 16 * K),
              4.2);
  /* At one lambda of 1 the kept tokens of 64K grow fourfold over those of 16K, and useful
   * work 6.5-fold; each length with the lambda it is certified for is the fairer question. */
  const still_attention_options certified = options_of(c, STILL_ATTENTION_STILL, 1088, 16 * K);
  print_ratio(c, "the same, each with the lambda of its own length",
              compare(c, &wide, 64 * K, &certified, 16 * K), 4.2);
  still_attention_options uniform = still;
  uniform.metric = STILL_METRIC_UNIFORM;
  ratio r = compare(c, &still, 16 * K, &uniform, 16 * K);
  r.value -= 1, r.low -= 1, r.high -= 1;
  print_ratio(c, "saliency scores, share of still's time (over uniform)", r, 0.10);
  still_attention_options group = still;
  group.routing = STILL_ROUTING_PER_GROUP;
  print_ratio(c, "per-group over per-head routing", compare(c, &group, 16 * K, &still, 16 * K),
              0.8);
}

/* lolcats with a window of as many tokens as still attends to on average, and with W = 64 beside a
 * still that keeps none. */
static void lolcats_ratios(context *c) {
  const still_attention_options still = options_of(c, STILL_ATTENTION_STILL, 896, 16 * K);
  still_attention_options lolcats = options_of(c, STILL_ATTENTION_LOLCATS, 0, 16 * K);
  lolcats.window = 480; /* 3 kept of each of 256 chunks, half of them on average, and 96 near */
  print_ratio(c, "still over lolcats, 16K, 480 softmax tokens each",
              compare(c, &still, 16 * K, &lolcats, 16 * K), 1.35);
  still_attention_options near = still;
  near.schedule = STILL_SCHEDULE_FIXED;
  near.keep = 0;
  lolcats.window = 96;
  print_ratio(c, "still over lolcats, 16K, 96 softmax tokens each",
              compare(c, &near, 16 * K, &lolcats, 16 * K), 1.35);
}

static void decode_ratios(context *c) {
  still_attention_options full = options_of(c, STILL_ATTENTION_FULL, 0, 16 * K + 1024);
  still_attention_options still = options_of(c, STILL_ATTENTION_STILL, 896, 16 * K);
  still_attention_options wide = options_of(c, STILL_ATTENTION_STILL, 1088, 64 * K);
  /* the budget is certified for 64K: both hold all that they may when each is full */
  still_attention_options full_at_4k = options_of(c, STILL_ATTENTION_STILL, 1088, 4 * K);
  print_ratio(c, "decode: still at 64K over still at 4K, both budgets full",
              compare_decode(&wide, 64 * K, &full_at_4k, 4 * K), 1.05);
  full.cache_type = still.cache_type = STILL_F16;
  print_ratio(c, "decode at 16K: still over full, f16 caches",
              compare_decode(&still, 16 * K, &full, 16 * K), 0.25);
}

static void thread_ratio(context *c) {
  still_attention_options one = options_of(c, STILL_ATTENTION_STILL, 896, 16 * K), two = one;
  one.threads = 1;
  two.threads = 2;
  const ratio r = compare(c, &one, 4 * K, &two, 4 * K);
  print_figure(c, "still, 4K: 2 threads times faster than 1", r.value, r.low, r.high, 1.8, true);
}

int bench_ratios(int argc, char **argv) {
  context c = {.arguments = bench_parse(argc, argv, "usage: still-bench ratios [FLAGS]")};
  const bench_machine machine = bench_measure_machine(c.arguments.base.threads);
  if (!c.arguments.json) {
    bench_print_machine(&machine, c.arguments.base.threads);
    printf("H %d, G %d, D %d, C %d; median of %d alternating runs (p10 .. p90)\n",
           c.arguments.base.heads, c.arguments.base.kv_heads, c.arguments.base.head_dim,
           c.arguments.base.chunk, c.arguments.repeats);
  }
  prefill_ratios(&c);
  lolcats_ratios(&c);
  decode_ratios(&c);
  thread_ratio(&c);
  return c.missed ? 1 : 0;
}
