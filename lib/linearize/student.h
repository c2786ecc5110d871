/* SPDX-License-Identifier: MIT
 *
 * A base model with an adapter in training: frozen f32 weights, the adapter's arrays as master
 * parameters, and the two losses of spec section 7 with their gradients.
 *
 *   T        tokens of a batch (all sequences, one after the other)
 *   W        width
 *   H, G, D  heads, kv heads, head dimension
 *   R        rows of the joined projection: [q (H*D); k (G*D); v (G*D); gate (H*D, where the layer
 *            has one)] */
#ifndef STILL_LINEARIZE_STUDENT_H
#define STILL_LINEARIZE_STUDENT_H

#include "linearize/training_routing.h"
#include "model/adapter.h"

/* Sequences of a batch; token t of sequence i is at offsets[i] + t. */
typedef struct still_batch {
  size_t sequences, tokens;
  const size_t *offsets; /* (sequences + 1) */
  const int32_t *ids;    /* (tokens) */
  const int32_t *target; /* (tokens) the next token, -1 = none */
  const float *weight;   /* (tokens) of the loss of predicting target; 0 where there is none */
  const int *budget; /* (sequences) m of STILL layers, window of others; NULL or 0 = the options' */
} still_batch;

/* Something trained: `value` lies in the adapter. */
typedef struct still_parameter {
  char name[96];
  float *value, *gradient;
  size_t count;
  bool is_map; /* feature maps, gates: stage 1; otherwise LoRA: stage 2 */
} still_parameter;

typedef struct still_student still_student;

typedef struct still_student_options {
  still_attention_options
      attention; /* STILL, SWA, LOLCATS fields; context 0: a sequence's own length */
  const still_attention_kind *kinds; /* (layers) */
  bool gate;                         /* STILL layers get W_g */
  bool maps;                         /* STILL layers get A_q, A_k; false: salient-only */
  int lora_rank;                     /* 0: no pairs */
  float lora_alpha;
  size_t longest;   /* tokens of the longest sequence */
  size_t most;      /* tokens of the largest batch */
  size_t sequences; /* sequences of the largest batch */
  int threads;
  uint64_t seed;
} still_student_options;

/* adapter NULL: a fresh one (A = identity, W_g = 0, LoRA B = 0) is made; otherwise it is taken over
 * (also on failure) and gets what it lacks. weights must outlive the student. */
still_status still_student_create(still_student **student, const still_model_weights *weights,
                                  still_adapter *adapter, const still_student_options *options);
void still_student_destroy(still_student *student);

still_adapter *still_student_adapter(still_student *student);
still_parameter *still_student_parameters(still_student *student, size_t *count);
void still_student_clear_gradients(still_student *student);
/* Works the parameters into the weights that the forward uses; call after each change of them. CANCELLED: call it again. */
still_status still_student_refresh(still_student *student);

/* What a layer's heads gave instead of softmax attention's output: sums over a batch. */
typedef struct still_transfer_error {
  double squared;  /* |y_hybrid - y_softmax|^2 */
  double power;    /* |y_softmax|^2 */
  double elements; /* how many */
} still_transfer_error;

/* The passes below breathe (base/progress.h) on all threads and end with CANCELLED where they are
 * told to stop; gradients are undefined then, parameters as before.
 *
 * Stage 1: runs the base model with softmax attention; every layer that is not FULL is compared on
 * its inputs. errors (layers) are added to. gradients: of sum squared / elements, for maps, times
 * `scale`. */
still_status still_student_transfer(still_student *student, const still_batch *batch,
                                    bool gradients, double scale, still_transfer_error *errors);

/* Stage 2: next-token cross-entropy with the hybrid operators in place. Adds sum of weight * loss
 * to *loss and sum of weights to *weight. gradients: of scale * that sum, for the parameters that
 * have a gradient array. */
still_status still_student_loss(still_student *student, const still_batch *batch, bool gradients,
                                double scale, double *loss, double *weight);

/* Final hidden states (T, W), normed, and the output matrix (V, W): for comparing distributions.
 * teacher: softmax attention and no LoRA. layer >= 0: that layer alone is put back to FULL. */
still_status still_student_hidden(still_student *student, const still_batch *batch, bool teacher,
                                  int layer, const float **hidden);
const float *still_student_output_matrix(const still_student *student, size_t *vocabulary,
                                         size_t *width);

#endif
