/* SPDX-License-Identifier: MIT
 * Byte-level BPE: words, merges, any bytes, long texts on a small stack. */
#include "small_vocabulary.h"

#include "base/memory.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/tokenizer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const merges[] = {"h e", "l l",   "he ll",           "hell o", "\xc4\xa0 h",
                                     "a a", "aa aa", "Vi\xe1\xbb\x87t", NULL};

static still_tokenizer *open_small(bool ignore_merges) {
  char *json = small_byte_level(SMALL_LLAMA3, merges, ignore_merges, "", "");
  still_tokenizer *tokenizer = small_open("tokenizer.json", json, strlen(json));
  free(json);
  return tokenizer;
}

/* ---- words */

static still_status note_word(void *user, const char *word, size_t bytes) {
  char *all = user;
  strncat(all, word, bytes);
  strcat(all, "|");
  return STILL_OK;
}

static void check_words(const char *pattern, const char *text, const char *words) {
  still_pretokenizer *pretokenizer;
  still_splitter *splitter;
  char got[256] = "";
  check_ok(still_pretokenizer_create(&pretokenizer, pattern));
  check_ok(still_splitter_create(&splitter, pretokenizer));
  check_ok(still_split(splitter, text, strlen(text), note_word, got));
  assert_string_equal(got, words);
  still_splitter_destroy(splitter);
  still_pretokenizer_destroy(pretokenizer);
}

static void test_words(void **state) {
  (void)state;
  check_words("gpt2", "I'm 12345, it'S  ok\n\n x", "I|'m| 12345|,| it|'|S| | ok|\n\n| x|");
  check_words("llama3", "I'm 12345, it'S  ok!!\n\n x", "I|'m| |123|45|,| it|'S| | ok|!!\n\n| x|");
  check_words("qwen2", "a 123", "a| |1|2|3|");
  check_words("smollm", "a  123 b", "a|  |1|2|3| b|");
  check_words("tekken", "HelloWorld a/\n", "Hello|World| a|/\n|");
  check_words("llama3", "tabs\t\tx \xe3\x80\x80y", "tabs|\t|\tx| |\xe3\x80\x80y|");
  /* U+180E is no white space, U+0085 is */
  check_words("gpt2",
              "a\xe1\xa0\x8e"
              "b\xc2\x85",
              "a|\xe1\xa0\x8e|b|\xc2\x85|");
  check_words("llama3", "x\xff\xe6\xad", "x|\xff|\xe6|\xad|");
}

static void test_unknown_pattern(void **state) {
  (void)state;
  still_pretokenizer *pretokenizer;
  check_fails(still_pretokenizer_create(&pretokenizer, "gpt5"), STILL_ERROR_UNSUPPORTED,
              "pre-tokenizer 'gpt5' is unknown; known are gpt2, smollm, llama3, qwen2");
}

/* ---- merges */

static void test_merges(void **state) {
  (void)state;
  still_tokenizer *tokenizer = open_small(false);
  CHECK_IDS(tokenizer, "hello", 0, 259);
  CHECK_IDS(tokenizer, " hello", 0, ' ', 259); /* "he" ranks before " h" */
  CHECK_IDS(tokenizer, "hhello hell", 0, 'h', 259, ' ', 258);
  CHECK_IDS(tokenizer, " hi", 0, 260, 'i');
  CHECK_IDS(tokenizer, "aaaaa", 0, 262, 'a'); /* equal ranks from the left */
  CHECK_IDS(tokenizer, "aaaaaaa", 0, 262, 261, 'a');
  CHECK_IDS(tokenizer, "hello\nhello", 0, 259, '\n', 259);
  check_ids(tokenizer, "", 0, 0, (const int[]){-1});
  still_tokenizer_destroy(tokenizer);
}

/* A word that is a token but that no merge makes. */
static void test_ignore_merges(void **state) {
  (void)state;
  still_tokenizer *with = open_small(true), *without = open_small(false);
  CHECK_IDS(with, "Vi\xe1\xbb\x87t", 0, 263);
  CHECK_IDS(with,
            "Vi\xe1\xbb\x87t"
            "a",
            0, 'V', 'i', 0xe1, 0xbb, 0x87, 't', 'a');
  CHECK_IDS(without, "Vi\xe1\xbb\x87t", 0, 'V', 'i', 0xe1, 0xbb, 0x87, 't');
  still_tokenizer_destroy(with);
  still_tokenizer_destroy(without);
}

/* ---- any bytes */

static void check_round_trip(const still_tokenizer *tokenizer, const char *text, size_t bytes) {
  still_token *ids;
  size_t count, at = 0;
  check_ok(still_tokenize_new(tokenizer, text, bytes, 0, &ids, &count));
  for (size_t i = 0; i < count; i++) {
    char piece[64];
    const size_t length = still_token_text(tokenizer, ids[i], 0, piece, sizeof piece);
    assert_true(at + length <= bytes);
    assert_memory_equal(piece, text + at, length);
    at += length;
  }
  assert_int_equal(at, bytes);
  still_free(ids);
}

static void test_any_bytes(void **state) {
  (void)state;
  still_tokenizer *tokenizer = open_small(false);
  CHECK_IDS(tokenizer, "\xe6\xad", 0, 0xe6, 0xad); /* the first two bytes of U+6B6A */
  CHECK_IDS(tokenizer, "he\x00ll\xc0", 0, 256, 0, 257, 0xc0);
  char bytes[4096];
  srand(7);
  for (int round = 0; round < 50; round++) {
    const size_t length = (size_t)rand() % sizeof bytes;
    for (size_t i = 0; i < length; i++) bytes[i] = (char)(rand() >> 7);
    check_round_trip(tokenizer, bytes, length);
  }
  still_tokenizer_destroy(tokenizer);
}

/* ---- long texts */

typedef struct long_text {
  const still_tokenizer *tokenizer;
  const char *unit;
  size_t bytes;
  bool good;
} long_text;

static void *encode_long(void *user) {
  long_text *job = user;
  char *text = malloc(job->bytes);
  size_t count = 0, bytes = 0;
  still_token *ids = NULL;
  for (size_t i = 0; text && i < job->bytes; i++) text[i] = job->unit[i % strlen(job->unit)];
  job->good = text && !still_tokenize_new(job->tokenizer, text, job->bytes, 0, &ids, &count);
  for (size_t i = 0; job->good && i < count; i++)
    bytes += still_token_text(job->tokenizer, ids[i], 0, NULL, 0);
  job->good = job->good && bytes == job->bytes;
  still_free(ids);
  free(text);
  return NULL;
}

/* One class of characters for very long: with a stack of 64 KiB, or the least that the machine gives. */
static void test_small_stack(void **state) {
  (void)state;
  static const char *const units[] = {"Z", "\n", " ", "\xe6\xad\xaa", ".", "7", "a", " .", "\r\n "};
  const long least = sysconf(_SC_THREAD_STACK_MIN);
  static const char *const patterns[] = {"gpt2", "smollm", "llama3", "qwen2", "tekken"};
  for (size_t p = 0; p < CHECK_COUNT(patterns); p++) {
    char *json = small_byte_level("null", merges, false, "", "");
    char *begin = strstr(json, "\"vocab\":") + 8, *end = strstr(begin, "},\"merges\"") + 1;
    const char *vocabulary = check_file("vocab.json", begin, (size_t)(end - begin));
    const char *lines = check_file("merges.txt", "#version: 0.2\nh e\nl l\n", 22);
    still_tokenizer *tokenizer;
    check_ok(still_tokenizer_open(&tokenizer, vocabulary, lines, patterns[p]));
    for (size_t u = 0; u < CHECK_COUNT(units); u++) {
      long_text job = {tokenizer, units[u], 131072 / 3 * 3, false};
      pthread_attr_t attributes;
      pthread_t thread;
      pthread_attr_init(&attributes);
      assert_int_equal(
          pthread_attr_setstacksize(&attributes, least > 65536 ? (size_t)least : 65536), 0);
      assert_int_equal(pthread_create(&thread, &attributes, encode_long, &job), 0);
      pthread_join(thread, NULL);
      pthread_attr_destroy(&attributes);
      if (!job.good) fail_msg("%s: '%s' repeated", patterns[p], units[u]);
    }
    still_tokenizer_destroy(tokenizer);
    free(json);
  }
}

static double seconds_for(const still_tokenizer *tokenizer, size_t bytes) {
  struct timespec begin, end;
  long_text job = {tokenizer, "abcdefgaahhellaz", bytes, false};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  encode_long(&job);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  assert_true(job.good);
  return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

/* One word of a megabyte: eight times the text takes about eight times as long, not 64 times. */
static void test_one_long_word(void **state) {
  (void)state;
  still_tokenizer *tokenizer = open_small(false);
  double best = 1e9;
  for (int try = 0; try < 3; try++) {
    const double ratio = seconds_for(tokenizer, 1 << 20) / seconds_for(tokenizer, 1 << 17);
    if (ratio < best) best = ratio;
  }
  if (best > 24) fail_msg("8 times the text takes %.1f times as long", best);
  still_tokenizer_destroy(tokenizer);
}

/* ---- the calls' manners */

static void test_capacity(void **state) {
  (void)state;
  still_tokenizer *tokenizer = open_small(false);
  still_token ids[3] = {-7, -7, -7};
  size_t count;
  check_ok(still_tokenize(tokenizer, "hello!!", 7, 0, ids, 1, &count));
  assert_int_equal(count, 3);
  assert_int_equal(ids[0], 259);
  assert_int_equal(ids[1], -7);
  check_ok(still_tokenize(tokenizer, "hello!!", 7, 0, NULL, 0, &count));
  assert_int_equal(count, 3);
  check_fails(still_tokenize(tokenizer, "a", 1, 64, ids, 3, &count), STILL_ERROR_ARGUMENT,
              "flags 0x40, known are 0x7");
  assert_int_equal(still_tokenizer_size(tokenizer), 264);
  assert_int_equal(still_tokenizer_find(tokenizer, "\xc4\xa0h"), 260);
  assert_int_equal(still_tokenizer_find(tokenizer, "nothing"), -1);
  assert_int_equal(still_tokenizer_bos(tokenizer), -1);
  char text[8] = "xxxxxxx";
  assert_int_equal(still_token_text(tokenizer, 259, 0, text, 3), 5);
  assert_string_equal(text, "helxxxx");
  assert_int_equal(still_token_text(tokenizer, 264, 0, text, 3), 0);
  assert_int_equal(still_token_text(tokenizer, -1, 0, text, 3), 0);
  still_tokenizer_destroy(tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_words),         cmocka_unit_test(test_unknown_pattern),
      cmocka_unit_test(test_merges),        cmocka_unit_test(test_ignore_merges),
      cmocka_unit_test(test_any_bytes),     cmocka_unit_test(test_small_stack),
      cmocka_unit_test(test_one_long_word), cmocka_unit_test(test_capacity),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
