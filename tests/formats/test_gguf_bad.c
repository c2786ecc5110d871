/* SPDX-License-Identifier: MIT
 * GGUF files that lie, each made after a public report of what broke a reader. All of them must be
 * refused with a sentence that names the thing, before anything is allocated or read by what they
 * claim. */
#include "harness/check.h"

#include "base/memory.h"
#include "formats/gguf.h"
#include "gguf_builder.h"

#include <stdio.h>
#include <unistd.h>

/* Copies the bytes to a block of exactly their size, so that a sanitizer or Valgrind sees any
 * over-read. */
static still_status open_copy(const gguf_builder *b) {
  still_gguf *g;
  uint8_t *copy = malloc(b->used + !b->used);
  memcpy(copy, b->bytes, b->used);
  still_reset_peak_bytes();
  const still_status status = still_gguf_open_memory(&g, copy, b->used);
  assert_true((g == NULL) == (status != STILL_OK));
  still_gguf_close(g);
  free(copy);
  /* nothing was allocated on the file's word alone */
  assert_true(still_peak_bytes() < 64 * 1024);
  return status;
}

#define refuse(builder, text) check_fails(open_copy(builder), STILL_ERROR_FORMAT, text)

/* One tensor with these dimensions, type and offset, and 64 bytes of data. */
static void refuse_tensor(uint32_t dimensions, const uint64_t *ne, uint32_t type, uint64_t offset,
                          still_status status, const char *text) {
  gguf_builder b;
  put_header(&b, 3, 1, 0);
  put_tensor(&b, "blk.0.w", dimensions, ne, type, offset);
  put_data(&b, 32, 64);
  check_fails(open_copy(&b), status, text);
}

/* Reports 1, 2: products and sizes that wrap around. */
static void test_size_wraps(void **state) {
  (void)state;
  refuse_tensor(4, (const uint64_t[]){INT64_MAX, 2, 1, 1}, STILL_TENSOR_I8, 0, STILL_ERROR_FORMAT,
                "tensor 'blk.0.w': its 18446744073709551614 bytes");
  refuse_tensor(4, (const uint64_t[]){INT64_MAX, 2, 2, 1}, STILL_TENSOR_I8, 0, STILL_ERROR_FORMAT,
                "tensor 'blk.0.w': shape [1, 2, 2, 9223372036854775807]: more than 2^64 values");
  refuse_tensor(2, (const uint64_t[]){1ull << 20, (1ull << 42) + 1}, STILL_TENSOR_F32, 0,
                STILL_ERROR_FORMAT, "more than 2^64 bytes");
  refuse_tensor(1, (const uint64_t[]){8}, STILL_TENSOR_F32, UINT64_MAX - 31, STILL_ERROR_FORMAT,
                "offset 18446744073709551584 + 32 bytes exceed 2^64");
}

/* Report 9: more than 2^32 values are counted rightly, though they do not fit the file. */
static void test_more_than_32_bits(void **state) {
  (void)state;
  refuse_tensor(2, (const uint64_t[]){1 << 17, 1 << 16}, STILL_TENSOR_Q8_0, 0, STILL_ERROR_FORMAT,
                "its 9126805504 bytes from offset 0 need a file of");
}

/* Report 3: a zero dimension, an empty name or key, in a release build too. */
static void test_zero_and_empty(void **state) {
  (void)state;
  gguf_builder b;
  refuse_tensor(2, (const uint64_t[]){4, 0}, STILL_TENSOR_F32, 0, STILL_ERROR_FORMAT,
                "tensor 'blk.0.w': shape [0, 4]: a dimension is 0");
  refuse_tensor(0, NULL, STILL_TENSOR_F32, 0, STILL_ERROR_FORMAT,
                "tensor 'blk.0.w': 0 dimensions, allowed are 1 to 4");
  refuse_tensor(5, (const uint64_t[]){1, 1, 1, 1, 1}, STILL_TENSOR_F32, 0, STILL_ERROR_FORMAT,
                "5 dimensions");
  put_header(&b, 3, 0, 1);
  put_key(&b, "", STILL_GGUF_U32);
  put_u32(&b, 1);
  refuse(&b, "a key has a name of 0 bytes, allowed are 1 to 65535");
  put_header(&b, 3, 1, 0);
  put_tensor(&b, "", 1, (const uint64_t[]){1}, STILL_TENSOR_F32, 0);
  put_data(&b, 32, 32);
  refuse(&b, "a tensor has a name of 0 bytes");
}

static void test_types_and_blocks(void **state) {
  (void)state;
  const uint64_t ne[] = {48};
  refuse_tensor(1, ne, STILL_TENSOR_Q8_0, 0, STILL_ERROR_FORMAT,
                "the last dimension must be a multiple of 32 for Q8_0");
  refuse_tensor(1, ne, 16, 0, STILL_ERROR_UNSUPPORTED,
                "tensor 'blk.0.w': type 16 is unknown; known are F32 F16 Q4_0");
  refuse_tensor(1, ne, STILL_TENSOR_U8, 0, STILL_ERROR_UNSUPPORTED, "is unknown");
  refuse_tensor(1, ne, UINT32_MAX, 0, STILL_ERROR_UNSUPPORTED, "type 4294967295 is unknown");
}

/* Reports 4, 16: counts in the header. */
static void test_counts(void **state) {
  (void)state;
  static const uint64_t counts[] = {8,          1ull << 32,          SIZE_MAX / 33, SIZE_MAX / 200,
                                    1ull << 61, (uint64_t)INT64_MAX, UINT64_MAX};
  for (size_t i = 0; i < CHECK_COUNT(counts); i++) {
    gguf_builder b;
    put_header(&b, 3, counts[i], 0);
    put_data(&b, 32, 64);
    refuse(&b, "tensors, but");
    put_header(&b, 3, 0, counts[i]);
    put_data(&b, 32, 64);
    refuse(&b, "metadata pairs, but");
  }
}

/* Reports 7, 16: lengths of strings and arrays. */
static void test_lengths(void **state) {
  (void)state;
  static const uint64_t lengths[] = {100,       1ull << 22,     1ull << 32, 1ull << 61,
                                     INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
  for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
    gguf_builder b;
    put_header(&b, 3, 0, 1); /* a key's length */
    put_u64(&b, lengths[i]);
    put_data(&b, 1, 16);
    refuse(&b, "bytes should follow, but the file ends at byte");
    put_header(&b, 3, 0, 1); /* a string's */
    put_key(&b, "k", STILL_GGUF_STRING);
    put_u64(&b, lengths[i]);
    put_data(&b, 1, 8);
    refuse(&b, "key 'k': byte");
    static const uint32_t elements[] = {STILL_GGUF_U8, STILL_GGUF_F64, STILL_GGUF_STRING};
    for (size_t e = 0; e < CHECK_COUNT(elements); e++) { /* an array's */
      put_header(&b, 3, 0, 1);
      put_array(&b, "k", elements[e], lengths[i]);
      put_data(&b, 1, 8);
      refuse(&b, "are left");
    }
    put_header(&b, 3, 0, 1); /* a string's in an array */
    put_array(&b, "k", STILL_GGUF_STRING, 2);
    put_text(&b, "ok");
    put_u64(&b, lengths[i]);
    put_data(&b, 1, 8);
    refuse(&b, "key 'k': byte");
    put_header(&b, 3, 1, 0); /* a tensor name's */
    put_u64(&b, lengths[i]);
    put_data(&b, 1, 64);
    refuse(&b, "bytes should follow");
  }
}

static void test_value_types(void **state) {
  (void)state;
  gguf_builder b;
  put_header(&b, 3, 0, 1);
  put_array(&b, "k", STILL_GGUF_ARRAY, 1); /* nested, as deep as one likes */
  put_data(&b, 1, 64);
  check_fails(open_copy(&b), STILL_ERROR_UNSUPPORTED, "key 'k': byte");
  put_header(&b, 3, 0, 1);
  put_key(&b, "k", 13);
  put_data(&b, 1, 64);
  check_fails(open_copy(&b), STILL_ERROR_UNSUPPORTED, "value type 13 cannot be read");
}

/* Report 5: an array of another element type than its readers expect, at the very end of the file.
 */
static void test_array_of_another_type(void **state) {
  (void)state;
  gguf_builder b;
  still_gguf *g;
  double f;
  int64_t i;
  size_t count;
  put_header(&b, 3, 0, 2);
  put_array(&b, "tokenizer.ggml.merges", STILL_GGUF_STRING, 0);
  put_array(&b, "tokenizer.ggml.scores", STILL_GGUF_U8, 3);
  put(&b, "\1\2\3", 3);
  uint8_t *copy = malloc(b.used);
  memcpy(copy, b.bytes, b.used);
  check_ok(still_gguf_open_memory(&g, copy, b.used));
  for (size_t n = 0; n < 3; n++) {
    assert_true(still_gguf_array_f64(g, "tokenizer.ggml.scores", n, &f) && f == (double)n + 1);
    assert_true(still_gguf_array_i64(g, "tokenizer.ggml.scores", n, &i) && i == (int64_t)n + 1);
  }
  assert_false(still_gguf_array_f64(g, "tokenizer.ggml.scores", 3, &f));
  assert_null(still_gguf_array_strings(g, "tokenizer.ggml.scores", &count));
  assert_non_null(still_gguf_array_strings(g, "tokenizer.ggml.merges", &count));
  assert_int_equal(count, 0);
  still_gguf_close(g);
  free(copy);
}

/* Report 6: alignments that are none, or of another type. */
static void test_alignment(void **state) {
  (void)state;
  static const uint32_t values[] = {0, 1, 3, 4, 48, 1u << 31, UINT32_MAX};
  gguf_builder b;
  for (size_t i = 0; i < CHECK_COUNT(values); i++) {
    put_header(&b, 3, 0, 1);
    put_key(&b, "general.alignment", STILL_GGUF_U32);
    put_u32(&b, values[i]);
    refuse(&b, "must be a power of two from 8 to 1048576");
  }
  put_header(&b, 3, 0, 1);
  put_key(&b, "general.alignment", STILL_GGUF_I32);
  put_u32(&b, 32);
  refuse(&b, "key 'general.alignment' has type int32, must be uint32");
  refuse_tensor(1, (const uint64_t[]){4}, STILL_TENSOR_F32, 16, STILL_ERROR_FORMAT,
                "tensor 'blk.0.w': offset 16 is no multiple of 32");
  refuse_tensor(1, (const uint64_t[]){UINT64_MAX / 4}, STILL_TENSOR_F32, 0, STILL_ERROR_FORMAT,
                "tensor 'blk.0.w': its 18446744073709551612 bytes");
}

static void test_twice_and_overlapping(void **state) {
  (void)state;
  const uint64_t ne[] = {16};
  gguf_builder b;
  put_header(&b, 3, 2, 0);
  put_tensor(&b, "a", 1, ne, STILL_TENSOR_F32, 0);
  put_tensor(&b, "a", 1, ne, STILL_TENSOR_F32, 64);
  put_data(&b, 32, 128);
  refuse(&b, "tensor 'a' occurs twice");
  put_header(&b, 3, 2, 0);
  put_tensor(&b, "a", 1, ne, STILL_TENSOR_F32, 0);
  put_tensor(&b, "b", 1, ne, STILL_TENSOR_F32, 32);
  put_data(&b, 32, 128);
  refuse(&b, "tensors 'a' and 'b' overlap");
  put_header(&b, 3, 0, 2);
  for (int i = 0; i < 2; i++) {
    put_key(&b, "k", STILL_GGUF_BOOL);
    put_u8(&b, 1);
  }
  refuse(&b, "key 'k' occurs twice");
  put_header(&b, 3, 0, 1);
  put_u64(&b, 3);
  put(&b, "a\0b", 3);
  put_data(&b, 1, 16);
  refuse(&b, "the name holds a NUL byte");
}

static void test_magic_and_version(void **state) {
  (void)state;
  gguf_builder b = {.used = 0};
  refuse(&b, "not a GGUF file: it is empty");
  put(&b, "GGML0123", 8);
  refuse(&b, "not a GGUF file: it begins with 47 47 4d 4c");
  put_header(&b, 1, 0, 0);
  check_fails(open_copy(&b), STILL_ERROR_UNSUPPORTED, "GGUF version 1, known are 2 and 3");
  put_header(&b, 4, 0, 0);
  check_fails(open_copy(&b), STILL_ERROR_UNSUPPORTED, "GGUF version 4");
  put_header(&b, 3u << 24, 0, 0);
  check_fails(open_copy(&b), STILL_ERROR_UNSUPPORTED, "the file is big-endian");
}

/* A good file with one of everything. */
static void build_good(gguf_builder *b) {
  put_header(b, 3, 2, 3);
  put_key(b, "s", STILL_GGUF_STRING);
  put_text(b, "text");
  put_array(b, "a", STILL_GGUF_STRING, 2);
  put_text(b, "x");
  put_text(b, "");
  put_array(b, "n", STILL_GGUF_U16, 3);
  put_data(b, 1, 6);
  put_tensor(b, "t", 2, (const uint64_t[]){32, 2}, STILL_TENSOR_Q8_0, 0);
  put_tensor(b, "u", 1, (const uint64_t[]){3}, STILL_TENSOR_F16, 96);
  put_data(b, 32, 102);
}

/* Reports 12, 15: cut at every length; each cut is noticed at once, not at the first use of the
 * tensor. */
static void test_truncated(void **state) {
  (void)state;
  gguf_builder b;
  build_good(&b);
  assert_int_equal(open_copy(&b), STILL_OK);
  for (b.used--; b.used > 0; b.used--) assert_int_equal(open_copy(&b), STILL_ERROR_FORMAT);
  build_good(&b);
  b.used -= 7;
  refuse(&b, "tensor 'u': its 6 bytes from offset 96 need a file of");
}

/* Every byte of a good file replaced by extreme values: refused or read, never beyond the bytes
 * there are. */
static void test_every_byte(void **state) {
  (void)state;
  static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
  gguf_builder good, b;
  size_t refused = 0;
  build_good(&good);
  for (size_t i = 0; i < good.used; i++)
    for (size_t v = 0; v < CHECK_COUNT(values); v++) {
      b = good;
      b.bytes[i] = values[v];
      refused += open_copy(&b) != STILL_OK;
    }
  assert_true(refused > good.used);
}

/* A file that shrinks while it is open: use_mmap false has read it all. */
static void test_shrinks_while_open(void **state) {
  (void)state;
  gguf_builder b;
  still_gguf *g;
  float out[64];
  build_good(&b);
  b.bytes[b.used - 102 + 2] = 5; /* the first value's byte; its block's scale becomes 1 */
  b.bytes[b.used - 102 + 1] = 0x3c;
  const char *path = check_file("shrinks.gguf", b.bytes, b.used);
  check_ok(still_gguf_open(&g, path, false));
  assert_int_equal(truncate(path, 10), 0);
  check_ok(still_tensor_to_f32(still_gguf_find_tensor(g, "t"), 0, 64, out));
  assert_true(out[0] == 5);
  still_gguf_close(g);
  check_fails(still_gguf_open(&g, path, true), STILL_ERROR_FORMAT, "shrinks.gguf: byte 8");
}

/* Control characters of a name must not reach the host's terminal. */
static void test_sentence_is_printable(void **state) {
  (void)state;
  gguf_builder b;
  put_header(&b, 3, 1, 0);
  put_tensor(&b, "\033[2J\n", 1, (const uint64_t[]){1}, 99, 0);
  put_data(&b, 32, 32);
  check_fails(open_copy(&b), STILL_ERROR_UNSUPPORTED, "tensor '?[2J?': type 99");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_size_wraps),
      cmocka_unit_test(test_more_than_32_bits),
      cmocka_unit_test(test_zero_and_empty),
      cmocka_unit_test(test_types_and_blocks),
      cmocka_unit_test(test_counts),
      cmocka_unit_test(test_lengths),
      cmocka_unit_test(test_value_types),
      cmocka_unit_test(test_array_of_another_type),
      cmocka_unit_test(test_alignment),
      cmocka_unit_test(test_twice_and_overlapping),
      cmocka_unit_test(test_magic_and_version),
      cmocka_unit_test(test_truncated),
      cmocka_unit_test(test_every_byte),
      cmocka_unit_test(test_shrinks_while_open),
      cmocka_unit_test(test_sentence_is_printable),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
