/* SPDX-License-Identifier: MIT
 * Every allocation of a training run fails once: the error comes back, nothing is left behind, and the model is as it was.
 * Argument: needle's folder, for a tokenizer. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include "base/memory.h"

#include <still/linearize.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *folder;
static atomic_long countdown = -1;

static void *fail_once(void *user, size_t bytes, size_t alignment) {
  void *block = NULL;
  (void)user;
  if (!atomic_fetch_sub(&countdown, 1)) return NULL;
  return posix_memalign(&block, alignment, bytes) ? NULL : block;
}

static void release(void *user, void *block, size_t bytes) {
  (void)user;
  (void)bytes;
  free(block);
}

static const char *rows_file(void) {
  static char text[8192];
  size_t at = 0;
  for (int row = 0; row < 12; row++) {
    at += (size_t)snprintf(text + at, sizeof text - at, "{\"ids\": [1");
    for (int i = 0; i < 30 + row; i++)
      at += (size_t)snprintf(text + at, sizeof text - at, ", %d", (row * 7 + i * i) % 97);
    at += (size_t)snprintf(text + at, sizeof text - at, "]}\n");
  }
  return check_file("rows.jsonl", text, at);
}

typedef struct scenario {
  const still_model *model;
  const still_tokenizer *tokenizer;
  const char *rows;
  still_training_options options;
} scenario;

static still_status train(const scenario *s) {
  still_training_data *data;
  still_training_data_options options = STILL_TRAINING_DATA_OPTIONS_INIT;
  options.length = 64, options.validation = 0.2f;
  STILL_TRY(still_training_data_open(&data, s->tokenizer, &s->rows, 1, &options));
  const still_status status = still_train(s->model, data, &s->options, NULL, NULL, NULL);
  still_training_data_destroy(data);
  return status;
}

static void check_stage(scenario *s, still_stage stage) {
  const uint64_t held = still_allocated_bytes();
  s->options.stage = stage;
  long runs = 0;
  for (;; runs++) {
    atomic_store(&countdown, runs);
    const still_status status = train(s);
    const bool reached = atomic_load(&countdown) < 0;
    atomic_store(&countdown, -1);
    assert_int_equal(still_allocated_bytes(), held);
    if (!reached) {
      check_ok(status);
      break;
    }
    if (status != STILL_ERROR_MEMORY)
      fail_msg("stage %d, allocation %ld: got '%s' (%s)", (int)stage, runs,
               still_status_text(status), still_last_error());
  }
  print_message("stage %d: %ld allocations failed\n", (int)stage, runs);
  assert_true(runs > 100);
}

static void every_allocation_fails_once(void **state) {
  (void)state;
  const still_allocator allocator = {fail_once, release, NULL};
  scenario s = {.options = STILL_TRAINING_OPTIONS_INIT};
  char adapter[512];
  const char *model_path = small_gguf();
  still_tokenizer *tokenizer;
  still_model *model;
  check_ok(still_set_allocator(&allocator));
  check_ok(still_tokenizer_open(&tokenizer, folder, NULL, NULL));
  check_ok(still_model_open(&model, model_path, NULL));
  snprintf(adapter, sizeof adapter, "%s", check_path("transfer.safetensors"));
  s.model = model;
  s.tokenizer = tokenizer;
  s.rows = rows_file();
  s.options.output = adapter;
  s.options.attention.chunk = 8, s.options.attention.budget = 20;
  s.options.batch = 1, s.options.steps = 1, s.options.validate_every = 1, s.options.threads = 1;
  check_stage(&s, STILL_STAGE_ATTENTION_TRANSFER);
  s.options.adapter = adapter;
  s.options.output = check_path("low_rank.safetensors");
  s.options.lora_rank = 2;
  check_stage(&s, STILL_STAGE_LOW_RANK);
  still_model_destroy(model);
  still_tokenizer_destroy(tokenizer);
  check_ok(still_set_allocator(NULL));
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_fails_once)};
  folder = argc > 1 ? argv[1] : ".";
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
