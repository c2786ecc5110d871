/* SPDX-License-Identifier: MIT
 * Session files: an input is a list of edits to a file that was just saved, so that whatever the format becomes, most
 * of what is tried is nearly right. byte 0: tokens in the session; byte 1: whether the checksum and length are put
 * right afterwards, and how much is cut off; then edits of 3 bytes: place (2), value.
 *
 * What fails must leave the session as it was; what loads must be able to go on. */
#include "fuzz_model.h"

#include "base/random.h"
#include "model/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = FUZZ_VOCABULARY, MOST_FILE = 1 << 16, MOST_TOKENS = 64 };

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
  const char *path = fuzz_path("saved");
  still_session *session = open_session(model);
  feed(session, tokens);
  FUZZ_CHECK(!still_session_save(session, path, NULL, NULL));
  still_session_destroy(session);
  FILE *stream = fopen(path, "rb");
  FUZZ_CHECK(stream);
  const size_t bytes = fread(file, 1, MOST_FILE, stream);
  fclose(stream);
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
  const uint64_t sum = still_hash_bytes(0, file, bytes - 8);
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
  const still_model *model = fuzz_model();
  uint8_t *file = malloc(MOST_FILE);
  FUZZ_CHECK(file);
  size_t length = saved_session(model, data[0] % MOST_TOKENS, file);
  for (size_t i = 2; i + 2 < bytes; i += 3)
    file[(data[i] | (size_t)data[i + 1] << 8) % length] = data[i + 2];
  length -= (data[1] >> 1) * 8u % length;
  if (data[1] & 1 && length >= 32) put_right(file, length);
  try_load(model, file, length);
  free(file);
}
