/* SPDX-License-Identifier: MIT
 * One block of tokens through the model, on the backend's table of operations. */
#ifndef STILL_MODEL_FORWARD_H
#define STILL_MODEL_FORWARD_H

#include "model/model_state.h"

enum { STILL_LOGIT_ROWS = 16 }; /* whose logits are made in one go */

/* Activations of a block of n tokens. */
typedef enum still_activation {
  STILL_ACT_X = 0,    /* (n, width) the residual stream */
  STILL_ACT_NORMED,   /* (n, width) */
  STILL_ACT_Q,        /* (n, H*D) */
  STILL_ACT_K,        /* (n, G*D) */
  STILL_ACT_V,        /* (n, G*D) */
  STILL_ACT_ATTENDED, /* (n, H*D) */
  STILL_ACT_FF_GATE,  /* (n, feed_forward) */
  STILL_ACT_FF_UP,    /* (n, feed_forward) */
  STILL_ACT_LAST,     /* (STILL_LOGIT_ROWS, width) rows that logits are made from */
  STILL_ACT_LOGITS,   /* (STILL_LOGIT_ROWS, vocabulary) */
  STILL_ACT_GATE,     /* (n, H*D) where a layer has a gate */
  STILL_ACT_Q_RAW,    /* (n, H*D), (n, G*D) where a layer is LIGER_GLA */
  STILL_ACT_K_RAW,
  STILL_ACT_LOW, /* (n, largest rank) where there are LoRA pairs */
  STILL_ACTIVATIONS
} still_activation;

/* One layer of a session. */
typedef struct still_session_layer {
  still_attention_plan *plan;
  still_layer_cache *cache;
  bool on_host;   /* the device refused this plan */
  bool learned;   /* the plan has weights of the adapter */
  bool uses_gate; /* the linear branch is on and the adapter has a gate */
} still_session_layer;

typedef struct still_forward {
  const still_model *model;
  const still_placement *placed;
  still_backend *backend; /* where the activations are */
  still_backend *host;    /* for weights and caches that are not there; may be the same */
  still_session_layer *layers;
  size_t block;                                 /* the most tokens of a call */
  still_buffer *activations[STILL_ACTIVATIONS]; /* NULL: not needed */
  still_buffer *mirrors[STILL_ACTIVATIONS]; /* the same on the host: of layers that run there, and
                                               where it has to compute something for the others */
  float *staging;                           /* between the two, as long as the longest */
  still_taps taps; /* (H, block) each where somebody wants them, else NULL */
  /* Called after each layer's attention while there are taps. */
  still_status (*record)(void *user, int layer, size_t n, int64_t first);
  /* Called between the operations: stops the forward where it is not 0. layers: done so far. */
  still_status (*between)(void *user, int layers, size_t n);
  void *user;
  int layers_done;
} still_forward;

/* Floats of each activation; of what a session's layers do not need: 0. */
void still_forward_sizes(const still_model *model, const still_session_layer *layers, size_t block,
                         size_t floats[STILL_ACTIVATIONS]);
/* Bytes of all of them and of the other arrays of a forward. */
size_t still_forward_bytes(const still_model *model, const still_session_layer *layers,
                           size_t block);

/* layers, model, placed and backends are set; makes the rest. Undo with close, also after a failure. */
still_status still_forward_open(still_forward *forward);
void still_forward_close(still_forward *forward);

/* n <= block tokens that follow `first` others. Leaves x and the caches; NUMERIC names the layer and position of the first
 * value that is not finite. */
still_status still_forward_block(still_forward *forward, const still_token *ids, size_t n,
                                 int64_t first);
/* logits (count, vocabulary) after the rows row .. row+count-1 of the last block, which began at position `first`;
 * count <= STILL_LOGIT_ROWS. */
still_status still_forward_logits(still_forward *forward, size_t row, size_t count, int64_t first,
                                  float *logits);

/* forward_host.c: what the device has refused is computed on the host, activations going there and back. */
bool still_forward_needs_host(const still_forward *forward);
still_status still_forward_open_mirrors(still_forward *forward,
                                        const size_t floats[STILL_ACTIVATIONS]);
void still_forward_close_mirrors(still_forward *forward);
/* n rows of an activation from the device to its mirror, or back. */
still_status still_forward_move(still_forward *forward, still_activation which, size_t floats,
                                bool to_host);
still_status still_host_embed(still_forward *forward, still_activation out,
                              const still_placed *placed, const still_token *ids, size_t n);
still_status still_host_matmul(still_forward *forward, still_activation out,
                               const still_placed *placed, size_t rows, still_activation in,
                               size_t columns, size_t n, int accumulate);
still_status still_host_attention(still_forward *forward, still_session_layer *layer, size_t n);

#endif
