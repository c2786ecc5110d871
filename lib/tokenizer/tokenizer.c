/* SPDX-License-Identifier: MIT
 * Opening a tokenizer by the kind of its file, and what it says about its ids. */
#include "tokenizer/tokenizer.h"

#include "base/files.h"
#include "base/memory.h"
#include "tokenizer/tokenizer_build.h"
#include "tokenizer/tokenizer_config.h"

#include <string.h>

int still_tokenizer_size(const still_tokenizer *t) {
  return (int)t->vocabulary.count;
}

still_token still_tokenizer_bos(const still_tokenizer *t) {
  return t->bos;
}

still_token still_tokenizer_eos(const still_tokenizer *t) {
  return t->eos;
}

int still_tokenizer_is_end(const still_tokenizer *t, still_token id) {
  for (int i = 0; i < t->end_count; i++)
    if (t->ends[i] == id) return 1;
  return 0;
}

int still_tokenizer_is_special(const still_tokenizer *t, still_token id) {
  return id >= 0 && (size_t)id < t->vocabulary.count &&
         t->vocabulary.kinds[id] == STILL_TOKEN_CONTROL;
}

still_token still_tokenizer_find(const still_tokenizer *t, const char *text) {
  const size_t length = strlen(text);
  const still_added_token *token = still_added_tokens_find(&t->added, text, length);
  if (token) return (still_token)token->id;
  const still_token id = still_vocabulary_find_text(&t->vocabulary, text, length);
  if (id >= 0) return id;
  for (size_t i = 0; i < t->vocabulary.count; i++) { /* the few of other kinds */
    size_t bytes;
    const char *name = still_vocabulary_bytes(&t->vocabulary, i, &bytes);
    if (t->vocabulary.kinds[i] != STILL_TOKEN_NORMAL && bytes && bytes == length &&
        !memcmp(name, text, length))
      return (still_token)i;
  }
  return -1;
}

/* ---- opening */

static bool ends_with(const char *path, const char *end) {
  const size_t length = strlen(path), tail = strlen(end);
  return length >= tail && !strcmp(path + length - tail, end);
}

static bool begins_with(const char *path, const char *magic) {
  char start[8] = "";
  FILE *file = fopen(path, "rb");
  if (!file) return false;
  const size_t had = fread(start, 1, sizeof start, file);
  fclose(file);
  return had >= strlen(magic) && !memcmp(start, magic, strlen(magic));
}

static still_status open_gguf(still_tokenizer **tokenizer, const char *path) {
  still_gguf *gguf;
  STILL_TRY(still_gguf_open(&gguf, path, true));
  still_status status = still_tokenizer_from_gguf(tokenizer, gguf);
  still_gguf_close(gguf);
  if (status) return still_fail_in(status, "%s", path);
  if (!*tokenizer) return still_fail(STILL_ERROR_FORMAT, "%s: holds no vocabulary", path);
  return STILL_OK;
}

static still_status open_pair(still_tokenizer **tokenizer, const char *path,
                              const char *merges_path, const char *pattern) {
  char *merges = NULL;
  if (!merges_path) STILL_TRY(still_path_beside(&merges, path, "merges.txt"));
  if (!merges_path && !merges) STILL_TRY(still_path_beside(&merges, path, "vocab.bpe"));
  const still_status status =
      merges_path || merges
          ? still_tokenizer_from_pair(tokenizer, path, merges_path ? merges_path : merges, pattern)
          : still_fail(STILL_ERROR_FILE,
                       "%s: a vocabulary needs its merges: merges.txt or vocab.bpe", path);
  still_free(merges);
  return status;
}

still_status still_tokenizer_from_folder(still_tokenizer **tokenizer, const char *folder) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                      "encoder.json"};
  *tokenizer = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *path;
    STILL_TRY(still_join_path(&path, folder, names[i]));
    const bool there = still_path_exists(path);
    const still_status status =
        there ? still_tokenizer_open(tokenizer, path, NULL, NULL) : STILL_OK;
    still_free(path);
    if (there) return status;
  }
  return STILL_OK;
}

still_status still_tokenizer_open(still_tokenizer **tokenizer, const char *path,
                                  const char *merges_path, const char *pattern) {
  *tokenizer = NULL;
  if (!path) return still_fail(STILL_ERROR_ARGUMENT, "still_tokenizer_open: no path");
  if (still_path_is_folder(path)) {
    STILL_TRY(still_tokenizer_from_folder(tokenizer, path));
    if (*tokenizer) return STILL_OK;
    return still_fail(STILL_ERROR_FILE, "%s: holds no tokenizer.json, tokenizer.model, vocab.json",
                      path);
  }
  if (merges_path || ends_with(path, "vocab.json") || ends_with(path, "encoder.json"))
    return open_pair(tokenizer, path, merges_path, pattern);
  if (begins_with(path, "GGUF")) return open_gguf(tokenizer, path);
  if (ends_with(path, ".json")) return still_tokenizer_from_json(tokenizer, path);
  if (ends_with(path, ".model")) return still_tokenizer_from_sentencepiece(tokenizer, path);
  return still_fail(still_path_exists(path) ? STILL_ERROR_UNSUPPORTED : STILL_ERROR_FILE, "%s: %s",
                    path,
                    still_path_exists(path) ? "is no .gguf, tokenizer.json, tokenizer.model or "
                                              "vocab.json"
                                            : "no such file");
}
