/* SPDX-License-Identifier: MIT
 * Finds added and control tokens in text: a trie of their names. */
#ifndef STILL_TOKENIZER_ADDED_TOKENS_H
#define STILL_TOKENIZER_ADDED_TOKENS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct still_added_token {
  uint32_t id;
  bool special; /* found only where special tokens are asked for */
  bool strip_left, strip_right;
} still_added_token;

/* Zeroed = without tokens. Node 0 is the root. */
typedef struct still_added_tokens {
  struct still_trie_node *nodes;
  uint32_t node_count, node_room;
  still_added_token *tokens;
  uint32_t token_count, token_room;
  bool starts[256]; /* some name begins with this byte */
} still_added_tokens;

/* Of equal names the first one counts. Empty names are left out. */
still_status still_added_tokens_add(still_added_tokens *tokens, const char *name, size_t length,
                                    still_added_token token);
void still_added_tokens_free(still_added_tokens *tokens);

/* The token with this name, or NULL. */
const still_added_token *still_added_tokens_find(const still_added_tokens *tokens, const char *name,
                                                 size_t length);

/* The longest token whose name text begins with: special ones only if they end within the first
 * special_bytes. *length is that of its name. NULL if there is none. */
const still_added_token *still_added_tokens_match(const still_added_tokens *tokens,
                                                  const char *text, size_t bytes,
                                                  size_t special_bytes, size_t *length);

#endif
