/* SPDX-License-Identifier: MIT
 * GGUF as it should be: round trips, shards, metadata, real files. */
#include "harness/check.h"

#include "base/memory.h"
#include "formats/gguf.h"
#include "gguf_builder.h"

#include <stdio.h>
#include <time.h>

static still_gguf_string string_of(const char *text) {
  return (still_gguf_string){text, strlen(text)};
}

static void put_everything(still_gguf_writer *w, const float *a, const uint16_t *b) {
  const still_gguf_string tokens[] = {string_of("<s>"), string_of(""), string_of("\xe2\x96\x81t")};
  const int32_t types[] = {3, -1, 1};
  const still_tensor ta = {"blk.0.a", STILL_TENSOR_F32, 2, {2, 3}, a, 24};
  const still_tensor tb = {"b", STILL_TENSOR_BF16, 1, {5}, b, 10};
  check_ok(still_gguf_put_string(w, "general.architecture", "llama", 5));
  check_ok(still_gguf_put_u32(w, "llama.block_count", 7));
  check_ok(still_gguf_put_f32(w, "llama.eps", 0.5f));
  check_ok(still_gguf_put_bool(w, "add_bos", true));
  check_ok(still_gguf_put_strings(w, "tokens", tokens, 3));
  check_ok(still_gguf_put_array(w, "types", STILL_GGUF_I32, types, 3));
  check_ok(still_gguf_put_tensor(w, &ta));
  check_ok(still_gguf_put_tensor(w, &tb));
}

static void check_metadata(const still_gguf *g) {
  uint64_t u;
  double f;
  bool flag;
  const char *text;
  size_t length, count;
  still_gguf_type type;
  int64_t i;
  assert_int_equal(still_gguf_key_count(g), 6);
  assert_true(still_gguf_get_string(g, "general.architecture", &text, &length));
  assert_int_equal(length, 5);
  assert_memory_equal(text, "llama", 5);
  assert_true(still_gguf_get_u64(g, "llama.block_count", &u));
  assert_int_equal(u, 7);
  assert_true(still_gguf_get_f64(g, "llama.block_count", &f));
  assert_true(f == 7);
  assert_true(still_gguf_get_f64(g, "llama.eps", &f));
  assert_true(f == 0.5);
  assert_true(still_gguf_get_bool(g, "add_bos", &flag) && flag);
  assert_true(still_gguf_get_array(g, "types", &type, &count));
  assert_int_equal(type, STILL_GGUF_I32);
  assert_int_equal(count, 3);
  assert_true(still_gguf_array_i64(g, "types", 1, &i) && i == -1);
  assert_true(still_gguf_array_f64(g, "types", 0, &f) && f == 3);
  assert_true(still_gguf_array_string(g, "tokens", 2, &text, &length));
  assert_memory_equal(text, "\xe2\x96\x81t", length);
  assert_int_equal(still_gguf_array_strings(g, "tokens", &count)[1].length, 0);
}

/* What does not fit is told from what is missing; nothing is cast on trust (report 5). */
static void check_wrong_types(const still_gguf *g) {
  uint64_t u;
  int64_t i;
  double f;
  bool flag;
  const char *text;
  size_t n;
  assert_false(still_gguf_get_u64(g, "llama.eps", &u));
  assert_true(still_gguf_has_key(g, "llama.eps"));
  assert_false(still_gguf_has_key(g, "llama.ep"));
  assert_false(still_gguf_get_u64(g, "general.architecture", &u));
  assert_false(still_gguf_get_bool(g, "llama.block_count", &flag));
  assert_false(still_gguf_get_string(g, "tokens", &text, &n));
  assert_false(still_gguf_get_f64(g, "types", &f));
  assert_false(still_gguf_array_string(g, "types", 0, &text, &n));
  assert_null(still_gguf_array_strings(g, "types", &n));
  assert_null(still_gguf_array_strings(g, "general.architecture", &n));
  assert_false(still_gguf_array_f64(g, "tokens", 0, &f));
  assert_false(still_gguf_array_i64(g, "types", 3, &i));
  assert_false(still_gguf_array_string(g, "tokens", 3, &text, &n));
}

static void test_round_trip(void **state) {
  (void)state;
  const float a[6] = {1, 2, 3, 4, 5, 6};
  const uint16_t b[5] = {1, 2, 3, 4, 5};
  const char *path = check_path("round.gguf"), *copy = check_path("copy.gguf");
  still_gguf_writer *w;
  still_gguf *g;
  check_ok(still_gguf_writer_create(&w));
  put_everything(w, a, b);
  check_ok(still_gguf_write(w, path));
  still_gguf_writer_destroy(w);
  for (int use_mmap = 0; use_mmap < 2; use_mmap++) {
    check_ok(still_gguf_open(&g, path, use_mmap));
    check_metadata(g);
    check_wrong_types(g);
    assert_int_equal(still_gguf_tensor_count(g), 2);
    const still_tensor *t = still_gguf_find_tensor(g, "blk.0.a");
    assert_true(still_tensor_has_shape(t, 2, (const uint64_t[]){2, 3}));
    assert_memory_equal(t->data, a, sizeof a);
    assert_memory_equal(still_gguf_tensor(g, 1)->data, b, sizeof b);
    assert_null(still_gguf_find_tensor(g, "missing"));
    /* a copy with one key changed */
    check_ok(still_gguf_writer_create(&w));
    check_ok(still_gguf_put_u32(w, "llama.block_count", 8));
    check_ok(still_gguf_put_all(w, g));
    for (size_t i = 0; i < 2; i++) check_ok(still_gguf_put_tensor(w, still_gguf_tensor(g, i)));
    check_ok(still_gguf_write(w, copy));
    still_gguf_writer_destroy(w);
    still_gguf_close(g);
    uint64_t u;
    check_ok(still_gguf_open(&g, copy, true));
    assert_int_equal(still_gguf_key_count(g), 6);
    assert_true(still_gguf_get_u64(g, "llama.block_count", &u) && u == 8);
    check_wrong_types(g);
    assert_memory_equal(still_gguf_find_tensor(g, "b")->data, b, sizeof b);
    still_gguf_close(g);
  }
}

static still_status produce(void *user, size_t index, const void **data) {
  static float values[4];
  for (int i = 0; i < 4; i++) values[i] = (float)(10 * index) + (float)i;
  *data = *(int *)user == (int)index ? NULL : values;
  return STILL_OK;
}

static void test_produced_data(void **state) {
  (void)state;
  const char *path = check_path("produced.gguf");
  still_gguf_writer *w;
  still_gguf *g;
  int missing = 1;
  check_ok(still_gguf_writer_create(&w));
  const char *names[] = {"a", "b"};
  for (int i = 0; i < 2; i++) {
    const still_tensor t = {names[i], STILL_TENSOR_F32, 1, {4}, NULL, 16};
    check_ok(still_gguf_put_tensor(w, &t));
  }
  check_fails(still_gguf_write(w, path), STILL_ERROR_ARGUMENT, "tensor 'a': no data is given");
  check_fails(still_gguf_write_from(w, path, produce, &missing), STILL_ERROR_ARGUMENT,
              "tensor 'b'");
  check_fails(still_gguf_open(&g, path, true), STILL_ERROR_FILE,
              "cannot open"); /* all or nothing */
  missing = -1;
  check_ok(still_gguf_write_from(w, path, produce, &missing));
  still_gguf_writer_destroy(w);
  check_ok(still_gguf_open(&g, path, true));
  assert_true(((const float *)still_gguf_find_tensor(g, "b")->data)[3] == 13);
  still_gguf_close(g);
}

static void test_writer_refuses(void **state) {
  (void)state;
  const float a[4] = {0};
  still_gguf_writer *w;
  check_ok(still_gguf_writer_create(&w));
  still_tensor t = {"a", STILL_TENSOR_F32, 1, {4}, a, 16};
  check_ok(still_gguf_put_tensor(w, &t));
  check_fails(still_gguf_put_tensor(w, &t), STILL_ERROR_ARGUMENT, "tensor 'a' occurs twice");
  t.name = "b";
  t.bytes = 8;
  check_fails(still_gguf_put_tensor(w, &t), STILL_ERROR_ARGUMENT, "8 bytes are given");
  t.type = STILL_TENSOR_U8;
  check_fails(still_gguf_put_tensor(w, &t), STILL_ERROR_ARGUMENT, "no U8");
  check_ok(still_gguf_put_u32(w, "k", 1));
  check_fails(still_gguf_put_bool(w, "k", true), STILL_ERROR_ARGUMENT, "key 'k' occurs twice");
  check_fails(still_gguf_put_u32(w, "", 1), STILL_ERROR_ARGUMENT, "must not be empty");
  check_fails(still_gguf_put_array(w, "s", STILL_GGUF_STRING, a, 1), STILL_ERROR_ARGUMENT,
              "an array of string cannot be put like this");
  check_ok(still_gguf_put_tensor(w, &(still_tensor){"c", STILL_TENSOR_F32, 1, {4}, a, 16}));
  check_fails(still_gguf_write(w, "/nonexistent/x.gguf"), STILL_ERROR_FILE, "cannot create");
  still_gguf_writer_destroy(w);
}

/* ---- shards */

static const char *write_shard(int number, int count, int said, const char *tensor, float value) {
  char name[64];
  snprintf(name, sizeof name, "s/m-%05d-of-%05d.gguf", number, count);
  const char *path = check_path(name);
  const uint16_t split[] = {(uint16_t)said};
  const still_tensor t = {tensor, STILL_TENSOR_F32, 1, {1}, &value, sizeof value};
  still_gguf_writer *w;
  check_ok(still_gguf_writer_create(&w));
  if (said) check_ok(still_gguf_put_u32(w, "split.count", split[0]));
  if (number == 1) check_ok(still_gguf_put_u32(w, "split.tensors.count", (uint32_t)count));
  check_ok(still_gguf_put_tensor(w, &t));
  check_ok(still_gguf_write(w, path));
  still_gguf_writer_destroy(w);
  return path;
}

static void test_shards(void **state) {
  (void)state;
  const char *names[] = {"a", "b", "c"};
  const char *paths[3];
  for (int i = 0; i < 3; i++) paths[i] = write_shard(i + 1, 3, 3, names[i], (float)i);
  still_gguf *g;
  check_ok(still_gguf_open(&g, paths[0], true));
  assert_int_equal(still_gguf_tensor_count(g), 3);
  for (int i = 0; i < 3; i++) {
    assert_string_equal(still_gguf_tensor(g, (size_t)i)->name, names[i]);
    assert_true(*(const float *)still_gguf_find_tensor(g, names[i])->data == (float)i);
  }
  still_gguf_close(g);
  check_fails(still_gguf_open(&g, paths[1], true), STILL_ERROR_FORMAT,
              "shard 2 of 3; open the first");
  write_shard(3, 3, 3, "a", 0);
  check_fails(still_gguf_open(&g, paths[0], true), STILL_ERROR_FORMAT,
              "m-00003-of-00003.gguf: tensor 'a' occurs twice");
  remove(paths[2]);
  check_fails(still_gguf_open(&g, paths[0], true), STILL_ERROR_FILE, "m-00003-of-00003.gguf");
  const char *lone = write_shard(1, 2, 5, "a", 0);
  check_fails(still_gguf_open(&g, lone, true), STILL_ERROR_FORMAT, "one of 5 shards");
}

/* Names that only look like a shard's (the first one came from a folder that mkdtemp named). */
static void test_names_like_shards(void **state) {
  (void)state;
  static const char *const names[] = {"t-2wRYV1/shrinks.gguf",  "m-2-of-3.gguf",
                                      "m-00002-of-0003.gguf",   "m- 0002-of-00003.gguf",
                                      "m-00002-of-00003.ggufx", "-of-.gguf"};
  gguf_builder b;
  still_gguf *g;
  put_header(&b, 3, 0, 0);
  for (size_t i = 0; i < CHECK_COUNT(names); i++) {
    check_ok(still_gguf_open(&g, check_file(names[i], b.bytes, b.used), false));
    still_gguf_close(g);
  }
}

/* ---- other people's files */

static void test_version_2_and_alignment(void **state) {
  (void)state;
  gguf_builder b;
  still_gguf *g;
  put_header(&b, 2, 2, 1);
  put_key(&b, "general.alignment", STILL_GGUF_U32);
  put_u32(&b, 8);
  const uint64_t ne[] = {3};
  put_tensor(&b, "a", 1, ne, STILL_TENSOR_F32, 16);
  put_tensor(&b, "b", 1, ne, STILL_TENSOR_F32, 0);
  put_data(&b, 8, 28);
  const float value = 2.5f;
  memcpy(b.bytes + b.used - 12, &value, sizeof value);
  check_ok(still_gguf_open_memory(&g, b.bytes, b.used));
  float out;
  check_ok(still_tensor_to_f32(still_gguf_find_tensor(g, "a"), 0, 1, &out));
  assert_true(out == 2.5f);
  still_gguf_close(g);
}

static void test_tiny_llama(void **state) {
  (void)state;
  still_gguf *g;
  uint64_t layers;
  size_t tokens;
  check_ok(still_gguf_open(
      &g, check_shared("data/tiny-random-llama2-gguf/llama-2-tiny-random.gguf"), true));
  assert_true(still_gguf_get_u64(g, "llama.block_count", &layers));
  assert_true(layers >= 1);
  const still_tensor *t = still_gguf_find_tensor(g, "token_embd.weight");
  assert_non_null(t);
  assert_non_null(still_gguf_array_strings(g, "tokenizer.ggml.tokens", &tokens));
  assert_int_equal(t->shape[0], tokens);
  still_gguf_close(g);
}

/* A vocabulary of 131,072 tokens and 262,144 merges opens in a moment (report 7). */
static void test_large_vocabulary(void **state) {
  (void)state;
  enum { TOKENS = 131072 };
  char(*texts)[12] = calloc(TOKENS, sizeof *texts);
  still_gguf_string *strings = calloc(2 * TOKENS, sizeof *strings);
  for (int i = 0; i < 2 * TOKENS; i++) {
    if (i < TOKENS) snprintf(texts[i], sizeof texts[i], "token%d", i);
    strings[i] = string_of(texts[i % TOKENS]);
  }
  const char *path = check_path("vocabulary.gguf");
  still_gguf_writer *w;
  still_gguf *g;
  check_ok(still_gguf_writer_create(&w));
  check_ok(still_gguf_put_strings(w, "tokens", strings, TOKENS));
  check_ok(still_gguf_put_strings(w, "merges", strings, 2 * TOKENS));
  check_ok(still_gguf_write(w, path));
  still_gguf_writer_destroy(w);
  const clock_t start = clock();
  check_ok(still_gguf_open(&g, path, true));
  const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
  if (seconds > 1) fail_msg("opening took %.3f s of CPU time", seconds);
  size_t count;
  assert_string_equal("token131071", texts[TOKENS - 1]);
  assert_memory_equal(still_gguf_array_strings(g, "merges", &count)[2 * TOKENS - 1].text,
                      "token131071", 11);
  assert_int_equal(count, 2 * TOKENS);
  still_gguf_close(g);
  free(strings);
  free(texts);
}

/* ---- failing memory */

static still_status load_and_save(void *user) {
  const float value = 1;
  const still_gguf_string texts[] = {{"a", 1}, {"b", 1}};
  const still_tensor t = {"t", STILL_TENSOR_F32, 1, {1}, &value, sizeof value};
  still_gguf_writer *w = NULL;
  still_gguf *g = NULL;
  still_status status = still_gguf_writer_create(&w);
  if (!status) status = still_gguf_put_strings(w, "k", texts, 2);
  if (!status) status = still_gguf_put_tensor(w, &t);
  if (!status) status = still_gguf_write(w, user);
  if (!status) status = still_gguf_open(&g, user, false);
  still_gguf_close(g);
  still_gguf_writer_destroy(w);
  return status;
}

static void test_no_memory(void **state) {
  (void)state;
  char *path = (char *)(uintptr_t)check_path("memory.gguf");
  assert_true(check_failing_allocations(load_and_save, path, false) > 15);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),        cmocka_unit_test(test_produced_data),
      cmocka_unit_test(test_writer_refuses),    cmocka_unit_test(test_shards),
      cmocka_unit_test(test_names_like_shards), cmocka_unit_test(test_version_2_and_alignment),
      cmocka_unit_test(test_tiny_llama),        cmocka_unit_test(test_large_vocabulary),
      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
