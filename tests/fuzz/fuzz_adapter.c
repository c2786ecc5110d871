/* SPDX-License-Identifier: MIT
 * Adapters: byte 0 says what the other bytes are: an even number, a file (safetensors of ours, of the authors, GGUF);
 * an odd one, the adapter_config.json of a PEFT folder, up to a zero byte, and its adapter_model.safetensors behind it.
 *
 * What is read can be written and read again as the same numbers, and a model with it can answer. */
#include "fuzz_model.h"

#include "model/adapter.h"
#include "model/model_state.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void write_file(const char *name, const uint8_t *data, size_t bytes) {
  FILE *file = fopen(fuzz_path(name), "wb");
  FUZZ_CHECK(file && fwrite(data, 1, bytes, file) == bytes);
  FUZZ_CHECK(!fclose(file));
}

/* Returns the name of the adapter in the folder of files. */
static const char *write_input(const uint8_t *data, size_t bytes) {
  if (!bytes || data[0] % 2 == 0) {
    write_file("adapter", data + (bytes > 0), bytes - (bytes > 0));
    return "adapter";
  }
  const uint8_t *zero = memchr(data + 1, 0, bytes - 1);
  const size_t config = zero ? (size_t)(zero - data - 1) : bytes - 1;
  const size_t tensors = zero ? bytes - config - 2 : 0;
  mkdir(fuzz_path("peft"), 0700);
  write_file("peft/adapter_config.json", data + 1, config);
  write_file("peft/adapter_model.safetensors", zero ? zero + 1 : data, tensors);
  return "peft";
}

static void remove_input(const char *name) {
  if (!strcmp(name, "adapter")) {
    remove(fuzz_path(name));
    return;
  }
  remove(fuzz_path("peft/adapter_config.json"));
  remove(fuzz_path("peft/adapter_model.safetensors"));
  remove(fuzz_path("peft"));
}

static void write_and_read(const still_adapter *adapter, const still_model_config *config) {
  still_adapter *again;
  if (still_adapter_write(adapter, fuzz_path("again"), config, STILL_TENSOR_F32))
    return; /* PEFT's scales may differ */
  FUZZ_CHECK(!still_adapter_read(&again, fuzz_path("again"), config));
  FUZZ_CHECK(still_adapter_hash(again, config) == still_adapter_hash(adapter, config));
  still_adapter_destroy(again);
  remove(fuzz_path("again"));
}

/* The adapter may be of another base model, which is refused then. */
static void answer(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s", fuzz_path(name));
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.threads = 1;
  options.adapter = path;
  still_model *model;
  if (still_model_open(&model, fuzz_path("model.gguf"), &options)) return;
  still_session_options how = STILL_SESSION_OPTIONS_INIT;
  still_session *session;
  how.context = 32;
  if (!still_session_create(&session, model, &how)) {
    const still_token ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    still_session_evaluate(session, ids, sizeof ids / sizeof ids[0], NULL, NULL);
    still_session_destroy(session);
  }
  still_model_destroy(model);
}

void fuzz_one(const uint8_t *data, size_t bytes) {
  const still_model_config *config = &fuzz_model()->weights->config;
  const char *name = write_input(data, bytes);
  still_adapter *adapter;
  if (!still_adapter_read(&adapter, fuzz_path(name), config)) {
    write_and_read(adapter, config);
    still_adapter_destroy(adapter);
    answer(name);
  }
  remove_input(name);
}
