/* SPDX-License-Identifier: MIT
 * Any bytes as text: the tokens' bytes together are the text, and the decoder's text is UTF-8. */
#include "fuzz.h"

#include "base/memory.h"
#include "tokenizer/tokenizer_build.h"
#include "tokenizer/utf8.h"

#include <stdio.h>
#include <string.h>

/* A tokenizer.json whose tokens are the 256 bytes, a few merges and two special tokens. */
static size_t write_json(char *json, size_t room) {
  size_t at = (size_t)snprintf(
      json, room,
      "{\"added_tokens\":[{\"id\":300,\"content\":\"<|begin_of_text|>\",\"special\":true},"
      "{\"id\":301,\"content\":\"<x>\",\"special\":false}],\"pre_tokenizer\":{\"type\":"
      "\"Sequence\","
      "\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\","
      "\"add_prefix_space\":false}]},\"model\":{\"type\":\"BPE\",\"merges\":[\"a b\",\"ab ab\","
      "\"a a\"],\"vocab\":{\"ab\":256,\"abab\":257,\"aa\":258");
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; byte++) {
    const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    char text[5] = "";
    still_utf8_encode(prints ? byte : next++, text);
    const char *escape = byte == '"' || byte == '\\' ? "\\" : "";
    at += (size_t)snprintf(json + at, room - at, ",\"%s%s\":%u", escape, text, byte);
  }
  at += (size_t)snprintf(json + at, room - at, "}}}");
  return at;
}

static void check_utf8(const char *text, size_t bytes) {
  for (size_t at = 0, length = 0; at < bytes; at += length)
    FUZZ_CHECK(still_utf8_scan(text + at, bytes - at, &length) == STILL_UTF8_VALID);
}

static void check_bytes(const still_tokenizer *tokenizer, const still_token *ids, size_t count,
                        const char *text, size_t bytes) {
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    char piece[64];
    const size_t length = still_token_text(tokenizer, ids[i], 1, piece, sizeof piece);
    FUZZ_CHECK(at + length <= bytes && !memcmp(piece, text + at, length));
    at += length;
  }
  FUZZ_CHECK(at == bytes);
}

static void check_stream(const still_tokenizer *tokenizer, const still_token *ids, size_t count) {
  still_decoder *decoder;
  const char *text;
  size_t bytes;
  if (still_decoder_create(&decoder, tokenizer)) return;
  for (size_t i = 0; i < count; i++) {
    FUZZ_CHECK(!still_decoder_push(decoder, ids[i], &text, &bytes));
    check_utf8(text, bytes);
  }
  FUZZ_CHECK(!still_decoder_flush(decoder, &text, &bytes));
  check_utf8(text, bytes);
  still_decoder_destroy(decoder);
}

void fuzz_one(const uint8_t *data, size_t bytes) {
  static char json[16384];
  const size_t length = write_json(json, sizeof json);
  const char *text = (const char *)data;
  still_tokenizer *tokenizer;
  still_token *ids;
  size_t count;
  FUZZ_CHECK(!still_tokenizer_parse_json(&tokenizer, "text", json, length));
  for (unsigned flags = 0; flags <= STILL_TOKENIZE_PARSE_SPECIAL;
       flags += STILL_TOKENIZE_PARSE_SPECIAL) {
    if (still_tokenize_new(tokenizer, text, bytes, flags, &ids, &count)) continue;
    check_bytes(tokenizer, ids, count, text, bytes);
    check_stream(tokenizer, ids, count);
    still_free(ids);
  }
  still_tokenizer_destroy(tokenizer);
}
