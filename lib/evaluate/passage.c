/* SPDX-License-Identifier: MIT */
#include "evaluate/passage.h"

#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static still_status make_room(still_passage *p, size_t tokens) {
  const size_t had = p->count ? p->starts[p->count] : 0;
  if (had + tokens > p->id_room) {
    const size_t room = 2 * (had + tokens) + 1024;
    STILL_TRY(STILL_REALLOC(&p->ids, room, "a haystack"));
    p->id_room = room;
  }
  if (p->count + 2 > p->start_room) {
    const size_t room = 2 * p->count + 256;
    STILL_TRY(STILL_REALLOC(&p->starts, room, "a haystack"));
    p->start_room = room;
  }
  return STILL_OK;
}

static still_status add_ids(still_passage *p, const still_token *ids, size_t count) {
  STILL_TRY(make_room(p, count));
  memcpy(p->ids + p->starts[p->count], ids, count * sizeof *ids);
  p->starts[p->count + 1] = p->starts[p->count] + count;
  p->count++;
  return STILL_OK;
}

still_status still_passage_add(still_passage *p, const still_tokenizer *tokenizer,
                               const char *sentence, size_t bytes) {
  char *spaced;
  still_token *ids = NULL;
  size_t count;
  STILL_TRY(still_alloc((void **)&spaced, bytes + 1, 1, "a sentence"));
  spaced[0] = ' ';
  memcpy(spaced + 1, sentence, bytes);
  still_status status =
      still_tokenize_new(tokenizer, spaced, bytes + 1, STILL_TOKENIZE_CONTINUE, &ids, &count);
  if (!status) status = add_ids(p, ids, count);
  still_free(spaced);
  still_free(ids);
  return status;
}

static bool ends_sentence(const char *text, size_t at, size_t bytes) {
  if (at + 1 == bytes) return true;
  if (text[at] == '\n') return text[at + 1] == '\n'; /* an empty line */
  if (!isspace((unsigned char)text[at + 1])) return false;
  while (at && strchr("\"')", text[at])) at--; /* what closes with the sentence */
  return strchr(".!?", text[at]) != NULL;
}

/* Copies with every run of white space as one space and none at either end. */
static size_t tidy(char *out, const char *text, size_t bytes) {
  size_t count = 0;
  for (size_t i = 0; i < bytes; i++) {
    const bool space = isspace((unsigned char)text[i]);
    if (!space)
      out[count++] = text[i];
    else if (count && out[count - 1] != ' ')
      out[count++] = ' ';
  }
  return count && out[count - 1] == ' ' ? count - 1 : count;
}

still_status still_passage_from_text(still_passage *p, const still_tokenizer *tokenizer,
                                     const char *text, size_t bytes) {
  char *sentence;
  still_status status = STILL_OK;
  STILL_TRY(still_alloc((void **)&sentence, bytes + 1, 1, "a sentence"));
  for (size_t begin = 0, at = 0; at < bytes && !status; at++) {
    if (!text[at] || !ends_sentence(text, at, bytes)) continue;
    const size_t length = tidy(sentence, text + begin, at + 1 - begin);
    if (length) status = still_passage_add(p, tokenizer, sentence, length);
    begin = at + 1;
  }
  still_free(sentence);
  if (!status && !p->count)
    status = still_fail(STILL_ERROR_FORMAT, "the text has no sentence, one is needed");
  return status;
}

still_status still_passage_select(still_passage *p, const still_passage *from, size_t fewest) {
  for (size_t i = 0; i < from->count; i++) {
    const size_t count = from->starts[i + 1] - from->starts[i];
    if (count >= fewest) STILL_TRY(add_ids(p, from->ids + from->starts[i], count));
  }
  return STILL_OK;
}

void still_passage_free(still_passage *p) {
  still_free(p->ids);
  still_free(p->starts);
  memset(p, 0, sizeof *p);
}

/* ---- slices */

static size_t sentence_length(const still_passage *p, size_t sentence) {
  const size_t i = sentence % p->count;
  return p->starts[i + 1] - p->starts[i];
}

still_slice still_passage_slice(const still_passage *p, uint64_t first, size_t tokens) {
  still_slice slice = {.passage = p, .first = (size_t)(first % p->count), .tokens = tokens};
  size_t total = 0;
  while (total < tokens) total += sentence_length(p, slice.first + slice.sentences++);
  slice.skip = total - tokens;
  while (slice.sentences && slice.skip >= sentence_length(p, slice.first)) {
    slice.skip -= sentence_length(p, slice.first++);
    slice.sentences--;
  }
  return slice;
}

void still_slice_copy(const still_slice *slice, size_t from, size_t to, still_token *ids) {
  const still_passage *p = slice->passage;
  size_t at = 0, skip = slice->skip;
  for (size_t i = 0; i < slice->sentences; i++, skip = 0) {
    const still_token *sentence = p->ids + p->starts[(slice->first + i) % p->count];
    const size_t length = sentence_length(p, slice->first + i);
    for (size_t k = skip; k < length; k++, at++)
      if (at >= from && at < to) ids[at - from] = sentence[k];
  }
}

size_t still_slice_nearest(const still_slice *slice, double at) {
  size_t begin = 0, best = slice->tokens;
  for (size_t i = 0; i < slice->sentences; i++) {
    const bool whole = i || !slice->skip;
    if (whole && fabs((double)begin - at) < fabs((double)best - at)) best = begin;
    begin += sentence_length(slice->passage, slice->first + i) - (i ? 0 : slice->skip);
  }
  return best;
}

size_t still_slice_place(const still_slice *slice, double share) {
  const size_t cut = slice->skip > 0; /* the first sentence, if it is */
  const size_t places = slice->sentences - (slice->sentences ? cut : 0) + 1;
  const size_t before = cut + (size_t)(share * (double)places);
  size_t at = 0;
  for (size_t i = 0; i < before && i < slice->sentences; i++)
    at += sentence_length(slice->passage, slice->first + i) - (i ? 0 : slice->skip);
  return at;
}
