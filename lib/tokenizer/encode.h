/* SPDX-License-Identifier: MIT
 * Text to ids. */
#ifndef STILL_TOKENIZER_ENCODE_H
#define STILL_TOKENIZER_ENCODE_H

#include "tokenizer/tokenizer_build.h"

/* Bytes start .. end-1 of a text. */
typedef struct still_text_range {
  size_t start, end;
} still_text_range;

/* What still_tokenize does, with `plain` (in order, apart): ranges in which names of special tokens
 * are plain text whatever the flags say. begin, not ADD_BOS: put bos first, unless the text begins
 * with it. */
still_status still_encode(const still_tokenizer *tokenizer, const char *text, size_t bytes,
                          unsigned flags, bool begin, const still_text_range *plain,
                          size_t plain_count, still_token *ids, size_t capacity, size_t *count);

#endif
