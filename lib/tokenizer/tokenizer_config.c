/* SPDX-License-Identifier: MIT */
#include "tokenizer/tokenizer_config.h"

#include "base/files.h"
#include "base/memory.h"

#include <string.h>

enum { CONFIG_LIMIT = 16 * 1024 * 1024 };

still_status still_path_beside(char **out, const char *path, const char *name) {
  const char *slash = strrchr(path, '/');
  const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
  STILL_TRY(still_alloc((void **)out, folder + strlen(name) + 1, 1, "a path"));
  memcpy(*out, path, folder);
  strcpy(*out + folder, name);
  if (still_path_exists(*out)) return STILL_OK;
  still_free(*out);
  *out = NULL;
  return STILL_OK;
}

/* A JSON file beside path; NULL if there is none. */
static still_status read_beside(still_json **document, const char *path, const char *name) {
  char *found;
  *document = NULL;
  STILL_TRY(still_path_beside(&found, path, name));
  const still_status status = found ? still_json_read(document, found, CONFIG_LIMIT) : STILL_OK;
  still_free(found);
  return status;
}

still_status still_tokenizer_config_read(still_json **config, const char *path) {
  return read_beside(config, path, "tokenizer_config.json");
}

/* A token given as "text" or {"content": "text"}. */
static void find_token(const still_tokenizer *t, const still_json *value, still_token *id) {
  const char *text = NULL;
  if (still_json_type_of(value) == STILL_JSON_OBJECT) value = still_json_find(value, "content");
  if (still_json_type_of(value) != STILL_JSON_STRING) return;
  if (still_json_to_string(value, "token", &text)) return;
  const still_token found = still_tokenizer_find(t, text);
  if (found >= 0) *id = found;
}

/* A string, or a list of {"name", "template"} of which "default" counts. */
static const still_json *chat_template_of(const still_json *config) {
  const still_json *value = still_json_find(config, "chat_template");
  const still_json *chosen = value;
  if (still_json_type_of(value) != STILL_JSON_ARRAY) return value;
  chosen = still_json_find(still_json_first(value), "template");
  for (const still_json *v = still_json_first(value); v; v = still_json_next(v)) {
    const char *name = "";
    const still_json *named = still_json_find(v, "name");
    if (still_json_type_of(named) == STILL_JSON_STRING &&
        !still_json_to_string(named, "name", &name) && !strcmp(name, "default"))
      chosen = still_json_find(v, "template");
  }
  return chosen;
}

still_status still_tokenizer_config_apply(still_tokenizer *t, const still_json *config) {
  const still_json *chat = chat_template_of(config);
  const char *text;
  find_token(t, still_json_find(config, "bos_token"), &t->bos);
  find_token(t, still_json_find(config, "eos_token"), &t->eos);
  STILL_TRY(still_json_optional_bool(config, "add_bos_token", &t->add_bos));
  if (still_json_type_of(chat) == STILL_JSON_NULL) return STILL_OK;
  STILL_TRY(still_json_to_string(chat, "chat_template", &text));
  return still_chat_template_parse(&t->chat, text, strlen(text));
}

/* "eos_token_id": an id or a list of them. */
static still_status add_ends(still_tokenizer *t, const still_json *config, const char *name) {
  const still_json *value = still_json_find(config, "eos_token_id");
  const bool list = still_json_type_of(value) == STILL_JSON_ARRAY;
  if (still_json_type_of(value) == STILL_JSON_NULL) return STILL_OK;
  for (const still_json *v = list ? still_json_first(value) : value; v;
       v = list ? still_json_next(v) : NULL) {
    uint64_t id;
    still_token end;
    still_status status = still_json_to_u64(v, "eos_token_id", &id);
    if (!status) status = still_tokenizer_set_special(t, "eos_token_id", id, &end);
    if (status) return still_fail_in(status, "%s", name);
    if (t->eos < 0) t->eos = end;
    still_tokenizer_add_end(t, end);
  }
  return STILL_OK;
}

still_status still_tokenizer_apply_beside(still_tokenizer *t, const char *path) {
  static const char *const names[] = {"generation_config.json", "config.json"};
  char *jinja, *text;
  size_t bytes;
  STILL_TRY(still_path_beside(&jinja, path, "chat_template.jinja"));
  if (jinja) {
    still_status status = still_read_text(jinja, CONFIG_LIMIT, &text, &bytes);
    still_free(jinja);
    if (status) return status;
    still_chat_template_free(&t->chat);
    status = still_chat_template_parse(&t->chat, text, bytes);
    still_free(text);
    if (status) return status;
  }
  for (size_t i = 0; i < 2; i++) {
    still_json *config;
    STILL_TRY(read_beside(&config, path, names[i]));
    const still_status status = add_ends(t, config, names[i]);
    still_json_free(config);
    if (status) return status;
  }
  return STILL_OK;
}

still_status still_added_token_entry(const still_json *token, still_token_entry *entry) {
  const char *content;
  bool special = false, single_word = false;
  STILL_TRY(still_json_get_string(token, "content", &content));
  STILL_TRY(still_json_optional_bool(token, "special", &special));
  STILL_TRY(still_json_optional_bool(token, "single_word", &single_word));
  if (single_word)
    return still_fail(STILL_ERROR_UNSUPPORTED, "added token '%.60s': single_word is not known",
                      content);
  *entry = (still_token_entry){.text = content,
                               .length = strlen(content),
                               .kind = special ? STILL_TOKEN_CONTROL : STILL_TOKEN_ADDED};
  STILL_TRY(still_json_optional_bool(token, "lstrip", &entry->strip_left));
  STILL_TRY(still_json_optional_bool(token, "rstrip", &entry->strip_right));
  return still_json_optional_bool(token, "normalized", &entry->normalized);
}
