/* SPDX-License-Identifier: MIT
 * still_quantize: what changes, what is copied, what is refused, all or nothing. */
#include "harness/check.h"

#include "base/memory.h"
#include "formats/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <still/quantize.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 70, WIDE = 512, NARROW = 96 };

static float big[ROWS * WIDE], small[ROWS * NARROW], norm[NARROW];

static const char *write_model(const char *name) {
  const still_tensor tensors[] = {
      {"token_embd.weight", STILL_TENSOR_F32, 2, {ROWS, WIDE}, big, sizeof big},
      {"blk.0.wide.weight", STILL_TENSOR_F32, 2, {ROWS, WIDE}, big, sizeof big},
      {"blk.0.narrow.weight", STILL_TENSOR_F32, 2, {ROWS, NARROW}, small, sizeof small},
      {"blk.0.odd.weight", STILL_TENSOR_F32, 2, {ROWS * NARROW / 20, 20}, small, sizeof small},
      {"blk.0.bias", STILL_TENSOR_F32, 2, {ROWS, NARROW}, small, sizeof small},
      {"norm.weight", STILL_TENSOR_F32, 1, {NARROW}, norm, sizeof norm},
  };
  const char *path = check_path(name);
  still_gguf_writer *w;
  check_ok(still_gguf_writer_create(&w));
  check_ok(still_gguf_put_string(w, "general.architecture", "llama", 5));
  check_ok(still_gguf_put_u32(w, "general.file_type", 0));
  for (size_t i = 0; i < CHECK_COUNT(tensors); i++) check_ok(still_gguf_put_tensor(w, &tensors[i]));
  check_ok(still_gguf_write(w, path));
  still_gguf_writer_destroy(w);
  return path;
}

static int fill(void **state) {
  (void)state;
  check_normal(big, ROWS * WIDE, 1);
  check_normal(small, ROWS * NARROW, 2);
  check_normal(norm, NARROW, 3);
  return 0;
}

typedef struct seen {
  size_t tensors, changed;
  double error;
} seen;

static void note(void *user, const still_quantized_tensor *tensor) {
  seen *s = user;
  s->tensors++;
  s->changed += strcmp(tensor->from, tensor->to) != 0;
  s->error = fmax(s->error, tensor->error);
  assert_true((tensor->error > 0) == (strcmp(tensor->from, tensor->to) != 0));
}

static void check_types(const char *path, const still_tensor_type *types) {
  still_gguf *g;
  uint64_t file_type;
  check_ok(still_gguf_open(&g, path, true));
  assert_true(still_gguf_get_u64(g, "general.file_type", &file_type) && file_type);
  assert_true(still_gguf_has_key(g, "general.architecture"));
  for (size_t i = 0; i < 6; i++) assert_int_equal(still_gguf_tensor(g, i)->type, types[i]);
  assert_memory_equal(still_gguf_find_tensor(g, "norm.weight")->data, norm, sizeof norm);
  float *back = calloc(ROWS, WIDE * sizeof *back);
  check_ok(still_tensor_to_f32(still_gguf_tensor(g, 1), 0, ROWS * WIDE, back));
  check_rows_close("wide", back, big, ROWS, WIDE, 0.126); /* Q4_0 ends at 7 of 8 */
  free(back);
  still_gguf_close(g);
}

#define F STILL_TENSOR_F32
#define Q8 STILL_TENSOR_Q8_0
#define Q6 STILL_TENSOR_Q6_K

static void test_types(void **state) {
  (void)state;
  static const struct {
    const char *name;
    still_tensor_type types[6];
    double error;
  } cases[] = {{"Q8_0", {Q8, Q8, Q8, F, F, F}, 0.006},
               {"Q6_K", {Q6, Q6, Q8, F, F, F}, 0.02},
               {"Q4_K", {Q6, STILL_TENSOR_Q4_K, Q8, F, F, F}, 0.08},
               {"Q4_0", {Q6, STILL_TENSOR_Q4_0, STILL_TENSOR_Q4_0, F, F, F}, 0.1}};
  const char *input = write_model("float.gguf"), *output = check_path("small.gguf");
  for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
    seen s = {0, 0, 0};
    still_quantize_options options = STILL_QUANTIZE_OPTIONS_INIT;
    options.type = cases[i].name;
    options.report = note;
    options.report_user = &s;
    check_ok(still_quantize(input, output, &options));
    check_types(output, cases[i].types);
    assert_int_equal(s.tensors, 6);
    assert_int_equal(s.changed, 3);
    assert_true(s.error < cases[i].error);
  }
}

/* The same bytes for any number of threads, and over the input itself. */
static void test_threads_and_in_place(void **state) {
  (void)state;
  const char *input = write_model("same.gguf"), *one = check_path("one.gguf");
  still_quantize_options options = STILL_QUANTIZE_OPTIONS_INIT;
  options.type = "Q4_K";
  options.threads = 1;
  check_ok(still_quantize(input, one, &options));
  options.threads = 7;
  check_ok(still_quantize(input, input, &options));
  size_t a_bytes, b_bytes;
  char *a = check_read(one, &a_bytes), *b = check_read(input, &b_bytes);
  assert_int_equal(a_bytes, b_bytes);
  assert_memory_equal(a, b, a_bytes);
  free(a);
  free(b);
  /* what is left to quantise the second time is one row too odd for any block: nothing */
  check_fails(still_quantize(one, one, NULL), STILL_ERROR_ARGUMENT,
              "one.gguf: holds no float weights that could be quantised");
}

static int stop_midway(void *user, uint64_t done, uint64_t total) {
  (void)user;
  return done > total / 2;
}

static void test_refused(void **state) {
  (void)state;
  const char *input = write_model("in.gguf"), *output = check_path("never.gguf");
  still_quantize_options options = STILL_QUANTIZE_OPTIONS_INIT;
  options.type = "Q3_K";
  check_fails(still_quantize(input, output, &options), STILL_ERROR_ARGUMENT,
              "type 'Q3_K' is unknown; known are Q8_0, Q6_K, Q4_K and Q4_0");
  options.type = "Q8_0";
  options.progress = stop_midway;
  check_fails(still_quantize(input, output, &options), STILL_ERROR_CANCELLED, "cancelled at byte");
  options.progress = NULL;
  check_fails(still_quantize(input, "/nonexistent/x.gguf", &options), STILL_ERROR_FILE,
              "/nonexistent/x.gguf: cannot create");
  check_fails(still_quantize(check_file("bad.gguf", "GGUFxxxx", 8), output, &options),
              STILL_ERROR_UNSUPPORTED, "bad.gguf: GGUF version");
  const float was = big[3 * WIDE + 7];
  big[3 * WIDE + 7] = NAN;
  input = write_model("nan.gguf");
  big[3 * WIDE + 7] = was;
  check_fails(still_quantize(input, output, &options), STILL_ERROR_NUMERIC,
              "nan.gguf: tensor 'token_embd.weight': row 3 holds a number that is not finite");
  assert_int_equal(access(output, F_OK), -1); /* all or nothing */
}

/* Declared sizes that the file does not hold are refused before anything is written (report 15). */
static void test_cut_short(void **state) {
  (void)state;
  const char *input = write_model("cut.gguf"), *output = check_path("never2.gguf");
  size_t bytes;
  char *whole = check_read(input, &bytes);
  free(whole);
  assert_int_equal(truncate(input, (off_t)(bytes / 2)), 0);
  check_fails(still_quantize(input, output, NULL), STILL_ERROR_FORMAT, "cut.gguf: tensor 'blk.0.");
  assert_int_equal(access(output, F_OK), -1);
}

static still_status scenario(void *user) {
  const char *const *paths = user;
  still_quantize_options options = STILL_QUANTIZE_OPTIONS_INIT;
  options.threads = 1;
  return still_quantize(paths[0], paths[1], &options);
}

static void test_no_memory(void **state) {
  (void)state;
  const char *paths[] = {write_model("memory.gguf"), check_path("memory-out.gguf")};
  assert_true(check_failing_allocations(scenario, paths, false) > 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_types),     cmocka_unit_test(test_threads_and_in_place),
      cmocka_unit_test(test_refused),   cmocka_unit_test(test_cut_short),
      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, fill, check_nothing_allocated);
}
