/* SPDX-License-Identifier: MIT
 * Files of tokenizers: what is not known or damaged is named; nothing leaks when memory runs out; a
 * large vocabulary loads quickly. */
#include "small_vocabulary.h"

#include "base/memory.h"
#include "formats/gguf.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const merges[] = {"h e", "l l", "he ll", NULL};
static const char bos[] = "{\"id\":259,\"content\":\"<s>\",\"special\":true}";

/* The small tokenizer.json with one text replaced by another, to be freed. */
static char *changed_json(const char *from, const char *to, size_t *bytes) {
  char *json = small_byte_level(SMALL_LLAMA3, merges, false, bos, ""), *changed = NULL;
  char *at = strstr(json, from);
  assert_non_null(at);
  FILE *out = open_memstream(&changed, bytes);
  fprintf(out, "%.*s%s%s", (int)(at - json), json, to, at + strlen(from));
  fclose(out);
  free(json);
  return changed;
}

static void refuse(const char *from, const char *to, still_status status, const char *sentence) {
  size_t bytes;
  still_tokenizer *tokenizer;
  char *changed = changed_json(from, to, &bytes);
  check_fails(still_tokenizer_parse_json(&tokenizer, "t.json", changed, bytes), status, sentence);
  assert_null(tokenizer);
  free(changed);
}

/* SmolLM2's vocabulary has no token for 21 of the 256 bytes: they are dropped. */
static void test_missing_byte(void **state) {
  (void)state;
  size_t bytes, count;
  still_token ids[8];
  still_tokenizer *tokenizer;
  char *changed = changed_json("\"\xc4\x81\":1,", "", &bytes);
  check_ok(still_tokenizer_parse_json(&tokenizer, "t.json", changed, bytes));
  check_ok(still_tokenize(tokenizer, "\1h\1l\1", 5, 0, ids, CHECK_COUNT(ids), &count));
  assert_int_equal(count, 2);
  assert_int_equal(ids[0], 'h');
  assert_int_equal(ids[1], 'l');
  still_tokenizer_destroy(tokenizer);
  free(changed);
}

static void test_json_refusals(void **state) {
  (void)state;
  const still_status format = STILL_ERROR_FORMAT, unsupported = STILL_ERROR_UNSUPPORTED;
  refuse("\"BPE\"", "\"Unigram\"", unsupported,
         "t.json: model type 'Unigram' is unknown; known is BPE");
  refuse("\\\\p{N}{1,3}", "\\\\p{N}{1,4}", unsupported, "pre_tokenizer: Split by '(?i:'s|");
  refuse("\"ByteLevel\"", "\"Whitespace\"", unsupported, "pre_tokenizer 'Sequence' is unknown");
  refuse("\"add_prefix_space\":false", "\"add_prefix_space\":true", unsupported,
         "ByteLevel with add_prefix_space");
  refuse("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", unsupported,
         "normalizer 'NFC' is unknown");
  refuse("\"h e\"", "\"h q\"", format, "merge 0: token 'hq' is not in the vocabulary");
  refuse("\"h e\"", "\"he\"", format, "merge 0 is 'he', must be two tokens and a space");
  refuse("\"h e\"", "7", format, "'merges' is a number (7), must be a string");
  refuse("\"he\":256", "\"he\":255", format, "both have id 255");
  refuse("\"he\":256", "\"he\":4000000000", format, "id 4000000000, must be below");
  refuse("\"he\":256", "\"he\":-1", format, "must be an integer");
  refuse("\"!\":33,", "", format, "no token for byte 0x21");
  refuse("\"content\":\"<s>\"", "\"content\":7", format, "'content' is a number");
  refuse("\"special\":true", "\"single_word\":true", unsupported, "single_word is not known");
}

static void test_paths(void **state) {
  (void)state;
  still_tokenizer *tokenizer;
  check_fails(still_tokenizer_open(&tokenizer, "/nowhere/tokenizer.json", NULL, NULL),
              STILL_ERROR_FILE, "/nowhere/tokenizer.json");
  check_fails(still_tokenizer_open(&tokenizer, "/nowhere/model.bin", NULL, NULL), STILL_ERROR_FILE,
              "no such file");
  check_fails(still_tokenizer_open(&tokenizer, check_file("x.bin", "abc", 3), NULL, NULL),
              STILL_ERROR_UNSUPPORTED, "x.bin: is no .gguf");
  check_fails(still_tokenizer_open(&tokenizer, check_file("lone/vocab.json", "{}", 2), NULL, NULL),
              STILL_ERROR_FILE, "a vocabulary needs its merges");
  check_file("empty/x", "", 0);
  check_fails(still_tokenizer_open(&tokenizer, check_path("empty"), NULL, NULL), STILL_ERROR_FILE,
              "holds no tokenizer.json");
  check_ok(still_tokenizer_from_folder(&tokenizer, check_path("empty")));
  assert_null(tokenizer);
}

/* ---- GGUF */

typedef struct gguf_parts {
  const char *model, *pre;
  const void *types;
  still_gguf_type type_of_types;
  size_t type_count;
  uint32_t eos;
} gguf_parts;

/* The small byte-level vocabulary, written by way of its tokenizer.json's text. */
static const char *write_gguf(gguf_parts parts) {
  static still_gguf_string tokens[262], lines[3];
  static char bytes[256][4];
  for (int i = 0; i < 256;
       i++) { /* the printable stand-ins, in the order of GPT-2's own vocabulary */
    const bool prints = (i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || i >= 0xae;
    static uint32_t next;
    if (!i) next = 0x100;
    const uint32_t code = prints ? (uint32_t)i : next++;
    size_t length = 1;
    if (code < 0x80) {
      bytes[i][0] = (char)code;
    } else {
      bytes[i][0] = (char)(0xc0 | code >> 6);
      bytes[i][1] = (char)(0x80 | (code & 63));
      length = 2;
    }
    tokens[i] = (still_gguf_string){bytes[i], length};
  }
  static const char *const more[] = {"he", "ll", "hell", "<|begin_of_text|>", "<|eot_id|>", "<x>"};
  for (int i = 0; i < 6; i++) tokens[256 + i] = (still_gguf_string){more[i], strlen(more[i])};
  for (int i = 0; i < 3; i++) lines[i] = (still_gguf_string){merges[i], strlen(merges[i])};
  still_gguf_writer *writer;
  const char *path = check_path("bpe.gguf");
  check_ok(still_gguf_writer_create(&writer));
  check_ok(still_gguf_put_string(writer, "tokenizer.ggml.model", parts.model, strlen(parts.model)));
  if (parts.pre)
    check_ok(still_gguf_put_string(writer, "tokenizer.ggml.pre", parts.pre, strlen(parts.pre)));
  check_ok(still_gguf_put_strings(writer, "tokenizer.ggml.tokens", tokens, 262));
  check_ok(still_gguf_put_strings(writer, "tokenizer.ggml.merges", lines, 3));
  check_ok(still_gguf_put_array(writer, "tokenizer.ggml.token_type", parts.type_of_types,
                                parts.types, parts.type_count));
  check_ok(still_gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", 259));
  check_ok(still_gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", parts.eos));
  check_ok(still_gguf_put_string(writer, "tokenizer.chat_template", "<|start_header_id|>", 19));
  check_ok(still_gguf_write(writer, path));
  still_gguf_writer_destroy(writer);
  return path;
}

static void refuse_gguf(gguf_parts parts, still_status status, const char *sentence) {
  still_tokenizer *tokenizer;
  check_fails(still_tokenizer_open(&tokenizer, write_gguf(parts), NULL, NULL), status, sentence);
}

static void test_gguf(void **state) {
  (void)state;
  int32_t types[262];
  for (int i = 0; i < 262; i++) types[i] = i == 259 || i == 260 ? 3 : i == 261 ? 4 : 1;
  const gguf_parts good = {"gpt2", "llama-bpe", types, STILL_GGUF_I32, 262, 260};
  still_tokenizer *tokenizer;
  check_ok(still_tokenizer_open(&tokenizer, write_gguf(good), NULL, NULL));
  CHECK_IDS(tokenizer, "hell\n<x>", STILL_TOKENIZE_ADD_BOS, 259, 258, '\n', 261);
  assert_true(still_tokenizer_is_end(tokenizer, 260));
  assert_string_equal(still_tokenizer_chat_family(tokenizer), "llama3");
  still_tokenizer_destroy(tokenizer);

  gguf_parts bad = good;
  bad.model = "bert";
  refuse_gguf(bad, STILL_ERROR_UNSUPPORTED, "'bert' is unknown; known are llama and gpt2");
  bad = good, bad.pre = "chatglm-bpe";
  refuse_gguf(bad, STILL_ERROR_UNSUPPORTED, "'chatglm-bpe' is unknown; known are llama-bpe");
  bad = good, bad.eos = 262;
  refuse_gguf(bad, STILL_ERROR_FORMAT, "eos_token_id is 262, the vocabulary has ids 0 .. 261");
  bad = good, bad.type_count = 261;
  refuse_gguf(bad, STILL_ERROR_FORMAT, "token_type has 261 entries for 262 tokens");
  bad = good, bad.type_of_types = STILL_GGUF_U8; /* a reader that takes it for I32 reads too far */
  refuse_gguf(bad, STILL_ERROR_FORMAT, "token_type has entries of type 0, must be I32");
  bad = good, bad.model = "llama";
  refuse_gguf(bad, STILL_ERROR_FORMAT, "tokenizer.ggml.scores is missing");
  types[3] = 9;
  refuse_gguf(good, STILL_ERROR_FORMAT, "token_type[3] is 9, must be 1 .. 6");
  types[3] = 1;
  bad = good, bad.model = "none";
  refuse_gguf(bad, STILL_ERROR_FORMAT, "holds no vocabulary");
}

/* ---- memory */

typedef struct job {
  const char *path, *text;
} job;

static still_status open_and_use(void *user) {
  const job *j = user;
  still_tokenizer *tokenizer;
  still_token *ids;
  size_t count;
  still_decoder *decoder = NULL;
  const still_message message = {"user", j->text};
  still_token room[64];
  const char *text;
  STILL_TRY(still_tokenizer_open(&tokenizer, j->path, NULL, NULL));
  still_status status = still_tokenize_new(tokenizer, j->text, strlen(j->text), 3, &ids, &count);
  if (!status) still_free(ids);
  if (!status && still_tokenizer_chat_family(tokenizer))
    status = still_format_chat(tokenizer, &message, 1, 0, 1, room, 64, &count);
  if (!status) status = still_decoder_create(&decoder, tokenizer);
  if (!status) status = still_decoder_push(decoder, 200, &text, &count);
  if (!status) status = still_decoder_flush(decoder, &text, &count);
  still_decoder_destroy(decoder);
  still_tokenizer_destroy(tokenizer);
  return status;
}

static void test_failing_allocations(void **state) {
  (void)state;
  static const char config[] = "{\"chat_template\":\"[INST]\"}";
  check_file("m/tokenizer_config.json", config, sizeof config - 1);
  char *json = small_byte_level(SMALL_LLAMA3, merges, false, bos, "");
  job j = {check_file("m/tokenizer.json", json, strlen(json)), "<s>hello   there 123\xff"};
  free(json);
  check_failing_allocations(open_and_use, &j, true);
  size_t bytes;
  unsigned char *data = small_sentencepiece(small_pieces, small_piece_count, true, &bytes);
  j.path = check_file("m/tokenizer.model", data, bytes);
  free(data);
  check_failing_allocations(open_and_use, &j, true);
}

/* ---- speed */

/* 128,000 tokens and as many merges load in half a second; in five under an emulator. */
static void test_large_vocabulary(void **state) {
  (void)state;
  enum { MERGES = 128000 - 256 };
  char **names = calloc(MERGES + 1, sizeof *names), *text = calloc(MERGES, 16);
  struct timespec begin, end;
  still_tokenizer *tokenizer;
  assert_non_null(names);
  assert_non_null(text);
  for (int i = 0; i < MERGES;
       i++) { /* "ab" "c" -> "abc": every pair and triple of letters and so on */
    char word[8];
    int length = 0;
    for (int rest = i + 27 * 27; rest; rest /= 27) word[length++] = (char)(rest % 27 + 'A');
    word[length] = 0;
    names[i] = text + 16 * i;
    snprintf(names[i], 16, "%s", word); /* a token that no merge makes: unique by its digits */
  }
  char *json = small_byte_level(SMALL_LLAMA3, (const char *const *)names, true, "", "");
  double best = 1e9;
  for (int try = 0; try < 3; try++) {
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    check_ok(still_tokenizer_parse_json(&tokenizer, "large", json, strlen(json)));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    still_tokenizer_destroy(tokenizer);
    const double seconds =
        (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    if (seconds < best) best = seconds;
  }
  if (best > (getenv("MESON_EXE_WRAPPER") ? 5 : 0.5)) fail_msg("128,000 tokens took %.2f s", best);
  free(json);
  free(names);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_json_refusals),
      cmocka_unit_test(test_missing_byte),
      cmocka_unit_test(test_paths),
      cmocka_unit_test(test_gguf),
      cmocka_unit_test(test_failing_allocations),
      cmocka_unit_test(test_large_vocabulary),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
