/* SPDX-License-Identifier: MIT
 * tokenizer.json of Hugging Face's tokenizers: models of type BPE, byte-level or of SentencePiece's
 * kind. */
#include "base/memory.h"
#include "tokenizer/tokenizer_config.h"

#include <string.h>

/* ---- vocabulary and merges */

static still_status read_vocabulary(still_token_list *list, const still_json *vocabulary,
                                    bool byte_names) {
  still_token_list_expect(list, still_json_count(vocabulary));
  for (const still_json *v = still_json_first(vocabulary); v; v = still_json_next(v)) {
    const char *text = still_json_key(v);
    const size_t length = strlen(text);
    uint64_t id;
    still_token_entry *entry;
    STILL_TRY(still_json_to_u64(v, text, &id));
    STILL_TRY(still_token_list_at(list, id, &entry));
    if (entry->kind != STILL_TOKEN_UNUSED)
      return still_fail(STILL_ERROR_FORMAT, "vocabulary: '%.60s' and '%.60s' both have id %llu",
                        entry->text, text, (unsigned long long)id);
    const bool byte = byte_names && still_byte_of_name(text, length) >= 0;
    *entry = (still_token_entry){
        .text = text, .length = length, .kind = byte ? STILL_TOKEN_BYTE : STILL_TOKEN_NORMAL};
  }
  return STILL_OK;
}

static still_status read_added(still_token_list *list, const still_json *added) {
  for (const still_json *v = still_json_first(added); v; v = still_json_next(v)) {
    uint64_t id;
    still_token_entry *entry;
    STILL_TRY(still_json_get_u64(v, "id", &id));
    STILL_TRY(still_token_list_at(list, id, &entry));
    STILL_TRY(still_added_token_entry(v, entry));
  }
  return STILL_OK;
}

static still_status read_merges(still_tokenizer *t, const still_json *merges) {
  uint32_t rank = 0;
  STILL_TRY(still_merges_reserve(&t->merges, still_json_count(merges)));
  for (const still_json *v = still_json_first(merges); v; v = still_json_next(v), rank++) {
    const char *left, *right;
    if (still_json_type_of(v) == STILL_JSON_ARRAY) {
      STILL_TRY(still_json_to_string(still_json_first(v), "merges", &left));
      STILL_TRY(still_json_to_string(still_json_next(still_json_first(v)), "merges", &right));
      STILL_TRY(still_merges_add(&t->merges, &t->vocabulary, left, strlen(left), right,
                                 strlen(right), rank));
    } else {
      STILL_TRY(still_json_to_string(v, "merges", &left));
      STILL_TRY(still_merges_add_line(&t->merges, &t->vocabulary, left, strlen(left), rank));
    }
  }
  return STILL_OK;
}

/* ---- what happens to text first */

static const char *type_of(const still_json *step) {
  const char *type = "";
  const still_json *value = still_json_find(step, "type");
  if (still_json_type_of(value) == STILL_JSON_STRING) still_json_to_string(value, "type", &type);
  return type;
}

/* The steps of a Sequence, or the one step itself with *single set. */
static const still_json *first_step(const still_json *description, const char *key, bool *single) {
  *single = strcmp(type_of(description), "Sequence") != 0;
  if (*single) return still_json_type_of(description) == STILL_JSON_NULL ? NULL : description;
  return still_json_first(still_json_find(description, key));
}

static const still_json *next_step(const still_json *step, bool single) {
  return single ? NULL : still_json_next(step);
}

static bool is_byte_level(const still_json *pre_tokenizer) {
  bool single;
  const still_json *s = first_step(pre_tokenizer, "pretokenizers", &single);
  for (; s; s = next_step(s, single))
    if (!strcmp(type_of(s), "ByteLevel")) return true;
  return false;
}

static bool member_is(const still_json *object, const char *key, const char *text) {
  const char *value = NULL;
  return !still_json_optional_string(object, key, &value) && value && !strcmp(value, text);
}

/* Normalizers of Llama 2's kind: Prepend and Replace of spaces by marks. */
static still_status read_normalizer(still_tokenizer *t, const still_json *normalizer) {
  bool single;
  const still_json *s = first_step(normalizer, "normalizers", &single);
  for (; s; s = next_step(s, single)) {
    const char *type = type_of(s);
    if (!t->pretokenizer && !strcmp(type, "Prepend") && member_is(s, "prepend", STILL_SPACE_MARK)) {
      t->prefix = STILL_PREFIX_EACH;
    } else if (!t->pretokenizer && !strcmp(type, "Replace") &&
               member_is(still_json_find(s, "pattern"), "String", " ") &&
               member_is(s, "content", STILL_SPACE_MARK)) {
      t->normalizes = true;
    } else {
      return still_fail(STILL_ERROR_UNSUPPORTED,
                        "normalizer '%.60s' is unknown; known are none and, without ByteLevel, "
                        "Prepend and Replace of spaces by U+2581",
                        type);
    }
  }
  return STILL_OK;
}

static still_status read_metaspace(still_tokenizer *t, const still_json *metaspace) {
  const char *scheme = "always";
  bool prefix = true, split = true;
  STILL_TRY(still_json_optional_string(metaspace, "prepend_scheme", &scheme));
  STILL_TRY(still_json_optional_bool(metaspace, "add_prefix_space", &prefix));
  STILL_TRY(still_json_optional_bool(metaspace, "split", &split));
  if (!member_is(metaspace, "replacement", STILL_SPACE_MARK))
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "pre_tokenizer: Metaspace.replacement is not U+2581");
  t->prefix = !prefix || !strcmp(scheme, "never") ? STILL_PREFIX_NONE
              : !strcmp(scheme, "first")          ? STILL_PREFIX_FIRST
                                                  : STILL_PREFIX_EACH;
  t->prefix_unless_space = true;
  t->cut_at_marks = split;
  return STILL_OK;
}

static still_status read_steps(still_tokenizer *t, const still_json *document) {
  const still_json *pre = still_json_find(document, "pre_tokenizer");
  if (is_byte_level(pre)) STILL_TRY(still_pretokenizer_from_json(&t->pretokenizer, pre));
  STILL_TRY(read_normalizer(t, still_json_find(document, "normalizer")));
  if (t->pretokenizer) return STILL_OK;
  if (!strcmp(type_of(pre), "Metaspace")) return read_metaspace(t, pre);
  if (t->normalizes && still_json_type_of(pre) == STILL_JSON_NULL) return STILL_OK;
  return still_fail(STILL_ERROR_UNSUPPORTED,
                    "pre_tokenizer '%.60s' is unknown; known are ByteLevel (also in a Sequence) "
                    "and Metaspace, or none where spaces are replaced by U+2581",
                    type_of(pre));
}

/* ---- begin of sequence */

static const still_json *find_template_processing(const still_json *post) {
  bool single;
  const still_json *s = first_step(post, "processors", &single);
  while (s && strcmp(type_of(s), "TemplateProcessing")) s = next_step(s, single);
  return s;
}

/* A template that puts a special token before the text says that bos comes first, and which token
 * it is. */
static void read_post_processor(still_tokenizer *t, const still_json *post) {
  const still_json *single = still_json_find(find_template_processing(post), "single");
  const still_json *special = still_json_find(still_json_first(single), "SpecialToken");
  const still_json *name = still_json_find(special, "id");
  const char *text;
  if (still_json_type_of(name) != STILL_JSON_STRING || still_json_to_string(name, "id", &text))
    return;
  t->bos = still_tokenizer_find(t, text);
  t->add_bos = t->bos >= 0;
}

/* ---- the whole */

static still_status check_model(const still_json *model) {
  static const char *const must_be_null[] = {"continuing_subword_prefix", "end_of_word_suffix",
                                             "dropout"};
  const char *type = "BPE";
  STILL_TRY(still_json_optional_string(model, "type", &type));
  if (strcmp(type, "BPE"))
    return still_fail(STILL_ERROR_UNSUPPORTED, "model type '%.60s' is unknown; known is BPE", type);
  for (int i = 0; i < 3; i++) {
    const still_json *value = still_json_find(model, must_be_null[i]);
    if (still_json_type_of(value) != STILL_JSON_NULL && !member_is(model, must_be_null[i], ""))
      return still_fail(STILL_ERROR_UNSUPPORTED, "model.%s is set, must be null", must_be_null[i]);
  }
  return STILL_OK;
}

static still_status find_unknown(still_tokenizer *t, const still_json *model) {
  const char *unknown = NULL;
  STILL_TRY(still_json_optional_string(model, "unk_token", &unknown));
  if (unknown) t->unknown = still_tokenizer_find(t, unknown);
  return STILL_OK;
}

static still_status read_tokens(still_tokenizer *t, const still_json *document,
                                still_token_list *list) {
  const still_json *model, *vocabulary, *merges;
  bool byte_fallback = false;
  STILL_TRY(still_json_get(document, "model", STILL_JSON_OBJECT, &model));
  STILL_TRY(check_model(model));
  STILL_TRY(still_json_get(model, "vocab", STILL_JSON_OBJECT, &vocabulary));
  STILL_TRY(still_json_get(model, "merges", STILL_JSON_ARRAY, &merges));
  STILL_TRY(still_json_optional_bool(model, "byte_fallback", &byte_fallback));
  STILL_TRY(still_json_optional_bool(model, "ignore_merges", &t->whole_words));
  STILL_TRY(read_steps(t, document));
  STILL_TRY(read_vocabulary(list, vocabulary, byte_fallback && !t->pretokenizer));
  STILL_TRY(read_added(list, still_json_find(document, "added_tokens")));
  STILL_TRY(still_tokenizer_set_tokens(t, list));
  STILL_TRY(find_unknown(t, model));
  return read_merges(t, merges);
}

static still_status load(still_tokenizer **tokenizer, const still_json *document,
                         const still_json *config, const char *path) {
  still_token_list list = {0};
  still_tokenizer *t;
  STILL_TRY(still_tokenizer_create(&t));
  still_status status = read_tokens(t, document, &list);
  still_token_list_free(&list);
  if (!status) read_post_processor(t, still_json_find(document, "post_processor"));
  if (!status) status = still_tokenizer_config_apply(t, config);
  if (!status && path) status = still_tokenizer_apply_beside(t, path);
  if (!status) status = still_tokenizer_finish(t);
  if (status)
    still_tokenizer_destroy(t);
  else
    *tokenizer = t;
  return status;
}

still_status still_tokenizer_from_json(still_tokenizer **tokenizer, const char *path) {
  still_json *document, *config = NULL;
  *tokenizer = NULL;
  STILL_TRY(still_json_read(&document, path, STILL_JSON_FILE_LIMIT));
  still_status status = still_tokenizer_config_read(&config, path);
  if (!status) {
    status = load(tokenizer, document, config, path);
    if (status) still_fail_in(status, "%s", path);
  }
  still_json_free(document);
  still_json_free(config);
  return status;
}

still_status still_tokenizer_parse_json(still_tokenizer **tokenizer, const char *name,
                                        const char *text, size_t bytes) {
  still_json *document;
  *tokenizer = NULL;
  STILL_TRY(still_json_parse(&document, name, text, bytes, STILL_JSON_FILE_LIMIT));
  const still_status status = load(tokenizer, document, NULL, NULL);
  still_json_free(document);
  return status ? still_fail_in(status, "%s", name) : STILL_OK;
}
