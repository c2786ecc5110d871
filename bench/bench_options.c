/* SPDX-License-Identifier: MIT
 * Flags of the operator's benches. */
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *flag, const char *value, const char *allowed) {
  fprintf(stderr, "still-bench: --%s %s: must be %s\n", flag, value, allowed);
  exit(2);
}

static int64_t whole(const char *flag, const char *text, int64_t least) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (*end == 'K' || *end == 'k') value *= 1024, end++;
  if (errno || end == text || *end || value < least || value > INT_MAX)
    die(flag, text, "a number, such as 4096 or 4K");
  return value;
}

static int word(const char *flag, const char *text, const char *const *words) {
  char allowed[256] = "one of";
  for (int i = 0; words[i]; i++) {
    if (!strcmp(text, words[i])) return i;
    strcat(strcat(allowed, i ? ", " : " "), words[i]);
  }
  die(flag, text, allowed);
  return 0;
}

static void parse_list(bench_arguments *a, const char *flag, char *text) {
  const bool tokens = !strcmp(flag, "tokens");
  int count = 0;
  for (char *item = strtok(text, ","); item; item = strtok(NULL, ",")) {
    if (count == BENCH_MOST_VALUES) die(flag, item, "at most 32 values");
    if (tokens)
      a->tokens[count++] = whole(flag, item, 1);
    else
      bench_check(still_attention_kind_parse(item, &a->kinds[count++]));
  }
  *(tokens ? &a->token_count : &a->kind_count) = count;
}

/* Whole-number flags and the fields they set. */
static const struct {
  const char *name;
  size_t offset;
} numbers[] = {{"heads", offsetof(still_attention_options, heads)},
               {"kv-heads", offsetof(still_attention_options, kv_heads)},
               {"dim", offsetof(still_attention_options, head_dim)},
               {"chunk", offsetof(still_attention_options, chunk)},
               {"budget", offsetof(still_attention_options, budget)},
               {"window", offsetof(still_attention_options, window)},
               {"sinks", offsetof(still_attention_options, sinks)},
               {"context", offsetof(still_attention_options, context)},
               {"threads", offsetof(still_attention_options, threads)}};

static void set_flag(bench_arguments *a, const char *flag, char *value) {
  static const char *const routings[] = {"head", "group", NULL};
  static const char *const types[] = {"f32", "f16", "bf16", NULL};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!strcmp(flag, numbers[i].name)) {
      const int number = (int)whole(flag, value, 0);
      memcpy((char *)&a->base + numbers[i].offset, &number, sizeof number);
      return;
    }
  if (!strcmp(flag, "tokens") || !strcmp(flag, "kind")) parse_list(a, flag, value);
  if (!strcmp(flag, "routing")) a->base.routing = (still_routing)word(flag, value, routings);
  if (!strcmp(flag, "dtype")) a->base.cache_type = (still_dtype)word(flag, value, types);
  if (!strcmp(flag, "metric")) bench_check(still_metric_parse(value, &a->base.metric));
  if (!strcmp(flag, "level")) bench_check(still_set_cpu_level(value));
  if (!strcmp(flag, "repeats")) a->repeats = (int)whole(flag, value, 1);
  if (!strcmp(flag, "plot")) a->plot = value;
  if (!strcmp(flag, "decode")) a->decode = true;
  if (!strcmp(flag, "json")) a->json = true;
}

static void print_help(const char *usage) {
  puts(usage);
  puts("  --kind LIST       full,swa,still,lolcats,liger-gla,hedgehog,t2r\n"
       "  --tokens LIST     context lengths, such as 1K,4K,16K\n"
       "  --heads N --kv-heads N --dim N\n"
       "  --chunk N --budget N --context N (0 = each length)  --routing head|group  --metric NAME\n"
       "  --window N --sinks N\n"
       "  --threads N --dtype f32|f16|bf16 --level "
       "portable|avx2|avxvnni|avx512|avx512vnni|amx|neon|neondot\n"
       "  --decode          time of one token at each length instead of the prefill\n"
       "  --repeats N       runs of each figure (after one to warm up)\n"
       "  --json            one object a line\n"
       "  --plot FILE.svg");
  exit(0);
}

bench_arguments bench_parse(int argc, char **argv, const char *usage) {
  static const struct option flags[] = {
      {"heads", 1, 0, 0},   {"kv-heads", 1, 0, 0}, {"dim", 1, 0, 0},   {"chunk", 1, 0, 0},
      {"budget", 1, 0, 0},  {"window", 1, 0, 0},   {"sinks", 1, 0, 0}, {"context", 1, 0, 0},
      {"threads", 1, 0, 0}, {"tokens", 1, 0, 0},   {"kind", 1, 0, 0},  {"routing", 1, 0, 0},
      {"dtype", 1, 0, 0},   {"metric", 1, 0, 0},   {"level", 1, 0, 0}, {"repeats", 1, 0, 0},
      {"plot", 1, 0, 0},    {"decode", 0, 0, 0},   {"json", 0, 0, 0},  {"help", 0, 0, 'h'},
      {0, 0, 0, 0}};
  bench_arguments a = {.base = STILL_ATTENTION_OPTIONS_INIT,
                       .kinds = {STILL_ATTENTION_FULL, STILL_ATTENTION_SWA, STILL_ATTENTION_STILL,
                                 STILL_ATTENTION_LOLCATS},
                       .kind_count = 4,
                       .tokens = {1024, 2048, 4096, 8192},
                       .token_count = 4,
                       .repeats = 3};
  a.base.heads = 32;
  a.base.kv_heads = 8;
  a.base.head_dim = 128;
  a.base.budget = 896;
  a.base.context = 0;
  int index, letter;
  while ((letter = getopt_long(argc, argv, "h", flags, &index)) != -1) {
    if (letter == 'h') print_help(usage);
    if (letter) exit(2);
    set_flag(&a, flags[index].name, optarg);
  }
  if (optind < argc) die("", argv[optind], "a flag");
  if (!a.base.threads) a.base.threads = still_default_threads();
  return a;
}

still_attention_options bench_options_for(const bench_arguments *a, still_attention_kind kind,
                                          int64_t tokens) {
  still_attention_options o = a->base;
  o.kind = kind;
  if (!o.context) o.context = (int)tokens;
  return o;
}
