/* SPDX-License-Identifier: MIT
 * The tensors of a model by their part in it, whatever file they lie in.
 *
 * One naming table knows the GGUF and the Hugging Face names. q and k rows always come in Hugging Face order
 * (rotation of the pairs (i, i + D/2)); for a GGUF of a family that stores them interleaved they are copied into
 * that order here and nowhere else. Matrices are (out, in) row-major in the file's own type. */
#ifndef STILL_MODEL_MODEL_WEIGHTS_H
#define STILL_MODEL_MODEL_WEIGHTS_H

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/model_config.h"

#include <still/model.h>

/* The matrices of a layer that a LoRA pair may go beside. */
typedef enum still_linear {
  STILL_LINEAR_Q = 0,   /* (H*D, width) */
  STILL_LINEAR_K,       /* (G*D, width) */
  STILL_LINEAR_V,       /* (G*D, width) */
  STILL_LINEAR_O,       /* (width, H*D) */
  STILL_LINEAR_FF_GATE, /* (feed_forward, width) */
  STILL_LINEAR_FF_UP,   /* (feed_forward, width) */
  STILL_LINEAR_FF_DOWN, /* (width, feed_forward) */
  STILL_LINEAR_GATE,    /* W_g (H*D, width): of the adapter, not of the base model */
  STILL_LINEARS
} still_linear;
enum { STILL_BASE_LINEARS = STILL_LINEAR_GATE };

typedef struct still_layer_weights {
  still_tensor attention_norm;             /* (width) */
  still_tensor linear[STILL_BASE_LINEARS]; /* by still_linear */
  still_tensor q_bias, k_bias, v_bias;     /* (H*D), (G*D), (G*D); data NULL without biases */
  still_tensor q_norm, k_norm;             /* (D); data NULL without */
  still_tensor feed_norm;                  /* (width) */
} still_layer_weights;

typedef struct still_model_weights {
  still_tensor embedding;   /* (vocabulary, width) */
  still_tensor output_norm; /* (width) */
  still_tensor output;      /* (vocabulary, width); the embedding itself when tied: one copy */
  still_layer_weights *layers;
  float *frequencies; /* D / 2, radians a token, scaling applied */
  float rope_scale;   /* of cosine and sine */

  still_model_config config;
  uint64_t parameters;
  uint64_t bytes; /* as stored */
  uint64_t hash;  /* of names, types, shapes and samples of the bytes */

  /* What it lies in: exactly one of the two. For the tokenizer, and closed with the weights. */
  still_gguf *gguf;
  still_safetensors *safetensors;
  void **owned; /* reordered q and k */
  size_t owned_count;
} still_model_weights;

/* Opens a GGUF file or a Hugging Face folder, reads its configuration and finds every tensor, shapes checked.
 * FORMAT for a missing tensor names it and its shape. */
still_status still_model_weights_open(still_model_weights **weights, const char *path,
                                      bool use_mmap);
void still_model_weights_close(still_model_weights *weights);

/* A folder's tensors by the names that they have in a GGUF file. */
typedef struct still_gguf_tensors {
  still_tensor *tensors;
  int *permuted_heads; /* > 0: the rows of so many heads are still in Hugging Face order */
  size_t count;
  char (*names)[64];
  float *rope_factors; /* of the last one, rope_freqs.weight, where there is one */
} still_gguf_tensors;
/* MEMORY. Free it even then. */
still_status still_gguf_tensors_of(still_gguf_tensors *list, const still_model_weights *weights);
void still_gguf_tensors_free(still_gguf_tensors *list);

/* Gives back the pages of a mapped GGUF that were read so far. */
void still_model_weights_forget(const still_model_weights *weights);

/* The shape of a layer's matrix. */
void still_linear_shape(const still_model_config *config, still_linear linear, uint64_t *out,
                        uint64_t *in);
/* The Hugging Face module of a layer's matrix, e.g. "self_attn.q_proj"; "self_attn.g_proj" for W_g. */
const char *still_linear_module(still_linear linear);
/* Its GGUF name, e.g. "attn_q". */
const char *still_linear_gguf(still_linear linear);

/* A still_model's weights, for the trainer. Owned by the model. */
const still_model_weights *still_model_get_weights(const still_model *model);

/* The two orders of q and k rows (bytes of a row, dim rows a head): gguf row 2 i + s is row s * dim / 2 + i. */
void still_rows_from_gguf(void *out, const void *in, size_t heads, size_t dim, size_t row_bytes);
void still_rows_to_gguf(void *out, const void *in, size_t heads, size_t dim, size_t row_bytes);

#endif
