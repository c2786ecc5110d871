/* SPDX-License-Identifier: MIT */
#include "cases.h"

#include "tokenizer/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_file(const char *path, size_t *bytes) {
  FILE *stream = fopen(path, "rb");
  if (!stream || fseek(stream, 0, SEEK_END)) {
    perror(path);
    return NULL;
  }
  *bytes = (size_t)ftell(stream);
  rewind(stream);
  char *text = calloc(*bytes + 1, 1);
  if (text && fread(text, 1, *bytes, stream) != *bytes) *bytes = 0;
  fclose(stream);
  return text;
}

static tokenizer_case *add_case(tokenizer_cases *cases) {
  cases->items = realloc(cases->items, (cases->count + 1) * sizeof *cases->items);
  if (!cases->items) abort();
  memset(&cases->items[cases->count], 0, sizeof *cases->items);
  return &cases->items[cases->count++];
}

static void add_id(tokenizer_case *c, long id) {
  c->ids = realloc(c->ids, (c->count + 1) * sizeof *c->ids);
  if (!c->ids) abort();
  c->ids[c->count++] = (int32_t)id;
}

/* ---- JSON, where a string may hold a NUL (the library's reader refuses it) */

static const char *skip_space(const char *at) {
  return at + strspn(at, " \t\r\n");
}

static uint32_t hex4(const char *at) {
  char digits[5] = "";
  memcpy(digits, at, 4);
  return (uint32_t)strtoul(digits, NULL, 16);
}

/* `at` is behind the opening quote; returns what follows the closing one, NULL if there is none. */
static const char *read_string(const char *at, char **text, size_t *bytes) {
  static const char escapes[] = "nrtbf\"\\/", means[] = "\n\r\t\b\f\"\\/";
  free(*text);
  char *to = *text = malloc(strlen(at) + 1);
  if (!to) abort();
  while (*at && *at != '"') {
    if (*at != '\\') {
      *to++ = *at++;
      continue;
    }
    const char *escape = strchr(escapes, at[1]);
    if (at[1] && escape) {
      *to++ = means[escape - escapes];
      at += 2;
      continue;
    }
    if (at[1] != 'u' || strlen(at) < 6) return NULL;
    uint32_t code = hex4(at + 2);
    at += 6;
    if (code >> 10 == 0x36 && at[0] == '\\' && at[1] == 'u' && strlen(at) >= 6) {
      code = 0x10000 + ((code & 0x3ff) << 10) + (hex4(at + 2) & 0x3ff);
      at += 6;
    }
    to += still_utf8_encode(code, to);
  }
  *bytes = (size_t)(to - *text);
  *to = 0;
  return *at == '"' ? at + 1 : NULL;
}

static const char *read_ids(const char *at, tokenizer_case *c) {
  at = skip_space(at);
  if (*at++ != '[') return NULL;
  for (at = skip_space(at); *at && *at != ']'; at = skip_space(at)) {
    char *end;
    const long id = strtol(at, &end, 10);
    if (end == at) return NULL;
    add_id(c, id);
    at = skip_space(end);
    if (*at == ',') at++;
  }
  return *at == ']' ? at + 1 : NULL;
}

/* The members of one case, `at` behind the opening brace; returns what follows the closing one. */
static const char *read_case(const char *at, tokenizer_case *c) {
  char *name = NULL;
  size_t length;
  for (at = skip_space(at); at && *at && *at != '}'; at = at ? skip_space(at) : NULL) {
    if (*at == ',') at = skip_space(at + 1);
    if (*at != '"') break;
    at = read_string(at + 1, &name, &length);
    at = at ? skip_space(at) : NULL;
    if (!at || *at != ':') break;
    at = skip_space(at + 1);
    if (!strcmp(name, "ids"))
      at = read_ids(at, c);
    else if (*at == '"' && !strcmp(name, "decoded"))
      at = read_string(at + 1, &c->decoded, &c->decoded_bytes);
    else if (*at == '"' && !strcmp(name, "text"))
      at = read_string(at + 1, &c->text, &c->bytes);
    else
      at = NULL;
  }
  free(name);
  return at && *at == '}' ? at + 1 : NULL;
}

/* Every object from `at` on is a case. */
static bool read_json(tokenizer_cases *cases, const char *at, const char *path) {
  while ((at = strchr(at, '{'))) {
    tokenizer_case *c = add_case(cases);
    at = read_case(at + 1, c);
    if (!at || !c->text) {
      fprintf(stderr, "%s: case %zu is not {\"text\": ..., \"ids\": [...]}\n", path, cases->count);
      return false;
    }
  }
  return cases->count > 0;
}

/* ---- llama.cpp's pairs of files */

static bool read_pair(tokenizer_cases *cases, const char *text, const char *path) {
  static const char between[] = "\n__ggml_vocab_test__\n";
  char out_path[4096];
  snprintf(out_path, sizeof out_path, "%.*s.out", (int)strlen(path) - 4, path);
  size_t bytes;
  char *out = read_file(out_path, &bytes);
  if (!out) return false;
  const char *ids = out;
  while (text && *ids) {
    tokenizer_case *c = add_case(cases);
    const char *next = strstr(text, between), *line_end = strchr(ids, '\n');
    c->bytes = next ? (size_t)(next - text) : strlen(text);
    c->text = calloc(c->bytes + 1, 1);
    if (!c->text) abort();
    memcpy(c->text, text, c->bytes);
    text = next ? next + sizeof between - 1 : NULL;
    if (!line_end) line_end = ids + strlen(ids);
    for (char *end; ids < line_end; ids = end) {
      const long id = strtol(ids, &end, 10);
      if (end == ids || end > line_end) break;
      add_id(c, id);
    }
    ids = *line_end ? line_end + 1 : line_end;
  }
  free(out);
  return cases->count > 0;
}

bool cases_read(tokenizer_cases *cases, const char *path) {
  memset(cases, 0, sizeof *cases);
  size_t bytes;
  const size_t length = strlen(path);
  char *text = read_file(path, &bytes);
  if (!text) return false;
  const char *list = strstr(text, "\"cases\"");
  const bool done = length > 4 && !strcmp(path + length - 4, ".inp")
                        ? read_pair(cases, text, path)
                        : read_json(cases, list ? list : text, path);
  free(text);
  return done;
}

void cases_free(tokenizer_cases *cases) {
  for (size_t i = 0; i < cases->count; i++) {
    free(cases->items[i].text);
    free(cases->items[i].ids);
    free(cases->items[i].decoded);
  }
  free(cases->items);
}
