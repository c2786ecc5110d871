/* SPDX-License-Identifier: MIT
 * SentencePiece's tokenizer.model: a protocol buffer.
 *
 *   ModelProto   1 pieces (repeated)  2 trainer_spec  3 normalizer_spec
 *   piece        1 text  2 score (float)  3 type
 *   trainer      3 model_type  40 unk_id  41 bos_id  42 eos_id
 *   normalizer   2 precompiled_charsmap  3 add_dummy_prefix  4 remove_extra_whitespaces
 *                5 escape_whitespaces
 */
#include "base/files.h"
#include "base/memory.h"
#include "tokenizer/tokenizer_config.h"

#include <string.h>

/* ---- protocol buffers */

typedef struct buffer {
  const uint8_t *at, *end;
  const uint8_t *start; /* of the file, for sentences */
} buffer;

typedef struct field {
  uint32_t number, wire;
  uint64_t value; /* wire types 0, 1, 5 */
  buffer content; /* wire type 2 */
} field;

static still_status damaged(const buffer *b, const char *what) {
  return still_fail(STILL_ERROR_FORMAT, "byte %zu: %s", (size_t)(b->at - b->start), what);
}

static still_status read_varint(buffer *b, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (b->at == b->end) return damaged(b, "a number is cut off");
    const uint8_t byte = *b->at++;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return STILL_OK;
  }
  return damaged(b, "a number of more than 64 bits");
}

static still_status read_fixed(buffer *b, size_t bytes, uint64_t *value) {
  if ((size_t)(b->end - b->at) < bytes) return damaged(b, "a number is cut off");
  *value = 0;
  for (size_t i = 0; i < bytes; i++) *value |= (uint64_t)*b->at++ << 8 * i;
  return STILL_OK;
}

static still_status read_field(buffer *b, field *f) {
  uint64_t key, length;
  STILL_TRY(read_varint(b, &key));
  f->wire = key & 7;
  if (key >> 3 > UINT32_MAX) return damaged(b, "a field number is out of range");
  f->number = (uint32_t)(key >> 3);
  switch (f->wire) {
  case 0: return read_varint(b, &f->value);
  case 1: return read_fixed(b, 8, &f->value);
  case 5: return read_fixed(b, 4, &f->value);
  case 2:
    STILL_TRY(read_varint(b, &length));
    if (length > (uint64_t)(b->end - b->at)) return damaged(b, "a field is longer than the file");
    f->content = (buffer){b->at, b->at + length, b->start};
    b->at += length;
    return STILL_OK;
  default: return damaged(b, "a field of unknown type");
  }
}

/* ---- the model */

/* Types of pieces and models as SentencePiece numbers them. */
enum {
  NORMAL = 1,
  UNKNOWN = 2,
  CONTROL = 3,
  USER_DEFINED = 4,
  UNUSED = 5,
  BYTE = 6,
  UNIGRAM = 1,
  BPE = 2
};

typedef struct model {
  still_token_list tokens;
  uint64_t type;
  int64_t unknown, bos, eos;
  bool prefix;
} model;

static still_status read_piece(model *m, buffer b) {
  static const still_token_kind kinds[] = {
      [NORMAL] = STILL_TOKEN_NORMAL,   [UNKNOWN] = STILL_TOKEN_CONTROL,
      [CONTROL] = STILL_TOKEN_CONTROL, [USER_DEFINED] = STILL_TOKEN_ADDED,
      [UNUSED] = STILL_TOKEN_UNUSED,   [BYTE] = STILL_TOKEN_BYTE};
  still_token_entry *entry;
  uint64_t type = NORMAL;
  field f;
  STILL_TRY(still_token_list_at(&m->tokens, m->tokens.count, &entry));
  while (b.at < b.end) {
    STILL_TRY(read_field(&b, &f));
    if (f.number == 1 && f.wire == 2) {
      entry->text = (const char *)f.content.at;
      entry->length = (size_t)(f.content.end - f.content.at);
    } else if (f.number == 2 && f.wire == 5) {
      const uint32_t bits = (uint32_t)f.value;
      memcpy(&entry->score, &bits, sizeof bits);
    } else if (f.number == 3 && f.wire == 0) {
      type = f.value;
    }
  }
  if (type < NORMAL || type > BYTE) return damaged(&b, "a piece of unknown type");
  entry->kind = kinds[type];
  if (type == UNKNOWN) m->unknown = (int64_t)m->tokens.count - 1;
  return STILL_OK;
}

static still_status read_trainer(model *m, buffer b) {
  field f;
  while (b.at < b.end) {
    STILL_TRY(read_field(&b, &f));
    if (f.wire) continue;
    if (f.number == 3) m->type = f.value;
    if (f.number == 40) m->unknown = (int32_t)f.value;
    if (f.number == 41) m->bos = (int32_t)f.value;
    if (f.number == 42) m->eos = (int32_t)f.value;
  }
  return STILL_OK;
}

static still_status read_normalizer(model *m, buffer b) {
  bool trims = true, escapes = true, maps = false;
  field f;
  while (b.at < b.end) {
    STILL_TRY(read_field(&b, &f));
    if (f.number == 2 && f.wire == 2) maps = f.content.at < f.content.end;
    if (f.wire) continue;
    if (f.number == 3) m->prefix = f.value;
    if (f.number == 4) trims = f.value;
    if (f.number == 5) escapes = f.value;
  }
  if (maps || trims || !escapes)
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "normalizer_spec: %s, known is only the identity that keeps all spaces",
                      maps    ? "maps characters"
                      : trims ? "removes spaces"
                              : "does not escape spaces");
  return STILL_OK;
}

static still_status read_model(model *m, buffer b) {
  field f;
  while (b.at < b.end) {
    STILL_TRY(read_field(&b, &f));
    if (f.wire != 2) continue;
    if (f.number == 1) STILL_TRY(read_piece(m, f.content));
    if (f.number == 2) STILL_TRY(read_trainer(m, f.content));
    if (f.number == 3) STILL_TRY(read_normalizer(m, f.content));
  }
  if (m->type != BPE)
    return still_fail(STILL_ERROR_UNSUPPORTED, "model_type is %llu%s, known is only 2 (BPE)",
                      (unsigned long long)m->type, m->type == UNIGRAM ? " (unigram)" : "");
  return STILL_OK;
}

/* ---- the tokenizer */

/* "added_tokens_decoder": {"32000": {"content": ...}}. */
static still_status read_added(still_token_list *list, const still_json *added) {
  for (const still_json *v = still_json_first(added); v; v = still_json_next(v)) {
    const char *key = still_json_key(v);
    uint64_t id = 0;
    still_token_entry *entry, told;
    for (; key && *key >= '0' && *key <= '9' && id < STILL_MOST_TOKENS; key++)
      id = 10 * id + (uint64_t)(*key - '0');
    if (!key || *key)
      return still_fail(STILL_ERROR_FORMAT, "added_tokens_decoder: '%.40s' is no id",
                        still_json_key(v) ? still_json_key(v) : "");
    STILL_TRY(still_added_token_entry(v, &told));
    STILL_TRY(still_token_list_at(list, id, &entry));
    if (entry->kind == STILL_TOKEN_UNUSED) *entry = told;
  }
  return STILL_OK;
}

static still_status set_merges(still_tokenizer *t, const still_token_list *list) {
  float *scores;
  STILL_TRY(STILL_ALLOC(&scores, list->count, "token scores"));
  for (size_t id = 0; id < list->count; id++) scores[id] = list->entries[id].score;
  const still_status status = still_merges_from_scores(&t->merges, &t->vocabulary, scores);
  still_free(scores);
  return status;
}

static still_status set_ids(still_tokenizer *t, const model *m) {
  if (m->unknown >= 0)
    STILL_TRY(still_tokenizer_set_special(t, "unk_id", (uint64_t)m->unknown, &t->unknown));
  if (m->bos >= 0) STILL_TRY(still_tokenizer_set_special(t, "bos_id", (uint64_t)m->bos, &t->bos));
  if (m->eos >= 0) STILL_TRY(still_tokenizer_set_special(t, "eos_id", (uint64_t)m->eos, &t->eos));
  return STILL_OK;
}

static still_status build(still_tokenizer *t, model *m, const still_json *config,
                          const char *path) {
  bool legacy = true;
  STILL_TRY(still_json_optional_bool(config, "legacy", &legacy));
  STILL_TRY(read_added(&m->tokens, still_json_find(config, "added_tokens_decoder")));
  t->prefix = !m->prefix ? STILL_PREFIX_NONE : legacy ? STILL_PREFIX_EACH : STILL_PREFIX_FIRST;
  t->prefix_unless_space = !legacy;
  t->normalizes = legacy;
  t->add_bos = true;
  STILL_TRY(still_tokenizer_set_tokens(t, &m->tokens));
  STILL_TRY(set_ids(t, m));
  STILL_TRY(set_merges(t, &m->tokens));
  STILL_TRY(still_tokenizer_config_apply(t, config));
  if (path) STILL_TRY(still_tokenizer_apply_beside(t, path));
  return still_tokenizer_finish(t);
}

static still_status load(still_tokenizer **tokenizer, const uint8_t *data, size_t bytes,
                         const still_json *config, const char *path) {
  model m = {.type = UNIGRAM, .unknown = 0, .bos = 1, .eos = 2, .prefix = true};
  still_tokenizer *t;
  STILL_TRY(still_tokenizer_create(&t));
  still_status status = read_model(&m, (buffer){data, data + bytes, data});
  if (!status) status = build(t, &m, config, path);
  still_token_list_free(&m.tokens);
  if (status)
    still_tokenizer_destroy(t);
  else
    *tokenizer = t;
  return status;
}

still_status still_tokenizer_from_sentencepiece(still_tokenizer **tokenizer, const char *path) {
  still_file file;
  still_json *config = NULL;
  *tokenizer = NULL;
  STILL_TRY(still_file_open(&file, path, false));
  still_status status = still_tokenizer_config_read(&config, path);
  if (!status) {
    status = load(tokenizer, file.data, file.bytes, config, path);
    if (status) still_fail_in(status, "%s", path);
  }
  still_json_free(config);
  still_file_close(&file);
  return status;
}

still_status still_tokenizer_parse_sentencepiece(still_tokenizer **tokenizer, const char *name,
                                                 const void *data, size_t bytes) {
  *tokenizer = NULL;
  const still_status status = load(tokenizer, data, bytes, NULL, NULL);
  return status ? still_fail_in(status, "%s", name) : STILL_OK;
}
