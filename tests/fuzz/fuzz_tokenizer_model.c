/* SPDX-License-Identifier: MIT
 * SentencePiece's tokenizer.model: whatever loads encodes any text into ids of the vocabulary. */
#include "fuzz.h"

#include "tokenizer/tokenizer_build.h"

void fuzz_one(const uint8_t *data, size_t bytes) {
  static const char text[] = "ab abc  <s>a\xc3\xa9\xff\xe2\x96\x81";
  still_tokenizer *tokenizer;
  still_token ids[128];
  size_t count;
  if (still_tokenizer_parse_sentencepiece(&tokenizer, "fuzz", data, bytes)) return;
  for (unsigned flags = 0; flags < 8; flags++) {
    if (still_tokenize(tokenizer, text, sizeof text - 1, flags, ids, 128, &count)) continue;
    for (size_t i = 0; i < count && i < 128; i++)
      FUZZ_CHECK(ids[i] >= 0 && ids[i] < still_tokenizer_size(tokenizer));
  }
  still_tokenizer_destroy(tokenizer);
}
