/* SPDX-License-Identifier: MIT
 * training_speed MODEL [THREADS]: tokens/s and memory of both stages of linearizing, beside a
 * forward pass of the same model through the same code, at rows of 1024 and 4096 tokens. The best
 * of some rounds, all in one process; with one thread by the CPU's time, so that other work on the
 * machine does not count. */
#include "base/memory.h"
#include "base/random.h"
#include "base/threads.h"
#include "linearize/student.h"
#include "model/model_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 3, TOKENS = 4096, MOST_LAYERS = 1024 };

typedef enum work { FORWARD, TRANSFER, LOW_RANK } work;

static clockid_t clock_id = CLOCK_MONOTONIC;

static double now(void) {
  struct timespec t;
  clock_gettime(clock_id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void give_up(void) {
  fprintf(stderr, "training_speed: %s\n", still_last_error());
  exit(1);
}

static still_student *make_student(const still_model_weights *weights, still_attention_kind kind,
                                   size_t length, int threads) {
  static still_attention_kind kinds[MOST_LAYERS];
  for (int i = 0; i < weights->config.layers; i++) kinds[i] = kind;
  still_student_options options = {.attention = STILL_ATTENTION_OPTIONS_INIT,
                                   .kinds = kinds,
                                   .gate = true,
                                   .maps = true,
                                   .lora_rank = 8,
                                   .lora_alpha = 16,
                                   .longest = length,
                                   .most = TOKENS,
                                   .sequences = TOKENS / length,
                                   .threads = threads};
  options.attention.budget = 256, options.attention.context = 1;
  still_student *student;
  if (still_student_create(&student, weights, NULL, &options)) give_up();
  return student;
}

static void do_work(still_student *student, const still_batch *batch, work which) {
  static still_transfer_error errors[MOST_LAYERS];
  double loss = 0, weight = 0;
  still_student_clear_gradients(student);
  if (which == TRANSFER ? still_student_transfer(student, batch, true, 1, errors)
                        : still_student_loss(student, batch, which == LOW_RANK, 1, &loss, &weight))
    give_up();
}

/* Best tokens/s of ROUNDS; *bytes: what the library held at most. */
static double measure(const still_model_weights *weights, work which, size_t length, int threads,
                      uint64_t *bytes) {
  static int32_t ids[TOKENS], target[TOKENS];
  static float ones[TOKENS];
  size_t offsets[TOKENS / 1024 + 1] = {0};
  const size_t rows = TOKENS / length;
  still_random random;
  still_random_seed(&random, 1);
  for (size_t i = 0; i < TOKENS; i++) {
    ids[i] = (int32_t)still_random_below(&random, (uint64_t)weights->config.vocabulary);
    target[i] = ids[i], ones[i] = 1;
  }
  for (size_t i = 0; i <= rows; i++) offsets[i] = i * length;
  const still_batch batch = {rows, TOKENS, offsets, ids, target, ones, NULL};
  still_reset_peak_bytes();
  still_student *student = make_student(
      weights, which == FORWARD ? STILL_ATTENTION_FULL : STILL_ATTENTION_STILL, length, threads);
  double best = 1e30;
  for (int i = 0; i <= ROUNDS; i++) {
    const double start = now();
    do_work(student, &batch, which);
    if (i && now() - start < best) best = now() - start; /* the first touches the memory */
  }
  *bytes = still_peak_bytes();
  still_student_destroy(student);
  return TOKENS / best;
}

int main(int argc, char **argv) {
  static const char *const names[] = {"forward pass", "attention transfer", "low-rank"};
  still_model *model;
  if (argc < 2) {
    fprintf(stderr, "usage: training_speed MODEL [THREADS]\n");
    return 2;
  }
  if (still_model_open(&model, argv[1], NULL)) give_up();
  const int threads = still_resolve_threads(argc > 2 ? atoi(argv[2]) : 0);
  if (threads == 1) clock_id = CLOCK_PROCESS_CPUTIME_ID;
  printf("%s kernels, %d threads, %d tokens at once, budget 256\n", still_cpu_level(), threads,
         TOKENS);
  printf("| rows of | work | tokens/s | of a forward pass | memory |\n|---|---|---|---|---|\n");
  for (size_t length = 1024; length <= TOKENS; length *= 4) {
    double forward = 0;
    for (int which = FORWARD; which <= LOW_RANK; which++) {
      uint64_t bytes;
      const double rate =
          measure(still_model_get_weights(model), (work)which, length, threads, &bytes);
      if (which == FORWARD) forward = rate;
      printf("| %zu | %s | %.0f | %.2f | %.0f MB |\n", length, names[which], rate, rate / forward,
             (double)bytes / 1e6);
      fflush(stdout);
    }
  }
  still_model_destroy(model);
  return 0;
}
