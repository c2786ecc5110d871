/* SPDX-License-Identifier: MIT
 * GPT-2's pair of files: vocab.json (encoder.json) and merges.txt (vocab.bpe). */
#include "base/files.h"
#include "base/memory.h"
#include "tokenizer/tokenizer_config.h"

#include <string.h>

/* Models known by the size of their vocabulary. */
static const char *pattern_of_size(size_t count) {
  if (count >= 128000 && count <= 128256) return "llama3";
  if (count >= 151643 && count <= 151936) return "qwen2";
  if (count == 49152) return "smollm";
  return "gpt2";
}

/* Llama 3's own pair lists only what merging makes; these follow it (Llama 3.1's names). */
static const struct {
  uint32_t id;
  const char *text;
} llama3_special[] = {
    {128000, "<|begin_of_text|>"}, {128001, "<|end_of_text|>"}, {128006, "<|start_header_id|>"},
    {128007, "<|end_header_id|>"}, {128008, "<|eom_id|>"},      {128009, "<|eot_id|>"},
};

static still_status add_llama3_special(still_token_list *list) {
  if (list->count != 128000) return STILL_OK;
  for (size_t i = 0; i < sizeof llama3_special / sizeof *llama3_special; i++) {
    still_token_entry *entry;
    STILL_TRY(still_token_list_at(list, llama3_special[i].id, &entry));
    *entry = (still_token_entry){.text = llama3_special[i].text,
                                 .length = strlen(llama3_special[i].text),
                                 .kind = STILL_TOKEN_CONTROL};
  }
  return STILL_OK;
}

static still_status read_vocabulary(still_token_list *list, const still_json *vocabulary) {
  still_token_list_expect(list, still_json_count(vocabulary));
  for (const still_json *v = still_json_first(vocabulary); v; v = still_json_next(v)) {
    const char *text = still_json_key(v);
    uint64_t id;
    still_token_entry *entry;
    if (!text) return still_fail(STILL_ERROR_FORMAT, "is no object {\"token\": id}");
    const size_t length = strlen(text);
    const bool control =
        length > 4 && !memcmp(text, "<|", 2) && !memcmp(text + length - 2, "|>", 2);
    STILL_TRY(still_json_to_u64(v, text, &id));
    STILL_TRY(still_token_list_at(list, id, &entry));
    *entry = (still_token_entry){
        .text = text, .length = length, .kind = control ? STILL_TOKEN_CONTROL : STILL_TOKEN_NORMAL};
  }
  return STILL_OK;
}

static still_status read_merges(still_tokenizer *t, const char *text, size_t bytes) {
  const char *end = text + bytes;
  size_t lines = 1;
  uint32_t rank = 0;
  for (const char *at = text; (at = memchr(at, '\n', (size_t)(end - at))); at++) lines++;
  STILL_TRY(still_merges_reserve(&t->merges, lines));
  for (const char *at = text; at < end;) {
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    if (!line_end) line_end = end;
    size_t length = (size_t)(line_end - at);
    if (length && at[length - 1] == '\r') length--;
    const bool comment = at == text && length >= 8 && !memcmp(at, "#version", 8);
    if (length && !comment)
      STILL_TRY(still_merges_add_line(&t->merges, &t->vocabulary, at, length, rank++));
    at = line_end + (line_end < end);
  }
  return STILL_OK;
}

static still_status build(still_tokenizer *t, still_token_list *list, const char *pattern) {
  if (!pattern) pattern = pattern_of_size(list->count);
  const bool llama3 = !strcmp(pattern, "llama3");
  t->whole_words = t->add_bos = llama3;
  if (llama3) STILL_TRY(add_llama3_special(list));
  STILL_TRY(still_pretokenizer_create(&t->pretokenizer, pattern));
  return still_tokenizer_set_tokens(t, list);
}

static still_status load_vocabulary(still_tokenizer *t, const char *path, const char *pattern) {
  still_json *document;
  still_token_list list = {0};
  STILL_TRY(still_json_read(&document, path, STILL_JSON_FILE_LIMIT));
  still_status status = read_vocabulary(&list, document);
  if (!status) status = build(t, &list, pattern);
  still_token_list_free(&list);
  still_json_free(document);
  return status ? still_fail_in(status, "%s", path) : STILL_OK;
}

static still_status load_merges(still_tokenizer *t, const char *path) {
  char *text;
  size_t bytes;
  STILL_TRY(still_read_text(path, STILL_JSON_FILE_LIMIT, &text, &bytes));
  const still_status status = read_merges(t, text, bytes);
  still_free(text);
  return status ? still_fail_in(status, "%s", path) : STILL_OK;
}

static still_status load_beside(still_tokenizer *t, const char *path) {
  still_json *config;
  STILL_TRY(still_tokenizer_config_read(&config, path));
  const still_status status = still_tokenizer_config_apply(t, config);
  still_json_free(config);
  return status ? status : still_tokenizer_apply_beside(t, path);
}

still_status still_tokenizer_from_pair(still_tokenizer **tokenizer, const char *vocabulary_path,
                                       const char *merges_path, const char *pattern) {
  still_tokenizer *t;
  *tokenizer = NULL;
  STILL_TRY(still_tokenizer_create(&t));
  still_status status = load_vocabulary(t, vocabulary_path, pattern);
  if (!status) status = load_merges(t, merges_path);
  if (!status) status = load_beside(t, vocabulary_path);
  if (!status) status = still_tokenizer_finish(t);
  if (status)
    still_tokenizer_destroy(t);
  else
    *tokenizer = t;
  return status;
}
