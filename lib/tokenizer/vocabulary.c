/* SPDX-License-Identifier: MIT */
#include "tokenizer/vocabulary.h"

#include "base/memory.h"
#include "base/random.h"
#include "tokenizer/utf8.h"

#include <string.h>

/* GPT-2's table: printable Latin-1 characters stand for their own byte, the k-th of the other bytes
 * is U+0100 + k. Returns the byte of a character, or -1. */
static int byte_of_character(uint32_t code) {
  if ((code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xff && code != 0xad))
    return (int)code;
  if (code < 0x100 || code >= 0x144) return -1;
  const uint32_t k = code - 0x100;
  if (k <= 0x20) return (int)k;                     /* 00 .. 20 */
  return k == 0x43 ? 0xad : (int)(k - 0x21 + 0x7f); /* 7f .. a0, ad */
}

/* Writes the bytes that a byte-level text stands for (never more than length). Characters outside
 * the table stay as they are. */
static size_t bytes_of_text(const char *text, size_t length, char *bytes) {
  size_t count = 0, step;
  for (size_t i = 0; i < length; i += step) {
    const bool valid = still_utf8_scan(text + i, length - i, &step) == STILL_UTF8_VALID;
    const int byte = valid ? byte_of_character(still_utf8_decode(text + i, step)) : -1;
    if (byte >= 0) {
      bytes[count++] = (char)byte;
    } else {
      memcpy(bytes + count, text + i, step);
      count += step;
    }
  }
  return count;
}

/* The other way round. */
static uint32_t character_of_byte(uint8_t byte) {
  if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad)) return byte;
  if (byte <= 0x20) return 0x100u + byte;
  return byte == 0xad ? 0x143 : 0x121u + byte - 0x7f;
}

size_t still_vocabulary_text(const still_vocabulary *v, size_t id, char *text) {
  size_t length, used = 0;
  const char *bytes = still_vocabulary_bytes(v, id, &length);
  const bool mapped = v->byte_level && v->kinds[id] == STILL_TOKEN_NORMAL;
  for (size_t i = 0; i < length; i++) {
    const uint32_t code = character_of_byte((uint8_t)bytes[i]);
    if (!mapped || code < 0x80) {
      text[used++] = mapped ? (char)code : bytes[i];
      continue;
    }
    text[used++] = (char)(0xc0 | code >> 6);
    text[used++] = (char)(0x80 | (code & 0x3f));
  }
  return used;
}

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t length) {
  hash ^= length;
  uint64_t word;
  for (; length >= 8; bytes += 8, length -= 8) {
    memcpy(&word, bytes, 8);
    hash = still_hash64(hash ^ word);
  }
  word = 0;
  memcpy(&word, bytes, length);
  return still_hash64(hash ^ word);
}

/* The slot that holds these bytes, or the free one where they belong. */
static size_t probe(const still_vocabulary *v, const char *bytes, size_t length) {
  size_t slot = hash_bytes(v->seed, bytes, length) & v->slot_mask;
  for (; v->slots[slot]; slot = (slot + 1) & v->slot_mask) {
    size_t other_length;
    const char *other = still_vocabulary_bytes(v, v->slots[slot] - 1, &other_length);
    if (other_length == length && !memcmp(other, bytes, length)) break;
  }
  return slot;
}

int32_t still_vocabulary_find(const still_vocabulary *v, const char *bytes, size_t length) {
  return (int32_t)v->slots[probe(v, bytes, length)] - 1;
}

int32_t still_vocabulary_find_text(const still_vocabulary *v, const char *text, size_t length) {
  char bytes[STILL_MOST_TOKEN_BYTES];
  if (!v->byte_level) return still_vocabulary_find(v, text, length);
  if (length > sizeof bytes) return -1;
  return still_vocabulary_find(v, bytes, bytes_of_text(text, length, bytes));
}

static still_status check_entries(const still_token_entry *entries, size_t count, size_t *bytes) {
  if (!count || count > STILL_MOST_TOKENS)
    return still_fail(STILL_ERROR_FORMAT, "vocabulary: %zu tokens, must be 1 .. %d", count,
                      STILL_MOST_TOKENS);
  *bytes = 0;
  for (size_t id = 0; id < count; id++) {
    if (entries[id].length > STILL_MOST_TOKEN_BYTES)
      return still_fail(STILL_ERROR_FORMAT, "vocabulary: token %zu has %zu bytes, at most %d", id,
                        entries[id].length, STILL_MOST_TOKEN_BYTES);
    *bytes += entries[id].length;
  }
  if (*bytes > INT32_MAX)
    return still_fail(STILL_ERROR_FORMAT, "vocabulary: %zu bytes of text, at most %d", *bytes,
                      INT32_MAX);
  return STILL_OK;
}

static void insert(still_vocabulary *v, size_t id) {
  size_t length;
  const char *bytes = still_vocabulary_bytes(v, id, &length);
  const size_t slot = probe(v, bytes, length);
  if (!v->slots[slot]) v->slots[slot] = (uint32_t)id + 1;
}

still_status still_vocabulary_build(still_vocabulary *v, const still_token_entry *entries,
                                    size_t count, bool byte_level) {
  size_t bytes = 0, slots = 64;
  STILL_TRY(check_entries(entries, count, &bytes));
  while (slots < 2 * count) slots *= 2;
  v->count = count;
  v->byte_level = byte_level;
  v->slot_mask = slots - 1;
  STILL_TRY(STILL_ALLOC(&v->bytes, bytes + 1, "a vocabulary"));
  STILL_TRY(STILL_ALLOC(&v->starts, count + 1, "a vocabulary"));
  STILL_TRY(STILL_ALLOC(&v->kinds, count, "a vocabulary"));
  STILL_TRY(STILL_ALLOC(&v->slots, slots, "a vocabulary"));
  v->seed = still_hash64((uintptr_t)v->slots);
  for (size_t id = 0; id < count; id++) {
    const still_token_entry *entry = &entries[id];
    char *at = v->bytes + v->starts[id];
    const bool mapped = byte_level && entry->kind == STILL_TOKEN_NORMAL;
    size_t length = entry->length;
    if (mapped)
      length = bytes_of_text(entry->text, length, at);
    else if (length)
      memcpy(at, entry->text, length);
    v->starts[id + 1] = v->starts[id] + (uint32_t)length;
    v->kinds[id] = (uint8_t)entry->kind;
    if (entry->kind == STILL_TOKEN_NORMAL && length) insert(v, id);
  }
  return STILL_OK;
}

void still_vocabulary_free(still_vocabulary *v) {
  still_free(v->bytes);
  still_free(v->starts);
  still_free(v->kinds);
  still_free(v->slots);
  memset(v, 0, sizeof *v);
}
