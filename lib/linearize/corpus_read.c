/* SPDX-License-Identifier: MIT
 * Files to rows: plain text, and the forms of JSONL. */
#include "linearize/corpus.h"

#include "base/files.h"
#include "base/memory.h"
#include "formats/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  LINE_LIMIT = 64 << 20,
  SHORTEST_PACKED = 16 /* a last row of packed text shorter than this is dropped */
};
static const float heaviest = 1e6f;

/* A file being read: ids are scratch for one text. */
typedef struct reader {
  still_training_data *data;
  const char *path;
  size_t line;
  int32_t *ids;
  size_t capacity;
  bool packing; /* the open row holds packed text */
} reader;

static still_status encode(reader *r, const char *text, size_t bytes, unsigned flags,
                           size_t *count) {
  const still_tokenizer *tokenizer = r->data->tokenizer;
  STILL_TRY(still_tokenize(tokenizer, text, bytes, flags, r->ids, r->capacity, count));
  if (*count <= r->capacity) return STILL_OK;
  STILL_TRY(STILL_REALLOC(&r->ids, *count, "token ids"));
  r->capacity = *count;
  return still_tokenize(tokenizer, text, bytes, flags, r->ids, r->capacity, count);
}

static size_t open_tokens(const reader *r) {
  const row_store *store = &r->data->store;
  return store->tokens - store->first[store->rows];
}

static still_status begin_row(reader *r) {
  const still_token bos = still_tokenizer_bos(r->data->tokenizer);
  return bos >= 0 ? corpus_add(&r->data->store, &bos, 0, 1) : STILL_OK;
}

/* Appends to the packed row, closing it whenever it is full. */
static still_status pack(reader *r, const int32_t *ids, size_t count, float weight) {
  const size_t length = (size_t)r->data->options.length;
  r->packing = true;
  while (count) {
    if (!open_tokens(r)) STILL_TRY(begin_row(r));
    const size_t room = length - open_tokens(r), some = count < room ? count : room;
    STILL_TRY(corpus_add(&r->data->store, ids, weight, some));
    ids += some, count -= some;
    if (open_tokens(r) == length) STILL_TRY(corpus_close_row(&r->data->store));
  }
  return STILL_OK;
}

/* Ends a document of packed text with the end-of-sequence token. */
static still_status end_document(reader *r, float weight) {
  const still_token eos = still_tokenizer_eos(r->data->tokenizer);
  return eos >= 0 ? pack(r, &eos, 1, weight) : STILL_OK;
}

static still_status flush(reader *r) {
  row_store *store = &r->data->store;
  if (!r->packing) return STILL_OK;
  r->packing = false;
  if (open_tokens(r) >= SHORTEST_PACKED) return corpus_close_row(store);
  store->tokens = store->first[store->rows];
  return STILL_OK;
}

static still_status add_document(reader *r, const char *text, size_t bytes) {
  size_t count;
  STILL_TRY(encode(r, text, bytes, 0, &count));
  if (!count) return STILL_OK;
  STILL_TRY(pack(r, r->ids, count, 1));
  return end_document(r, 1);
}

/* ---- JSONL ---- */

static const char prompt_with_input[] = "Below is an instruction that describes a task, paired "
                                        "with an input that provides further context. Write a "
                                        "response that appropriately completes the request.\n\n### "
                                        "Instruction:\n%s\n\n### Input:\n%s\n\n### Response:\n";
static const char prompt_alone[] = "Below is an instruction that describes a task. Write a "
                                   "response that appropriately completes the "
                                   "request.\n\n### Instruction:\n%s\n\n### Response:\n";

static still_status add_instruction(reader *r, const still_json *object) {
  const char *instruction, *input = "", *output;
  STILL_TRY(still_json_get_string(object, "instruction", &instruction));
  STILL_TRY(still_json_optional_string(object, "input", &input));
  STILL_TRY(still_json_get_string(object, "output", &output));
  const size_t most = sizeof prompt_with_input + strlen(instruction) + strlen(input);
  char *prompt;
  STILL_TRY(STILL_ALLOC(&prompt, most, "prompt"));
  if (*input)
    snprintf(prompt, most, prompt_with_input, instruction, input);
  else
    snprintf(prompt, most, prompt_alone, instruction);
  size_t count;
  still_status status = encode(r, prompt, strlen(prompt), 0, &count);
  still_free(prompt);
  if (!status) status = pack(r, r->ids, count, 0);
  if (!status) status = encode(r, output, strlen(output), STILL_TOKENIZE_CONTINUE, &count);
  if (!status) status = pack(r, r->ids, count, 1);
  return status ? status : end_document(r, 1);
}

static still_status check_weight(double weight) {
  if (!(weight >= 0 && weight <= heaviest))
    return still_fail(STILL_ERROR_FORMAT, "a weight is %g, must be 0 .. %g", weight,
                      (double)heaviest);
  return STILL_OK;
}

/* Rows of their own are cut at the length. */
static still_status add_cut(reader *r, const int32_t *ids, float weight, size_t count) {
  const size_t room = (size_t)r->data->options.length - open_tokens(r);
  return corpus_add(&r->data->store, ids, weight, count < room ? count : room);
}

static still_status add_segments(reader *r, const still_json *segments) {
  unsigned flags = STILL_TOKENIZE_PARSE_SPECIAL;
  STILL_TRY(begin_row(r));
  for (const still_json *at = still_json_first(segments); at; at = still_json_next(at)) {
    const char *text;
    double weight = 1;
    size_t count;
    STILL_TRY(still_json_get_string(at, "text", &text));
    STILL_TRY(still_json_optional_f64(at, "weight", &weight));
    STILL_TRY(check_weight(weight));
    STILL_TRY(encode(r, text, strlen(text), flags, &count));
    STILL_TRY(add_cut(r, r->ids, (float)weight, count));
    flags |= STILL_TOKENIZE_CONTINUE;
  }
  return corpus_close_row(&r->data->store);
}

static still_status add_ids(reader *r, const still_json *ids, const still_json *weights) {
  const uint64_t vocabulary = (uint64_t)still_tokenizer_size(r->data->tokenizer);
  const still_json *weight = still_json_first(weights);
  for (const still_json *at = still_json_first(ids); at; at = still_json_next(at)) {
    uint64_t id;
    double value = 1;
    STILL_TRY(still_json_to_u64(at, "ids", &id));
    if (id >= vocabulary)
      return still_fail(STILL_ERROR_FORMAT, "an id is %llu, the vocabulary has 0 .. %llu",
                        (unsigned long long)id, (unsigned long long)vocabulary - 1);
    if (weights) {
      if (!weight)
        return still_fail(STILL_ERROR_FORMAT, "\"weights\" has fewer entries than \"ids\"");
      STILL_TRY(still_json_to_f64(weight, "weights", &value));
      STILL_TRY(check_weight(value));
      weight = still_json_next(weight);
    }
    const int32_t token = (int32_t)id;
    STILL_TRY(add_cut(r, &token, (float)value, 1));
  }
  return corpus_close_row(&r->data->store);
}

static still_status add_object(reader *r, const still_json *object) {
  const still_json *segments = still_json_find(object, "segments");
  const still_json *ids = still_json_find(object, "ids");
  const char *text;
  if (segments || ids) STILL_TRY(flush(r));
  if (segments) return add_segments(r, segments);
  if (ids) return add_ids(r, ids, still_json_find(object, "weights"));
  if (still_json_find(object, "instruction")) return add_instruction(r, object);
  if (!still_json_find(object, "text"))
    return still_fail(STILL_ERROR_FORMAT,
                      "no member \"text\", \"instruction\", \"segments\" or \"ids\"");
  STILL_TRY(still_json_get_string(object, "text", &text));
  return add_document(r, text, strlen(text));
}

static still_status add_line(reader *r, const char *line, size_t bytes) {
  char name[32];
  still_json *object;
  snprintf(name, sizeof name, "line %zu", r->line);
  still_status status = still_json_parse(&object, name, line, bytes, LINE_LIMIT);
  if (status) return still_fail_in(status, "%s", r->path);
  status = add_object(r, object);
  still_json_free(object);
  return status ? still_fail_in(status, "%s: line %zu", r->path, r->line) : STILL_OK;
}

static bool is_blank(const char *line, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (!strchr(" \t\r", line[i])) return false;
  return true;
}

static still_status read_lines(reader *r, const char *text, size_t bytes) {
  const char *end = text + bytes;
  while (text < end) {
    const char *stop = memchr(text, '\n', (size_t)(end - text));
    const size_t length = (size_t)((stop ? stop : end) - text);
    r->line++;
    if (!is_blank(text, length)) STILL_TRY(add_line(r, text, length));
    text += length + 1;
  }
  return STILL_OK;
}

static bool ends_with(const char *text, const char *end) {
  const size_t a = strlen(text), b = strlen(end);
  return a >= b && !strcmp(text + a - b, end);
}

still_status corpus_read_file(still_training_data *data, const char *path) {
  reader r = {.data = data, .path = path};
  still_file file;
  STILL_TRY(still_file_open(&file, path, true));
  const char *text = (const char *)file.data;
  still_status status = ends_with(path, ".jsonl") ? read_lines(&r, text, file.bytes)
                                                  : add_document(&r, text, file.bytes);
  if (!status) status = flush(&r);
  still_file_close(&file);
  still_free(r.ids);
  return status;
}
