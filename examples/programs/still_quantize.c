/* SPDX-License-Identifier: MIT
 * still-quantize: a model, GGUF or Hugging Face folder, as a GGUF in blocks of few bits. */
#include "program_arguments.h"
#include "program_terminal.h"

#include <stdio.h>
#include <still/quantize.h>
#include <string.h>

static const char *input, *output, *type = "Q8_0";
static int threads, report, quiet, help, version;

static const program_flag flags_of_quantize[] = {
    FLAG_HEADING("what to write"),
    FLAG_TEXT("-m, --model", "PATH",
              "the model with float weights: a GGUF file or a Hugging Face folder", &input),
    FLAG_TEXT("-o, --output", "FILE", "the GGUF to write; may be the model itself", &output),
    FLAG_TEXT("--type", "NAME", "Q8_0, Q6_K, Q4_K or Q4_0", &type),
    FLAG_RANGE(INTEGER, "-t, --threads", "N", "threads; 0: the physical cores that it may use",
               &threads, 0, 1024, NULL, NULL),
    FLAG_HEADING("what to show"),
    FLAG_SWITCH("--report", "one line for each tensor on stdout", &report),
    FLAG_SWITCH("-q, --quiet", "nothing on stderr but errors", &quiet),
    FLAG_SWITCH("--version", "print the version and end", &version),
    FLAG_SWITCH("-h, --help", "print this and end", &help),
    FLAG_END,
};

static const program_flag *const flags[] = {flags_of_quantize, NULL};

/* What all tensors together came to. */
typedef struct totals {
  uint64_t bytes_before, bytes_after;
  double error, largest;
  char worst[128], farthest[128]; /* the tensors that these two are of */
  int tensors, changed;
} totals;

static void note(void *user, const still_quantized_tensor *tensor) {
  totals *sum = user;
  sum->tensors++;
  sum->bytes_before += tensor->bytes_before;
  sum->bytes_after += tensor->bytes_after;
  sum->changed += strcmp(tensor->from, tensor->to) != 0;
  if (tensor->error > sum->error) {
    sum->error = tensor->error;
    snprintf(sum->worst, sizeof sum->worst, "%s", tensor->name);
  }
  if (tensor->largest > sum->largest) {
    sum->largest = tensor->largest;
    snprintf(sum->farthest, sizeof sum->farthest, "%s", tensor->name);
  }
  if (report)
    printf("%-32s %5s -> %-5s %12llu -> %11llu bytes  error %.5f  largest %.3g\n", tensor->name,
           tensor->from, tensor->to, (unsigned long long)tensor->bytes_before,
           (unsigned long long)tensor->bytes_after, tensor->error, tensor->largest);
}

static void summary(const totals *sum, double seconds) {
  fprintf(stderr, "%s: %s -> %s, %d of %d tensors changed, %.1f s\n", output,
          program_bytes(sum->bytes_before), program_bytes(sum->bytes_after), sum->changed,
          sum->tensors, seconds);
  fprintf(stderr, "largest relative error %.5f (%s), largest difference %.3g (%s)\n", sum->error,
          sum->worst, sum->largest, sum->farthest);
}

static int quantize(void) {
  totals sum = {0};
  program_progress progress = program_progress_begin("quantizing", "MB", 1e6);
  still_quantize_options options = STILL_QUANTIZE_OPTIONS_INIT;
  options.type = type;
  options.threads = threads;
  options.report = note;
  options.report_user = &sum;
  options.progress = program_progress_show;
  options.progress_user = &progress;
  const double start = program_seconds();
  const still_status status = still_quantize(input, output, &options);
  program_progress_end();
  if (status) {
    program_complain("%s", still_last_error());
    return status == STILL_ERROR_ARGUMENT ? PROGRAM_USAGE : PROGRAM_FAILED;
  }
  if (!quiet) summary(&sum, program_seconds() - start);
  return PROGRAM_DONE;
}

/* MODEL OUT [TYPE], before any flags; returns how many. */
static int take_positions(int argc, char **argv) {
  const char **const places[] = {&input, &output, &type};
  int taken = 0;
  for (; taken < 3 && taken + 1 < argc && argv[taken + 1][0] != '-'; taken++)
    *places[taken] = argv[taken + 1];
  return taken;
}

static int start(int argc, char **argv) {
  program_begin("still-quantize");
  const int taken = take_positions(argc, argv);
  argv[taken] = argv[0];
  const int failed = program_parse(flags, argc - taken, argv + taken);
  if (failed) return failed;
  if (help) {
    program_help(
        flags,
        "still-quantize writes a GGUF model in blocks of few bits, from a GGUF file or from a "
        "Hugging Face folder (config.json, tokenizer and *.safetensors).",
        "still-quantize MODEL SMALL.gguf [TYPE] [FLAGS]",
        "  still-quantize SmolLM2-135M-Instruct/ smollm2.gguf q8_0\n"
        "  still-quantize -m model-f16.gguf -o model-q4.gguf --type Q4_K --report\n");
    return PROGRAM_DONE;
  }
  if (version) {
    printf("still-quantize %s\n", still_version());
    return PROGRAM_DONE;
  }
  if (!input || !output) {
    program_complain("a model and a file to write are needed (-m and -o; see -h)");
    return PROGRAM_USAGE;
  }
  program_terminal_begin(quiet ? -1 : 0);
  program_catch_interrupts();
  return quantize();
}

int main(int argc, char **argv) {
  return program_end(start(argc, argv));
}
