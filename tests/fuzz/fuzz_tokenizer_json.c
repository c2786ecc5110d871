/* SPDX-License-Identifier: MIT
 * tokenizer.json: whatever loads encodes any text, decodes every id, and finds its tokens again. */
#include "fuzz.h"

#include "tokenizer/tokenizer_build.h"

static volatile size_t seen;

static void use(const still_tokenizer *tokenizer) {
  static const char text[] = " Hello <s>\xe6\xad\xaa 12345\n\n\xff\xe2\x96\x81 it's <|im_start|>";
  enum { ROOM = 256 };
  still_token ids[ROOM];
  char piece[64];
  size_t count;
  for (unsigned flags = 0; flags < 8; flags++) {
    if (still_tokenize(tokenizer, text, sizeof text, flags, ids, ROOM, &count)) continue;
    for (size_t i = 0; i < count && i < ROOM; i++) {
      FUZZ_CHECK(ids[i] >= 0 && ids[i] < still_tokenizer_size(tokenizer));
      seen += still_token_text(tokenizer, ids[i], 1, piece, sizeof piece);
    }
  }
  for (still_token id = 0; id < still_tokenizer_size(tokenizer) && id < 4096; id++)
    seen += still_token_text(tokenizer, id, 1, piece, sizeof piece);
}

void fuzz_one(const uint8_t *data, size_t bytes) {
  still_tokenizer *tokenizer;
  if (still_tokenizer_parse_json(&tokenizer, "fuzz", (const char *)data, bytes)) return;
  use(tokenizer);
  still_tokenizer_destroy(tokenizer);
}
