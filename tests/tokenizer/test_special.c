/* SPDX-License-Identifier: MIT
 * Added and special tokens, begin and end ids, the decoder. */
#include "small_vocabulary.h"

#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const char *const merges[] = {"h e", "l l", "he ll", NULL};
enum { HE = 256, LL, HELL, BOS, EOT, LEFT, RIGHT, LONG, SHORT, EOS };

static const char added[] = "{\"id\":259,\"content\":\"<|begin_of_text|>\",\"special\":true},"
                            "{\"id\":260,\"content\":\"<|eot_id|>\",\"special\":true},"
                            "{\"id\":261,\"content\":\"<L>\",\"lstrip\":true,\"special\":false},"
                            "{\"id\":262,\"content\":\"<R>\",\"rstrip\":true,\"special\":false},"
                            "{\"id\":263,\"content\":\"<tool_call>\",\"special\":false},"
                            "{\"id\":264,\"content\":\"<tool\",\"special\":false},"
                            "{\"id\":265,\"content\":\"<|end_of_text|>\",\"special\":true}";
static const char processor[] =
    ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
    "\"<|begin_of_text|>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]}]}";

static still_tokenizer *open_small(const char *more) {
  char *json = small_byte_level(SMALL_LLAMA3, merges, false, added, more);
  still_tokenizer *tokenizer = small_open("tokenizer.json", json, strlen(json));
  free(json);
  return tokenizer;
}

static void test_added(void **state) {
  (void)state;
  still_tokenizer *tokenizer = open_small("");
  CHECK_IDS(tokenizer, "hell<tool_call>hell", 0, HELL, LONG, HELL);
  CHECK_IDS(tokenizer, "<tool_cal", 0, SHORT, '_', 'c', 'a', 'l');
  CHECK_IDS(tokenizer, "a \n<L> b", 0, 'a', LEFT, ' ', 'b');
  CHECK_IDS(tokenizer, "a <R> \xe3\x80\x80 b", 0, 'a', ' ', RIGHT, 'b');
  CHECK_IDS(tokenizer, "<R> <L>", 0, RIGHT, LEFT);
  CHECK_IDS(tokenizer, "<<tool", 0, '<', SHORT);
  assert_int_equal(still_tokenizer_find(tokenizer, "<tool_call>"), LONG);
  still_tokenizer_destroy(tokenizer);
}

static void test_special(void **state) {
  (void)state;
  still_tokenizer *tokenizer = open_small("");
  CHECK_IDS(tokenizer, "he<|eot_id|>he", STILL_TOKENIZE_PARSE_SPECIAL, HE, EOT, HE);
  CHECK_IDS(tokenizer, "<|eot_id|>", 0, '<', '|', 'e', 'o', 't', '_', 'i', 'd', '|', '>');
  assert_true(still_tokenizer_is_special(tokenizer, EOT));
  assert_false(still_tokenizer_is_special(tokenizer, LONG));
  assert_false(still_tokenizer_is_special(tokenizer, -1));
  char text[32];
  assert_int_equal(still_token_text(tokenizer, EOT, 0, text, 32), 0);
  assert_int_equal(still_token_text(tokenizer, EOT, 1, text, 32), 10);
  assert_memory_equal(text, "<|eot_id|>", 10);
  assert_int_equal(still_token_text(tokenizer, LONG, 0, text, 32), 11);
  still_tokenizer_destroy(tokenizer);
}

/* Exactly one begin token, whoever asks for it. */
static void test_one_bos(void **state) {
  (void)state;
  const unsigned both = STILL_TOKENIZE_ADD_BOS | STILL_TOKENIZE_PARSE_SPECIAL;
  still_tokenizer *tokenizer = open_small(processor);
  assert_int_equal(still_tokenizer_bos(tokenizer), BOS);
  CHECK_IDS(tokenizer, "he", STILL_TOKENIZE_ADD_BOS, BOS, HE);
  CHECK_IDS(tokenizer, "he", 0, HE);
  CHECK_IDS(tokenizer, "", STILL_TOKENIZE_ADD_BOS, BOS);
  CHECK_IDS(tokenizer, "<|begin_of_text|>he", both, BOS, HE);
  CHECK_IDS(tokenizer, "<|begin_of_text|>he", STILL_TOKENIZE_PARSE_SPECIAL, BOS, HE);
  CHECK_IDS(tokenizer, "<|begin_of_text|>", both, BOS);
  CHECK_IDS(tokenizer, "<|eot_id|>", both, BOS, EOT);
  still_tokenizer_destroy(tokenizer);
  tokenizer = open_small(""); /* nothing in the file puts it first */
  CHECK_IDS(tokenizer, "he", STILL_TOKENIZE_ADD_BOS, HE);
  still_tokenizer_destroy(tokenizer);
  check_file("tokenizer_config.json", "{\"add_bos_token\": true}", 23);
  tokenizer = open_small("");
  CHECK_IDS(tokenizer, "he", STILL_TOKENIZE_ADD_BOS, BOS, HE);
  still_tokenizer_destroy(tokenizer);
  check_file("tokenizer_config.json", "{}", 2);
}

/* The end of a turn ends an answer although only the end of the text is named eos. */
static void test_ends(void **state) {
  (void)state;
  check_file("tokenizer_config.json", "{\"eos_token\": {\"content\": \"<|end_of_text|>\"}}", 45);
  check_file("generation_config.json", "{\"eos_token_id\": [265, 264]}", 28);
  still_tokenizer *tokenizer = open_small("");
  assert_int_equal(still_tokenizer_eos(tokenizer), EOS);
  assert_true(still_tokenizer_is_end(tokenizer, EOS));
  assert_true(still_tokenizer_is_end(tokenizer, EOT));
  assert_true(still_tokenizer_is_end(tokenizer, SHORT));
  assert_false(still_tokenizer_is_end(tokenizer, LONG));
  assert_false(still_tokenizer_is_end(tokenizer, -1));
  still_tokenizer_destroy(tokenizer);
  check_file("generation_config.json", "{\"eos_token_id\": 999}", 21);
  char *json = small_byte_level(SMALL_LLAMA3, merges, false, added, "");
  check_fails(still_tokenizer_open(&tokenizer, check_file("tokenizer.json", json, strlen(json)),
                                   NULL, NULL),
              STILL_ERROR_FORMAT,
              "generation_config.json: eos_token_id is 999, the vocabulary has ids 0 .. 265");
  free(json);
  check_file("tokenizer_config.json", "{}", 2);
  check_file("generation_config.json", "{}", 2);
}

/* ---- the decoder */

static void push(still_decoder *decoder, still_token id, const char *want) {
  const char *text;
  size_t bytes;
  check_ok(still_decoder_push(decoder, id, &text, &bytes));
  assert_string_equal(text, want);
  assert_int_equal(bytes, strlen(want));
}

static void flush(still_decoder *decoder, const char *want) {
  const char *text;
  size_t bytes;
  check_ok(still_decoder_flush(decoder, &text, &bytes));
  assert_string_equal(text, want);
}

static void test_decoder_bytes(void **state) {
  (void)state;
  still_tokenizer *tokenizer = open_small("");
  still_decoder *decoder;
  check_ok(still_decoder_create(&decoder, tokenizer));
  push(decoder, HELL, "hell");
  push(decoder, 0xf0, ""); /* U+1F642, one byte at a time */
  push(decoder, 0x9f, "");
  push(decoder, EOT, "");
  push(decoder, 0x99, "");
  push(decoder, 0x82, "\xf0\x9f\x99\x82");
  push(decoder, 0xe6, "");
  push(decoder, 'x', "\xef\xbf\xbdx"); /* it can no longer become a character */
  push(decoder, 0x80, "\xef\xbf\xbd");
  push(decoder, 0xe6, "");
  push(decoder, 0xad, "");
  flush(decoder, "\xef\xbf\xbd");
  flush(decoder, "");
  push(decoder, ' ', " "); /* no space is taken off byte-level text */
  const char *text;
  size_t bytes;
  check_fails(still_decoder_push(decoder, 266, &text, &bytes), STILL_ERROR_ARGUMENT,
              "id 266, must be 0 .. 265");
  still_decoder_destroy(decoder);
  still_tokenizer_destroy(tokenizer);
}

static void test_decoder_spaces(void **state) {
  (void)state;
  size_t bytes;
  unsigned char *data = small_sentencepiece(small_pieces, small_piece_count, true, &bytes);
  still_tokenizer *tokenizer = small_open("tokenizer.model", data, bytes);
  still_decoder *decoder;
  free(data);
  check_ok(still_decoder_create(&decoder, tokenizer));
  push(decoder, 1, "");  /* <s> */
  push(decoder, 8, "a"); /* the first space is SentencePiece's own */
  push(decoder, 8, " a");
  push(decoder, 13, "  ");
  push(decoder, 15 + 0xc3, "");
  push(decoder, 15 + 0xa9, "\xc3\xa9");
  flush(decoder, "");
  push(decoder, 8, "a");
  still_decoder_destroy(decoder);
  still_tokenizer_destroy(tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_added),         cmocka_unit_test(test_special),
      cmocka_unit_test(test_one_bos),       cmocka_unit_test(test_ends),
      cmocka_unit_test(test_decoder_bytes), cmocka_unit_test(test_decoder_spaces),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
