/* SPDX-License-Identifier: MIT
 * Ids to text. */
#include "base/memory.h"
#include "tokenizer/tokenizer_build.h"
#include "tokenizer/utf8.h"

#include <string.h>

/* Copies with SentencePiece's space marks as spaces; returns the length of all. */
static size_t copy_spaces(const char *bytes, size_t length, char *buffer, size_t capacity) {
  size_t count = 0;
  for (size_t i = 0; i < length; i++, count++) {
    const bool mark = length - i >= STILL_SPACE_MARK_BYTES &&
                      !memcmp(bytes + i, STILL_SPACE_MARK, STILL_SPACE_MARK_BYTES);
    if (count < capacity) buffer[count] = mark ? ' ' : bytes[i];
    if (mark) i += STILL_SPACE_MARK_BYTES - 1;
  }
  return count;
}

size_t still_token_text(const still_tokenizer *t, still_token id, int with_special, char *buffer,
                        size_t capacity) {
  size_t length;
  if (id < 0 || (size_t)id >= t->vocabulary.count) return 0;
  const char *bytes = still_vocabulary_bytes(&t->vocabulary, (size_t)id, &length);
  switch (t->vocabulary.kinds[id]) {
  case STILL_TOKEN_BYTE:
    for (int b = 0; b < 256; b++)
      if (t->byte_tokens[b] == id) {
        if (capacity) buffer[0] = (char)b;
        return 1;
      }
    return 0;
  case STILL_TOKEN_NORMAL:
    if (!t->pretokenizer) return copy_spaces(bytes, length, buffer, capacity);
    break;
  case STILL_TOKEN_CONTROL:
    if (!with_special) return 0;
    break;
  default: break;
  }
  if (capacity) memcpy(buffer, bytes, length < capacity ? length : capacity);
  return length;
}

/* ---- streaming */

struct still_decoder {
  const still_tokenizer *tokenizer;
  bool begun;      /* a token with text has been pushed */
  char pending[4]; /* of a character that is not complete */
  size_t pending_bytes;
  char *raw, *text; /* the bytes looked at now, what can be shown */
  size_t room;
};

still_status still_decoder_create(still_decoder **decoder, const still_tokenizer *tokenizer) {
  STILL_TRY(STILL_ALLOC(decoder, 1, "a decoder"));
  (*decoder)->tokenizer = tokenizer;
  return STILL_OK;
}

void still_decoder_destroy(still_decoder *d) {
  if (!d) return;
  still_free(d->raw);
  still_free(d->text);
  still_free(d);
}

/* Room for `bytes` raw bytes, each of which may become a U+FFFD. */
static still_status make_room(still_decoder *d, size_t bytes) {
  if (bytes < d->room) return STILL_OK;
  const size_t room = 2 * bytes + 64;
  STILL_TRY(STILL_REALLOC(&d->raw, room, "decoded text"));
  STILL_TRY(STILL_REALLOC(&d->text, 3 * room, "decoded text"));
  d->room = room;
  return STILL_OK;
}

/* Turns raw bytes into text; the end of an incomplete character stays pending, or at the end is
 * replaced. */
static void decode(still_decoder *d, size_t bytes, bool at_end, const char **text, size_t *out) {
  static const char replacement[] = "\xef\xbf\xbd";
  char *to = d->text;
  d->pending_bytes = 0;
  for (size_t at = 0, length; at < bytes; at += length) {
    const still_utf8_state state = still_utf8_scan(d->raw + at, bytes - at, &length);
    if (state == STILL_UTF8_VALID) {
      to = still_append(to, d->raw + at, length);
    } else if (state == STILL_UTF8_INVALID || at_end) {
      to = still_append(to, replacement, 3);
    } else {
      memcpy(d->pending, d->raw + at, length);
      d->pending_bytes = length;
    }
  }
  *to = 0;
  *text = d->text;
  *out = (size_t)(to - d->text);
}

still_status still_decoder_push(still_decoder *d, still_token id, const char **text,
                                size_t *bytes) {
  const still_tokenizer *t = d->tokenizer;
  if (id < 0 || (size_t)id >= t->vocabulary.count)
    return still_fail(STILL_ERROR_ARGUMENT, "still_decoder_push: id %d, must be 0 .. %zu", id,
                      t->vocabulary.count - 1);
  const size_t length = still_token_text(t, id, 0, NULL, 0), pending = d->pending_bytes;
  STILL_TRY(make_room(d, pending + length));
  if (pending) memcpy(d->raw, d->pending, pending);
  still_token_text(t, id, 0, d->raw + pending, length);
  size_t total = pending + length;
  if (!d->begun && length) {
    d->begun = true;
    if (!t->pretokenizer && t->prefix != STILL_PREFIX_NONE && d->raw[0] == ' ')
      memmove(d->raw, d->raw + 1, --total);
  }
  decode(d, total, false, text, bytes);
  return STILL_OK;
}

still_status still_decoder_flush(still_decoder *d, const char **text, size_t *bytes) {
  STILL_TRY(make_room(d, d->pending_bytes));
  memcpy(d->raw, d->pending, d->pending_bytes);
  decode(d, d->pending_bytes, true, text, bytes);
  d->begun = false;
  return STILL_OK;
}
