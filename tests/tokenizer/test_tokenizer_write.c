/* SPDX-License-Identifier: MIT
 * A tokenizer that goes into a GGUF file and comes back encodes as before. */
#include "tokenizer/small_vocabulary.h"

#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static still_status put(const still_tokenizer *tokenizer, const char *path, size_t count) {
  still_gguf_writer *writer;
  check_ok(still_gguf_writer_create(&writer));
  still_status status = still_tokenizer_put(writer, tokenizer, count);
  if (!status) status = still_gguf_write(writer, path);
  still_gguf_writer_destroy(writer);
  return status;
}

static void check_text(const still_tokenizer *a, const still_tokenizer *b, const char *text) {
  still_token want[256], got[256];
  size_t wanted, given;
  const unsigned flags = STILL_TOKENIZE_ADD_BOS | STILL_TOKENIZE_PARSE_SPECIAL;
  check_ok(still_tokenize(a, text, strlen(text), flags, want, CHECK_COUNT(want), &wanted));
  check_ok(still_tokenize(b, text, strlen(text), flags, got, CHECK_COUNT(got), &given));
  if (wanted != given || memcmp(want, got, wanted * sizeof *want))
    fail_msg("'%s': %zu ids, %zu after reading back, or others", text, wanted, given);
}

/* `unused` ids more than the tokenizer has. */
static void check_round_trip(still_tokenizer *tokenizer, int unused) {
  static const char *const texts[] = {"ab abc  cab\n", "hello <s> it's 1234 caf\xc3\xa9",
                                      "\x01\x7f\xa0 <|end|>a b", ""};
  const char *path = check_path("tokenizer.gguf");
  still_tokenizer *back;
  check_ok(put(tokenizer, path, (size_t)(still_tokenizer_size(tokenizer) + unused)));
  check_ok(still_tokenizer_open(&back, path, NULL, NULL));
  assert_int_equal(still_tokenizer_size(back), still_tokenizer_size(tokenizer) + unused);
  assert_int_equal(still_tokenizer_bos(back), still_tokenizer_bos(tokenizer));
  assert_int_equal(still_tokenizer_eos(back), still_tokenizer_eos(tokenizer));
  for (int id = 0; id < still_tokenizer_size(tokenizer); id++) {
    assert_int_equal(still_tokenizer_is_end(back, id), still_tokenizer_is_end(tokenizer, id));
    assert_int_equal(still_tokenizer_is_special(back, id),
                     still_tokenizer_is_special(tokenizer, id));
  }
  for (size_t i = 0; i < CHECK_COUNT(texts); i++) check_text(tokenizer, back, texts[i]);
  still_tokenizer_destroy(back);
  still_tokenizer_destroy(tokenizer);
}

static still_tokenizer *byte_level(const char *pre_tokenizer) {
  static const char *const merges[] = {"a b", "ab c", "\xc4\xa0 ab", "h e", "c a", NULL};
  char *json = small_byte_level(pre_tokenizer, merges, !strcmp(pre_tokenizer, SMALL_LLAMA3),
                                "{\"id\":261,\"content\":\"<s>\",\"special\":true},"
                                "{\"id\":262,\"content\":\"</s>\",\"special\":true},"
                                "{\"id\":265,\"content\":\"<|end|>\",\"special\":false}",
                                "");
  still_tokenizer *tokenizer = small_open("tokenizer.json", json, strlen(json));
  free(json);
  return tokenizer;
}

static void byte_level_comes_back(void **state) {
  (void)state;
  check_round_trip(byte_level(SMALL_LLAMA3), 0);
  check_round_trip(byte_level("{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"), 3);
}

static void sentencepiece_comes_back(void **state) {
  (void)state;
  size_t bytes;
  unsigned char *model = small_sentencepiece(small_pieces, small_piece_count, true, &bytes);
  still_tokenizer *tokenizer = small_open("tokenizer.model", model, bytes);
  free(model);
  check_round_trip(tokenizer, 2);
}

static void what_cannot_be_written_is_refused(void **state) {
  (void)state;
  const char *path = check_path("never.gguf");
  still_tokenizer *tokenizer =
      byte_level("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_"
                 "digits\":false}," SMALL_BYTES "]}");
  check_fails(put(tokenizer, path, 1000), STILL_ERROR_UNSUPPORTED, "GGUF has no name for");
  check_fails(put(tokenizer, path, 100), STILL_ERROR_FORMAT, "the model's vocabulary 100");
  still_tokenizer_destroy(tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(byte_level_comes_back),
                                     cmocka_unit_test(sentencepiece_comes_back),
                                     cmocka_unit_test(what_cannot_be_written_is_refused)};
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
