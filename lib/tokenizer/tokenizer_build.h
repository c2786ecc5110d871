/* SPDX-License-Identifier: MIT
 * A tokenizer's inside and the steps in which the loaders of the different files put it
 * together. */
#ifndef STILL_TOKENIZER_TOKENIZER_BUILD_H
#define STILL_TOKENIZER_TOKENIZER_BUILD_H

#include "tokenizer/added_tokens.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/merges.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

/* SentencePiece writes a space as this character (U+2581). */
#define STILL_SPACE_MARK "\xe2\x96\x81"
enum { STILL_SPACE_MARK_BYTES = 3 };

/* Copies and returns what follows in `to`. */
static inline char *still_append(char *to, const char *from, size_t bytes) {
  memcpy(to, from, bytes);
  return to + bytes;
}

/* Where SentencePiece text gets a space in front. */
typedef enum still_prefix {
  STILL_PREFIX_NONE,
  STILL_PREFIX_EACH, /* each piece between added tokens ("legacy" in Hugging Face's words) */
  STILL_PREFIX_FIRST /* the text, unless it begins with an added token */
} still_prefix;

enum { STILL_MOST_ENDS = 16 };

struct still_tokenizer {
  still_vocabulary vocabulary;
  still_merges merges;
  still_pretokenizer *pretokenizer;    /* NULL: SentencePiece */
  still_added_tokens added;            /* looked for in the text */
  still_added_tokens added_normalized; /* looked for in SentencePiece's form of it */
  bool whole_words;                    /* a word that is a token is not merged ("ignore_merges") */
  bool cut_at_marks;                   /* each space mark begins a word */
  bool cut_at_words;                   /* no token has a space mark after another character */
  still_prefix prefix;
  bool normalizes;          /* spaces and prefix come before added_normalized is looked for */
  bool prefix_unless_space; /* not where there is a space already */
  bool add_bos;
  still_token bos, eos, unknown; /* -1 = none */
  still_token byte_tokens[256];
  bool has_byte_tokens;
  still_token ends[STILL_MOST_ENDS];
  int end_count;
  still_chat_template chat;
};

/* Entries by id, growing. Zeroed = empty. */
typedef struct still_token_list {
  still_token_entry *entries;
  size_t count, room;
  uint64_t most; /* ids must be below; 0: STILL_MOST_TOKENS */
} still_token_list;

/* The entry of an id; ids up to it come into being as UNUSED. FORMAT for an id beyond
 * STILL_MOST_TOKENS. */
still_status still_token_list_at(still_token_list *list, uint64_t id, still_token_entry **entry);
/* A file names so many tokens: gaps between ids are allowed, but a short file must not ask for a list of millions. */
void still_token_list_expect(still_token_list *list, size_t tokens);
void still_token_list_free(still_token_list *list);

still_status still_tokenizer_create(still_tokenizer **tokenizer);
/* Vocabulary, added tokens and byte tokens; byte-level where a pre-tokenizer is set already. */
still_status still_tokenizer_set_tokens(still_tokenizer *tokenizer, const still_token_list *list);
/* Special ids. FORMAT for an id outside the vocabulary; `what` names it. */
still_status still_tokenizer_set_special(const still_tokenizer *tokenizer, const char *what,
                                         uint64_t id, still_token *special);
void still_tokenizer_add_end(still_tokenizer *tokenizer, still_token id);
/* Last: finds begin and end tokens by the names in common use where no file told them, and checks
 * that every text can be encoded. */
still_status still_tokenizer_finish(still_tokenizer *tokenizer);

/* The names "<0x00>" .. "<0xFF>" of byte tokens; -1 for any other text. */
int still_byte_of_name(const char *text, size_t length);

/* ---- loaders; *tokenizer is set only on success. Those of files also read what lies beside
 * them. */

still_status still_tokenizer_from_json(still_tokenizer **tokenizer, const char *path);
still_status still_tokenizer_from_sentencepiece(still_tokenizer **tokenizer, const char *path);
/* The same from bytes in memory (fuzzing), nothing beside them. */
still_status still_tokenizer_parse_json(still_tokenizer **tokenizer, const char *name,
                                        const char *text, size_t bytes);
still_status still_tokenizer_parse_sentencepiece(still_tokenizer **tokenizer, const char *name,
                                                 const void *data, size_t bytes);
/* A vocabulary {"token": id} with its merges, one a line. pattern NULL: see
 * still_tokenizer_open. */
still_status still_tokenizer_from_pair(still_tokenizer **tokenizer, const char *vocabulary_path,
                                       const char *merges_path, const char *pattern);

#endif
