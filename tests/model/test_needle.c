/* SPDX-License-Identifier: MIT
 * The embedded model against logits made elsewhere: transformers' LlamaForCausalLM in float32. */
#include "base/memory.h"
#include "formats/safetensors.h"
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <math.h>
#include <stdio.h>
#include <still/model.h>

static still_model *open_needle(void) {
  still_model *model;
  check_ok(still_model_open(&model, needle_folder(), NULL));
  return model;
}

static void check_length(const still_model *model, const still_safetensors *parity, int length) {
  char ids_name[32], logits_name[32];
  snprintf(ids_name, sizeof ids_name, "ids_%d", length);
  snprintf(logits_name, sizeof logits_name, "logits_%d", length);
  const still_tensor *ids = still_safetensors_find(parity, ids_name);
  const still_tensor *logits = still_safetensors_find(parity, logits_name);
  assert_non_null(ids);
  assert_non_null(logits);
  still_session *session;
  check_ok(still_session_create(&session, model, NULL));
  check_ok(still_session_evaluate(session, ids->data, ids->shape[0], NULL, NULL));
  const double error =
      largest_difference(still_session_logits(session), logits->data, logits->shape[0]);
  if (!(error <= 1e-3)) fail_msg("%d tokens: logits differ by %g", length, error);
  still_session_destroy(session);
}

static void logits_equal_those_of_transformers(void **state) {
  (void)state;
  still_model *model = open_needle();
  still_safetensors *parity;
  check_ok(still_safetensors_open(&parity, needle_file("parity.safetensors"), true));
  check_length(model, parity, 17);
  check_length(model, parity, 300);
  check_length(model, parity, 1500);
  still_safetensors_close(parity);
  still_model_destroy(model);
}

typedef struct log_probabilities {
  const still_token *ids;
  const float *wanted;
  size_t count;
  double worst;
} log_probabilities;

/* Row i gives the probability of token i + 1. */
static void compare_row(void *user, size_t index, const float *logits) {
  log_probabilities *all = user;
  if (index + 1 >= all->count) return;
  double largest = -INFINITY, sum = 0;
  for (int i = 0; i < 2048; i++) largest = fmax(largest, logits[i]);
  for (int i = 0; i < 2048; i++) sum += exp(logits[i] - largest);
  const double got = logits[all->ids[index + 1]] - largest - log(sum);
  all->worst = fmax(all->worst, fabs(got - all->wanted[index]));
}

static void every_token_has_its_probability(void **state) {
  (void)state;
  still_model *model = open_needle();
  still_safetensors *parity;
  check_ok(still_safetensors_open(&parity, needle_file("parity.safetensors"), true));
  const still_tensor *ids = still_safetensors_find(parity, "ids_300");
  log_probabilities all = {.ids = ids->data,
                           .wanted = still_safetensors_find(parity, "logprobs_300")->data,
                           .count = ids->shape[0]};
  still_session *session;
  check_ok(still_session_create(&session, model, NULL));
  check_ok(still_session_evaluate_all(session, all.ids, all.count, compare_row, &all));
  if (!(all.worst <= 1e-3)) fail_msg("log probabilities differ by %g", all.worst);
  still_session_destroy(session);
  still_safetensors_close(parity);
  still_model_destroy(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(logits_equal_those_of_transformers),
      cmocka_unit_test(every_token_has_its_probability),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
