/* SPDX-License-Identifier: MIT
 * A tokenizer as the metadata of a GGUF file ("tokenizer.ggml.*"), which tokenizer_gguf.c reads. */
#include "base/memory.h"
#include "tokenizer/tokenizer_build.h"

#include <stdio.h>
#include <stdlib.h>

#define KEY(name) "tokenizer.ggml." name

/* What is put together before it is written. */
typedef struct written {
  char *bytes; /* of all texts, one after the other */
  size_t used;
  still_gguf_string *texts;
  int32_t *types;
  float *scores;
  still_merge *order;
} written;

static void free_written(written *w) {
  still_free(w->bytes);
  still_free(w->texts);
  still_free(w->types);
  still_free(w->scores);
  still_free(w->order);
}

enum { NAME = 32 }; /* of an id without a token */

/* ---- tokens ------------------------------------------------------------------------------------- */

static int32_t type_of(const still_tokenizer *t, size_t id) {
  switch ((still_token_kind)t->vocabulary.kinds[id]) {
  case STILL_TOKEN_NORMAL: return 1;
  case STILL_TOKEN_CONTROL: return !t->pretokenizer && (still_token)id == t->unknown ? 2 : 3;
  case STILL_TOKEN_ADDED: return 4;
  case STILL_TOKEN_UNUSED: return 5;
  case STILL_TOKEN_BYTE: return 6;
  }
  return 5;
}

/* An id that has no token still needs a text that no other has. */
static void add_text(written *w, const still_tokenizer *t, size_t id) {
  char *at = w->bytes + w->used;
  const bool there =
      id < t->vocabulary.count && t->vocabulary.kinds[id] != (uint8_t)STILL_TOKEN_UNUSED;
  const size_t length =
      there ? still_vocabulary_text(&t->vocabulary, id, at) : (size_t)sprintf(at, "[PAD%zu]", id);
  w->texts[id] = (still_gguf_string){at, length};
  w->types[id] = there ? type_of(t, id) : 5;
  w->used += length;
}

static still_status put_tokens(still_gguf_writer *writer, written *w, const still_tokenizer *t,
                               size_t count) {
  const size_t room = 2 * (size_t)t->vocabulary.starts[t->vocabulary.count] + count * NAME;
  STILL_TRY(STILL_ALLOC(&w->bytes, room, "texts of tokens"));
  STILL_TRY(STILL_ALLOC(&w->texts, count, "texts of tokens"));
  STILL_TRY(STILL_ALLOC(&w->types, count, "types of tokens"));
  for (size_t id = 0; id < count; id++) add_text(w, t, id);
  STILL_TRY(still_gguf_put_strings(writer, KEY("tokens"), w->texts, count));
  return still_gguf_put_array(writer, KEY("token_type"), STILL_GGUF_I32, w->types, count);
}

/* ---- merges ------------------------------------------------------------------------------------- */

static int by_rank(const void *a, const void *b) {
  const still_merge *x = a, *y = b;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

static still_status order_merges(written *w, const still_merges *merges) {
  size_t count = 0;
  STILL_TRY(STILL_ALLOC(&w->order, merges->count + 1, "merges in their order"));
  for (size_t i = 0; merges->slots && i <= merges->slot_mask; i++)
    if (merges->slots[i].result != UINT32_MAX) w->order[count++] = merges->slots[i];
  qsort(w->order, count, sizeof *w->order, by_rank);
  return STILL_OK;
}

/* Byte-level: "left right", the first merge first. */
static still_status put_merges(still_gguf_writer *writer, written *w, const still_tokenizer *t) {
  const size_t count = t->merges.count;
  size_t bytes = 1;
  STILL_TRY(order_merges(w, &t->merges));
  for (size_t i = 0; i < count; i++)
    bytes += w->texts[w->order[i].left].length + w->texts[w->order[i].right].length + 1;
  char *lines, *at;
  still_gguf_string *merges = NULL;
  STILL_TRY(STILL_ALLOC(&lines, bytes, "merges"));
  still_status status = STILL_ALLOC(&merges, count + 1, "merges");
  at = lines;
  for (size_t i = 0; !status && i < count; i++) {
    const still_gguf_string left = w->texts[w->order[i].left], right = w->texts[w->order[i].right];
    merges[i] = (still_gguf_string){at, left.length + right.length + 1};
    at = still_append(at, left.text, left.length);
    *at++ = ' ';
    at = still_append(at, right.text, right.length);
  }
  if (!status) status = still_gguf_put_strings(writer, KEY("merges"), merges, count);
  still_free(merges);
  still_free(lines);
  return status;
}

/* SentencePiece: the earlier a token is merged, the larger its score. */
static still_status put_scores(still_gguf_writer *writer, written *w, const still_tokenizer *t,
                               size_t count) {
  STILL_TRY(order_merges(w, &t->merges));
  STILL_TRY(STILL_ALLOC(&w->scores, count, "scores of tokens"));
  for (size_t i = t->merges.count; i-- > 0;) /* the first merge that makes it counts */
    w->scores[w->order[i].result] = -1.0f - (float)w->order[i].rank;
  return still_gguf_put_array(writer, KEY("scores"), STILL_GGUF_F32, w->scores, count);
}

/* ---- the rest ----------------------------------------------------------------------------------- */

static still_status put_text(still_gguf_writer *writer, const char *key, const char *text) {
  return still_gguf_put_string(writer, key, text, strlen(text));
}

static still_status put_id(still_gguf_writer *writer, const char *key, still_token id) {
  return id < 0 ? STILL_OK : still_gguf_put_u32(writer, key, (uint32_t)id);
}

static still_status put_special(still_gguf_writer *writer, const still_tokenizer *t) {
  static const char *const keys[] = {KEY("eot_token_id"), KEY("eom_token_id")};
  STILL_TRY(put_id(writer, KEY("bos_token_id"), t->bos));
  STILL_TRY(put_id(writer, KEY("eos_token_id"), t->eos));
  STILL_TRY(put_id(writer, KEY("unknown_token_id"), t->unknown));
  for (int i = 0, used = 0; i < t->end_count && used < 2; i++)
    if (t->ends[i] != t->eos) STILL_TRY(put_id(writer, keys[used++], t->ends[i]));
  return still_gguf_put_bool(writer, KEY("add_bos_token"), t->add_bos);
}

/* Whether merging the bytes of each token makes it: then it is all one whether a word that is a token is merged. */
static still_status merges_reach_all(const still_tokenizer *t, bool *all) {
  still_merge_work work = {0};
  uint32_t ids[STILL_MOST_TOKEN_BYTES];
  still_status status = STILL_OK;
  *all = true;
  for (size_t id = 0; !status && *all && id < t->vocabulary.count; id++) {
    size_t length;
    const char *bytes = still_vocabulary_bytes(&t->vocabulary, id, &length);
    if (t->vocabulary.kinds[id] != STILL_TOKEN_NORMAL || !length) continue;
    for (size_t i = 0; i < length; i++) {
      const still_token byte = t->byte_tokens[(uint8_t)bytes[i]];
      *all = *all && byte >= 0;
      ids[i] = (uint32_t)byte;
    }
    if (*all) status = still_merge_word(&t->merges, &work, ids, &length);
    *all = *all && length == 1;
  }
  still_merge_work_free(&work);
  return status;
}

static still_status put_byte_level(still_gguf_writer *writer, written *w,
                                   const still_tokenizer *t) {
  const char *name = still_pretokenizer_gguf_name(t->pretokenizer);
  bool same = name && t->whole_words == still_pretokenizer_keeps_words(name);
  if (name && !same) STILL_TRY(merges_reach_all(t, &same));
  if (!same)
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "the tokenizer cuts words in a way that GGUF has no name for");
  STILL_TRY(put_text(writer, KEY("pre"), name));
  return put_merges(writer, w, t);
}

static still_status put_sentencepiece(still_gguf_writer *writer, written *w,
                                      const still_tokenizer *t, size_t count) {
  STILL_TRY(still_gguf_put_bool(writer, KEY("add_space_prefix"), t->prefix != STILL_PREFIX_NONE));
  return put_scores(writer, w, t, count);
}

still_status still_tokenizer_put(still_gguf_writer *writer, const still_tokenizer *t,
                                 size_t count) {
  if (t->vocabulary.count > count)
    return still_fail(STILL_ERROR_FORMAT,
                      "the tokenizer has %zu tokens, the model's vocabulary %zu",
                      t->vocabulary.count, count);
  written w = {0};
  still_status status = put_text(writer, KEY("model"), t->pretokenizer ? "gpt2" : "llama");
  if (!status) status = put_tokens(writer, &w, t, count);
  if (!status)
    status =
        t->pretokenizer ? put_byte_level(writer, &w, t) : put_sentencepiece(writer, &w, t, count);
  if (!status) status = put_special(writer, t);
  if (!status && t->chat.text) status = put_text(writer, "tokenizer.chat_template", t->chat.text);
  free_written(&w);
  return status;
}
