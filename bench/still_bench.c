/* SPDX-License-Identifier: MIT
 * still-bench: measures the operator and the programs on this machine. */
#include "bench.h"

#include <string.h>

static const struct {
  const char *name;
  bench_command *run;
  const char *what;
} commands[] = {
    {"attention", bench_attention, "time of the operator over context length"},
    {"memory", bench_memory, "memory of the operator over context length"},
    {"model", bench_model, "tokens a second of a whole model"},
    {"ratios", bench_ratios, "the figures that matter, each as a ratio inside one run"},
};

static int usage(FILE *out, int status) {
  fprintf(out, "usage: still-bench COMMAND [FLAGS]   (still-bench COMMAND --help)\n");
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].what);
  return status;
}

int main(int argc, char **argv) {
  if (argc < 2) return usage(stderr, 2);
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) return usage(stdout, 0);
  if (!strcmp(argv[1], "--ratios")) argv[1] += 2;
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
  fprintf(stderr, "still-bench: unknown command '%s'\n", argv[1]);
  return usage(stderr, 2);
}
