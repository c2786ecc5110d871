/* SPDX-License-Identifier: MIT
 * A model on its device: every weight placed on the backend, or kept on the CPU where the backend cannot hold it. */
#ifndef STILL_MODEL_MODEL_STATE_H
#define STILL_MODEL_MODEL_STATE_H

#include "backend/backend.h"
#include "model/adapter.h"

#include <pthread.h>

/* A matrix or vector on one of the model's two backends. weight NULL: the model has no such part. */
typedef struct still_placed {
  still_weight *weight;
  bool on_host; /* refused by the device */
} still_placed;

typedef struct still_placed_lora {
  still_placed a, b;
  int rank;
  float scale;
} still_placed_lora;

typedef struct still_placed_layer {
  still_placed attention_norm, feed_norm, q_norm, k_norm, q_bias, k_bias, v_bias;
  still_placed linear[STILL_LINEARS];
  still_placed_lora lora[STILL_LINEARS]; /* a.weight NULL: none */
  bool on_host;                          /* all of it: the whole layer runs on the CPU */
} still_placed_layer;

/* Where everything is. Layers that run on the CPU come before those that run on the device. */
typedef struct still_placement {
  still_placed embedding, output_norm, output;
  still_placed frequencies,
      host_frequencies; /* for the layers here and there; NULL where there are none */
  still_placed_layer *layers;
} still_placement;

struct still_model {
  still_model_weights *weights;
  still_adapter *adapter;     /* NULL: none */
  uint64_t adapter_hash;      /* of its numbers; 0: none */
  still_tokenizer *tokenizer; /* NULL: the files hold none */
  int threads;
  bool repack; /* what the CPU multiplies with lies in the order that it likes best */

  still_backend *device;
  still_backend
      *host; /* the CPU for what the device refuses; the device itself where that is the CPU */
  pthread_mutex_t device_use; /* a device other than the CPU works for one session at a time */

  int device_layers; /* of `placed`, the last ones */
  still_placement placed;
  still_placement
      on_host; /* all on the CPU, for sessions that have lost the device; made when first needed */
};

/* Makes model->on_host, if it is not there. The caller holds device_use. */
still_status still_model_place_on_host(still_model *model);

#endif
