/* SPDX-License-Identifier: MIT
 * A program of somebody else: attends to one token, asks for a model that is not there and prints the
 * version, which must be the header's. */
#include <still/still.h>

#include <still/attention.h>
#include <still/model.h>

#include <stdio.h>
#include <string.h>

int main(void) {
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", STILL_VERSION_MAJOR, STILL_VERSION_MINOR,
           STILL_VERSION_PATCH);
  still_attention_options options = STILL_ATTENTION_OPTIONS_INIT;
  still_attention_inputs inputs = STILL_ATTENTION_INPUTS_INIT;
  still_attention_plan *plan = NULL;
  still_attention_cache *cache = NULL;
  float one[4] = {1, 2, 3, 4}, y[4] = {0};
  options.heads = 1;
  options.head_dim = 4;
  inputs.q = inputs.k = inputs.v = (still_rows){one, 4, 4};
  int failed = still_attention_plan_create(&plan, &options, NULL) ||
               still_attention_cache_create(&cache, plan) ||
               still_attention_forward(plan, cache, 1, &inputs, y, 4, 4);
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  printf("libstill %s: %g\n", still_version(), (double)y[3]);
  still_model *model = NULL;
  if (still_model_open(&model, "/there/is/none.gguf", NULL) != STILL_ERROR_FILE) return 1;
  if (strcmp(version, still_version())) return printf("the headers are of %s\n", version), 1;
  return failed || y[3] != 4; /* one token attends to itself */
}
