/* SPDX-License-Identifier: MIT
 * training_speed MODEL [THREADS]: tokens/s and memory of both stages of linearizing (a whole step:
 * forward, backward, AdamW), beside a forward pass of the same model through the same code, at rows
 * of 1024 and 4096 tokens; then the memory of a step on one row of each length. The best of some
 * rounds, all in one process; with one thread by the CPU's time, so that other work on the machine
 * does not count.
 *
 * training_speed MODEL THREADS LENGTH: for peer_torch_training.py. Reads a stage (1 or 2) a line and
 * answers each, after one step on rows of LENGTH, with its seconds and its loss. */
#include "base/memory.h"
#include "base/threads.h"
#include "linearize/optimizer.h"
#include "linearize/student.h"
#include "model/model_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 3, TOKENS = 4096, MOST_LAYERS = 1024 };

typedef enum work { FORWARD, TRANSFER, LOW_RANK } work;

/* A student at its work. */
typedef struct course {
  work which;
  int layers;
  still_student *student;
  still_optimizer optimizer;
  size_t offsets[TOKENS / 16 + 1];
  still_batch batch;
} course;

static int32_t ids[TOKENS];
static float ones[TOKENS];
static clockid_t clock_id = CLOCK_MONOTONIC;

static double now(void) {
  struct timespec t;
  clock_gettime(clock_id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(still_status status) {
  if (!status) return;
  fprintf(stderr, "training_speed: %s\n", still_last_error());
  exit(1);
}

static void make_tokens(const still_model_config *config) {
  for (size_t i = 0; i < TOKENS; i++) {
    ids[i] = (int32_t)((i * i * 7 + i * 13) % (size_t)config->vocabulary);
    ones[i] = 1;
  }
}

static void begin(course *c, const still_model_weights *weights, work which, size_t length,
                  size_t rows, int threads) {
  static still_attention_kind kinds[MOST_LAYERS];
  for (int i = 0; i < weights->config.layers; i++)
    kinds[i] = which == FORWARD ? STILL_ATTENTION_FULL : STILL_ATTENTION_STILL;
  still_student_options options = {.attention = STILL_ATTENTION_OPTIONS_INIT,
                                   .kinds = kinds,
                                   .gate = true,
                                   .maps = true,
                                   .lora_rank = which == TRANSFER ? 0 : 8,
                                   .lora_alpha = 16,
                                   .longest = length,
                                   .most = rows * length,
                                   .sequences = rows,
                                   .threads = threads};
  options.attention.budget = 256, options.attention.context = 1;
  *c = (course){.which = which, .layers = weights->config.layers};
  check(still_student_create(&c->student, weights, NULL, &options));
  check(still_optimizer_create(&c->optimizer, c->student, which == TRANSFER, which != TRANSFER));
  for (size_t i = 0; i <= rows; i++) c->offsets[i] = i * length;
  c->batch = (still_batch){rows, rows * length, c->offsets, ids, ids, ones, NULL};
}

static void end(course *c) {
  still_optimizer_destroy(&c->optimizer);
  still_student_destroy(c->student);
}

static double loss_of(course *c) {
  if (c->which == TRANSFER) {
    still_transfer_error errors[MOST_LAYERS] = {{0}};
    double sum = 0;
    check(still_student_transfer(c->student, &c->batch, true, 1, errors));
    for (int i = 0; i < c->layers; i++) sum += errors[i].squared / errors[i].power;
    return sum / c->layers;
  }
  double loss = 0, weight = 0;
  check(still_student_loss(c->student, &c->batch, c->which == LOW_RANK, 1.0 / TOKENS, &loss,
                           &weight));
  return loss / weight;
}

/* Seconds of one step. */
static double step(course *c, double *loss) {
  static const still_step_options options = {1e-4, 1e-4, 0.9, 0.999, 0, 0};
  const double start = now();
  double norm;
  still_student_clear_gradients(c->student);
  *loss = loss_of(c);
  if (c->which != FORWARD) {
    check(still_gradient_norm(&c->optimizer, &norm));
    check(still_optimizer_step(&c->optimizer, &options, norm));
    check(still_student_refresh(c->student));
  }
  return now() - start;
}

/* Best tokens/s of ROUNDS; *bytes: what the library held at most. */
static double measure(const still_model_weights *weights, work which, size_t length, int threads,
                      uint64_t *bytes) {
  course c;
  double best = 1e30, loss;
  still_reset_peak_bytes();
  begin(&c, weights, which, length, TOKENS / length, threads);
  for (int i = 0; i <= ROUNDS; i++) {
    const double seconds = step(&c, &loss);
    if (i && seconds < best) best = seconds; /* the first touches the memory */
  }
  *bytes = still_peak_bytes();
  end(&c);
  return TOKENS / best;
}

static void print_table(const still_model_weights *weights, int threads) {
  static const char *const names[] = {"forward pass", "attention transfer", "low-rank"};
  if (threads == 1) clock_id = CLOCK_PROCESS_CPUTIME_ID;
  printf("%s kernels, %d threads, %d tokens at once, budget 256\n", still_cpu_level(), threads,
         TOKENS);
  printf("| rows of | work | tokens/s | of a forward pass | memory |\n|---|---|---|---|---|\n");
  for (size_t length = 1024; length <= TOKENS; length *= 4) {
    double forward = 0;
    for (int which = FORWARD; which <= LOW_RANK; which++) {
      uint64_t bytes;
      const double rate = measure(weights, (work)which, length, threads, &bytes);
      if (which == FORWARD) forward = rate;
      printf("| %zu | %s | %.0f | %.2f | %.0f MB |\n", length, names[which], rate, rate / forward,
             (double)bytes / 1e6);
      fflush(stdout);
    }
  }
}

/* The most that was resident since clear_resident(), in MB; 0 where the system does not say. */
static double most_resident(void) {
  char line[256];
  double kilobytes = 0;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file)) sscanf(line, "VmHWM: %lf", &kilobytes);
  if (file) fclose(file);
  return kilobytes * 1.024e-3;
}

static void clear_resident(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  if (!file) return;
  fputs("5", file);
  fclose(file);
}

/* One row at a time: what its length costs. */
static void print_memory(const still_model_weights *weights, int threads) {
  printf("\n| one row of | attention transfer, library | resident | low-rank, library | resident "
         "|\n|---|---|---|---|---|\n");
  for (size_t length = 512; length <= TOKENS; length *= 2) {
    printf("| %zu |", length);
    for (int which = TRANSFER; which <= LOW_RANK; which++) {
      course c;
      double loss;
      still_reset_peak_bytes(), clear_resident();
      begin(&c, weights, (work)which, length, 1, threads);
      step(&c, &loss);
      printf(" %.0f MB | %.0f MB |", (double)still_peak_bytes() / 1e6, most_resident());
      end(&c);
    }
    printf("\n");
    fflush(stdout);
  }
}

static void serve(const still_model_weights *weights, int threads, size_t length) {
  course stages[2];
  int stage;
  begin(&stages[0], weights, TRANSFER, length, TOKENS / length, threads);
  begin(&stages[1], weights, LOW_RANK, length, TOKENS / length, threads);
  printf("%s kernels, %d threads\n", still_cpu_level(), threads);
  fflush(stdout);
  while (scanf("%d", &stage) == 1 && stage >= 1 && stage <= 2) {
    double loss;
    const double seconds = step(&stages[stage - 1], &loss);
    printf("%.6f %.9g\n", seconds, loss);
    fflush(stdout);
  }
  end(&stages[0]), end(&stages[1]);
}

int main(int argc, char **argv) {
  still_model *model;
  const int length = argc > 3 ? atoi(argv[3]) : 0;
  if (argc < 2 || (argc > 3 && (length < 16 || TOKENS % length))) {
    fprintf(stderr, "usage: training_speed MODEL [THREADS [LENGTH, a divisor of %d]]\n", TOKENS);
    return 2;
  }
  check(still_model_open(&model, argv[1], NULL));
  const int threads = still_resolve_threads(argc > 2 ? atoi(argv[2]) : 0);
  const still_model_weights *weights = still_model_get_weights(model);
  make_tokens(&weights->config);
  if (length)
    serve(weights, threads, (size_t)length);
  else
    print_table(weights, threads), print_memory(weights, threads);
  still_model_destroy(model);
  return 0;
}
