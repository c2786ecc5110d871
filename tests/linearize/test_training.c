/* SPDX-License-Identifier: MIT
 * still_train and its data on the embedded model: resuming is exact, stage 1 lowers the error, bad
 * input is refused with a sentence. Argument: needle's folder. */
#include "harness/check.h"

#include "formats/safetensors.h"
#include "model/adapter.h"

#include <still/linearize.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static still_model *model;

static const char *rows_file(void) {
  static char text[32768];
  size_t at = 0;
  for (int row = 0; row < 24; row++) {
    at += (size_t)snprintf(text + at, sizeof text - at, "{\"ids\": [2046");
    for (int i = 0; i < 30 + row; i++)
      at += (size_t)snprintf(text + at, sizeof text - at, ", %d", 300 + (row * 7 + i * i) % 900);
    at += (size_t)snprintf(text + at, sizeof text - at, "]}\n");
  }
  return check_file("rows.jsonl", text, at);
}

static still_training_data *open_rows(void) {
  const char *path = rows_file();
  still_training_data_options options = STILL_TRAINING_DATA_OPTIONS_INIT;
  still_training_data *data;
  options.length = 64, options.validation = 0.1f;
  check_ok(still_training_data_open(&data, still_model_tokenizer(model), &path, 1, &options));
  return data;
}

static still_training_options small_options(const char *output) {
  still_training_options options = STILL_TRAINING_OPTIONS_INIT;
  options.output = output;
  options.attention.chunk = 8, options.attention.budget = 20;
  options.batch = 2, options.steps = 6, options.validate_every = 2, options.threads = 1;
  return options;
}

/* All tensors of two files, bit for bit. */
static void same_tensors(const char *path_a, const char *path_b) {
  still_safetensors *a, *b;
  check_ok(still_safetensors_open(&a, path_a, false));
  check_ok(still_safetensors_open(&b, path_b, false));
  assert_int_equal(still_safetensors_count(a), still_safetensors_count(b));
  for (size_t i = 0; i < still_safetensors_count(a); i++) {
    const still_tensor *x = still_safetensors_tensor(a, i);
    const still_tensor *y = still_safetensors_find(b, x->name);
    assert_non_null(y);
    assert_int_equal(x->bytes, y->bytes);
    if (memcmp(x->data, y->data, x->bytes)) fail_msg("%s differs", x->name);
  }
  still_safetensors_close(a), still_safetensors_close(b);
}

/* bugs.md row 91: optimizer, schedule, order of rows and progress come back as they were. */
static void resumed_equals_unbroken(still_stage stage) {
  still_training_data *data = open_rows();
  char whole[512], parts[512];
  snprintf(whole, sizeof whole, "%s", check_path("whole.state"));
  snprintf(parts, sizeof parts, "%s", check_path("parts.state"));
  still_training_options options = small_options(check_path("out.safetensors"));
  options.stage = stage, options.state = whole;
  check_ok(still_train(model, data, &options, NULL, NULL, NULL));
  options.state = parts, options.steps = 3;
  check_ok(still_train(model, data, &options, NULL, NULL, NULL));
  options.steps = 6, options.resume = 1;
  still_training_result result = {0};
  check_ok(still_train(model, data, &options, NULL, NULL, &result));
  assert_int_equal(result.steps, 6);
  assert_true(result.validation_best > 0 && result.validation_last >= result.validation_best);
  same_tensors(whole, parts);
  still_training_data_destroy(data);
}
static void resume_transfer(void **state) {
  (void)state;
  resumed_equals_unbroken(STILL_STAGE_ATTENTION_TRANSFER);
}
static void resume_low_rank(void **state) {
  (void)state;
  resumed_equals_unbroken(STILL_STAGE_LOW_RANK);
}

static void transfer_lowers_the_error(void **state) {
  (void)state;
  still_layer_error errors[8];
  still_training_data *data = open_rows();
  still_training_options options = small_options(check_path("transfer.safetensors"));
  options.steps = 40, options.validate_every = 20;
  still_training_result result = {.layer_errors = errors};
  check_ok(still_train(model, data, &options, NULL, NULL, &result));
  assert_int_equal(result.layers, 8);
  if (!(result.validation_best < 0.85 * result.validation_before))
    fail_msg("error %g before, %g after", result.validation_before, result.validation_best);
  int better = 0;
  for (int i = 0; i < 8; i++) better += errors[i].after < errors[i].before;
  assert_true(better >= 7);
  still_training_data_destroy(data);
}

/* Stops after the second step; state and adapter are there, and the next run goes on. */
static int stop_at_two(void *user, const still_training_report *report) {
  (void)user;
  return report->step == 2;
}
static void stopped_run_keeps_its_work(void **state) {
  (void)state;
  still_training_data *data = open_rows();
  still_training_options options = small_options(check_path("stopped.safetensors"));
  options.state = check_path("stopped.state"), options.metrics = check_path("stopped.csv");
  options.curve = check_path("stopped.svg");
  options.validate_every = 4;
  still_training_result result = {0};
  check_fails(still_train(model, data, &options, stop_at_two, NULL, &result), STILL_ERROR_CANCELLED,
              "stopped after step 2 of 6");
  assert_true(result.validation_before > 0); /* there was no other */
  assert_true(isnan(result.validation_best) && isnan(result.validation_last));
  still_adapter *adapter;
  check_ok(still_adapter_read(&adapter, options.output, &still_model_get_weights(model)->config));
  still_adapter_destroy(adapter);
  options.resume = 1;
  check_ok(still_train(model, data, &options, NULL, NULL, &result));
  assert_int_equal(result.steps, 6);
  char *text = check_read(options.metrics, NULL);
  int lines = 0;
  for (char *at = text; (at = strchr(at, '\n')); at++) lines++;
  assert_int_equal(lines, 7); /* the heading and six steps, none twice */
  free(text);
  text = check_read(options.curve, NULL);
  assert_non_null(strstr(text, "<svg"));
  free(text);
  still_training_data_destroy(data);
}

static int gates_of(const char *path) {
  still_adapter *adapter;
  int gates = 0;
  check_ok(still_adapter_read(&adapter, path, &still_model_get_weights(model)->config));
  for (int i = 0; i < 8; i++) gates += adapter->layers[i].gate != NULL;
  still_adapter_destroy(adapter);
  return gates;
}

/* The second stage of a student without gates gives it none; a fresh one has them. */
static void second_stage_keeps_the_gates(void **state) {
  (void)state;
  still_training_data *data = open_rows();
  char first[512], second[512];
  snprintf(first, sizeof first, "%s", check_path("first.safetensors"));
  snprintf(second, sizeof second, "%s", check_path("second.safetensors"));
  for (int gate = 0; gate < 2; gate++) {
    still_training_options options = small_options(first);
    options.steps = 1, options.gate = gate;
    check_ok(still_train(model, data, &options, NULL, NULL, NULL));
    options.stage = STILL_STAGE_LOW_RANK, options.adapter = first, options.output = second;
    options.gate = 1;
    check_ok(still_train(model, data, &options, NULL, NULL, NULL));
    assert_int_equal(gates_of(first), gate ? 8 : 0);
    assert_int_equal(gates_of(second), gate ? 8 : 0);
  }
  still_training_data_destroy(data);
}

/* What an adapter is made for is not changed by options, and not passed over in silence. */
static void contradicting_options_are_refused(void **state) {
  (void)state;
  still_training_data *data = open_rows();
  char first[512];
  snprintf(first, sizeof first, "%s", check_path("first.safetensors"));
  still_training_options options = small_options(first), second;
  options.steps = 1;
  check_ok(still_train(model, data, &options, NULL, NULL, NULL));
  options.stage = STILL_STAGE_LOW_RANK, options.adapter = first;
  options.output = check_path("second.safetensors");
  second = options, second.attention.metric = STILL_METRIC_UNIFORM;
  check_fails(still_train(model, data, &second, NULL, NULL, NULL), STILL_ERROR_ARGUMENT,
              "another metric");
  second = options, second.attention.chunk++;
  check_fails(still_train(model, data, &second, NULL, NULL, NULL), STILL_ERROR_ARGUMENT,
              "another chunk");
  second = options, second.attention.kind = STILL_ATTENTION_LOLCATS;
  check_fails(still_train(model, data, &second, NULL, NULL, NULL), STILL_ERROR_ARGUMENT,
              "layer 0 is still");
  second = options, second.layer_kinds = "1:full";
  check_fails(still_train(model, data, &second, NULL, NULL, NULL), STILL_ERROR_ARGUMENT,
              "layer 1 is still");
  check_ok(still_train(model, data, &options, NULL, NULL, NULL));
  still_training_data_destroy(data);
}

/* Says stop from the n-th question on. */
typedef struct stop_at {
  int asked, at;
} stop_at;
static int count_down(void *user) {
  stop_at *s = user;
  return ++s->asked >= s->at;
}

/* Wherever a step or a validation is stopped, the run that goes on from there ends as if nothing had
 * been. */
static void stopped_within_a_step(void **state) {
  (void)state;
  still_training_data *data = open_rows();
  char whole[512], parts[512];
  snprintf(whole, sizeof whole, "%s", check_path("unstopped.state"));
  for (int stage = 1; stage <= 2; stage++) {
    stop_at never = {0, 1 << 30};
    still_training_options options = small_options(check_path("stop.safetensors"));
    options.stage = (still_stage)stage, options.steps = 3, options.state = whole;
    options.stop = count_down, options.stop_user = &never;
    check_ok(still_train(model, data, &options, NULL, NULL, NULL));
    for (int part = 7; part <= 17; part += 5) {
      stop_at stop = {0, never.asked * part / 20};
      snprintf(parts, sizeof parts, "%s", check_path("stopped_within.state"));
      remove(parts);
      options.state = parts, options.resume = 0, options.stop_user = &stop;
      check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_CANCELLED,
                  "stopped");
      assert_true(stop.asked < stop.at + 400); /* soon after it said so */
      stop = (stop_at){0, 1 << 30};
      options.resume = 1;
      check_ok(still_train(model, data, &options, NULL, NULL, NULL));
      same_tensors(whole, parts);
    }
  }
  still_training_data_destroy(data);
}

/* What is stopped before its first step is over leaves no file. */
static void stopped_before_a_step(void **state) {
  (void)state;
  still_training_data *data = open_rows();
  stop_at never = {0, 1 << 30};
  still_training_options options = small_options(check_path("unwritten.safetensors"));
  options.steps = 1, options.state = check_path("unwritten.state");
  options.stop = count_down, options.stop_user = &never;
  check_ok(still_train(model, data, &options, NULL, NULL, NULL));
  int within = 0;
  for (int part = 1; part < 20; part += 3) {
    stop_at stop = {0, never.asked * part / 20};
    remove(options.output), remove(options.state);
    options.stop_user = &stop;
    check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_CANCELLED,
                "stopped");
    if (!strstr(still_last_error(), "within the first step")) continue;
    within++;
    assert_int_equal(access(options.output, F_OK), -1);
    assert_int_equal(access(options.state, F_OK), -1);
  }
  assert_true(within > 0);
  still_training_data_destroy(data);
}

static void short_rows_are_refused(void **state) {
  (void)state;
  still_training_data *data = open_rows(); /* of 31 to 54 tokens */
  still_training_options options = small_options(check_path("short.safetensors"));
  options.attention.chunk = 27, options.attention.budget = 56;
  check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_ARGUMENT,
              "no row is longer than the 54 tokens");
  options.attention.kind = STILL_ATTENTION_LOLCATS, options.attention.window = 64;
  check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_ARGUMENT,
              "no row is longer than the 64 tokens");
  options = small_options(options.output), options.attention.chunk = 26;
  options.attention.budget = 54, options.steps = 1;
  check_ok(still_train(model, data, &options, NULL, NULL, NULL));
  options.attention.chunk = 27, options.attention.budget = 56;
  options.stage = STILL_STAGE_LOW_RANK; /* which learns from any row */
  check_ok(still_train(model, data, &options, NULL, NULL, NULL));
  still_training_data_destroy(data);
}

/* Cut or changed anywhere, the state is refused by its name before anything is trained, and stays as it is. */
static void damaged_state_is_refused(void **state) {
  (void)state;
  still_training_data *data = open_rows();
  still_training_options options = small_options(check_path("damaged.safetensors"));
  char path[512];
  snprintf(path, sizeof path, "%s", check_path("damaged.state"));
  options.stage = STILL_STAGE_LOW_RANK, options.steps = 1, options.state = path;
  check_ok(still_train(model, data, &options, NULL, NULL, NULL));
  options.resume = 1;
  check_ok(still_training_check(model, data, &options));
  size_t bytes;
  char *text = check_read(path, &bytes);
  const size_t cuts[] = {0, 5, 100, bytes / 2, bytes - 1};
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    check_file("damaged.state", text, cuts[i]);
    check_fails(still_training_check(model, data, &options), STILL_ERROR_FORMAT, "damaged.state");
    check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_FORMAT,
                "damaged.state");
  }
  /* One byte: in a moment, the last of all; in a parameter; in a number of the progress, which stays one. */
  uint64_t header;
  memcpy(&header, text, sizeof header);
  char *seconds = strstr(text + 8, "\"seconds\":\"");
  assert_non_null(seconds);
  const size_t places[] = {bytes - 1, 8 + header + 1, (size_t)(seconds - text) + 15};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    const char was = text[places[i]];
    text[places[i]] = was == '1' ? '2' : '1';
    check_file("damaged.state", text, bytes);
    text[places[i]] = was;
    check_fails(still_training_check(model, data, &options), STILL_ERROR_FORMAT, "checksum");
  }
  check_file("damaged.state", text, bytes);
  check_ok(still_training_check(model, data, &options));
  free(text);
  still_training_data_destroy(data);
}

static int is_called(void *user, const still_training_report *report) {
  (void)report;
  *(int *)user += 1;
  return 0;
}

/* A full disk is an error of its name; what cannot be written is known before the first step. */
static void outputs_that_fail(void **state) {
  (void)state;
  int steps = 0;
  still_training_data *data = open_rows();
  still_training_options options = small_options("/dev/full");
  check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_FILE, "/dev/full");
  options = small_options(check_path("fine.safetensors"));
  const char **const others[] = {&options.output, &options.state, &options.metrics, &options.curve};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const char *kept = *others[i];
    *others[i] = "/no/such/folder/file";
    check_fails(still_training_check(model, data, &options), STILL_ERROR_FILE, "/no/such/folder");
    check_fails(still_train(model, data, &options, is_called, &steps, NULL), STILL_ERROR_FILE,
                "/no/such/folder");
    *others[i] = kept;
  }
  assert_int_equal(steps, 0);
  still_training_data_destroy(data);
}

/* Feature maps alone change nothing once every layer is full again: no divergence is left then. */
static void choice_of_layers(void **state) {
  (void)state;
  static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7};
  still_training_data *data = open_rows();
  still_training_options options = small_options(check_path("linear.safetensors"));
  char full[512];
  double scores[8], divergence = -1;
  snprintf(full, sizeof full, "%s", check_path("full.safetensors"));
  options.steps = 1;
  check_ok(still_train(model, data, &options, NULL, NULL, NULL));
  check_ok(still_select_layers(model, data, options.output, 1, scores, &divergence, NULL, NULL));
  assert_true(divergence > 1e-4);
  double most = -1;
  for (int i = 0; i < 8; i++) most = fmax(most, scores[i]);
  assert_true(most > 0 && most < divergence);
  check_ok(still_adapter_with_full_layers(model, options.output, full, all, 8));
  check_ok(still_select_layers(model, data, full, 1, scores, &divergence, NULL, NULL));
  assert_true(fabs(divergence) < 1e-6);
  check_fails(still_adapter_with_full_layers(model, full, full, (const int[]){8}, 1),
              STILL_ERROR_ARGUMENT, "layer 8");
  still_training_data_destroy(data);
}

static void bad_training_is_refused(void **state) {
  (void)state;
  still_training_data *data = open_rows();
  still_training_options options = small_options("/no/such/folder/out.safetensors");
  check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_FILE, "/no/such");
  options = small_options(check_path("x.safetensors"));
  options.attention.budget = 9;
  check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_ARGUMENT, "budget");
  options = small_options(check_path("x.safetensors"));
  options.steps = 0;
  check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_ARGUMENT, "steps");
  options = small_options(check_path("x.safetensors"));
  options.attention.kind = STILL_ATTENTION_SWA;
  check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_ARGUMENT,
              "nothing to train");
  still_training_data_destroy(data);
}

static void other_base_model_is_refused(void **state) {
  (void)state;
  const still_model_config *config = &still_model_get_weights(model)->config;
  const char *path = check_path("other.safetensors");
  still_training_data *data = open_rows();
  still_adapter *adapter;
  check_ok(still_adapter_create(&adapter, config));
  adapter->has_attention = true, adapter->base_hash = 5;
  check_ok(still_adapter_write(adapter, path, config, STILL_TENSOR_F32));
  still_adapter_destroy(adapter);
  still_training_options options = small_options(check_path("x.safetensors"));
  options.adapter = path, options.stage = STILL_STAGE_LOW_RANK;
  check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_FORMAT,
              "another base model");
  still_training_data_destroy(data);
}

/* A state of another stage changes nothing and says so. */
static void other_state_is_refused(void **state) {
  (void)state;
  still_training_data *data = open_rows();
  still_training_options options = small_options(check_path("s.safetensors"));
  options.state = check_path("s.state"), options.steps = 1;
  check_ok(still_train(model, data, &options, NULL, NULL, NULL));
  options.resume = 1, options.stage = STILL_STAGE_LOW_RANK;
  check_fails(still_train(model, data, &options, NULL, NULL, NULL), STILL_ERROR_FORMAT, "stage");
  still_training_data_destroy(data);
}

static void try_data(const char *name, const char *text, still_status status,
                     const char *sentence) {
  still_training_data *data;
  still_training_data_options options = STILL_TRAINING_DATA_OPTIONS_INIT;
  options.length = 64;
  const char *path = check_file(name, text, strlen(text));
  check_fails(still_training_data_open(&data, still_model_tokenizer(model), &path, 1, &options),
              status, sentence);
}

static void bad_data_is_refused(void **state) {
  (void)state;
  try_data("empty.txt", "", STILL_ERROR_ARGUMENT, "too few");
  try_data("tiny.txt", "A few words.", STILL_ERROR_ARGUMENT, "at least 80 tokens");
  try_data("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \n", STILL_ERROR_FORMAT, "line 2");
  try_data("b.jsonl", "{\"words\": 1}\n", STILL_ERROR_FORMAT, "\"segments\"");
  try_data("c.jsonl", "{\"ids\": [1, 99999]}\n", STILL_ERROR_FORMAT, "99999");
  try_data("d.jsonl", "{\"ids\": [1, 2, 3], \"weights\": [1]}\n", STILL_ERROR_FORMAT, "fewer");
  try_data("e.jsonl", "{\"segments\": [{\"text\": \"a\", \"weight\": -1}]}\n", STILL_ERROR_FORMAT,
           "weight");
}

static void forms_of_data(void **state) {
  (void)state;
  char text[4096] = "";
  for (int i = 0; i < 12; i++) {
    strcat(text,
           "{\"instruction\": \"Name a colour of the sky.\", \"output\": \"Blue, or grey.\"}\n");
    strcat(text,
           "{\"segments\": [{\"text\": \"One two\", \"weight\": 0}, {\"text\": \" three.\"}]}\n");
    strcat(text, "{\"text\": \"It was a dark night and it rained.\"}\n");
  }
  const char *path = check_file("forms.jsonl", text, strlen(text));
  still_training_data *data;
  still_training_data_options options = STILL_TRAINING_DATA_OPTIONS_INIT;
  options.length = 100;
  check_ok(still_training_data_open(&data, still_model_tokenizer(model), &path, 1, &options));
  still_training_data_info info;
  still_training_data_get_info(data, &info);
  assert_true(info.training_rows >= 12);
  assert_true(info.longest <= 100);
  assert_true(info.weighted_tokens < info.tokens / 2); /* prompts do not count */
  still_training_data_destroy(data);
}

static int open_model(void **state) {
  (void)state;
  return model ? 0 : -1;
}
static int close_model(void **state) {
  still_model_destroy(model);
  return check_nothing_allocated(state);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(resume_transfer),
                                     cmocka_unit_test(resume_low_rank),
                                     cmocka_unit_test(transfer_lowers_the_error),
                                     cmocka_unit_test(stopped_run_keeps_its_work),
                                     cmocka_unit_test(second_stage_keeps_the_gates),
                                     cmocka_unit_test(contradicting_options_are_refused),
                                     cmocka_unit_test(contradicting_options_are_refused),
                                     cmocka_unit_test(stopped_within_a_step),
                                     cmocka_unit_test(stopped_before_a_step),
                                     cmocka_unit_test(short_rows_are_refused),
                                     cmocka_unit_test(damaged_state_is_refused),
                                     cmocka_unit_test(outputs_that_fail),
                                     cmocka_unit_test(choice_of_layers),
                                     cmocka_unit_test(bad_training_is_refused),
                                     cmocka_unit_test(other_base_model_is_refused),
                                     cmocka_unit_test(other_state_is_refused),
                                     cmocka_unit_test(bad_data_is_refused),
                                     cmocka_unit_test(forms_of_data)};
  if (argc < 2 || still_model_open(&model, argv[1], NULL)) {
    fprintf(stderr, "needle: %s\n", still_last_error());
    return 99;
  }
  return cmocka_run_group_tests(tests, open_model, close_model);
}
