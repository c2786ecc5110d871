/* SPDX-License-Identifier: MIT
 * The hyper-parameters of a Llama-family model, from GGUF metadata or config.json, range-checked before anything
 * is sized with them. */
#ifndef STILL_MODEL_MODEL_CONFIG_H
#define STILL_MODEL_MODEL_CONFIG_H

#include "base/status.h"
#include "formats/gguf.h"

#include <stdbool.h>

/* One row of the table of architectures: what a family adds to plain Llama. */
typedef struct still_architecture {
  const char *gguf;   /* general.architecture */
  const char *class;  /* config.json "architectures" */
  bool qkv_bias;      /* Qwen2: vectors added to q, k, v */
  bool qk_norm;       /* Qwen3: RMS norm of each head of q and k before the rotation */
  bool gguf_permuted; /* GGUF holds the rows of q and k for interleaved rotation */
} still_architecture;

typedef enum still_rope_scaling {
  STILL_ROPE_PLAIN = 0,
  STILL_ROPE_LINEAR,
  STILL_ROPE_LLAMA3,
  STILL_ROPE_YARN
} still_rope_scaling;

typedef struct still_rope {
  double theta;
  still_rope_scaling scaling;
  double factor;        /* LINEAR, LLAMA3, YARN: > 0 */
  double low_frequency; /* LLAMA3: low_freq_factor, high_freq_factor */
  double high_frequency;
  double original_context;     /* LLAMA3, YARN */
  double beta_fast, beta_slow; /* YARN */
  double attention_factor;     /* YARN: multiplies cosine and sine; 0 = 0.1 ln(factor) + 1 */
} still_rope;

typedef struct still_model_config {
  const still_architecture *architecture; /* a row of the static table */
  char name[128];                         /* what the file calls the model */
  int layers;                             /* 1 .. 1024 */
  int heads;                              /* H, 1 .. 4096 */
  int kv_heads;                           /* G, divides H */
  int head_dim;                           /* D, even, 2 .. 1024 */
  int width;                              /* 1 .. 2^20 */
  int feed_forward;                       /* 1 .. 2^22 */
  int vocabulary;                         /* 1 .. 2^24 */
  int trained_context;                    /* 1 .. 2^31-1 */
  int sliding_window; /* the window the model was trained with (Mistral 7B v0.1), 0 = none */
  float norm_eps;
  bool tied_embeddings; /* config.json says so; GGUF: there is no output.weight */
  bool qkv_bias;        /* the family's */
  still_rope rope;
} still_model_config;

/* Reads and checks. FORMAT: a key is missing or out of range (named, with the range); UNSUPPORTED: an
 * architecture, activation or rope scaling that this library does not know (named, with the known ones).
 * `where` is the file's name for the sentence. */
still_status still_model_config_from_gguf(still_model_config *config, const still_gguf *gguf,
                                          const char *where);
still_status still_model_config_from_json(still_model_config *config, const char *text,
                                          size_t bytes, const char *where);

/* Puts it into the metadata of a GGUF file. Llama 3's scaling has no key: it goes into the tensor rope_freqs.weight, whose
 * head_dim / 2 values still_rope_factors tells. */
still_status still_model_config_put(still_gguf_writer *writer, const still_model_config *config);
void still_rope_factors(const still_rope *rope, int head_dim, float *factors);

/* Rotation frequencies in radians a token, head_dim / 2 of them, and the factor of cosine and sine (1 but for
 * YARN). factors: the head_dim / 2 divisors of GGUF's rope_freqs tensor, or NULL. */
void still_rope_frequencies(const still_rope *rope, int head_dim, const float *factors,
                            float *frequencies, float *scale);

#endif
