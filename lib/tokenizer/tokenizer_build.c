/* SPDX-License-Identifier: MIT */
#include "tokenizer/tokenizer_build.h"

#include "base/memory.h"

#include <string.h>

/* ---- lists of tokens */

still_status still_token_list_at(still_token_list *list, uint64_t id, still_token_entry **entry) {
  const uint64_t most = list->most ? list->most : STILL_MOST_TOKENS;
  if (id >= most)
    return still_fail(STILL_ERROR_FORMAT, "vocabulary: id %llu, must be below %llu",
                      (unsigned long long)id, (unsigned long long)most);
  if (id >= list->room) {
    const size_t room = 2 * (size_t)id + 256;
    STILL_TRY(STILL_REALLOC(&list->entries, room, "a list of tokens"));
    list->room = room;
  }
  if (id >= list->count) list->count = (size_t)id + 1;
  *entry = &list->entries[id];
  return STILL_OK;
}

void still_token_list_expect(still_token_list *list, size_t tokens) {
  const uint64_t most = (1 << 16) + 4 * (uint64_t)tokens;
  list->most = most < STILL_MOST_TOKENS ? most : STILL_MOST_TOKENS;
}

void still_token_list_free(still_token_list *list) {
  still_free(list->entries);
  memset(list, 0, sizeof *list);
}

/* ---- steps */

still_status still_tokenizer_create(still_tokenizer **tokenizer) {
  STILL_TRY(STILL_ALLOC(tokenizer, 1, "a tokenizer"));
  still_tokenizer *t = *tokenizer;
  t->bos = t->eos = t->unknown = -1;
  for (int i = 0; i < 256; i++) t->byte_tokens[i] = -1;
  return STILL_OK;
}

void still_tokenizer_destroy(still_tokenizer *t) {
  if (!t) return;
  still_vocabulary_free(&t->vocabulary);
  still_merges_free(&t->merges);
  still_pretokenizer_destroy(t->pretokenizer);
  still_added_tokens_free(&t->added);
  still_added_tokens_free(&t->added_normalized);
  still_chat_template_free(&t->chat);
  still_free(t);
}

/* The name as the normalised text shows it: with space marks, the prefix included. */
static still_status add_normalized(still_tokenizer *t, const still_token_entry *entry,
                                   still_added_token token) {
  char name[STILL_SPACE_MARK_BYTES * (STILL_MOST_TOKEN_BYTES + 1)];
  size_t length = 0;
  if (t->prefix == STILL_PREFIX_EACH) {
    memcpy(name, STILL_SPACE_MARK, STILL_SPACE_MARK_BYTES);
    length = STILL_SPACE_MARK_BYTES;
  }
  for (size_t i = 0; i < entry->length; i++) {
    if (entry->text[i] != ' ') {
      name[length++] = entry->text[i];
      continue;
    }
    memcpy(name + length, STILL_SPACE_MARK, STILL_SPACE_MARK_BYTES);
    length += STILL_SPACE_MARK_BYTES;
  }
  return still_added_tokens_add(&t->added_normalized, name, length, token);
}

static still_status add_token(still_tokenizer *t, const still_token_entry *entry, size_t id) {
  const still_added_token token = {(uint32_t)id, entry->kind == STILL_TOKEN_CONTROL,
                                   entry->strip_left, entry->strip_right};
  if (entry->kind != STILL_TOKEN_ADDED && entry->kind != STILL_TOKEN_CONTROL) return STILL_OK;
  if (entry->normalized && !token.special && t->normalizes) return add_normalized(t, entry, token);
  return still_added_tokens_add(&t->added, entry->text, entry->length, token);
}

int still_byte_of_name(const char *text, size_t length) {
  static const char digits[] = "0123456789ABCDEF";
  if (length != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
  const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
  return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

static void set_byte_tokens(still_tokenizer *t, const still_token_list *list) {
  for (size_t id = 0; id < list->count; id++) {
    const still_token_entry *entry = &list->entries[id];
    const int byte =
        entry->kind == STILL_TOKEN_BYTE ? still_byte_of_name(entry->text, entry->length) : -1;
    if (byte >= 0) t->byte_tokens[byte] = (still_token)id;
  }
  for (int b = 0; b < 256 && t->pretokenizer; b++) {
    const char byte = (char)b;
    t->byte_tokens[b] = still_vocabulary_find(&t->vocabulary, &byte, 1);
  }
  t->has_byte_tokens = true;
  for (int b = 0; b < 256; b++) t->has_byte_tokens = t->has_byte_tokens && t->byte_tokens[b] >= 0;
}

still_status still_tokenizer_set_tokens(still_tokenizer *t, const still_token_list *list) {
  STILL_TRY(
      still_vocabulary_build(&t->vocabulary, list->entries, list->count, t->pretokenizer != NULL));
  for (size_t id = 0; id < list->count; id++) STILL_TRY(add_token(t, &list->entries[id], id));
  set_byte_tokens(t, list);
  return STILL_OK;
}

still_status still_tokenizer_set_special(const still_tokenizer *t, const char *what, uint64_t id,
                                         still_token *special) {
  if (id >= t->vocabulary.count)
    return still_fail(STILL_ERROR_FORMAT, "%s is %llu, the vocabulary has ids 0 .. %zu", what,
                      (unsigned long long)id, t->vocabulary.count - 1);
  *special = (still_token)id;
  return STILL_OK;
}

void still_tokenizer_add_end(still_tokenizer *t, still_token id) {
  if (id < 0 || still_tokenizer_is_end(t, id) || t->end_count == STILL_MOST_ENDS) return;
  t->ends[t->end_count++] = id;
}

/* ---- the last step */

static still_token first_of(const still_tokenizer *t, const char *const *names) {
  still_token id = -1;
  for (; *names && id < 0; names++) {
    const still_added_token *token = still_added_tokens_find(&t->added, *names, strlen(*names));
    if (token) id = (still_token)token->id;
  }
  return id;
}

/* True if no token has a space mark after another character, so that no merge crosses the beginning
 * of a word. */
static bool words_are_apart(const still_vocabulary *v) {
  for (size_t id = 0; id < v->count; id++) {
    size_t length;
    const char *bytes = still_vocabulary_bytes(v, id, &length);
    if (v->kinds[id] != STILL_TOKEN_NORMAL) continue;
    bool other = false;
    for (size_t i = 0; i < length; i++) {
      const bool mark = length - i >= STILL_SPACE_MARK_BYTES &&
                        !memcmp(bytes + i, STILL_SPACE_MARK, STILL_SPACE_MARK_BYTES);
      if (mark && other) return false;
      if (mark) i += STILL_SPACE_MARK_BYTES - 1;
      other = other || !mark;
    }
  }
  return true;
}

/* Byte-level vocabularies may lack bytes that no text holds (SmolLM2's lacks 21: control
 * characters, bytes that are never UTF-8), but not the printable ones. */
static still_status check_coverage(const still_tokenizer *t) {
  if (t->has_byte_tokens || (!t->pretokenizer && t->unknown >= 0)) return STILL_OK;
  int byte = t->pretokenizer ? ' ' : 0;
  while (byte < (t->pretokenizer ? 0x7f : 256) && t->byte_tokens[byte] >= 0) byte++;
  if (t->pretokenizer && byte == 0x7f) return STILL_OK;
  return still_fail(STILL_ERROR_FORMAT, "vocabulary: no token for byte 0x%02X%s", (unsigned)byte,
                    t->pretokenizer ? "" : " and none for unknown characters");
}

still_status still_tokenizer_finish(still_tokenizer *t) {
  static const char *const begins[] = {"<|begin_of_text|>", "<s>", NULL};
  static const char *const ends[] = {"<|end_of_text|>", "</s>",         "<|endoftext|>",
                                     "<|eot_id|>",      "<|eom_id|>",   "<|im_end|>",
                                     "<|end|>",         "<end_of_turn>"};
  if (t->bos < 0) t->bos = first_of(t, begins);
  still_tokenizer_add_end(t, t->eos);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    const char *const name[] = {ends[i], NULL};
    const still_token id = first_of(t, name);
    if (t->eos < 0) t->eos = id;
    still_tokenizer_add_end(t, id);
  }
  if (!t->pretokenizer) t->cut_at_words = words_are_apart(&t->vocabulary);
  return check_coverage(t);
}
