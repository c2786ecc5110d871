/* SPDX-License-Identifier: MIT
 * Models for tests: the embedded one, and small random ones written as GGUF or as a Hugging Face folder. */
#ifndef STILL_TESTS_MODEL_FIXTURES_H
#define STILL_TESTS_MODEL_FIXTURES_H

#include "formats/tensor.h"

#include <still/model.h>

const char *needle_folder(void);
/* A file of it; the string lives until the next call. */
const char *needle_file(const char *name);

double largest_difference(const float *got, const float *want, size_t count);

/* A model in memory: one float array for each tensor, Hugging Face order. Layers beyond MADE_LAYERS are not
 * made. */
enum { MADE_LAYERS = 8 };
typedef struct made_layer {
  float *attention_norm, *q, *k, *v, *o, *feed_norm, *gate, *up, *down;
  float *q_bias, *k_bias, *v_bias, *q_norm, *k_norm; /* NULL: without */
} made_layer;
typedef struct made_model {
  const char *gguf_architecture, *class_name; /* "llama", "LlamaForCausalLM" */
  int layers, heads, kv_heads, head_dim, width, feed_forward, vocabulary, context;
  double theta;
  bool tied, biases, head_norms;
  float *embedding, *output_norm, *output; /* output NULL when tied */
  made_layer layer[MADE_LAYERS];
  int sliding_window;     /* a GGUF's key attention.sliding_window; 0: none */
  const char *extra_json; /* more members of config.json, each followed by a comma; NULL: none */
} made_model;

/* 2 layers, 4 query heads, 2 key/value heads of dimension 16, width 48, vocabulary 97, context 512, tied. */
made_model made_shape(void);
/* Fills the shape with random weights (seeded). */
void made_fill(made_model *model, uint64_t seed);
void made_free(made_model *model);
/* A small real model of the shared folder, stories260K; skips the test without it. */
made_model made_stories(void);

/* Writes it with matrices of this type (vectors stay F32); returns the path, which lives until exit. */
const char *made_gguf(const made_model *model, const char *name, still_tensor_type type);
const char *made_folder(const made_model *model, const char *name, still_tensor_type type);

/* Logits (n, vocabulary) in float64 with full attention, after every token. */
void made_reference(const made_model *model, const still_token *ids, size_t n, float *logits);

/* Opens a model and a session of it; options may be NULL. Close with close_run. */
typedef struct model_run {
  still_model *model;
  still_session *session;
} model_run;
model_run open_run(const char *path, const still_session_options *options);
void close_run(model_run *run);
/* n token ids below `vocabulary`, the same for the same seed. */
void random_ids(still_token *ids, size_t n, int vocabulary, uint64_t seed);
/* All logits (n, vocabulary) of a fresh session. */
void all_logits(const char *path, const still_session_options *options, const still_token *ids,
                size_t n, float *logits);

/* made_shape, filled from seed 1, as a GGUF in F32. */
const char *small_gguf(void);

#endif
