/* SPDX-License-Identifier: MIT
 * Session files: an input is a list of edits to a file that was just saved, so that whatever the format becomes, most
 * of what is tried is nearly right. byte 0: tokens in the session; byte 1: whether the checksum and length are put
 * right afterwards, and how much is cut off; then edits of 3 bytes: place (2), value.
 *
 * What fails must leave the session as it was; what loads must be able to go on. */
#include "fuzz.h"

#include "formats/gguf.h"
#include "model/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  VOCABULARY = 32,
  WIDTH = 16,
  HEADS = 2,
  DIM = 8,
  FEED_FORWARD = 24,
  MOST_FILE = 1 << 16,
  MOST_TOKENS = 64
};

/* ---- a model of one layer ----------------------------------------------------------------------- */

static float weights[4096];

static void put_tensor(still_gguf_writer *writer, const char *name, uint64_t rows,
                       uint64_t columns) {
  still_tensor tensor = {.name = name,
                         .dimensions = rows ? 2 : 1,
                         .shape = {rows ? rows : columns, columns},
                         .data = weights + (name[5] & 31)};
  tensor.bytes = sizeof(float) * still_tensor_items(&tensor);
  FUZZ_CHECK(!still_gguf_put_tensor(writer, &tensor));
}

static void put_number(still_gguf_writer *writer, const char *key, uint32_t value) {
  FUZZ_CHECK(!still_gguf_put_u32(writer, key, value));
}

static void write_model(const char *path) {
  for (int i = 0; i < 4096; i++) weights[i] = (float)(i * 2654435761u % 1000) / 1000 - 0.45f;
  still_gguf_writer *writer;
  FUZZ_CHECK(!still_gguf_writer_create(&writer));
  FUZZ_CHECK(!still_gguf_put_string(writer, "general.architecture", "llama", 5));
  put_number(writer, "llama.block_count", 1);
  put_number(writer, "llama.attention.head_count", HEADS);
  put_number(writer, "llama.attention.head_count_kv", 1);
  put_number(writer, "llama.attention.key_length", DIM);
  put_number(writer, "llama.embedding_length", WIDTH);
  put_number(writer, "llama.feed_forward_length", FEED_FORWARD);
  put_number(writer, "llama.context_length", 128);
  FUZZ_CHECK(!still_gguf_put_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f));
  put_tensor(writer, "token_embd.weight", VOCABULARY, WIDTH);
  put_tensor(writer, "output_norm.weight", 0, WIDTH);
  put_tensor(writer, "blk.0.attn_norm.weight", 0, WIDTH);
  put_tensor(writer, "blk.0.attn_q.weight", HEADS * DIM, WIDTH);
  put_tensor(writer, "blk.0.attn_k.weight", DIM, WIDTH);
  put_tensor(writer, "blk.0.attn_v.weight", DIM, WIDTH);
  put_tensor(writer, "blk.0.attn_output.weight", WIDTH, HEADS * DIM);
  put_tensor(writer, "blk.0.ffn_norm.weight", 0, WIDTH);
  put_tensor(writer, "blk.0.ffn_gate.weight", FEED_FORWARD, WIDTH);
  put_tensor(writer, "blk.0.ffn_up.weight", FEED_FORWARD, WIDTH);
  put_tensor(writer, "blk.0.ffn_down.weight", WIDTH, FEED_FORWARD);
  FUZZ_CHECK(!still_gguf_write(writer, path));
  still_gguf_writer_destroy(writer);
}

/* Written once; writing costs more than all the rest. */
static char folder[] = "/tmp/still_fuzz_XXXXXX", model_path[64];

static void remove_model(void) {
  unlink(model_path);
  rmdir(folder);
}

static still_model *open_model(void) {
  if (!*model_path) {
    FUZZ_CHECK(mkdtemp(folder));
    snprintf(model_path, sizeof model_path, "%s/model.gguf", folder);
    write_model(model_path);
    atexit(remove_model);
  }
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.use_mmap = 0;
  options.threads = 1;
  still_model *model;
  FUZZ_CHECK(!still_model_open(&model, model_path, &options));
  return model;
}

/* ---- sessions ----------------------------------------------------------------------------------- */

static still_session *open_session(const still_model *model) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  options.chunk = 4;
  options.budget = 36;
  options.block = 8;
  still_session *session;
  FUZZ_CHECK(!still_session_create(&session, model, &options));
  return session;
}

static void feed(still_session *session, size_t count) {
  still_token ids[MOST_TOKENS];
  for (size_t i = 0; i < count; i++) ids[i] = (still_token)(i * 7 % VOCABULARY);
  if (count) FUZZ_CHECK(!still_session_evaluate(session, ids, count, NULL, NULL));
}

static size_t save(const still_model *model, size_t tokens, uint8_t *file) {
  char path[] = "/tmp/still_fuzz_XXXXXX";
  const int descriptor = mkstemp(path);
  FUZZ_CHECK(descriptor >= 0);
  close(descriptor);
  still_session *session = open_session(model);
  feed(session, tokens);
  FUZZ_CHECK(!still_session_save(session, path));
  still_session_destroy(session);
  FILE *stream = fopen(path, "rb");
  FUZZ_CHECK(stream);
  const size_t bytes = fread(file, 1, MOST_FILE, stream);
  fclose(stream);
  unlink(path);
  FUZZ_CHECK(bytes < MOST_FILE);
  return bytes;
}

/* A copy of the saved bytes of a session of this many tokens. */
static size_t saved_session(const still_model *model, size_t tokens, uint8_t *file) {
  static uint8_t *files[MOST_TOKENS];
  static size_t lengths[MOST_TOKENS];
  if (!files[tokens]) {
    files[tokens] = malloc(MOST_FILE);
    FUZZ_CHECK(files[tokens]);
    lengths[tokens] = save(model, tokens, files[tokens]);
  }
  memcpy(file, files[tokens], lengths[tokens]);
  return lengths[tokens];
}

/* Length and checksum as a file of these bytes should have them. */
static void put_right(uint8_t *file, size_t bytes) {
  const uint64_t length = bytes;
  memcpy(file + 16, &length, 8);
  const uint64_t sum = still_session_checksum(0, file, bytes - 8);
  memcpy(file + bytes - 8, &sum, 8);
}

static void try_load(const still_model *model, const uint8_t *file, size_t bytes) {
  enum { BEFORE = 9 };
  still_session *session = open_session(model), *control = open_session(model);
  feed(session, BEFORE);
  feed(control, BEFORE);
  const still_status status = still_session_load_bytes(session, file, bytes);
  feed(control, 3);
  if (status) {
    FUZZ_CHECK(still_session_position(session) == BEFORE);
    feed(session, 3);
    FUZZ_CHECK(!memcmp(still_session_logits(session), still_session_logits(control),
                       VOCABULARY * sizeof(float)));
  } else { /* edited numbers may be anything, infinity too */
    const still_token id = 1;
    still_session_evaluate(session, &id, 1, NULL, NULL);
  }
  still_session_destroy(session);
  still_session_destroy(control);
}

void fuzz_one(const uint8_t *data, size_t bytes) {
  if (bytes < 2) return;
  still_model *model = open_model();
  uint8_t *file = malloc(MOST_FILE);
  FUZZ_CHECK(file);
  size_t length = saved_session(model, data[0] % MOST_TOKENS, file);
  for (size_t i = 2; i + 2 < bytes; i += 3)
    file[(data[i] | (size_t)data[i + 1] << 8) % length] = data[i + 2];
  length -= (data[1] >> 1) * 8u % length;
  if (data[1] & 1 && length >= 32) put_right(file, length);
  try_load(model, file, length);
  free(file);
  still_model_destroy(model);
}
