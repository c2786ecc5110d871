/* SPDX-License-Identifier: MIT
 * still-run: what was read, answered, kept and forgotten, for people and for programs. */
#include "program_arguments.h"
#include "program_json.h"
#include "program_model.h"
#include "program_terminal.h"
#include "run.h"

#include <stdio.h>

static double per_second(int64_t count, double seconds) {
  return seconds > 0 ? (double)count / seconds : 0;
}

static const char *attention_name(const run_state *run) {
  still_model_info info;
  still_model_get_info(run->model, &info);
  if (program_choice.attention < 0 && info.has_adapter) return "adapter";
  int kind = program_choice.attention < 0 ? STILL_ATTENTION_FULL : program_choice.attention;
  return still_attention_kind_name((still_attention_kind)kind);
}

/* Why an answer that the model did not end itself ended. */
static void say_end(const run_state *run) {
  if (!arguments.predict) return; /* none was wanted */
  switch (run->end ? run->end[0] : 0) {
  case 'l': fprintf(stderr, "The answer was cut after %d tokens (-n).\n", arguments.predict); break;
  case 'c': fprintf(stderr, "The answer was cut: the context is full (-c).\n"); break;
  case 'i': fprintf(stderr, "The answer was interrupted.\n"); break;
  default: break;
  }
}

static void say_memory(const run_state *run, const still_session_usage *usage) {
  fprintf(stderr, "%s attention: %lld tokens, of which %lld are attended to exactly",
          attention_name(run), (long long)usage->tokens, (long long)usage->softmax_tokens);
  if (usage->linear_tokens)
    fprintf(stderr, ", %lld are summed up", (long long)usage->linear_tokens);
  if (usage->forgotten_tokens)
    fprintf(stderr, ", %lld are forgotten", (long long)usage->forgotten_tokens);
  fprintf(stderr, " (the most of any head). Cache %s.\n", program_bytes(usage->cache_bytes));
}

static void say_perf(const run_state *run, const still_session_usage *usage) {
  fprintf(stderr,
          "load %.2f s; weights %s, work space %s, most memory resident %s\n"
          "kernels %s, %d threads; seed %llu\n",
          run->load_seconds, program_bytes(usage->weight_bytes), program_bytes(usage->work_bytes),
          program_bytes(program_peak_resident()), still_cpu_level(),
          program_choice.threads ? program_choice.threads : still_default_threads(),
          (unsigned long long)still_sampler_seed(run->sampler));
}

void run_summary(const run_state *run) {
  if (program_quiet()) return;
  still_session_usage usage;
  still_session_get_usage(run->session, &usage);
  fputs(program_colour("\033[2m"), stderr);
  say_end(run);
  fprintf(stderr,
          "read %lld tokens in %.2f s (%.0f a second), answered %lld in %.2f s (%.0f a second)\n",
          (long long)run->prompt_tokens, run->prompt_seconds,
          per_second(run->prompt_tokens, run->prompt_seconds), (long long)run->answer_tokens,
          run->answer_seconds, per_second(run->answer_tokens, run->answer_seconds));
  say_memory(run, &usage);
  if (arguments.perf) say_perf(run, &usage);
  fputs(program_colour("\033[0m"), stderr);
}

static void json_speed(program_json *json, const run_state *run) {
  program_json_integer(json, "prompt_tokens", run->prompt_tokens);
  program_json_integer(json, "answer_tokens", run->answer_tokens);
  program_json_number(json, "load_seconds", run->load_seconds);
  program_json_number(json, "prompt_seconds", run->prompt_seconds);
  program_json_number(json, "answer_seconds", run->answer_seconds);
  program_json_number(json, "prompt_tokens_per_second",
                      per_second(run->prompt_tokens, run->prompt_seconds));
  program_json_number(json, "answer_tokens_per_second",
                      per_second(run->answer_tokens, run->answer_seconds));
}

static void json_memory(program_json *json, const still_session_usage *usage) {
  program_json_integer(json, "tokens", usage->tokens);
  program_json_integer(json, "context", usage->context);
  program_json_integer(json, "softmax_tokens", usage->softmax_tokens);
  program_json_integer(json, "linear_tokens", usage->linear_tokens);
  program_json_integer(json, "forgotten_tokens", usage->forgotten_tokens);
  program_json_integer(json, "cache_bytes", (int64_t)usage->cache_bytes);
  program_json_integer(json, "work_bytes", (int64_t)usage->work_bytes);
  program_json_integer(json, "weight_bytes", (int64_t)usage->weight_bytes);
}

void run_json(const run_state *run) {
  still_session_usage usage;
  still_session_get_usage(run->session, &usage);
  program_json json = program_json_begin(stdout);
  program_json_text(&json, "answer", run->answer.data ? run->answer.data : "", run->answer.bytes);
  program_json_string(&json, "end", run->end);
  program_json_string(&json, "attention", attention_name(run));
  json_speed(&json, run);
  json_memory(&json, &usage);
  program_json_integer(&json, "peak_resident_bytes", (int64_t)program_peak_resident());
  program_json_string(&json, "model", program_model_path());
  program_json_string(&json, "device", program_choice.device ? program_choice.device : "cpu");
  program_json_string(&json, "kernels", still_cpu_level());
  program_json_integer(&json, "threads",
                       program_choice.threads ? program_choice.threads : still_default_threads());
  program_json_integer(&json, "seed", (int64_t)still_sampler_seed(run->sampler));
  program_json_string(&json, "version", still_version());
  program_json_end(&json);
}

int run_dry(const run_state *run, int64_t tokens) {
  still_session_options options;
  still_session_usage usage;
  const int code = run_session_options(run, &options);
  if (code) return code;
  still_status status = still_session_estimate(run->model, &options, 1, &usage);
  if (!tokens) tokens = usage.context;
  if (!status) status = still_session_estimate(run->model, &options, tokens, &usage);
  if (status) return program_refusal(status, NULL);
  uint64_t total = usage.cache_bytes + usage.work_bytes + usage.weight_bytes;
  uint64_t available = program_available_memory();
  int fits = !available || total <= available;
  if (arguments.json) {
    program_json json = program_json_begin(stdout);
    program_json_string(&json, "attention", attention_name(run));
    json_memory(&json, &usage);
    program_json_integer(&json, "total_bytes", (int64_t)total);
    program_json_integer(&json, "available_bytes", (int64_t)available);
    program_json_integer(&json, "fits", fits);
    program_json_end(&json);
  } else {
    printf("%s attention with %lld tokens\n", attention_name(run), (long long)usage.tokens);
    printf("  cache      %12llu bytes\n", (unsigned long long)usage.cache_bytes);
    printf("  work space %12llu bytes\n", (unsigned long long)usage.work_bytes);
    printf("  weights    %12llu bytes\n", (unsigned long long)usage.weight_bytes);
    printf("  together   %12llu bytes; free here %llu: it %s\n", (unsigned long long)total,
           (unsigned long long)available, fits ? "fits" : "does not fit");
  }
  return fits ? PROGRAM_DONE : PROGRAM_FAILED;
}
