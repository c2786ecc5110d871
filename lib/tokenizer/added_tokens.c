/* SPDX-License-Identifier: MIT */
#include "tokenizer/added_tokens.h"

#include "base/memory.h"

#include <string.h>

typedef struct still_trie_node {
  uint32_t child, sibling; /* 0 = none */
  uint32_t token;          /* index + 1, 0 = no name ends here */
  uint8_t byte;
} still_trie_node;

static uint32_t child_of(const still_added_tokens *tokens, uint32_t node, char byte) {
  uint32_t child = tokens->nodes[node].child;
  while (child && tokens->nodes[child].byte != (uint8_t)byte) child = tokens->nodes[child].sibling;
  return child;
}

static still_status make_room(still_added_tokens *tokens, size_t length) {
  const size_t nodes = tokens->node_count + length + 1;
  if (nodes > UINT32_MAX / 2)
    return still_fail(STILL_ERROR_FORMAT, "the names of added tokens are too long");
  if (nodes > tokens->node_room) {
    STILL_TRY(STILL_REALLOC(&tokens->nodes, 2 * nodes, "added tokens"));
    tokens->node_room = (uint32_t)(2 * nodes);
    if (!tokens->node_count) tokens->node_count = 1;
  }
  if (tokens->token_count == tokens->token_room) {
    const uint32_t room = 2 * tokens->token_room + 16;
    STILL_TRY(STILL_REALLOC(&tokens->tokens, room, "added tokens"));
    tokens->token_room = room;
  }
  return STILL_OK;
}

still_status still_added_tokens_add(still_added_tokens *tokens, const char *name, size_t length,
                                    still_added_token token) {
  if (!length) return STILL_OK;
  STILL_TRY(make_room(tokens, length));
  uint32_t node = 0;
  for (size_t i = 0; i < length; i++) {
    uint32_t child = child_of(tokens, node, name[i]);
    if (!child) {
      child = tokens->node_count++;
      tokens->nodes[child] =
          (still_trie_node){.sibling = tokens->nodes[node].child, .byte = (uint8_t)name[i]};
      tokens->nodes[node].child = child;
    }
    node = child;
  }
  if (tokens->nodes[node].token) return STILL_OK;
  tokens->starts[(uint8_t)name[0]] = true;
  tokens->tokens[tokens->token_count++] = token;
  tokens->nodes[node].token = tokens->token_count;
  return STILL_OK;
}

void still_added_tokens_free(still_added_tokens *tokens) {
  still_free(tokens->nodes);
  still_free(tokens->tokens);
  memset(tokens, 0, sizeof *tokens);
}

const still_added_token *still_added_tokens_find(const still_added_tokens *tokens, const char *name,
                                                 size_t length) {
  size_t matched = 0;
  const still_added_token *token = still_added_tokens_match(tokens, name, length, length, &matched);
  return token && matched == length ? token : NULL;
}

const still_added_token *still_added_tokens_match(const still_added_tokens *tokens,
                                                  const char *text, size_t bytes,
                                                  size_t special_bytes, size_t *length) {
  const still_added_token *best = NULL;
  if (!bytes || !tokens->starts[(uint8_t)text[0]]) return NULL;
  uint32_t node = 0;
  for (size_t i = 0; i < bytes && (node = child_of(tokens, node, text[i])); i++) {
    const uint32_t number = tokens->nodes[node].token;
    if (!number) continue;
    const still_added_token *token = &tokens->tokens[number - 1];
    if (token->special && i >= special_bytes) continue;
    best = token;
    *length = i + 1;
  }
  return best;
}
