/* SPDX-License-Identifier: MIT */
#include "evaluate/mechanism_results.h"

#include "base/memory.h"
#include "tokenizer/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The numbers of a head that may be undefined: null then. */
typedef struct field {
  const char *key;
  size_t offset;
} field;

static const field shares[] = {
    {"overlap", offsetof(still_mechanism_head, overlap)},
    {"overlap_in_chunks", offsetof(still_mechanism_head, overlap_in_chunks)},
    {"chance", offsetof(still_mechanism_head, chance)},
    {"score_correlation", offsetof(still_mechanism_head, score_correlation)},
    {"self_correlation", offsetof(still_mechanism_head, self_correlation)},
    {"linear_mass", offsetof(still_mechanism_head, linear_mass)},
    {"linear_output", offsetof(still_mechanism_head, linear_output)}};
enum { SHARES = sizeof shares / sizeof *shares, WORD_BYTES = 256 };

/* ---- writing */

static void put_head(FILE *stream, const still_mechanism_head *head) {
  fprintf(stream, "{\"layer\": %d, \"head\": %d, \"routed\": %" PRId64 ", \"kept\": %" PRId64,
          head->layer, head->head, head->routed, head->kept);
  for (int i = 0; i < SHARES; i++) {
    double value;
    memcpy(&value, (const char *)head + shares[i].offset, sizeof value);
    fprintf(stream, isfinite(value) ? ", \"%s\": %.17g" : ", \"%s\": null", shares[i].key, value);
  }
  fputc('}', stream);
}

/* A token's text, U+FFFD for what is no UTF-8 by itself. */
static void spell(const still_tokenizer *tokenizer, still_token id, char *out) {
  char text[WORD_BYTES];
  const size_t bytes =
      still_smaller(still_token_text(tokenizer, id, 1, text, sizeof text), sizeof text);
  size_t length;
  for (size_t i = 0; i < bytes; i += length) {
    const bool valid = still_utf8_scan(text + i, bytes - i, &length) == STILL_UTF8_VALID;
    const char *from = valid ? text + i : "\xef\xbf\xbd";
    const size_t count = valid ? length : 3;
    memcpy(out, from, count);
    out += count;
  }
  *out = 0;
}

static still_status put_word(FILE *stream, const still_tokenizer *tokenizer,
                             const still_mechanism_word *word) {
  char text[3 * WORD_BYTES + 1], *quoted;
  spell(tokenizer, word->id, text);
  STILL_TRY(still_json_quote(&quoted, text));
  fprintf(stream,
          "{\"token\": %" PRId32 ", \"kept\": %" PRId64 ", \"seen\": %" PRId64 ", \"word\": %s}",
          word->id, word->kept, word->seen, quoted);
  still_free(quoted);
  return STILL_OK;
}

still_status still_results_put_mechanism(still_results *results, const char *run,
                                         const still_mechanism *m) {
  FILE *stream = results->stream;
  size_t heads;
  char *quoted;
  if (!stream) return STILL_OK;
  const still_mechanism_head *head = still_mechanism_heads(m, &heads);
  STILL_TRY(still_json_quote(&quoted, run));
  fprintf(stream, "{\"run\": %s, \"mechanism\": {\"tokens\": %zu, \"heads\": [", quoted, m->tokens);
  still_free(quoted);
  for (size_t i = 0; i < heads; i++) {
    if (i) fputs(", ", stream);
    put_head(stream, &head[i]);
  }
  fputs("], \"words\": [", stream);
  for (size_t i = 0; i < m->word_count; i++) {
    if (i) fputs(", ", stream);
    STILL_TRY(put_word(stream, m->tokenizer, &m->words[i]));
  }
  fputs("]}}\n", stream);
  return fflush(stream) ? still_fail(STILL_ERROR_FILE, "%s: %s", results->path, strerror(errno))
                        : STILL_OK;
}

/* ---- reading */

static still_status get_count(const still_json *object, const char *key, uint64_t most,
                              int64_t *out) {
  uint64_t value;
  *out = 0;
  STILL_TRY(still_json_get_u64(object, key, &value));
  if (value > most)
    return still_fail(STILL_ERROR_FORMAT, "'%s' is %" PRIu64 ", must be at most %" PRIu64, key,
                      value, most);
  *out = (int64_t)value;
  return STILL_OK;
}

/* The heads stand in order. */
static still_status read_head(const still_json *json, const still_mechanism *m, int number,
                              still_mechanism_head *head) {
  int64_t layer, index;
  STILL_TRY(get_count(json, "layer", INT32_MAX, &layer));
  STILL_TRY(get_count(json, "head", INT32_MAX, &index));
  if (layer != number / m->head_count || index != number % m->head_count)
    return still_fail(STILL_ERROR_FORMAT, "'heads' has %" PRId64 ", %" PRId64 " at place %d", layer,
                      index, number);
  *head = (still_mechanism_head){.layer = (int)layer, .head = (int)index};
  STILL_TRY(get_count(json, "routed", INT32_MAX, &head->routed));
  STILL_TRY(get_count(json, "kept", (uint64_t)head->routed, &head->kept));
  for (int i = 0; i < SHARES; i++) {
    double value = NAN;
    STILL_TRY(still_json_optional_f64(json, shares[i].key, &value));
    memcpy((char *)head + shares[i].offset, &value, sizeof value);
  }
  return STILL_OK;
}

static still_status read_heads(still_mechanism *m, const still_json *list) {
  const size_t count = (size_t)m->layer_count * (size_t)m->head_count;
  if (still_json_count(list) != count)
    return still_fail(STILL_ERROR_FORMAT, "'heads' has %zu entries, the model has %zu heads",
                      still_json_count(list), count);
  STILL_TRY(STILL_ALLOC(&m->heads, count, "measured heads"));
  int number = 0;
  for (const still_json *at = still_json_first(list); at; at = still_json_next(at), number++)
    STILL_TRY(read_head(at, m, number, &m->heads[number]));
  return STILL_OK;
}

static still_status read_words(still_mechanism *m, const still_json *list, uint64_t vocabulary) {
  const size_t count = still_json_count(list);
  STILL_TRY(STILL_ALLOC(&m->words, count, "a list of words"));
  for (const still_json *at = still_json_first(list); at; at = still_json_next(at)) {
    still_mechanism_word *word = &m->words[m->word_count++];
    int64_t id;
    STILL_TRY(get_count(at, "token", vocabulary - 1, &id));
    STILL_TRY(get_count(at, "seen", STILL_JSON_LARGEST_INTEGER, &word->seen));
    STILL_TRY(get_count(at, "kept", (uint64_t)word->seen, &word->kept));
    word->id = (still_token)id;
  }
  return STILL_OK;
}

static still_status read_mechanism(still_mechanism *m, const still_json *line,
                                   uint64_t vocabulary) {
  const still_json *told, *heads, *words;
  int64_t tokens;
  STILL_TRY(still_json_get(line, "mechanism", STILL_JSON_OBJECT, &told));
  STILL_TRY(get_count(told, "tokens", INT32_MAX, &tokens));
  STILL_TRY(still_json_get(told, "heads", STILL_JSON_ARRAY, &heads));
  STILL_TRY(still_json_get(told, "words", STILL_JSON_ARRAY, &words));
  m->tokens = (size_t)tokens;
  STILL_TRY(read_heads(m, heads));
  return read_words(m, words, vocabulary);
}

still_status still_mechanism_read(still_mechanism **out, const still_json *line,
                                  const still_model *model) {
  still_model_info info;
  still_mechanism *m;
  *out = NULL;
  still_model_get_info(model, &info);
  STILL_TRY(STILL_ALLOC(&m, 1, "a record"));
  m->layer_count = info.layers, m->head_count = info.heads;
  m->tokenizer = still_model_tokenizer(model);
  const still_status status = read_mechanism(m, line, (uint64_t)info.vocabulary);
  if (status)
    still_mechanism_destroy(m);
  else
    *out = m;
  return status;
}
