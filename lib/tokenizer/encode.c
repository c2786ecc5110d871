/* SPDX-License-Identifier: MIT */
#include "tokenizer/encode.h"

#include "base/memory.h"
#include "tokenizer/utf8.h"

#include <string.h>

typedef struct encoder {
  const still_tokenizer *tokenizer;
  bool parse_special;
  bool begin;     /* bos has still to come */
  bool continues; /* the text before the first piece is encoded already */
  const still_text_range *plain;
  size_t plain_count, plain_next; /* the first range that does not lie before the place looked at */
  still_token *ids;
  size_t capacity, count;
  still_splitter *splitter;
  still_merge_work work;
  uint32_t *word; /* ids of one word */
  size_t word_room;
  char *normal; /* SentencePiece's form of a piece of text */
  size_t normal_room;
} encoder;

static void put(encoder *e, still_token id) {
  if (e->count < e->capacity) e->ids[e->count] = id;
  e->count++;
}

static void emit(encoder *e, still_token id) {
  if (e->begin && id != e->tokenizer->bos) put(e, e->tokenizer->bos);
  e->begin = false;
  put(e, id);
}

static still_status merge_and_emit(encoder *e, size_t count) {
  STILL_TRY(still_merge_word(&e->tokenizer->merges, &e->work, e->word, &count));
  for (size_t i = 0; i < count; i++) emit(e, (still_token)e->word[i]);
  return STILL_OK;
}

static still_status word_of_at_least(encoder *e, size_t room) {
  if (room <= e->word_room) return STILL_OK;
  room += room / 2 + 64;
  STILL_TRY(STILL_REALLOC(&e->word, room, "the tokens of a word"));
  e->word_room = room;
  return STILL_OK;
}

/* ---- byte-level */

static still_status encode_bytes(void *user, const char *word, size_t bytes) {
  encoder *e = user;
  const still_tokenizer *t = e->tokenizer;
  if (t->whole_words) {
    const still_token id = still_vocabulary_find(&t->vocabulary, word, bytes);
    if (id >= 0) {
      emit(e, id);
      return STILL_OK;
    }
  }
  STILL_TRY(word_of_at_least(e, bytes));
  size_t count = 0; /* a byte without a token is dropped, as Hugging Face does it */
  for (size_t i = 0; i < bytes; i++) {
    const still_token id = t->byte_tokens[(uint8_t)word[i]];
    if (id >= 0) e->word[count++] = (uint32_t)id;
  }
  return merge_and_emit(e, count);
}

/* ---- SentencePiece */

/* The tokens a word begins with: its characters, the bytes of those without a token, or one unknown
 * token for a run of them. */
static still_status encode_characters(encoder *e, const char *word, size_t bytes) {
  const still_tokenizer *t = e->tokenizer;
  size_t count = 0, length;
  STILL_TRY(word_of_at_least(e, bytes));
  for (size_t at = 0; at < bytes; at += length) {
    const bool valid = still_utf8_scan(word + at, bytes - at, &length) == STILL_UTF8_VALID;
    const still_token id = valid ? still_vocabulary_find(&t->vocabulary, word + at, length) : -1;
    if (id >= 0)
      e->word[count++] = (uint32_t)id;
    else if (t->has_byte_tokens)
      for (size_t i = 0; i < length; i++)
        e->word[count++] = (uint32_t)t->byte_tokens[(uint8_t)word[at + i]];
    else if (!count || e->word[count - 1] != (uint32_t)t->unknown)
      e->word[count++] = (uint32_t)t->unknown;
  }
  return merge_and_emit(e, count);
}

static bool is_mark(const char *text, size_t left) {
  return left >= STILL_SPACE_MARK_BYTES && !memcmp(text, STILL_SPACE_MARK, STILL_SPACE_MARK_BYTES);
}

/* Length of the first word: up to the next space mark (cut_at_marks) or to the next one after
 * another character (cut_at_words). */
static size_t word_length(const still_tokenizer *t, const char *text, size_t bytes) {
  if (!t->cut_at_marks && !t->cut_at_words) return bytes;
  size_t at = 0;
  bool other = t->cut_at_marks;
  while (at < bytes) {
    const bool mark = is_mark(text + at, bytes - at);
    if (mark && other && at) break;
    other = other || !mark;
    at += mark ? STILL_SPACE_MARK_BYTES : 1;
  }
  return at;
}

static still_status encode_words(encoder *e, const char *text, size_t bytes) {
  for (size_t at = 0, length; at < bytes; at += length) {
    length = word_length(e->tokenizer, text + at, bytes - at);
    STILL_TRY(encode_characters(e, text + at, length));
  }
  return STILL_OK;
}

/* Spaces become marks, and one comes first where the tokenizer wants it. */
static still_status normalise(encoder *e, const char *text, size_t bytes, bool first,
                              size_t *length) {
  const still_tokenizer *t = e->tokenizer;
  const bool has_space = text[0] == ' ' || is_mark(text, bytes);
  const bool wants = t->prefix == STILL_PREFIX_EACH || (t->prefix == STILL_PREFIX_FIRST && first);
  const bool begins = wants && !(first && e->continues) && !(t->prefix_unless_space && has_space);
  const size_t most = STILL_SPACE_MARK_BYTES * (bytes + 1);
  if (most > e->normal_room) {
    STILL_TRY(STILL_REALLOC(&e->normal, most, "normalised text"));
    e->normal_room = most;
  }
  char *to = e->normal;
  if (begins) to = still_append(to, STILL_SPACE_MARK, STILL_SPACE_MARK_BYTES);
  for (size_t i = 0; i < bytes; i++) {
    if (text[i] == ' ')
      to = still_append(to, STILL_SPACE_MARK, STILL_SPACE_MARK_BYTES);
    else
      *to++ = text[i];
  }
  *length = (size_t)(to - e->normal);
  return STILL_OK;
}

static still_status encode_sentence(encoder *e, const char *text, size_t bytes, bool first) {
  const still_added_tokens *added = &e->tokenizer->added_normalized;
  size_t length, begin = 0, name = 1;
  STILL_TRY(normalise(e, text, bytes, first, &length));
  for (size_t at = 0; at < length && added->token_count; at += name) {
    const still_added_token *token =
        still_added_tokens_match(added, e->normal + at, length - at, 0, &name);
    if (!token) {
      name = 1;
      continue;
    }
    STILL_TRY(encode_words(e, e->normal + begin, at - begin));
    emit(e, (still_token)token->id);
    begin = at + name;
  }
  return encode_words(e, e->normal + begin, length - begin);
}

/* ---- the text between added tokens, and these */

static still_status encode_piece(encoder *e, const char *text, size_t start, size_t end) {
  if (start == end) return STILL_OK;
  if (!e->tokenizer->pretokenizer) return encode_sentence(e, text + start, end - start, start == 0);
  return still_split(e->splitter, text + start, end - start, encode_bytes, e);
}

/* How many bytes from `at` on may belong to the name of a special token. */
static size_t special_bytes(encoder *e, size_t at, size_t bytes) {
  if (!e->parse_special) return 0;
  while (e->plain_next < e->plain_count && e->plain[e->plain_next].end <= at) e->plain_next++;
  if (e->plain_next == e->plain_count) return bytes - at;
  const size_t start = e->plain[e->plain_next].start;
  return start > at ? start - at : 0;
}

static size_t before_space(const char *text, size_t start, size_t end) {
  while (end > start) {
    size_t at = end - 1, length;
    while (at > start && ((uint8_t)text[at] & 0xc0) == 0x80) at--;
    if (still_utf8_scan(text + at, end - at, &length) != STILL_UTF8_VALID || at + length != end ||
        !still_is_space(still_utf8_decode(text + at, length)))
      break;
    end = at;
  }
  return end;
}

static size_t after_space(const char *text, size_t at, size_t end) {
  size_t length;
  while (at < end && still_utf8_scan(text + at, end - at, &length) == STILL_UTF8_VALID &&
         still_is_space(still_utf8_decode(text + at, length)))
    at += length;
  return at;
}

static still_status encode_text(encoder *e, const char *text, size_t bytes) {
  size_t begin = 0, at = 0, length;
  while (at < bytes) {
    const still_added_token *token =
        e->tokenizer->added.starts[(uint8_t)text[at]]
            ? still_added_tokens_match(&e->tokenizer->added, text + at, bytes - at,
                                       special_bytes(e, at, bytes), &length)
            : NULL;
    if (!token) {
      at++;
      continue;
    }
    const size_t end = token->strip_left ? before_space(text, begin, at) : at;
    STILL_TRY(encode_piece(e, text, begin, end));
    emit(e, (still_token)token->id);
    at += length;
    if (token->strip_right) at = after_space(text, at, bytes);
    begin = at;
  }
  STILL_TRY(encode_piece(e, text, begin, bytes));
  if (e->begin) put(e, e->tokenizer->bos);
  return STILL_OK;
}

still_status still_encode(const still_tokenizer *tokenizer, const char *text, size_t bytes,
                          unsigned flags, bool begin, const still_text_range *plain,
                          size_t plain_count, still_token *ids, size_t capacity, size_t *count) {
  still_status status = STILL_OK;
  encoder e = {.tokenizer = tokenizer,
               .parse_special = flags & STILL_TOKENIZE_PARSE_SPECIAL,
               .begin = begin && tokenizer->bos >= 0,
               .continues = flags & STILL_TOKENIZE_CONTINUE,
               .plain = plain,
               .plain_count = plain_count,
               .ids = ids,
               .capacity = capacity};
  if (bytes > INT32_MAX)
    return still_fail(STILL_ERROR_ARGUMENT, "still_tokenize: %zu bytes of text, at most %d", bytes,
                      INT32_MAX);
  if (tokenizer->pretokenizer)
    STILL_TRY(still_splitter_create(&e.splitter, tokenizer->pretokenizer));
  status = encode_text(&e, text, bytes);
  *count = e.count;
  still_splitter_destroy(e.splitter);
  still_merge_work_free(&e.work);
  still_free(e.word);
  still_free(e.normal);
  return status;
}

still_status still_tokenize(const still_tokenizer *tokenizer, const char *text, size_t bytes,
                            unsigned flags, still_token *ids, size_t capacity, size_t *count) {
  static const unsigned known =
      STILL_TOKENIZE_ADD_BOS | STILL_TOKENIZE_PARSE_SPECIAL | STILL_TOKENIZE_CONTINUE;
  if (flags & ~known)
    return still_fail(STILL_ERROR_ARGUMENT, "still_tokenize: flags 0x%x, known are 0x%x", flags,
                      known);
  return still_encode(tokenizer, text, bytes, flags,
                      (flags & STILL_TOKENIZE_ADD_BOS) && tokenizer->add_bos, NULL, 0, ids,
                      capacity, count);
}

still_status still_tokenize_new(const still_tokenizer *tokenizer, const char *text, size_t bytes,
                                unsigned flags, still_token **ids, size_t *count) {
  /* A token takes a byte of text at least, but for bos and the space before each of SentencePiece's
   * pieces. */
  size_t room = bytes + 2;
  still_status status = STILL_OK;
  *ids = NULL;
  do {
    STILL_TRY_GOTO(STILL_REALLOC(ids, room, "tokens"), failed);
    STILL_TRY_GOTO(still_tokenize(tokenizer, text, bytes, flags, *ids, room, count), failed);
  } while (*count > room && (room = *count));
  return STILL_OK;
failed:
  still_free(*ids);
  *ids = NULL;
  return status;
}
