/* SPDX-License-Identifier: MIT
 * Vocabularies small enough to work out by hand what a text must become. */
#ifndef STILL_TESTS_SMALL_VOCABULARY_H
#define STILL_TESTS_SMALL_VOCABULARY_H

#include "harness/check.h"

#include <still/model.h>

/* A byte-level tokenizer.json: ids 0 .. 255 are the bytes, 256 + i what merge i makes. merges:
 * "left right" in the printable characters of such files, or a lone token that no merge makes;
 * NULL-terminated. pre_tokenizer, added (members of "added_tokens") and more (further members of
 * the document, each with a comma before it) are JSON. */
char *small_byte_level(const char *pre_tokenizer, const char *const *merges, bool ignore_merges,
                       const char *added, const char *more);

#define SMALL_LLAMA3                                                                               \
  "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\""        \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "           \
  "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"         \
  "\"behavior\":\"Isolated\",\"invert\":false}," SMALL_BYTES "]}"
#define SMALL_BYTES                                                                                \
  "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"

/* A SentencePiece piece; type as SentencePiece numbers it: 1 normal, 2 unknown, 3 control, 4 user
 * defined, 6 byte. */
typedef struct small_piece {
  const char *text;
  float score;
  int type;
} small_piece;

/* tokenizer.model with these pieces, freed by the caller. byte_tokens: 256 more after them. */
unsigned char *small_sentencepiece(const small_piece *pieces, size_t count, bool byte_tokens,
                                   size_t *bytes);

/* <unk> <s> </s>, letters, and merges: the pieces that most tests use. */
extern const small_piece small_pieces[];
extern const size_t small_piece_count;

/* Opens a tokenizer from such a file written as `name`. */
still_tokenizer *small_open(const char *name, const void *data, size_t bytes);

/* The text becomes exactly these ids (-1 ends them). */
void check_ids(const still_tokenizer *tokenizer, const char *text, size_t bytes, unsigned flags,
               const int *ids);
#define CHECK_IDS(tokenizer, text, flags, ...)                                                     \
  check_ids(tokenizer, text, sizeof(text) - 1, flags, (const int[]){__VA_ARGS__, -1})

#endif
