/* SPDX-License-Identifier: MIT
 * The vocabulary: the bytes and the kind of every id, and the id of a text. */
#ifndef STILL_TOKENIZER_VOCABULARY_H
#define STILL_TOKENIZER_VOCABULARY_H

#include "base/status.h"

#include <stdbool.h>

typedef enum still_token_kind {
  STILL_TOKEN_UNUSED, /* an id without a token */
  STILL_TOKEN_NORMAL, /* what merging makes */
  STILL_TOKEN_BYTE,   /* "<0x0A>": stands for a byte of a character that has no token */
  STILL_TOKEN_ADDED,  /* always found in the text before merging */
  STILL_TOKEN_CONTROL /* found only where asked for; has no text of its own */
} still_token_kind;

/* A token as files give it. */
typedef struct still_token_entry {
  const char *text;
  size_t length;
  float score; /* SentencePiece: the larger, the earlier merged */
  still_token_kind kind;
  bool strip_left, strip_right; /* ADDED, CONTROL: takes the white space beside it along */
  bool normalized;              /* ADDED: looked for after the text was normalised */
} still_token_entry;

enum {
  STILL_MOST_TOKENS = 1 << 24,
  STILL_MOST_TOKEN_BYTES = 1024 /* of one token, as a file writes it */
};

typedef struct still_vocabulary {
  size_t count;
  char *bytes;      /* of all tokens, one after the other */
  uint32_t *starts; /* count + 1 */
  uint8_t *kinds;
  bool byte_level; /* files write each byte of a token as one printable character */
  uint32_t *slots; /* hash of the NORMAL tokens' bytes: id + 1, 0 = free */
  size_t slot_mask;
  uint64_t seed; /* so that a file cannot be made to collide */
} still_vocabulary;

/* Ids are the indices of entries. With byte_level the text of NORMAL tokens is turned into the
 * bytes it stands for. Of two NORMAL tokens with equal bytes the first is found. FORMAT, MEMORY. */
still_status still_vocabulary_build(still_vocabulary *vocabulary, const still_token_entry *entries,
                                    size_t count, bool byte_level);
void still_vocabulary_free(still_vocabulary *vocabulary);

static inline const char *still_vocabulary_bytes(const still_vocabulary *vocabulary, size_t id,
                                                 size_t *length) {
  *length = vocabulary->starts[id + 1] - vocabulary->starts[id];
  return vocabulary->bytes + vocabulary->starts[id];
}

/* The text as files write it, at most twice as many bytes; returns how many. */
size_t still_vocabulary_text(const still_vocabulary *vocabulary, size_t id, char *text);

/* The NORMAL token with exactly these bytes, or -1. */
int32_t still_vocabulary_find(const still_vocabulary *vocabulary, const char *bytes, size_t length);
/* The same for a text as files write it. */
int32_t still_vocabulary_find_text(const still_vocabulary *vocabulary, const char *text,
                                   size_t length);

#endif
