/* SPDX-License-Identifier: MIT
 * still-quantize as a user runs it: exit codes, sentences, report. */
#include "harness/check.h"

#include "formats/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 8, COLUMNS = 256 };

static const char *model_path(void) {
  float values[ROWS * COLUMNS];
  check_normal(values, ROWS * COLUMNS, 5);
  const still_tensor tensor = {"blk.0.attn_q.weight", STILL_TENSOR_F32, 2,
                               {ROWS, COLUMNS},       values,           sizeof values};
  const char *path = check_path("float.gguf");
  still_gguf_writer *writer;
  check_ok(still_gguf_writer_create(&writer));
  check_ok(still_gguf_put_string(writer, "general.architecture", "llama", 5));
  check_ok(still_gguf_put_tensor(writer, &tensor));
  check_ok(still_gguf_write(writer, path));
  still_gguf_writer_destroy(writer);
  return path;
}

static void run(const char *input, const char *output, const char *type, int code, const char *said,
                const char *shown) {
  const char *const argv[] = {
      getenv("STILL_QUANTIZE"), "-m", input, "-o", output, "--type", type, "--report", NULL};
  check_run_result result = check_run(argv, NULL, NULL);
  if (result.code != code || !strstr(result.error, said) || !strstr(result.out, shown))
    fail_msg("exit %d, stderr '%s', stdout '%s'", result.code, result.error, result.out);
  check_run_free(&result);
}

static void test_quantizes(void **state) {
  (void)state;
  const char *output = check_path("small.gguf");
  still_gguf *gguf;
  run(model_path(), output, "Q4_K", 0, "1 of 1 tensors changed",
      "F32 -> Q4_K          8192 ->        1152 bytes");
  check_ok(still_gguf_open(&gguf, output, true));
  assert_int_equal(still_gguf_tensor(gguf, 0)->type, STILL_TENSOR_Q4_K);
  still_gguf_close(gguf);
  run(output, output, "Q8_0", 2, "small.gguf: holds no float weights", "");
}

static void test_complains(void **state) {
  (void)state;
  const char *input = model_path(), *output = check_path("never.gguf");
  run(input, output, "Q9", 2, "type 'Q9' is unknown; known are Q8_0", "");
  run("/nonexistent.gguf", output, "Q8_0", 1, "/nonexistent.gguf: cannot open", "");
  run(input, "/nonexistent/x.gguf", "Q8_0", 1, "/nonexistent/x.gguf: cannot create", "");
  run(check_file("bad.gguf", "x", 1), output, "Q8_0", 1, "bad.gguf: ", "");
  assert_int_equal(access(output, F_OK), -1);
  const char *const argv[] = {getenv("STILL_QUANTIZE"), NULL};
  check_run_result result = check_run(argv, NULL, NULL);
  assert_int_equal(result.code, 2);
  assert_non_null(strstr(result.error, "a model and a file to write are needed"));
  check_run_free(&result);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_quantizes),
                                     cmocka_unit_test(test_complains)};
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
