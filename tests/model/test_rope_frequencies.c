/* SPDX-License-Identifier: MIT
 * Frequencies of the rotation, against figures computed apart from the library (Python, double precision). */
#include "formats/gguf.h"
#include "harness/check.h"
#include "model/model_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of 32 pairs (head dimension 64), these. */
static const int pairs[] = {0, 3, 7, 12, 15, 18, 21, 24, 28, 31};
enum { PAIRS = 10 };

static const double plain_figures[PAIRS] = {1,
                                            0.292227822573015,
                                            0.0566696214452911,
                                            0.00729266473721711,
                                            0.00213111953691197,
                                            0.000622772421914596,
                                            0.000181991428814625,
                                            5.31829589694499e-05,
                                            1.03133853772125e-05,
                                            3.01385815213917e-06};
static const double linear_figures[PAIRS] = {0.25,
                                             0.105424125857146,
                                             0.0333380358040831,
                                             0.00790569415042095,
                                             0.00333380358040831,
                                             0.00140585331297587,
                                             0.000592843426415414,
                                             0.00025,
                                             7.90569415042095e-05,
                                             3.33380358040831e-05};
static const double llama3_figures[PAIRS] = {1,
                                             0.292227822573015,
                                             0.0566696214452911,
                                             0.00729266473721711,
                                             0.00129054792820926,
                                             1.94616381848311e-05,
                                             5.68723215045705e-06,
                                             1.66196746779531e-06,
                                             3.22293293037889e-07,
                                             9.41830672543491e-08};
static const double yarn_figures[PAIRS] = {1,
                                           0.421696503428582,
                                           0.133352143216332,
                                           0.0279739946861049,
                                           0.00948851788270058,
                                           0.00302799175102496,
                                           0.000866463469376374,
                                           0.00025,
                                           7.90569415042095e-05,
                                           3.33380358040831e-05};

static void read_config(still_model_config *config, const char *rope) {
  char text[1024];
  snprintf(text, sizeof text,
           "{\"architectures\": [\"LlamaForCausalLM\"], \"num_hidden_layers\": 16,"
           "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 64,"
           "\"hidden_size\": 2048, \"intermediate_size\": 8192, \"vocab_size\": 128256,"
           "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, %s}",
           rope);
  check_ok(still_model_config_from_json(config, text, strlen(text), "config.json"));
}

static void check_frequencies(const still_model_config *config, const float *factors,
                              const double *figures, double wanted_scale) {
  float frequencies[32], scale;
  still_rope_frequencies(&config->rope, config->head_dim, factors, frequencies, &scale);
  for (int i = 0; i < PAIRS; i++) {
    const double error = fabs(frequencies[pairs[i]] / figures[i] - 1);
    if (!(error <= 1e-6))
      fail_msg("pair %d: %.9g, should be %.9g", pairs[i], (double)frequencies[pairs[i]],
               figures[i]);
  }
  assert_true(fabs(scale - wanted_scale) < 1e-6);
}

static void check_json(const char *rope, const double *figures, double scale) {
  still_model_config config;
  read_config(&config, rope);
  check_frequencies(&config, NULL, figures, scale);
}

static void plain(void **state) {
  (void)state;
  check_json("\"rope_theta\": 500000.0", plain_figures, 1);
  check_json("\"rope_theta\": 500000.0, \"rope_scaling\": null", plain_figures, 1);
  check_json("\"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"default\"}",
             plain_figures, 1);
}

static void both_spellings_of_the_type(void **state) {
  (void)state;
  check_json("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}", linear_figures, 1);
  check_json("\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}", linear_figures, 1);
  check_json("\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4.0,"
             "\"rope_theta\": 10000.0}",
             linear_figures, 1);
}

#define LLAMA3                                                                                     \
  "\"factor\": 32.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,"                         \
  "\"original_max_position_embeddings\": 8192}"

static void llama3(void **state) {
  (void)state;
  check_json("\"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", " LLAMA3,
             llama3_figures, 1);
  check_json("\"rope_theta\": 500000.0, \"rope_scaling\": {\"type\": \"llama3\", " LLAMA3,
             llama3_figures, 1);
}

static void yarn(void **state) {
  (void)state;
  check_json("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0,"
             "\"original_max_position_embeddings\": 4096}",
             yarn_figures, 0.1 * log(4) + 1);
  check_json("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0,"
             "\"attention_factor\": 1.25, \"original_max_position_embeddings\": 4096}",
             yarn_figures, 1.25);
}

/* Llama 3.1 and later as GGUF: no scaling in the keys, a tensor of divisors instead. */
static void divisors_of_a_gguf(void **state) {
  (void)state;
  float factors[32];
  still_model_config config;
  read_config(&config, "\"rope_theta\": 500000.0");
  for (int i = 0; i < 32; i++) factors[i] = 1;
  for (int i = 0; i < PAIRS; i++) factors[pairs[i]] = (float)(plain_figures[i] / llama3_figures[i]);
  check_frequencies(&config, factors, llama3_figures, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plain),
      cmocka_unit_test(both_spellings_of_the_type),
      cmocka_unit_test(llama3),
      cmocka_unit_test(yarn),
      cmocka_unit_test(divisors_of_a_gguf),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
