/* SPDX-License-Identifier: MIT
 * Whole models: tokens a second of prefill and decode, for each kind of attention. */
#include "bench.h"

#include <still/model.h>

#include <stdlib.h>
#include <string.h>

typedef struct model_figure {
  still_session_options options;
  int64_t tokens;
  bench_times prefill, decode; /* of all tokens; of one token behind them */
  still_session_usage usage;
} model_figure;

/* Takes "--name value" out of the arguments; fallback where it is not there. */
static const char *take_flag(int *argc, char **argv, const char *name, const char *fallback) {
  for (int i = 1; i + 1 < *argc; i++)
    if (!strcmp(argv[i], name)) {
      const char *value = argv[i + 1];
      memmove(argv + i, argv + i + 2, (size_t)(*argc - i - 2) * sizeof *argv);
      *argc -= 2;
      return value;
    }
  return fallback;
}

static still_session_options session_options(const bench_arguments *a, still_attention_kind kind,
                                             int64_t tokens, int steps) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = kind;
  options.adapter_kinds = kind == STILL_ATTENTION_STILL;
  options.chunk = a->base.chunk;
  options.budget = a->base.budget;
  options.routing = a->base.routing;
  options.metric = a->base.metric;
  options.window = a->base.window;
  options.sinks = a->base.sinks;
  options.cache_type = a->base.cache_type;
  options.threads = a->base.threads;
  options.context = a->base.context ? a->base.context : (int)tokens + steps;
  return options;
}

static double time_evaluate(still_session *session, const still_token *ids, size_t count) {
  const double start = bench_now();
  bench_check(still_session_evaluate(session, ids, count, NULL, NULL));
  return bench_now() - start;
}

enum { STEPS = 16 };

static void measure(model_figure *f, still_session *session, int vocabulary, int repeats) {
  double *seconds = calloc((size_t)repeats, sizeof *seconds), steps[STEPS];
  still_token *ids = malloc((size_t)f->tokens * sizeof *ids);
  for (int64_t i = 0; i < f->tokens; i++)
    ids[i] = (still_token)((uint64_t)(i + 1) * 2654435761u % (uint64_t)vocabulary);
  time_evaluate(session, ids, f->tokens < 1024 ? (size_t)f->tokens : 1024); /* warms up */
  for (int i = 0; i < repeats; i++) {
    still_session_reset(session);
    seconds[i] = time_evaluate(session, ids, (size_t)f->tokens);
  }
  for (int i = 0; i < STEPS; i++) steps[i] = time_evaluate(session, ids + i % f->tokens, 1);
  f->prefill = bench_summary(seconds, (size_t)repeats);
  f->decode = bench_summary(steps, STEPS);
  still_session_get_usage(session, &f->usage);
  free(seconds);
  free(ids);
}

static void print_json(const model_figure *f, const char *device, const char *name,
                       const bench_machine *m) {
  const struct {
    const char *bench;
    const bench_times *times;
    double tokens;
  } figures[] = {{"model-prefill", &f->prefill, (double)f->tokens},
                 {"model-decode", &f->decode, 1}};
  static const char *const types[] = {"f32", "f16", "bf16"};
  for (int i = 0; i < 2; i++)
    printf("{\"bench\":\"%s\",\"model\":\"%s\",\"kind\":\"%s\",\"tokens\":%lld,\"chunk\":%d,"
           "\"budget\":%d,\"threads\":%d,\"device\":\"%s\",\"level\":\"%s\",\"dtype\":\"%s\","
           "\"median_s\":%.6g,\"p10_s\":%.6g,\"p90_s\":%.6g,\"tokens_per_s\":%.6g,"
           "\"bytes\":%llu,\"cache_bytes\":%llu,\"sgemm_flops\":%.6g,\"triad_bytes\":%.6g}\n",
           figures[i].bench, name, still_attention_kind_name(f->options.attention),
           (long long)f->tokens, f->options.chunk, f->options.budget, f->options.threads, device,
           still_cpu_level(), types[f->options.cache_type], figures[i].times->median,
           figures[i].times->p10, figures[i].times->p90,
           figures[i].tokens / figures[i].times->median,
           (unsigned long long)(f->usage.cache_bytes + f->usage.work_bytes),
           (unsigned long long)f->usage.cache_bytes, m->sgemm_flops, m->triad_bytes);
  fflush(stdout);
}

static void print_row(const model_figure *f) {
  printf("%-10s %8lld %12.1f %10.4f %10.4f %12.1f %10.4f %10.2f\n",
         still_attention_kind_name(f->options.attention), (long long)f->tokens,
         (double)f->tokens / f->prefill.median, f->prefill.p10, f->prefill.p90,
         1 / f->decode.median, f->decode.p90, (double)f->usage.cache_bytes / (1 << 20));
  fflush(stdout);
}

static const char help[] =
    "usage: still-bench model --model PATH [--adapter PATH] [-dev NAME] [-ngl N] [-b N] [FLAGS]\n"
    "  -ngl: layers on the device, the rest on the CPU; default: as many as fit\n"
    "  STILL_VULKAN_PROFILE=1: time of each shader on stderr, warm-ups and repeats included\n"
    "  -b: tokens of a prefill block; default 0: 512, on a GPU up to 4096\n"
    "  kinds that need an adapter are left out without one; --heads, --kv-heads and --dim are the "
    "model's";

static void print_log(void *user, still_log_level level, const char *line) {
  (void)user;
  (void)level;
  fprintf(stderr, "%s\n", line);
}

int bench_model(int argc, char **argv) {
  if (getenv("STILL_VULKAN_PROFILE")) still_set_log(print_log, NULL, STILL_LOG_INFO);
  still_model_options model_options = STILL_MODEL_OPTIONS_INIT;
  const char *path = take_flag(&argc, argv, "--model", NULL);
  if (!path) path = take_flag(&argc, argv, "-m", "examples/models/needle");
  model_options.adapter = take_flag(&argc, argv, "--adapter", NULL);
  model_options.device = take_flag(&argc, argv, "--device", NULL);
  if (!model_options.device) model_options.device = take_flag(&argc, argv, "-dev", "cpu");
  model_options.device_layers = atoi(take_flag(&argc, argv, "-ngl", "-1"));
  const int block = atoi(take_flag(&argc, argv, "-b", "0"));
  const bench_arguments a = bench_parse(argc, argv, help);
  model_options.threads = a.base.threads;
  still_model *model;
  bench_check(still_model_open(&model, path, &model_options));
  still_model_info info;
  still_model_get_info(model, &info);
  const bench_machine m = bench_measure_machine(a.base.threads);
  if (!a.json) {
    bench_print_machine(&m, a.base.threads);
    printf("%-10s %8s %12s %10s %10s %12s %10s %10s\n", "kind", "tokens", "prefill t/s", "p10 s",
           "p90 s", "decode t/s", "p90 s", "cache MiB");
  }
  for (int i = 0; i < a.token_count; i++)
    for (int k = 0; k < a.kind_count; k++) {
      model_figure f = {.options = session_options(&a, a.kinds[k], a.tokens[i], STEPS),
                        .tokens = a.tokens[i]};
      f.options.block = block;
      still_session *session;
      if (still_session_create(&session, model, &f.options)) {
        fprintf(stderr, "%s left out: %s\n", still_attention_kind_name(a.kinds[k]),
                still_last_error());
        continue;
      }
      measure(&f, session, info.vocabulary, a.repeats);
      if (a.json)
        print_json(&f, model_options.device, info.name, &m);
      else
        print_row(&f);
      still_session_destroy(session);
    }
  still_model_destroy(model);
  return 0;
}
