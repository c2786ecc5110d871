/* SPDX-License-Identifier: MIT
 * Sessions in files. All numbers are u64 in this machine's byte order, and every part is padded to 8 bytes:
 *
 *   magic, version, bytes of the whole file
 *   settings: 16 numbers, what both sides must agree on
 *   for each layer: its kind, the bytes of its cache
 *   tokens, of these not remembered, 1 if there are logits
 *   ids (i32) of the remembered tokens, logits (f32), the layers' caches
 *   checksum of everything before it
 */
#include "base/files.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/random.h"
#include "model/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 2, SETTINGS = 16, START = 3 + SETTINGS, COUNTS = 3, WORD = 8 };
enum { PIECE = 4 << 20 };                         /* a few milliseconds */
static const uint64_t magic = 0x4e53534553544c53; /* "SLTSESSN" on little-endian machines */

/* ---- what both sides must agree on -------------------------------------------------------------- */

typedef struct setting {
  const char *name;
  uint64_t value;
} setting;

static uint64_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static void list_settings(const still_session *session, setting out[SETTINGS]) {
  const still_session_options *o = &session->options;
  const still_model_weights *weights = session->model->weights;
  const setting list[SETTINGS] = {{"model", weights->hash},
                                  {"adapter", session->model->adapter_hash},
                                  {"layers", (uint64_t)session->layer_count},
                                  {"vocabulary", (uint64_t)weights->config.vocabulary},
                                  {"chunk", (uint64_t)o->chunk},
                                  {"budget", (uint64_t)o->budget},
                                  {"schedule", (uint64_t)o->schedule},
                                  {"keep", (uint64_t)o->keep},
                                  {"keep_ratio", bits_of(o->keep_ratio)},
                                  {"metric", (uint64_t)o->metric},
                                  {"routing", (uint64_t)o->routing},
                                  {"routing_seed", o->routing_seed},
                                  {"window", (uint64_t)o->window},
                                  {"sinks", (uint64_t)o->sinks},
                                  {"context", (uint64_t)o->context},
                                  {"cache_type", (uint64_t)o->cache_type}};
  memcpy(out, list, sizeof list);
}

static uint64_t kind_of(const still_session *session, int layer) {
  return (uint64_t)still_attention_plan_options(session->layers[layer].plan)->kind;
}

static uint64_t padded(uint64_t bytes) {
  return (bytes + WORD - 1) / WORD * WORD;
}

/* ---- saving ------------------------------------------------------------------------------------- */

typedef struct session_writer {
  still_output output;
  uint64_t sum;
} session_writer;

/* Whole words in pieces, then the rest. */
static still_status put(session_writer *writer, const void *data, size_t bytes) {
  const char *at = data;
  char rest[WORD] = {0};
  while (bytes >= WORD) {
    const size_t piece = still_smaller(bytes / WORD * WORD, PIECE);
    writer->sum = still_hash_bytes(writer->sum, at, piece);
    STILL_TRY(still_output_write(&writer->output, at, piece));
    STILL_TRY(still_progress_add(piece));
    at += piece, bytes -= piece;
  }
  if (!bytes) return STILL_OK;
  memcpy(rest, at, bytes);
  writer->sum = still_hash_bytes(writer->sum, rest, WORD);
  STILL_TRY(still_output_write(&writer->output, rest, WORD));
  return still_progress_add(WORD);
}

static still_status put_number(session_writer *writer, uint64_t value) {
  return put(writer, &value, sizeof value);
}

static size_t cache_bytes(const still_session *session, int layer) {
  still_backend *backend = still_session_layer_backend(session, layer);
  return backend->ops->attention_save_bytes(backend, session->layers[layer].cache);
}

static uint64_t logits_bytes(const still_session *session) {
  return session->has_logits ? (uint64_t)session->model->weights->config.vocabulary * sizeof(float)
                             : 0;
}

static uint64_t remembered_bytes(const still_session *session) {
  return (uint64_t)(session->count - session->first) * sizeof(still_token);
}

static uint64_t file_bytes(const still_session *session) {
  uint64_t bytes = WORD * (START + 2 * (uint64_t)session->layer_count + COUNTS + 1);
  bytes += padded(remembered_bytes(session)) + padded(logits_bytes(session));
  for (int i = 0; i < session->layer_count; i++) bytes += padded(cache_bytes(session, i));
  return bytes;
}

static still_status put_head(session_writer *writer, const still_session *session) {
  setting settings[SETTINGS];
  list_settings(session, settings);
  STILL_TRY(put_number(writer, magic));
  STILL_TRY(put_number(writer, VERSION));
  STILL_TRY(put_number(writer, file_bytes(session)));
  for (int i = 0; i < SETTINGS; i++) STILL_TRY(put_number(writer, settings[i].value));
  for (int i = 0; i < session->layer_count; i++) {
    STILL_TRY(put_number(writer, kind_of(session, i)));
    STILL_TRY(put_number(writer, cache_bytes(session, i)));
  }
  STILL_TRY(put_number(writer, (uint64_t)session->count));
  STILL_TRY(put_number(writer, (uint64_t)session->first));
  return put_number(writer, session->has_logits);
}

static still_status put_cache(session_writer *writer, const still_session *session, int layer) {
  still_backend *backend = still_session_layer_backend(session, layer);
  const size_t bytes = cache_bytes(session, layer);
  void *copy;
  STILL_TRY(still_alloc(&copy, bytes, 1, "a layer's cache to save"));
  still_status status = backend->ops->attention_save(backend, session->layers[layer].cache, copy);
  if (!status) status = put(writer, copy, bytes);
  still_free(copy);
  return status;
}

static still_status put_all(session_writer *writer, const still_session *session) {
  STILL_TRY(put_head(writer, session));
  STILL_TRY(put(writer, session->tokens, (size_t)remembered_bytes(session)));
  STILL_TRY(put(writer, session->logits, (size_t)logits_bytes(session)));
  for (int i = 0; i < session->layer_count; i++) STILL_TRY(put_cache(writer, session, i));
  return put_number(writer, writer->sum);
}

still_status still_session_save(const still_session *session, const char *path,
                                still_progress_callback *callback, void *user) {
  session_writer writer = {0};
  STILL_TRY(still_session_settle_to_read(session));
  STILL_TRY(still_output_open(&writer.output, path));
  still_session_lock(session);
  still_progress progress = {callback, user, "saving the session", 0, file_bytes(session), NULL};
  still_progress_begin(&progress);
  const still_status status = put_all(&writer, session);
  still_progress_end(&progress);
  still_session_unlock(session);
  if (!status) return still_output_commit(&writer.output);
  still_output_abandon(&writer.output);
  return status;
}

/* ---- loading ------------------------------------------------------------------------------------ */

/* A file's bytes, whose length is a multiple of 8 and has been compared with what the file says. */
typedef struct session_file {
  const char *data;
  uint64_t bytes, at;
} session_file;

static uint64_t number_at(const session_file *file, uint64_t word) {
  uint64_t value;
  memcpy(&value, file->data + word * WORD, WORD);
  return value;
}

/* The next part, padded; NULL where the file ends within it. */
static const char *part(session_file *file, uint64_t bytes) {
  if (bytes > file->bytes - file->at || padded(bytes) > file->bytes - file->at) return NULL;
  const char *data = file->data + file->at;
  file->at += padded(bytes);
  return data;
}

static still_status damaged(const char *what) {
  return still_fail(STILL_ERROR_FORMAT, "damaged session file: %s", what);
}

static still_status check_envelope(const session_file *file) {
  if (file->bytes < WORD * (START + 1) || number_at(file, 0) != magic)
    return still_fail(STILL_ERROR_FORMAT, "no session file");
  if (number_at(file, 1) != VERSION)
    return still_fail(STILL_ERROR_UNSUPPORTED, "session file of version %" PRIu64 ", known is %d",
                      number_at(file, 1), VERSION);
  if (number_at(file, 2) != file->bytes || file->bytes % WORD)
    return still_fail(STILL_ERROR_FORMAT,
                      "damaged session file: it has %" PRIu64 " bytes and should have %" PRIu64,
                      file->bytes, number_at(file, 2));
  uint64_t sum = 0;
  for (size_t at = 0, left = (size_t)file->bytes - WORD; left;) {
    const size_t piece = still_smaller(left, PIECE);
    sum = still_hash_bytes(sum, file->data + at, piece);
    STILL_TRY(still_progress_add(piece));
    at += piece, left -= piece;
  }
  return sum == number_at(file, file->bytes / WORD - 1) ? STILL_OK : damaged("wrong checksum");
}

static still_status check_settings(const still_session *session, const session_file *file) {
  setting settings[SETTINGS];
  list_settings(session, settings);
  for (int i = 0; i < SETTINGS; i++)
    if (number_at(file, (uint64_t)(3 + i)) != settings[i].value)
      return still_fail(STILL_ERROR_FORMAT,
                        "session file of another %s: %" PRIu64 " there, %" PRIu64 " here",
                        settings[i].name, number_at(file, (uint64_t)(3 + i)), settings[i].value);
  if (file->bytes < WORD * (START + 2 * (uint64_t)session->layer_count + COUNTS + 1))
    return damaged("it ends within the list of layers");
  for (int i = 0; i < session->layer_count; i++)
    if (number_at(file, (uint64_t)(START + 2 * i)) != kind_of(session, i))
      return still_fail(STILL_ERROR_FORMAT,
                        "session file with another kind of attention in layer %d", i);
  return STILL_OK;
}

/* What load will put into the session. */
typedef struct session_content {
  int64_t count, first;
  bool has_logits;
  const char *tokens, *logits;
  still_session_layer *layers; /* with caches of their own */
} session_content;

static still_status read_tokens(const still_session *session, session_file *file,
                                session_content *content) {
  const int vocabulary = session->model->weights->config.vocabulary;
  const uint64_t word = START + 2 * (uint64_t)session->layer_count;
  const uint64_t count = number_at(file, word), first = number_at(file, word + 1);
  file->at = WORD * (word + COUNTS);
  content->has_logits = number_at(file, word + 2) == 1;
  if (count > INT64_MAX / 8 || (session->limit && count > (uint64_t)session->limit) ||
      first > count || count - first > file->bytes / sizeof(still_token))
    return damaged("too many tokens");
  content->count = (int64_t)count;
  content->first = (int64_t)first;
  content->tokens = part(file, (count - first) * sizeof(still_token));
  if (!content->tokens) return damaged("it ends within the tokens");
  for (uint64_t i = 0; i < count - first; i++) {
    still_token id;
    memcpy(&id, content->tokens + i * sizeof id, sizeof id);
    if (id < 0 || id >= vocabulary) return damaged("a token outside the vocabulary");
  }
  if (content->has_logits) content->logits = part(file, (uint64_t)vocabulary * sizeof(float));
  return content->has_logits && !content->logits ? damaged("it ends within the logits") : STILL_OK;
}

static still_status read_caches(const still_session *session, session_file *file,
                                session_content *content) {
  for (int i = 0; i < session->layer_count; i++) {
    const uint64_t bytes = number_at(file, (uint64_t)(START + 2 * i + 1));
    const char *data = part(file, bytes);
    if (!data) return damaged("it ends within a layer's cache");
    still_backend *backend = content->layers[i].on_host ? session->model->host : session->backend;
    still_layer_cache *cache = content->layers[i].cache;
    const still_status status = backend->ops->attention_load(backend, cache, data, bytes);
    if (status) return still_fail_in(status, "damaged session file: layer %d", i);
    still_attention_usage usage;
    backend->ops->attention_usage(backend, cache, &usage);
    if (usage.tokens != content->count) return damaged("a layer holds another number of tokens");
    STILL_TRY(still_progress_add(bytes));
  }
  return file->at == file->bytes - WORD ? STILL_OK : damaged("something follows the last layer");
}

/* Layers with the session's plans and empty caches. */
static still_status open_layers(const still_session *session, session_content *content) {
  STILL_TRY(
      STILL_ALLOC(&content->layers, (size_t)session->layer_count, "the layers of a session file"));
  for (int i = 0; i < session->layer_count; i++) {
    content->layers[i] = session->layers[i];
    content->layers[i].cache = NULL;
  }
  return still_session_open_caches(session->model, session->backend, content->layers);
}

/* Nothing can fail here but the list's memory, before anything has changed. */
static still_status commit(still_session *session, session_content *content) {
  const size_t remembered = (size_t)(content->count - content->first);
  STILL_TRY(still_session_reserve_tokens(session, (int64_t)remembered));
  for (int i = 0; i < session->layer_count; i++) {
    still_layer_cache *old = session->layers[i].cache;
    session->layers[i].cache = content->layers[i].cache;
    content->layers[i].cache = old;
  }
  session->count = session->first = content->first;
  still_session_remember(session, (const still_token *)content->tokens, remembered);
  if (content->has_logits)
    memcpy(session->logits, content->logits,
           (size_t)session->model->weights->config.vocabulary * sizeof(float));
  session->has_logits = content->has_logits;
  session->checkpoint_count = 0;
  session->unsettled = false;
  still_journal_forget(session);
  still_scores_truncate(session);
  return STILL_OK;
}

still_status still_session_load_bytes(still_session *session, const void *data, size_t bytes) {
  session_file file = {data, bytes, 0};
  session_content content = {0};
  STILL_TRY(check_envelope(&file));
  STILL_TRY(check_settings(session, &file));
  STILL_TRY(read_tokens(session, &file, &content));
  still_session_lock(session);
  still_status status = open_layers(session, &content);
  if (!status) status = read_caches(session, &file, &content);
  if (!status) status = commit(session, &content);
  if (content.layers) still_session_close_caches(session->model, session->backend, content.layers);
  still_session_unlock(session);
  still_free(content.layers);
  return status;
}

still_status still_session_load(still_session *session, const char *path,
                                still_progress_callback *callback, void *user) {
  enum { PASSES = 3 }; /* reading, checksum, caches */
  still_file file;
  still_progress progress = {callback, user, "loading the session", 0, 0, NULL};
  progress.total = PASSES * still_file_bytes(path);
  still_progress_begin(&progress);
  still_status status = still_file_open(&file, path, false);
  if (!status) {
    status = still_session_load_bytes(session, file.data, file.bytes);
    if (status) status = still_fail_in(status, "%s", path);
    still_file_close(&file);
  }
  still_progress_end(&progress);
  return status;
}
