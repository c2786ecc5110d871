/* SPDX-License-Identifier: MIT */
#include "fuzz_model.h"

#include "formats/gguf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WIDTH = 16, HEADS = 2, DIM = 8, FEED_FORWARD = 24 };

static char folder[] = "/tmp/still_fuzz_XXXXXX";
static still_model *model;
static float weights[4096];

const char *fuzz_path(const char *name) {
  static char path[sizeof folder + 300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* ---- writing the model -------------------------------------------------------------------------- */

static void put_tensor(still_gguf_writer *writer, const char *name, uint64_t rows,
                       uint64_t columns) {
  unsigned start = 0;
  for (const char *c = name; *c; c++) start = (start * 31 + (unsigned)*c) % 512;
  still_tensor tensor = {.name = name,
                         .dimensions = rows ? 2 : 1,
                         .shape = {rows ? rows : columns, columns},
                         .data = weights + start};
  tensor.bytes = sizeof(float) * still_tensor_items(&tensor);
  FUZZ_CHECK(!still_gguf_put_tensor(writer, &tensor));
}

static void put_number(still_gguf_writer *writer, const char *key, uint32_t value) {
  FUZZ_CHECK(!still_gguf_put_u32(writer, key, value));
}

static void put_layer(still_gguf_writer *writer, int layer) {
  const struct {
    const char *name;
    uint64_t rows, columns;
  } parts[] = {{"attn_norm", 0, WIDTH},
               {"attn_q", HEADS * DIM, WIDTH},
               {"attn_k", DIM, WIDTH},
               {"attn_v", DIM, WIDTH},
               {"attn_output", WIDTH, HEADS * DIM},
               {"ffn_norm", 0, WIDTH},
               {"ffn_gate", FEED_FORWARD, WIDTH},
               {"ffn_up", FEED_FORWARD, WIDTH},
               {"ffn_down", WIDTH, FEED_FORWARD}};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, parts[i].name);
    put_tensor(writer, name, parts[i].rows, parts[i].columns);
  }
}

static void write_model(const char *path) {
  for (int i = 0; i < 4096; i++)
    weights[i] = (float)((unsigned)i * 2654435761u % 1000) / 1000 - 0.45f;
  still_gguf_writer *writer;
  FUZZ_CHECK(!still_gguf_writer_create(&writer));
  FUZZ_CHECK(!still_gguf_put_string(writer, "general.architecture", "llama", 5));
  put_number(writer, "llama.block_count", FUZZ_LAYERS);
  put_number(writer, "llama.attention.head_count", HEADS);
  put_number(writer, "llama.attention.head_count_kv", 1);
  put_number(writer, "llama.attention.key_length", DIM);
  put_number(writer, "llama.embedding_length", WIDTH);
  put_number(writer, "llama.feed_forward_length", FEED_FORWARD);
  put_number(writer, "llama.context_length", 128);
  FUZZ_CHECK(!still_gguf_put_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f));
  put_tensor(writer, "token_embd.weight", FUZZ_VOCABULARY, WIDTH);
  put_tensor(writer, "output_norm.weight", 0, WIDTH);
  for (int i = 0; i < FUZZ_LAYERS; i++) put_layer(writer, i);
  FUZZ_CHECK(!still_gguf_write(writer, path));
  still_gguf_writer_destroy(writer);
}

/* ---- before and after all inputs ---------------------------------------------------------------- */

static void close_model(void) {
  still_model_destroy(model);
  DIR *opened = opendir(folder);
  for (struct dirent *entry; opened && (entry = readdir(opened));)
    if (entry->d_name[0] != '.') unlink(fuzz_path(entry->d_name));
  if (opened) closedir(opened);
  rmdir(folder);
}

__attribute__((constructor)) static void open_model(void) {
  FUZZ_CHECK(mkdtemp(folder));
  write_model(fuzz_path("model.gguf"));
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.use_mmap = 0;
  options.threads = 1;
  FUZZ_CHECK(!still_model_open(&model, fuzz_path("model.gguf"), &options));
  atexit(close_model);
}

const still_model *fuzz_model(void) {
  return model;
}
