/* SPDX-License-Identifier: MIT
 * Introduces: training. Teaches a model's layers STILL attention on a text (the first of the two stages:
 * feature maps and gates learn what softmax attention gives), watches the loss and loads the result.
 * A useful adapter takes minutes to hours: still-linearize shows all that there is to set.
 *
 *   07_linearize_in_process MODEL TEXT ADAPTER */
#include <still/linearize.h>
#include <still/model.h>

#include <math.h>
#include <stdio.h>

/* After every step; 1 would stop the training, and keep what is learned so far. */
static int show(void *user, const still_training_report *report) {
  (void)user;
  printf("step %lld of %lld: loss %.5f", (long long)report->step, (long long)report->steps,
         report->loss);
  if (!isnan(report->validation)) printf(", on texts not trained on %.5f", report->validation);
  putchar('\n');
  return 0;
}

static still_status train(const still_model *model, const char *text, const char *adapter,
                          still_training_result *result) {
  still_training_data *data = NULL;
  still_training_data_options rows = STILL_TRAINING_DATA_OPTIONS_INIT;
  rows.length = 256;
  rows.validation = 0.1f;
  rows.most_validation_rows = 2;
  still_status status =
      still_training_data_open(&data, still_model_tokenizer(model), &text, 1, &rows);

  still_training_options options = STILL_TRAINING_OPTIONS_INIT; /* stage 1, STILL in every layer */
  options.attention.budget = 128;
  options.output = adapter;
  options.steps = 8;
  options.batch = 1; /* rows of a step */
  options.validate_every = 4;
  if (!status) status = still_train(model, data, &options, show, NULL, result);
  still_training_data_destroy(data);
  return status;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s MODEL TEXT ADAPTER\n", argv[0]);
    return 2;
  }
  still_model *base = NULL, *linearized = NULL;
  still_training_result result = {0};
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.adapter = argv[3];
  int code = 1;
  if (still_model_open(&base, argv[1], NULL) || train(base, argv[2], argv[3], &result) ||
      still_model_open(&linearized, argv[1], &options))
    goto end;
  still_model_info info;
  still_model_get_info(linearized, &info);
  printf("loss %.5f before, %.5f after; the model with its adapter has feature maps: %s\n",
         result.validation_before, result.validation_best, info.has_adapter ? "yes" : "no");
  code = !info.has_adapter || !(result.validation_best < result.validation_before);
end:
  if (code) fprintf(stderr, "%s\n", still_last_error());
  still_model_destroy(base);
  still_model_destroy(linearized);
  return code;
}
