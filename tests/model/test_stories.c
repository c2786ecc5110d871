/* SPDX-License-Identifier: MIT
 * A real pretrained model of another project, as GGUF and as a Hugging Face folder, against what that project's own
 * program computes. Needs the shared folder; skipped without it. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = 512, GREEDY = 200, PROMPT = 96 };

static void read_ids(const char *name, still_token *ids, int count) {
  char *text = check_read(check_shared(name), NULL), *at = text;
  for (int i = 0; i < count; i++) {
    at += strcspn(at, "0123456789");
    ids[i] = (still_token)strtol(at, &at, 10);
  }
  free(text);
}

static void check_logits(const char *model, const char *ids_name, const char *logits_name,
                         int count) {
  still_token *ids = malloc((size_t)count * sizeof *ids);
  float *got = malloc((size_t)count * VOCABULARY * sizeof *got);
  read_ids(ids_name, ids, count);
  char *want = check_read(check_shared(logits_name), NULL);
  all_logits(model, NULL, ids, (size_t)count, got);
  const double error = largest_difference(got, (const float *)want, (size_t)count * VOCABULARY);
  if (!(error <= 2e-4)) fail_msg("%s: logits differ by %g", logits_name, error);
  free(ids);
  free(got);
  free(want);
}

/* One token at a time, each the likeliest: the ids of that program, from the begin-of-sequence token alone. */
static void check_greedy(const char *path) {
  still_token want[GREEDY];
  read_ids("data/stories260K/golden_greedy_tokens.txt", want, GREEDY);
  model_run run = open_run(path, NULL);
  still_sampler_options options = STILL_SAMPLER_OPTIONS_INIT;
  options.temperature = 0;
  still_sampler *sampler;
  check_ok(still_sampler_create(&sampler, &options));
  still_token token = want[0];
  for (int i = 0; i < GREEDY; i++) {
    assert_int_equal(token, want[i]);
    check_ok(still_session_evaluate(run.session, &token, 1, NULL, NULL));
    check_ok(still_sampler_sample(sampler, still_session_logits(run.session), VOCABULARY, &token));
  }
  still_sampler_destroy(sampler);
  close_run(&run);
}

static void check_all(const char *path) {
  check_logits(path, "data/stories260K/golden_greedy_tokens.txt",
               "data/stories260K/golden_greedy_logits.f32", GREEDY);
  check_logits(path, "data/stories260K/golden_prompt_tokens.txt",
               "data/stories260K/golden_prompt_logits.f32", PROMPT);
  check_greedy(path);
}

static void as_gguf(void **state) {
  (void)state;
  made_model model = made_stories();
  check_all(made_gguf(&model, "stories.gguf", STILL_TENSOR_F32));
  made_free(&model);
}

static void as_folder(void **state) {
  (void)state;
  made_model model = made_stories();
  check_all(made_folder(&model, "stories", STILL_TENSOR_F32));
  made_free(&model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_gguf),
      cmocka_unit_test(as_folder),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
