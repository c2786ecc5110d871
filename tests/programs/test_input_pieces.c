/* SPDX-License-Identifier: MIT
 * Texts read in pieces: wherever program_safe_cut cuts, every kind of tokenizer gives the tokens of the whole
 * text; and a file comes out of program_input whole. */
#include "harness/check.h"

#include "../../examples/programs/program_input.h"
#include "base/random.h"

#include <still/model.h>

#include <stdlib.h>
#include <string.h>

enum { TEXT = 3000, TEXTS = 40 };

/* Words, marks, spaces and line feeds in every neighbourhood. */
static size_t make_text(char *text, uint64_t seed) {
  static const char *const parts[] = {
      "river", "a",       "don't",  "I'll", " ",           "  ",           "\n",
      "\n\n",  " \n",     "\r\n",   "\t",   ".",           ", ",           "...",
      "12",    "1234567", "--",     "\"",   "caf\xc3\xa9", "\xe6\xad\xaa", " the",
      " of",   "\nThe",   ".\nAnd", "x=1;", "'s"};
  still_random random;
  still_random_seed(&random, seed);
  size_t bytes = 0;
  while (bytes < TEXT - 16) {
    const char *part = parts[still_random_below(&random, CHECK_COUNT(parts))];
    memcpy(text + bytes, part, strlen(part));
    bytes += strlen(part);
  }
  return bytes;
}

static size_t encode(const still_tokenizer *tokenizer, const char *text, size_t bytes,
                     unsigned flags, still_token *ids) {
  size_t count;
  check_ok(still_tokenize(tokenizer, text, bytes, flags, ids, 2 * TEXT, &count));
  assert_true(count <= 2 * TEXT);
  return count;
}

static void check_tokenizer(const char *path, const char *merges, const char *pattern) {
  static char text[TEXT];
  static still_token whole[2 * TEXT], pieces[4 * TEXT];
  still_tokenizer *tokenizer = NULL;
  check_ok(still_tokenizer_open(&tokenizer, path, merges, pattern));
  size_t cuts = 0;
  for (uint64_t seed = 1; seed <= TEXTS; seed++) {
    size_t bytes = make_text(text, seed);
    size_t count = encode(tokenizer, text, bytes, STILL_TOKENIZE_ADD_BOS, whole);
    for (size_t upto = bytes; upto > bytes / 2; upto -= 37) {
      size_t cut = program_safe_cut(text, upto);
      if (!cut) continue;
      size_t n = encode(tokenizer, text, cut, STILL_TOKENIZE_ADD_BOS, pieces);
      n += encode(tokenizer, text + cut, bytes - cut, STILL_TOKENIZE_CONTINUE, pieces + n);
      assert_int_equal(n, count);
      assert_memory_equal(pieces, whole, count * sizeof *whole);
      cuts++;
    }
  }
  assert_true(cuts > TEXTS);
  still_tokenizer_destroy(tokenizer);
}

static void test_needle(void **state) {
  (void)state;
  check_tokenizer(getenv("STILL_NEEDLE_TOKENIZER"), NULL, NULL);
}

static void test_sentencepiece(void **state) {
  (void)state;
  check_tokenizer(check_shared("data/tokenizer/llama2/tokenizer.model"), NULL, NULL);
}

static void test_gpt2(void **state) {
  (void)state;
  const char *vocabulary = check_shared("data/tokenizer/gpt2/vocab.json");
  const char *merges = check_shared("data/tokenizer/gpt2/merges.txt");
  check_tokenizer(vocabulary, merges, "gpt2");
  check_tokenizer(vocabulary, merges, "smollm");
  check_tokenizer(vocabulary, merges, "qwen2");
}

static void test_llama3(void **state) {
  (void)state;
  check_tokenizer(check_shared("data/tokenizer/llama3.2/encoder.json"),
                  check_shared("data/tokenizer/llama3.2/vocab.bpe"), "llama3");
}

/* Longer than a piece, with and without places to cut; nothing is lost but the last line feed. */
static void check_reading(const char *text, size_t bytes, size_t largest, int is_cut) {
  const char *path = check_file("text", text, bytes);
  program_input input;
  const char *piece;
  size_t size, at = 0;
  assert_int_equal(program_input_open(&input, path), 0);
  while (!program_input_next(&input, &piece, &size) && size) {
    assert_true(at + size <= bytes && size <= largest);
    assert_memory_equal(piece, text + at, size);
    at += size;
  }
  assert_int_equal(at, bytes && text[bytes - 1] == '\n' ? bytes - 1 : bytes);
  assert_int_equal(input.is_cut, is_cut);
  program_input_close(&input);
}

static void test_reading(void **state) {
  (void)state;
  size_t bytes = 3 << 20;
  char *text = malloc(bytes);
  assert_non_null(text);
  memset(text, '7', bytes);
  check_reading(text, bytes, 1 << 20, 1);
  for (size_t i = 0; i < bytes; i += 5) memcpy(text + i, "seven", bytes - i < 5 ? bytes - i : 5);
  for (size_t i = 5; i + 1 < bytes; i += 60) text[i] = ' ';
  check_reading(text, bytes, 1 << 16, 0);
  text[bytes - 1] = '\n';
  check_reading(text, bytes, 1 << 16, 0);
  for (size_t i = 0; i + 3 <= bytes; i += 3)
    memcpy(text + i, "\xe6\xad\xaa", 3); /* no border in sight */
  check_reading(text, bytes / 3 * 3, 1 << 20, 1);
  check_reading("", 0, 0, 0);
  check_reading("\n", 1, 0, 0);
  check_reading("a\n\n", 3, 2, 0);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_needle),  cmocka_unit_test(test_sentencepiece),
      cmocka_unit_test(test_gpt2),    cmocka_unit_test(test_llama3),
      cmocka_unit_test(test_reading),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
