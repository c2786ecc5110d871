/* SPDX-License-Identifier: MIT
 * safetensors: round trips, shards, and headers that lie (each after a report of another reader's
 * fault). */
#include "harness/check.h"

#include "base/memory.h"
#include "formats/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file in memory: this header, then `data_bytes` zero bytes. */
static still_status open_made(still_safetensors **file, const char *header, size_t data_bytes,
                              char **bytes) {
  const uint64_t length = strlen(header);
  const size_t total = sizeof length + length + data_bytes;
  *bytes = calloc(1, total);
  assert_non_null(*bytes);
  memcpy(*bytes, &length, sizeof length);
  memcpy(*bytes + sizeof length, header, length);
  return still_safetensors_open_memory(file, *bytes, total);
}

static void refuse(const char *header, size_t data_bytes, still_status status, const char *text) {
  still_safetensors *file;
  char *bytes;
  check_fails(open_made(&file, header, data_bytes, &bytes), status, text);
  assert_null(file);
  free(bytes);
}

static void test_round_trip(void **state) {
  (void)state;
  const float a[6] = {1, -2, 3, 4, 5, 6};
  const uint16_t b[3] = {0x3c00, 0xc000, 0x7c00};
  const uint8_t c = 200;
  const still_tensor tensors[] = {
      {"layer \"0\"", STILL_TENSOR_F32, 2, {2, 3}, a, sizeof a},
      {"half\xc3\xa9", STILL_TENSOR_F16, 1, {3}, b, sizeof b},
      {"scalar", STILL_TENSOR_U8, 0, {0}, &c, 1},
  };
  const still_safetensors_pair metadata[] = {{"format", "pt"}, {"note", "line\nbreak"}};
  const char *path = check_path("round.safetensors");
  check_ok(still_safetensors_write(path, tensors, 3, metadata, 2));
  for (int use_mmap = 0; use_mmap < 2; use_mmap++) {
    still_safetensors *file;
    check_ok(still_safetensors_open(&file, path, use_mmap));
    assert_int_equal(still_safetensors_count(file), 3);
    const still_tensor *t = still_safetensors_find(file, "layer \"0\"");
    assert_non_null(t);
    assert_int_equal((uintptr_t)t->data % 64, 0);
    assert_memory_equal(t->data, a, sizeof a);
    assert_true(still_tensor_has_shape(t, 2, (const uint64_t[]){2, 3}));
    assert_memory_equal(still_safetensors_find(file, "half\xc3\xa9")->data, b, sizeof b);
    assert_int_equal(still_safetensors_find(file, "scalar")->dimensions, 0);
    assert_string_equal(still_safetensors_tensor(file, 2)->name, "scalar");
    assert_null(still_safetensors_find(file, "missing"));
    assert_int_equal(still_safetensors_metadata_count(file), 2);
    assert_string_equal(still_safetensors_metadata(file, "note"), "line\nbreak");
    assert_string_equal(still_safetensors_metadata_key(file, 0), "format");
    assert_null(still_safetensors_metadata(file, "missing"));
    still_safetensors_close(file);
  }
}

static void test_writer_refuses(void **state) {
  (void)state;
  const float a[4] = {0};
  still_tensor t = {"a", STILL_TENSOR_F32, 1, {4}, a, 12};
  const char *path = check_path("refused.safetensors");
  check_fails(still_safetensors_write(path, &t, 1, NULL, 0), STILL_ERROR_ARGUMENT,
              "tensor 'a': 12 bytes are given, its shape needs 16");
  t.type = STILL_TENSOR_Q8_0;
  t.shape[0] = 32;
  check_fails(still_safetensors_write(path, &t, 1, NULL, 0), STILL_ERROR_ARGUMENT, "no type Q8_0");
  const still_tensor twice[] = {{"a", STILL_TENSOR_F32, 1, {4}, a, 16},
                                {"a", STILL_TENSOR_F32, 1, {4}, a, 16}};
  check_fails(still_safetensors_write(path, twice, 2, NULL, 0), STILL_ERROR_ARGUMENT,
              "tensor 'a' occurs twice");
}

/* Offsets that do not fit the shape, in every way (report 17), and a file that is too short (18).
 */
static void test_lying_offsets(void **state) {
  (void)state;
#define ENTRY(shape, offsets)                                                                      \
  "{\"w\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
  refuse(ENTRY("[1000,1000]", "[0,4]"), 4, STILL_ERROR_FORMAT,
         "tensor 'w': data_offsets [0, 4], but shape [1000, 1000] of F32 takes 4000000 bytes");
  refuse(ENTRY("[1000,1000]", "[0,4000000]"), 4, STILL_ERROR_FORMAT,
         "tensor 'w': ends at byte 4000000 of the data, but the file has 4 (cut short?)");
  refuse(ENTRY("[1]", "[0,4]"), 8, STILL_ERROR_FORMAT,
         "the tensors end at byte 4 of the data, but the file has 8");
  refuse(ENTRY("[1]", "[4,8]"), 8, STILL_ERROR_FORMAT,
         "tensor 'w' begins at byte 4 of the data, must begin at 0");
  refuse(ENTRY("[1]", "[8,4]"), 8, STILL_ERROR_FORMAT, "data_offsets [8, 4]");
  refuse(ENTRY("[1]", "[0,4,4]"), 4, STILL_ERROR_FORMAT,
         "'data_offsets' has 3 values, must have 2");
  refuse(ENTRY("[1]", "[-4,0]"), 4, STILL_ERROR_FORMAT, "'data_offsets' is a number (-4)");
  refuse(ENTRY("[0]", "[0,0]"), 0, STILL_ERROR_FORMAT, "shape [0]: a dimension is 0");
  refuse(ENTRY("[4294967296,4294967296]", "[0,0]"), 0, STILL_ERROR_FORMAT, "more than 2^64 values");
  refuse(ENTRY("[4294967296,4294967295]", "[0,0]"), 0, STILL_ERROR_FORMAT, "more than 2^64 bytes");
  refuse(ENTRY("[1.5]", "[0,4]"), 4, STILL_ERROR_FORMAT, "'shape' is a number (1.5)");
  refuse(ENTRY("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, STILL_ERROR_FORMAT, "'shape' has 9 dimensions");
#undef ENTRY
#define TWO(first, second)                                                                         \
  "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" first "},"                           \
  "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" second "}}"
  refuse(TWO("[0,8]", "[4,12]"), 12, STILL_ERROR_FORMAT, "tensors 'a' and 'b' overlap");
  refuse(TWO("[0,8]", "[0,8]"), 8, STILL_ERROR_FORMAT, "overlap");
  refuse(TWO("[0,8]", "[12,20]"), 20, STILL_ERROR_FORMAT, "tensor 'b' begins at byte 12");
#undef TWO
}

static void test_bad_headers(void **state) {
  (void)state;
  refuse("[]", 0, STILL_ERROR_FORMAT, "no JSON object");
  refuse("{\"w\":", 0, STILL_ERROR_FORMAT, "header: byte 4 of 5: not valid JSON");
  refuse("{\"w\":7}", 0, STILL_ERROR_FORMAT, "tensor 'w': 'dtype' is missing, must be a string");
  refuse("{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         STILL_ERROR_UNSUPPORTED, "tensor 'w': 'dtype' is 'F8_E4M3', known are F32 F16");
  refuse("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, STILL_ERROR_FORMAT,
         "empty name");
#define U8(begin, end) "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" begin "," end "]}"
  refuse("{\"w\":" U8("0", "1") ",\"w\":" U8("1", "2") "}", 2, STILL_ERROR_FORMAT,
         "tensor 'w' occurs twice");
#undef U8
  refuse("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, STILL_ERROR_FORMAT, "'a' occurs twice");
  refuse("{\"__metadata__\":{\"a\":1}}", 0, STILL_ERROR_FORMAT, "'a' is a number (1)");
  refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, STILL_ERROR_FORMAT, "occurs twice");
}

static void test_bad_lengths(void **state) {
  (void)state;
  still_safetensors *file;
  const uint64_t lengths[] = {9, 1ull << 32, 1ull << 61, INT64_MAX, UINT64_MAX};
  for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
    char bytes[16] = {0};
    memcpy(bytes, &lengths[i], 8);
    check_fails(still_safetensors_open_memory(&file, bytes, sizeof bytes), STILL_ERROR_FORMAT,
                "the header should have");
  }
  check_fails(still_safetensors_open_memory(&file, "abc", 3), STILL_ERROR_FORMAT,
              "3 bytes are no safetensors file");
  const char *path = check_file("empty.safetensors", "", 0);
  check_fails(still_safetensors_open(&file, path, true), STILL_ERROR_FORMAT,
              "empty.safetensors: 0");
}

/* Each file cut at each length is refused, never read beyond its end (report 12). */
static void test_truncated(void **state) {
  (void)state;
  const float a[16] = {0};
  const still_tensor t = {"a", STILL_TENSOR_F32, 1, {16}, a, sizeof a};
  const char *path = check_path("whole.safetensors");
  check_ok(still_safetensors_write(path, &t, 1, NULL, 0));
  size_t bytes;
  char *whole = check_read(path, &bytes);
  for (size_t cut = 0; cut < bytes; cut++) {
    char *copy = malloc(cut + !cut); /* of its own, so that a sanitizer sees an over-read */
    memcpy(copy, whole, cut);
    still_safetensors *file;
    assert_int_equal(still_safetensors_open_memory(&file, copy, cut), STILL_ERROR_FORMAT);
    free(copy);
  }
  free(whole);
}

/* A header whose length is no multiple of 8 leaves tensors misaligned (report 20). */
static void test_misaligned(void **state) {
  (void)state;
  const char *header = "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                       "\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]},"
                       "\"h\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[9,13]}}";
  still_safetensors *file;
  char *bytes;
  check_ok(open_made(&file, header, 13, &bytes));
  const float f[2] = {1.5f, -2};
  const uint16_t h[2] = {0x3f80, 0xc000}; /* 1, -2 */
  char *data = bytes + 8 + strlen(header);
  memcpy(data + 1, f, sizeof f);
  memcpy(data + 9, h, sizeof h);
  float out[2];
  check_ok(still_tensor_to_f32(still_safetensors_find(file, "f"), 0, 2, out));
  assert_memory_equal(out, f, sizeof f);
  check_ok(still_tensor_to_f32(still_safetensors_find(file, "h"), 1, 1, out));
  assert_true(out[0] == -2);
  check_fails(still_tensor_to_f32(still_safetensors_find(file, "h"), 1, 2, out),
              STILL_ERROR_ARGUMENT, "values 1 + 2 are asked for, it has 2");
  check_fails(still_tensor_to_f32(still_safetensors_find(file, "b"), 0, 1, out),
              STILL_ERROR_UNSUPPORTED, "tensor 'b': type U8 cannot be read as numbers");
  still_safetensors_close(file);
  free(bytes);
}

/* ---- shards */

static void write_shard(const char *name, const char *tensor, float value) {
  const still_tensor t = {tensor, STILL_TENSOR_F32, 1, {1}, &value, sizeof value};
  check_ok(still_safetensors_write(check_path(name), &t, 1, NULL, 0));
}

static const char *write_index(const char *name, const char *map) {
  char text[512];
  snprintf(text, sizeof text, "{\"metadata\":{},\"weight_map\":%s}", map);
  return check_file(name, text, strlen(text));
}

static void test_shards(void **state) {
  (void)state;
  write_shard("m/one.safetensors", "a", 1);
  write_shard("m/two.safetensors", "b", 2);
  const char *path = write_index("m/model.safetensors.index.json",
                                 "{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}");
  const char *places[] = {path, check_path("m")};
  for (size_t i = 0; i < 2; i++) {
    still_safetensors *file;
    check_ok(still_safetensors_open(&file, places[i], true));
    assert_int_equal(still_safetensors_count(file), 2);
    float value;
    check_ok(still_tensor_to_f32(still_safetensors_find(file, "b"), 0, 1, &value));
    assert_true(value == 2);
    still_safetensors_close(file);
  }
  still_safetensors *file;
  check_fails(still_safetensors_open(&file, check_path("m/.."), true), STILL_ERROR_FILE,
              "holds no model.safetensors.index.json, model.safetensors or");
}

static void refuse_index(const char *map, still_status status, const char *text) {
  still_safetensors *file;
  check_fails(still_safetensors_open(&file, write_index("n/i.json", map), true), status, text);
}

static void test_bad_index(void **state) {
  (void)state;
  write_shard("n/one.safetensors", "a", 1);
  write_shard("n/same.safetensors", "a", 1);
  write_shard("outside.safetensors", "a", 1);
  const char *outside = "must be a file of the same folder";
  refuse_index("{\"a\":\"../outside.safetensors\"}", STILL_ERROR_FORMAT, outside);
  refuse_index("{\"a\":\"/etc/passwd\"}", STILL_ERROR_FORMAT, outside);
  refuse_index("{\"a\":\"..\"}", STILL_ERROR_FORMAT, outside);
  refuse_index("{\"a\":\"\"}", STILL_ERROR_FORMAT, outside);
  refuse_index("{\"a\":7}", STILL_ERROR_FORMAT, "'a' is a number (7)");
  refuse_index("{\"a\":\"gone.safetensors\"}", STILL_ERROR_FILE, "gone.safetensors");
  refuse_index("{\"a\":\"one.safetensors\",\"z\":\"one.safetensors\"}", STILL_ERROR_FORMAT,
               "tensor 'z' is in none of the 1 shards");
  refuse_index("{\"a\":\"one.safetensors\",\"b\":\"same.safetensors\"}", STILL_ERROR_FORMAT,
               "same.safetensors: tensor 'a' occurs twice");
  refuse_index("[]", STILL_ERROR_FORMAT, "'weight_map' is an array, must be an object");
}

/* ---- failing memory */

static still_status load_and_save(void *user) {
  const float a[2] = {1, 2};
  const still_tensor t = {"a", STILL_TENSOR_F32, 1, {2}, a, sizeof a};
  const still_safetensors_pair pair = {"k", "v"};
  still_safetensors *file;
  STILL_TRY(still_safetensors_write(user, &t, 1, &pair, 1));
  STILL_TRY(still_safetensors_open(&file, user, false));
  still_safetensors_close(file);
  return STILL_OK;
}

static void test_no_memory(void **state) {
  (void)state;
  char *path = (char *)(uintptr_t)check_path("memory.safetensors");
  assert_true(check_failing_allocations(load_and_save, path, false) > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_writer_refuses),
      cmocka_unit_test(test_lying_offsets), cmocka_unit_test(test_bad_headers),
      cmocka_unit_test(test_bad_lengths),   cmocka_unit_test(test_truncated),
      cmocka_unit_test(test_misaligned),    cmocka_unit_test(test_shards),
      cmocka_unit_test(test_bad_index),     cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
