/* SPDX-License-Identifier: MIT
 * The vocabulary in a GGUF file's metadata ("tokenizer.ggml.*"). */
#include "base/log.h"
#include "base/memory.h"
#include "tokenizer/tokenizer_build.h"

#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* token_type as llama.cpp numbers it. */
enum {
  TYPE_NORMAL = 1,
  TYPE_UNKNOWN = 2,
  TYPE_CONTROL = 3,
  TYPE_USER_DEFINED = 4,
  TYPE_UNUSED = 5,
  TYPE_BYTE = 6
};

static const still_token_kind kinds[] = {
    [TYPE_NORMAL] = STILL_TOKEN_NORMAL,   [TYPE_UNKNOWN] = STILL_TOKEN_CONTROL,
    [TYPE_CONTROL] = STILL_TOKEN_CONTROL, [TYPE_USER_DEFINED] = STILL_TOKEN_ADDED,
    [TYPE_UNUSED] = STILL_TOKEN_UNUSED,   [TYPE_BYTE] = STILL_TOKEN_BYTE,
};

/* An array beside the tokens: of this type and as long, or not there at all. */
static still_status check_array(const still_gguf *gguf, const char *key, bool floats, size_t count,
                                bool *there) {
  still_gguf_type type;
  size_t has;
  *there = still_gguf_has_key(gguf, key);
  if (!*there) return STILL_OK;
  if (!still_gguf_get_array(gguf, key, &type, &has))
    return still_fail(STILL_ERROR_FORMAT, "%s is no array", key);
  if (has != count)
    return still_fail(STILL_ERROR_FORMAT, "%s has %zu entries for %zu tokens", key, has, count);
  const bool fits =
      floats ? type == STILL_GGUF_F32 : type == STILL_GGUF_I32 || type == STILL_GGUF_U32;
  return fits ? STILL_OK
              : still_fail(STILL_ERROR_FORMAT, "%s has entries of type %d, must be %s", key, type,
                           floats ? "F32" : "I32");
}

/* The kind of a token where the file does not say it. */
static still_token_kind guess_kind(const still_gguf_string *text, bool byte_level) {
  return !byte_level && still_byte_of_name(text->text, text->length) >= 0 ? STILL_TOKEN_BYTE
                                                                          : STILL_TOKEN_NORMAL;
}

static still_status read_tokens(still_tokenizer *t, const still_gguf *gguf,
                                still_token_list *list) {
  size_t count;
  bool typed;
  still_token_entry *entry;
  const still_gguf_string *texts = still_gguf_array_strings(gguf, KEY("tokens"), &count);
  if (!texts || !count)
    return still_fail(STILL_ERROR_FORMAT, KEY("tokens") " is missing or no array of strings");
  STILL_TRY(check_array(gguf, KEY("token_type"), false, count, &typed));
  STILL_TRY(still_token_list_at(list, count - 1, &entry));
  for (size_t id = 0; id < count; id++) {
    int64_t type = TYPE_NORMAL;
    entry = &list->entries[id];
    *entry = (still_token_entry){.text = texts[id].text,
                                 .length = texts[id].length,
                                 .kind = guess_kind(&texts[id], t->pretokenizer != NULL)};
    if (!typed) continue;
    if (!still_gguf_array_i64(gguf, KEY("token_type"), id, &type) || type < TYPE_NORMAL ||
        type > TYPE_BYTE)
      return still_fail(STILL_ERROR_FORMAT, KEY("token_type") "[%zu] is %lld, must be 1 .. 6", id,
                        (long long)type);
    entry->kind = kinds[type];
    if (type == TYPE_UNKNOWN) t->unknown = (still_token)id;
  }
  return still_tokenizer_set_tokens(t, list);
}

static still_status read_scores(still_tokenizer *t, const still_gguf *gguf) {
  const size_t count = t->vocabulary.count;
  bool there;
  float *scores;
  STILL_TRY(check_array(gguf, KEY("scores"), true, count, &there));
  if (!there) return still_fail(STILL_ERROR_FORMAT, KEY("scores") " is missing");
  STILL_TRY(STILL_ALLOC(&scores, count, "token scores"));
  for (size_t id = 0; id < count; id++) {
    double score = 0;
    still_gguf_array_f64(gguf, KEY("scores"), id, &score);
    scores[id] = (float)score;
  }
  const still_status status = still_merges_from_scores(&t->merges, &t->vocabulary, scores);
  still_free(scores);
  return status;
}

static still_status read_merges(still_tokenizer *t, const still_gguf *gguf) {
  size_t count;
  const still_gguf_string *lines = still_gguf_array_strings(gguf, KEY("merges"), &count);
  if (!lines)
    return still_fail(STILL_ERROR_FORMAT, KEY("merges") " is missing or no array of strings");
  STILL_TRY(still_merges_reserve(&t->merges, count));
  for (size_t i = 0; i < count; i++)
    STILL_TRY(still_merges_add_line(&t->merges, &t->vocabulary, lines[i].text, lines[i].length,
                                    (uint32_t)i));
  return STILL_OK;
}

static still_status read_special(still_tokenizer *t, const still_gguf *gguf) {
  static const char *const ends[] = {KEY("eos_token_id"), KEY("eot_token_id"), KEY("eom_token_id")};
  uint64_t id;
  still_token end;
  if (still_gguf_get_u64(gguf, KEY("bos_token_id"), &id))
    STILL_TRY(still_tokenizer_set_special(t, KEY("bos_token_id"), id, &t->bos));
  if (still_gguf_get_u64(gguf, KEY("unknown_token_id"), &id))
    STILL_TRY(still_tokenizer_set_special(t, KEY("unknown_token_id"), id, &t->unknown));
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    if (!still_gguf_get_u64(gguf, ends[i], &id)) continue;
    STILL_TRY(still_tokenizer_set_special(t, ends[i], id, &end));
    if (!i) t->eos = end;
    still_tokenizer_add_end(t, end);
  }
  return STILL_OK;
}

/* Byte-level BPE: the pattern's name also says what GGUF has no key for. */
static still_status set_pattern(still_tokenizer *t, const still_gguf *gguf) {
  const char *pre = "gpt-2";
  size_t length = 5;
  if (!still_gguf_get_string(gguf, KEY("pre"), &pre, &length))
    still_log(STILL_LOG_WARNING, KEY("pre") " is missing: GPT-2's way to cut words is taken");
  const char *name = still_pretokenizer_name_of_gguf(pre, length);
  if (!name)
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      KEY("pre") " '%.*s' is unknown; known are llama-bpe, gpt-2, smollm, qwen2, "
                                 "tekken",
                      length < 60 ? (int)length : 60, pre);
  t->whole_words = t->add_bos = still_pretokenizer_keeps_words(name);
  return still_pretokenizer_create(&t->pretokenizer, name);
}

static still_status read_model(still_tokenizer *t, const still_gguf *gguf, bool byte_level,
                               still_token_list *list) {
  const char *chat;
  size_t length;
  bool prefix = true;
  if (byte_level) STILL_TRY(set_pattern(t, gguf));
  if (!byte_level) {
    t->add_bos = true;
    still_gguf_get_bool(gguf, KEY("add_space_prefix"), &prefix);
    t->prefix = prefix ? STILL_PREFIX_EACH : STILL_PREFIX_NONE;
  }
  STILL_TRY(read_tokens(t, gguf, list));
  STILL_TRY(byte_level ? read_merges(t, gguf) : read_scores(t, gguf));
  STILL_TRY(read_special(t, gguf));
  still_gguf_get_bool(gguf, KEY("add_bos_token"), &t->add_bos);
  if (still_gguf_get_string(gguf, "tokenizer.chat_template", &chat, &length))
    STILL_TRY(still_chat_template_parse(&t->chat, chat, length));
  return still_tokenizer_finish(t);
}

static bool is_text(const char *text, size_t length, const char *other) {
  return length == strlen(other) && !memcmp(text, other, length);
}

still_status still_tokenizer_from_gguf(still_tokenizer **tokenizer, const still_gguf *gguf) {
  const char *model;
  size_t length;
  still_tokenizer *t;
  still_token_list list = {0};
  *tokenizer = NULL;
  if (!still_gguf_get_string(gguf, KEY("model"), &model, &length) ||
      is_text(model, length, "no_vocab") || is_text(model, length, "none"))
    return STILL_OK;
  const bool byte_level = is_text(model, length, "gpt2");
  if (!byte_level && !is_text(model, length, "llama"))
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      KEY("model") " '%.*s' is unknown; known are llama and gpt2",
                      length < 60 ? (int)length : 60, model);
  STILL_TRY(still_tokenizer_create(&t));
  const still_status status = read_model(t, gguf, byte_level, &list);
  still_token_list_free(&list);
  if (status)
    still_tokenizer_destroy(t);
  else
    *tokenizer = t;
  return status;
}
