/* SPDX-License-Identifier: MIT
 * A model linearized from end to end, both stages, and used: a small real one of the shared folder
 * (skipped without it) on stories that it wrote itself, and a few steps of the embedded one. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <still/linearize.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct course {
  const char *path; /* of the base model */
  int rows, length, chunk, budget;
  int64_t transfer_steps, steps;
  float rate, low_rank_rate;
  double error_falls; /* attention transfer: at least so many times */
} course;

/* What the model itself writes, from a first token of its own for each row. */
static const char *write_rows(const course *c, const still_model *model) {
  still_sampler_options sampling = STILL_SAMPLER_OPTIONS_INIT;
  still_model_info info;
  still_sampler *sampler;
  still_session *session;
  char *text = malloc((size_t)(c->rows * c->length) * 8 + 4096);
  size_t at = 0;
  still_model_get_info(model, &info);
  sampling.temperature = 1, sampling.seed = 4;
  check_ok(still_sampler_create(&sampler, &sampling));
  for (int row = 0; row < c->rows; row++) {
    still_token token = 1 + row % 200;
    check_ok(still_session_create(&session, model, NULL));
    for (int i = 0; i < c->length; i++) {
      at += (size_t)sprintf(text + at, "%s%d", i ? ", " : "{\"ids\": [", (int)token);
      check_ok(still_session_evaluate(session, &token, 1, NULL, NULL));
      check_ok(still_sampler_sample(sampler, still_session_logits(session), (size_t)info.vocabulary,
                                    &token));
    }
    at += (size_t)sprintf(text + at, "]}\n");
    still_session_destroy(session);
  }
  still_sampler_destroy(sampler);
  const char *path = check_file("written.jsonl", text, at);
  free(text);
  return path;
}

static still_training_data *open_rows(const course *c, const still_model *model,
                                      const still_tokenizer *tokenizer) {
  const char *path = write_rows(c, model);
  still_training_data_options options = STILL_TRAINING_DATA_OPTIONS_INIT;
  still_training_data *data;
  options.length = c->length, options.validation = 0.1f;
  check_ok(still_training_data_open(&data, tokenizer, &path, 1, &options));
  return data;
}

static still_training_result train(const still_model *model, const still_training_data *data,
                                   const still_training_options *options) {
  still_training_result result = {0};
  check_ok(still_train(model, data, options, NULL, NULL, &result));
  return result;
}

/* The adapter is taken by the runtime, which answers with finite logits from a bounded cache. */
static void use_adapter(const course *c, const char *adapter) {
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  still_model *model;
  still_session *session;
  still_model_info info;
  options.adapter = adapter;
  check_ok(still_model_open(&model, c->path, &options));
  still_model_get_info(model, &info);
  assert_int_equal(info.has_adapter, 1);
  check_ok(still_session_create(&session, model, NULL));
  still_token *ids = malloc((size_t)c->length * sizeof *ids);
  random_ids(ids, (size_t)c->length, info.vocabulary, 3);
  check_ok(still_session_evaluate(session, ids, (size_t)c->length, NULL, NULL));
  const float *logits = still_session_logits(session);
  for (int i = 0; i < info.vocabulary; i++) assert_true(isfinite(logits[i]));
  free(ids);
  still_session_destroy(session);
  still_model_destroy(model);
}

static void linearize(const course *c) {
  still_model *model, *words;
  char transfer[512], adapter[512];
  check_ok(still_model_open(&model, c->path, NULL));
  check_ok(still_model_open(&words, needle_folder(), NULL)); /* rows of ids need no own tokenizer */
  still_training_data *data = open_rows(c, model, still_model_tokenizer(words));
  snprintf(transfer, sizeof transfer, "%s", check_path("transfer.safetensors"));
  snprintf(adapter, sizeof adapter, "%s", check_path("adapter.safetensors"));
  still_training_options options = STILL_TRAINING_OPTIONS_INIT;
  options.attention.chunk = c->chunk, options.attention.budget = c->budget;
  options.batch = 4, options.validate_every = 10, options.output = transfer;
  options.steps = c->transfer_steps, options.rate = c->rate;
  const still_training_result first = train(model, data, &options);
  if (!(first.validation_best * c->error_falls < first.validation_before))
    fail_msg("attention transfer: error %g before, %g after", first.validation_before,
             first.validation_best);
  options.stage = STILL_STAGE_LOW_RANK, options.adapter = transfer, options.output = adapter;
  options.steps = c->steps, options.rate = c->low_rank_rate, options.train_maps = 1;
  const still_training_result second = train(model, data, &options);
  if (!(second.validation_best < second.validation_before))
    fail_msg("low-rank: loss %g before, %g after", second.validation_before,
             second.validation_best);
  still_training_data_destroy(data);
  still_model_destroy(words);
  still_model_destroy(model);
  use_adapter(c, adapter);
}

static void stories(void **state) {
  (void)state;
  made_model model = made_stories();
  const course c = {made_gguf(&model, "stories.gguf", STILL_TENSOR_F32),
                    48,
                    256,
                    16,
                    48,
                    60,
                    40,
                    1e-2f,
                    1e-3f,
                    2};
  made_free(&model);
  linearize(&c);
}

static void embedded(void **state) {
  (void)state;
  const course c = {needle_folder(), 10, 160, 16, 48, 10, 5, 1e-2f, 1e-3f, 1.2};
  linearize(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(stories), cmocka_unit_test(embedded)};
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
