/* SPDX-License-Identifier: MIT
 * SentencePiece BPE: scores, spaces, bytes, unknown characters, damaged files. */
#include "small_vocabulary.h"

#include "base/memory.h"
#include "formats/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK "\xe2\x96\x81"
enum { UNK, BOS, EOS, SPACE, A, B, C, G, _A, AB, BC, _G, ABC, SPACES, E_ACUTE, BYTES };

static still_tokenizer *open_pieces(bool byte_tokens) {
  size_t bytes;
  unsigned char *data = small_sentencepiece(small_pieces, small_piece_count, byte_tokens, &bytes);
  still_tokenizer *tokenizer = small_open("tokenizer.model", data, bytes);
  free(data);
  return tokenizer;
}

static void test_scores(void **state) {
  (void)state;
  still_tokenizer *tokenizer = open_pieces(true);
  CHECK_IDS(tokenizer, "a", 0, _A);
  CHECK_IDS(tokenizer, "ab", 0, SPACE, AB); /* -1 before -2 */
  CHECK_IDS(tokenizer, "abc", 0, SPACE, ABC);
  CHECK_IDS(tokenizer, "cbc", 0, SPACE, C, BC);
  CHECK_IDS(tokenizer, "bc abc", 0, SPACE, BC, SPACE, ABC);
  CHECK_IDS(tokenizer, " a", 0, SPACE, _A); /* -2 before -6 */
  CHECK_IDS(tokenizer, "  b", 0, SPACES, SPACE, B);
  CHECK_IDS(tokenizer, MARK "b", 0, SPACES, B);
  check_ids(tokenizer, "", 0, 0, (const int[]){-1});
  CHECK_IDS(tokenizer, "a", STILL_TOKENIZE_ADD_BOS, BOS, _A);
  CHECK_IDS(tokenizer, "a", STILL_TOKENIZE_CONTINUE, A);
  CHECK_IDS(tokenizer, " a", STILL_TOKENIZE_CONTINUE, _A);
  still_tokenizer_destroy(tokenizer);
}

static void test_bytes(void **state) {
  (void)state;
  still_tokenizer *tokenizer = open_pieces(true);
  CHECK_IDS(tokenizer, "\xc3\xa9", 0, SPACE, E_ACUTE);
  CHECK_IDS(tokenizer, "a\xc3\xa8", 0, _A, BYTES + 0xc3, BYTES + 0xa8);
  CHECK_IDS(tokenizer, "\xe6\xad", 0, SPACE, BYTES + 0xe6, BYTES + 0xad);
  CHECK_IDS(tokenizer, "a\x00\n", 0, _A, BYTES, BYTES + '\n');
  still_tokenizer_destroy(tokenizer);
}

static void test_unknown(void **state) {
  (void)state;
  still_tokenizer *tokenizer = open_pieces(false);
  CHECK_IDS(tokenizer, "axyza", 0, _A, UNK, A);
  CHECK_IDS(tokenizer, "x a", 0, SPACE, UNK, _A);
  still_tokenizer_destroy(tokenizer);
}

/* Text that follows a special token, in each of the ways Hugging Face's files ask for a space. */
static void test_prefix_modes(void **state) {
  (void)state;
  const unsigned special = STILL_TOKENIZE_PARSE_SPECIAL;
  still_tokenizer *legacy = open_pieces(true);
  CHECK_IDS(legacy, "<s>G", special, BOS, _G);
  CHECK_IDS(legacy, "G<s>G</s> G", special, _G, BOS, _G, EOS, SPACE, _G);
  CHECK_IDS(legacy, "<s>G", 0, SPACE, BYTES + '<', BYTES + 's', BYTES + '>', G);
  still_tokenizer_destroy(legacy);
  check_file("tokenizer_config.json", "{\"legacy\": false}", 17);
  still_tokenizer *newer = open_pieces(true);
  CHECK_IDS(newer, "<s>G", special, BOS, G);
  CHECK_IDS(newer, "G<s>G</s> G", special, _G, BOS, G, EOS, _G);
  CHECK_IDS(newer, " G", special, _G);
  still_tokenizer_destroy(newer);
  check_file("tokenizer_config.json", "{}", 2);
}

static void test_gguf_is_the_same(void **state) {
  (void)state;
  float scores[BYTES + 256];
  int32_t types[BYTES + 256];
  still_gguf_string tokens[BYTES + 256];
  char names[256][16];
  for (int i = 0; i < BYTES + 256; i++) {
    const bool byte = i >= BYTES;
    if (byte) snprintf(names[i - BYTES], 16, "<0x%02X>", (unsigned)(i - BYTES));
    const char *text = byte ? names[i - BYTES] : small_pieces[i].text;
    tokens[i] = (still_gguf_string){text, strlen(text)};
    scores[i] = byte ? 0 : small_pieces[i].score;
    types[i] = byte ? 6 : small_pieces[i].type;
  }
  for (int prefix = 0; prefix < 2; prefix++) {
    still_gguf_writer *writer;
    const char *path = check_path("spm.gguf");
    check_ok(still_gguf_writer_create(&writer));
    check_ok(still_gguf_put_string(writer, "tokenizer.ggml.model", "llama", 5));
    check_ok(still_gguf_put_strings(writer, "tokenizer.ggml.tokens", tokens, BYTES + 256));
    check_ok(
        still_gguf_put_array(writer, "tokenizer.ggml.scores", STILL_GGUF_F32, scores, BYTES + 256));
    check_ok(still_gguf_put_array(writer, "tokenizer.ggml.token_type", STILL_GGUF_I32, types,
                                  BYTES + 256));
    check_ok(still_gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", BOS));
    check_ok(still_gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", EOS));
    check_ok(still_gguf_put_bool(writer, "tokenizer.ggml.add_space_prefix", prefix));
    check_ok(still_gguf_write(writer, path));
    still_gguf_writer_destroy(writer);
    still_tokenizer *tokenizer;
    check_ok(still_tokenizer_open(&tokenizer, path, NULL, NULL));
    if (prefix) {
      CHECK_IDS(tokenizer, "abc a\xc3\xa8", 0, SPACE, ABC, _A, BYTES + 0xc3, BYTES + 0xa8);
      CHECK_IDS(tokenizer, "G<s>G", 3, BOS, _G, BOS, _G);
    } else {
      CHECK_IDS(tokenizer, "abc a", 0, ABC, _A);
    }
    assert_int_equal(still_tokenizer_eos(tokenizer), EOS);
    still_tokenizer_destroy(tokenizer);
  }
}

/* Cut anywhere and with any byte changed: a sentence or a tokenizer, never a crash. */
static void test_damaged(void **state) {
  (void)state;
  size_t bytes;
  unsigned char *data = small_sentencepiece(small_pieces, small_piece_count, false, &bytes);
  still_tokenizer *tokenizer;
  check_fails(
      still_tokenizer_open(&tokenizer, check_file("cut.model", data, bytes - 1), NULL, NULL),
      STILL_ERROR_FORMAT, "a field is longer than the file");
  check_fails(still_tokenizer_open(&tokenizer, check_file("no.model", data, bytes - 8), NULL, NULL),
              STILL_ERROR_UNSUPPORTED, "model_type is 1 (unigram), known is only 2 (BPE)");
  for (size_t cut = 0; cut < bytes; cut++) {
    data[cut] ^= 0x15;
    if (!still_tokenizer_open(&tokenizer, check_file("bad.model", data, bytes), NULL, NULL))
      still_tokenizer_destroy(tokenizer);
    data[cut] ^= 0x15;
  }
  data[bytes - 1] = 1;
  check_fails(still_tokenizer_open(&tokenizer, check_file("trim.model", data, bytes), NULL, NULL),
              STILL_ERROR_UNSUPPORTED, "normalizer_spec: removes spaces");
  free(data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_scores),           cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_unknown),          cmocka_unit_test(test_prefix_modes),
      cmocka_unit_test(test_gguf_is_the_same), cmocka_unit_test(test_damaged),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
