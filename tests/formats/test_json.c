/* SPDX-License-Identifier: MIT
 * JSON: limits, typed members and their sentences. */
#include "harness/check.h"

#include "base/memory.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define OTHER_ALLOCATOR /* and its mallinfo2 writes nothing */
#endif
#endif
#if defined(__GLIBC__) && !defined(OTHER_ALLOCATOR)
#include <malloc.h>
#endif

static still_status parse(still_json **document, const char *text) {
  return still_json_parse(document, "t.json", text, strlen(text), 1 << 20);
}

static void refuse(const char *text, const char *sentence) {
  still_json *document;
  assert_int_equal(parse(&document, text), STILL_ERROR_FORMAT);
  assert_null(document);
  if (!strstr(still_last_error(), sentence)) fail_msg("got: %s", still_last_error());
}

static void test_members(void **state) {
  (void)state;
  still_json *d;
  assert_int_equal(parse(&d, " {\"n\": 7, \"x\": -1.5e3, \"b\": true, \"s\": \"h\\u00e9\\n\", "
                             "\"a\": [1, [2]], \"o\": {}, \"z\": null} \n"),
                   STILL_OK);
  uint64_t n = 0;
  double x = 0;
  bool b = false;
  const char *s = NULL;
  const still_json *a;
  assert_int_equal(still_json_get_u64(d, "n", &n), STILL_OK);
  assert_int_equal(n, 7);
  assert_int_equal(still_json_get_f64(d, "x", &x), STILL_OK);
  assert_true(x == -1500.0);
  assert_int_equal(still_json_get_bool(d, "b", &b), STILL_OK);
  assert_true(b);
  assert_int_equal(still_json_get_string(d, "s", &s), STILL_OK);
  assert_string_equal(s, "h\xc3\xa9\n");
  assert_int_equal(still_json_get(d, "a", STILL_JSON_ARRAY, &a), STILL_OK);
  assert_int_equal(still_json_count(a), 2);
  assert_int_equal(still_json_type_of(still_json_next(still_json_first(a))), STILL_JSON_ARRAY);
  assert_string_equal(still_json_key(still_json_first(d)), "n");
  n = 5;
  assert_int_equal(still_json_optional_u64(d, "missing", &n), STILL_OK);
  assert_int_equal(still_json_optional_u64(d, "z", &n), STILL_OK);
  assert_int_equal(n, 5);
  still_json_free(d);
}

static void test_sentences(void **state) {
  (void)state;
  still_json *d;
  uint64_t n = 3;
  const still_json *a;
  assert_int_equal(parse(&d, "{\"n\": -1, \"f\": 1.5, \"big\": 9007199254740993, \"s\": \"x\"}"),
                   STILL_OK);
  assert_int_equal(still_json_get_u64(d, "n", &n), STILL_ERROR_FORMAT);
  assert_string_equal(still_last_error(),
                      "'n' is a number (-1), must be an integer from 0 to 2^53 - 1");
  assert_int_equal(still_json_get_u64(d, "f", &n), STILL_ERROR_FORMAT);
  assert_int_equal(still_json_get_u64(d, "big", &n), STILL_ERROR_FORMAT);
  assert_int_equal(still_json_optional_u64(d, "s", &n), STILL_ERROR_FORMAT);
  assert_string_equal(still_last_error(), "'s' is a string, must be an integer from 0 to 2^53 - 1");
  assert_int_equal(still_json_get(d, "a", STILL_JSON_ARRAY, &a), STILL_ERROR_FORMAT);
  assert_string_equal(still_last_error(), "'a' is missing, must be an array");
  assert_int_equal(n, 3);
  still_json_free(d);
}

static void test_bad_text(void **state) {
  (void)state;
  refuse("", "byte 0 of 0: not valid JSON");
  refuse("{\"a\": 1", "not valid JSON");
  refuse("{\"a\": 1} x", "something follows");
  refuse("{\"a\": \"\\u0000\"}", "\\u0000 in a string");
  char deep[400];
  memset(deep, '[', 200);
  memset(deep + 200, ']', 199);
  deep[399] = 0;
  refuse(deep, "nested deeper than 64");
  still_json *d;
  assert_int_equal(still_json_parse(&d, "t.json", "[1,\0002]", 6, 100), STILL_ERROR_FORMAT);
  assert_int_equal(still_json_parse(&d, "t.json", "[1,2]", 5, 4), STILL_ERROR_FORMAT);
  assert_string_equal(still_last_error(), "t.json: 5 bytes of JSON, at most 4 are allowed");
  /* escaped backslashes do not begin an escape */
  assert_int_equal(parse(&d, "[\"\\\\u0000\", \"[[[\\\"[[\"]"), STILL_OK);
  still_json_free(d);
}

static void test_duplicate_keys(void **state) {
  (void)state;
  still_json *d;
  assert_int_equal(parse(&d, "{\"a\": 1, \"b\": 2, \"a\": 3}"), STILL_OK);
  assert_int_equal(still_json_check_keys(d, "key"), STILL_ERROR_FORMAT);
  assert_string_equal(still_last_error(), "key 'a' occurs twice");
  still_json_free(d);
  assert_int_equal(parse(&d, "{\"a\": 1, \"A\": 2, \"\": {\"a\": 1}}"), STILL_OK);
  assert_int_equal(still_json_check_keys(d, "key"), STILL_OK);
  still_json_free(d);
}

static void test_quote(void **state) {
  (void)state;
  char *quoted;
  assert_int_equal(still_json_quote(&quoted, "a\"\\\n\x01\xc3\xa9"), STILL_OK);
  assert_string_equal(quoted, "\"a\\\"\\\\\\u000a\\u0001\xc3\xa9\"");
  still_free(quoted);
}

static size_t heap(void) {
#if defined(__GLIBC__) && !defined(OTHER_ALLOCATOR)
  return mallinfo2().uordblks;
#else
  return 0;
#endif
}

/* What still.h promises of the memory that cJSON takes past the library's allocator. */
static void test_memory(void **state) {
  (void)state;
  const size_t at_first = heap();
  void *volatile probe = malloc(100000);
  const bool is_told = probe && heap() > at_first; /* not by sanitizers */
  free(probe);
  if (!is_told) skip();
  static const char *const units[] = {"0,",        "[],",  "{},",      "\"\",",
                                      "{\"\":0},", "1e5,", "[[[[]]]],"};
  for (size_t u = 0; u < CHECK_COUNT(units); u++) {
    const size_t unit = strlen(units[u]), bytes = 600000 / unit * unit + 1;
    char *text = malloc(bytes);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++) text[i] = i ? units[u][(i - 1) % unit] : '[';
    text[bytes - 1] = ']'; /* for the last comma */
    still_json *document;
    const size_t before = heap();
    assert_int_equal(still_json_parse(&document, "t.json", text, bytes, 1 << 20), STILL_OK);
    const size_t taken = heap() - before;
    still_json_free(document);
    assert_true(taken > bytes / 4); /* it is seen */
    assert_true(taken <= 40 * bytes);
    assert_true(heap() <= before + 4096);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_members),  cmocka_unit_test(test_sentences),
      cmocka_unit_test(test_bad_text), cmocka_unit_test(test_duplicate_keys),
      cmocka_unit_test(test_quote),    cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
