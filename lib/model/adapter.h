/* SPDX-License-Identifier: MIT
 * What is learned beside an untouched base model, and the file that holds it.
 *
 * One safetensors file. Tensors (i = layer), each present only where the layer has it:
 *   layers.<i>.feature_q, layers.<i>.feature_k   (H, D, D)   A of the feature map, u[e] = sum_d x[d] A[d][e]
 *   layers.<i>.bias_q, layers.<i>.bias_k         (H, D)      T2R
 *   layers.<i>.window_factor                     (H)         LoLCATs, after the sigmoid
 *   layers.<i>.gate                              (H*D, width) W_g, g = sigmoid(x W_g^T)
 *   base_model.model.model.layers.<i>.<module>.lora_A.weight   (r, in)     PEFT's names; module as in
 *   base_model.model.model.layers.<i>.<module>.lora_B.weight   (out, r)    still_linear_module()
 * Metadata (strings):
 *   still_adapter  "1", the format's version       kinds       "still,still,full,...", one for each layer
 *   chunk, budget, context, window, sinks          numbers     schedule ("budget", "fixed", "ratio"), keep, keep_ratio
 *   metric         "saliency" ...                  routing     "head" or "group"
 *   feature_map    "norm-preserved", "hedgehog"    base_hash   16 hexadecimal digits
 *   lora_scale     what B A is multiplied with (alpha / r), one for all pairs
 *
 * A PEFT LoRA folder (adapter_config.json, adapter_model.safetensors) is read into the same struct, without
 * attention: r, lora_alpha, use_rslora, rank_pattern, alpha_pattern; whatever else would change the result is
 * refused by name. LoRA adapters in GGUF files are read into it too: adapter_gguf.c. Checkpoints of the STILL authors' own code are read too: adapter_authors.c. */
#ifndef STILL_MODEL_ADAPTER_H
#define STILL_MODEL_ADAPTER_H

#include "model/model_weights.h"

/* out += scale * (x A^T) B^T. rank 0: no pair. */
typedef struct still_lora {
  int rank;
  float scale;
  float *a; /* (rank, in) */
  float *b; /* (out, rank) */
} still_lora;

typedef struct still_adapter_layer {
  still_attention_kind kind;
  float *feature_q, *feature_k; /* (H, D, D) or NULL */
  float *bias_q, *bias_k;       /* (H, D) or NULL */
  float *window_factor;         /* (H) or NULL */
  float *gate;                  /* (H*D, width) or NULL */
  still_lora lora[STILL_LINEARS];
} still_adapter_layer;

typedef struct still_adapter {
  bool has_attention; /* false: LoRA only, the kinds mean nothing */
  /* Of the STILL fields only chunk, budget, schedule, keep, keep_ratio, metric, routing, feature_map, window, sinks and
   * context are used and stored. */
  still_attention_options attention;
  uint64_t base_hash; /* 0 = unknown */
  int layer_count;
  still_adapter_layer *layers;
} still_adapter;

/* An empty one for this model: every kind FULL, no tensors. */
still_status still_adapter_create(still_adapter **adapter, const still_model_config *config);
/* Frees the arrays too: each is memory of still_alloc. */
void still_adapter_destroy(still_adapter *adapter);

/* A hash of everything that is learned. */
uint64_t still_adapter_hash(const still_adapter *adapter, const still_model_config *config);

/* Reads a file of ours, a PEFT folder or a GGUF adapter for this model. FORMAT names a tensor of the wrong shape with both shapes;
 * UNSUPPORTED a version or PEFT option that this library does not know. Values must be finite. */
still_status still_adapter_read(still_adapter **adapter, const char *path,
                                const still_model_config *config);
/* Writes all of it, all or nothing. type: F32, F16 or BF16. All pairs must have the same scale. */
still_status still_adapter_write(const still_adapter *adapter, const char *path,
                                 const still_model_config *config, still_tensor_type type);

#endif
