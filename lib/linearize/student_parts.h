/* SPDX-License-Identifier: MIT
 * The inside of a student, shared by student.c (parameters), student_forward.c and
 * student_backward.c. */
#ifndef STILL_LINEARIZE_STUDENT_PARTS_H
#define STILL_LINEARIZE_STUDENT_PARTS_H

#include "base/threads.h"
#include "linearize/hybrid_gradient.h"
#include "linearize/student.h"

/* What a layer's parameters are, as indices into student->parameters; -1 = it has none. */
typedef struct layer_parameters {
  int feature_q, feature_k, bias_q, bias_k, window_factor, gate;
  int lora_a[STILL_LINEARS], lora_b[STILL_LINEARS];
} layer_parameters;

typedef struct student_layer {
  still_attention_kind kind;
  bool gated;
  size_t projected;                  /* R */
  float *project;                    /* (R, W), LoRA worked in */
  float *bias;                       /* (R) or NULL */
  float *output;                     /* (W, H*D), LoRA worked in */
  float *gate_up;                    /* (2 FF, W) */
  float *down;                       /* (W, FF) */
  float *attention_norm, *feed_norm; /* (W) */
  layer_parameters has;
} student_layer;

/* What forward leaves of a layer for backward. */
typedef struct layer_trace {
  float *x;           /* (T, W) the layer's input */
  float *projected;   /* (T, R) q and k rotated, gate after the sigmoid */
  float *raw;         /* (T, (H + G) D) q and k before rotation: LIGER_GLA */
  float *y;           /* (T, H*D) */
  float *denominator; /* (H, T) */
  uint8_t *keep;      /* (H, T) */
  float *middle;      /* (T, W) after attention */
  float *gate_up;     /* (T, 2 FF) */
} layer_trace;

struct still_student {
  const still_model_weights *base;
  still_adapter *adapter;
  still_student_options options;
  size_t W, H, G, D, FF, V, L, R; /* R: the largest of all layers */
  student_layer *layers;
  float *output, *output_norm; /* (V, W), (W) */
  float *cosine, *sine;        /* (longest, D / 2) */
  still_parameter *parameters;
  size_t parameter_count;
  float *gradients;
  size_t gradient_floats;

  layer_trace *traces; /* (L), made at the first still_student_loss; the first alone before */
  size_t trace_count;
  const still_progress *progress; /* of the call at work */
  bool teacher;                   /* FULL attention in every layer */
  int put_back;                   /* this layer is FULL, -1 = none */
  int32_t *at;                    /* (T) position of each token in its sequence */

  /* work space */
  float *x, *normed, *swiglu, *scores; /* (T, W) (T, W) (T, FF) (H, T) */
  float *dx, *dnormed, *dprojected, *dy, *dkv,
      *dgate_up;                 /* (T, W) (T, W) (T, R) (T, HD) (T, 2 HD) (T, 2 FF) */
  float *through_a, *dthrough_a; /* (T, 4 r): x A^T of joined pairs and its gradient */
  float *joined_a, *djoined_a;   /* (max in, 4 r) transposed, (4 r, max in) */
  float *sums;                   /* of still_sum_of_products */
  float *head_gradients;         /* (sequences, H, per head) */
  float *logits;                 /* (logit_rows, V + W + 4) */
  size_t logit_rows;
  float *thread_work;
  size_t thread_floats;
  void **owned; /* everything allocated, for destroy */
  size_t owned_count, owned_capacity;
};

enum { MOST_LOGIT_ROWS = 1024 };

/* Allocates and remembers; what: for the sentence. */
still_status student_alloc(still_student *s, void *out, size_t count, size_t size,
                           const char *what);
#define STUDENT_ALLOC(s, out, count, what)                                                         \
  student_alloc((s), (out), (count), sizeof(**(out)), (what))

/* The layer's kind in this pass. */
still_attention_kind student_kind(const still_student *s, size_t layer);
/* The operator of one head of a layer in this pass, for sequence i of a batch (NULL: any). */
still_hybrid_head student_head(const still_student *s, const still_batch *batch, size_t layer,
                               size_t sequence, size_t head);
/* Inputs of head h for sequence i. */
still_hybrid_inputs student_inputs(const still_student *s, const still_batch *batch, size_t layer,
                                   const layer_trace *trace, size_t sequence, size_t head);

/* This thread's work space. */
static inline float *student_work(const still_student *s) {
  return s->thread_work + (size_t)omp_get_thread_num() * s->thread_floats;
}

/* Columns of k, v and the gate in a projected row. */
static inline size_t k_column(const still_student *s) {
  return s->H * s->D;
}
static inline size_t v_column(const still_student *s) {
  return (s->H + s->G) * s->D;
}
static inline size_t gate_column(const still_student *s) {
  return (s->H + 2 * s->G) * s->D;
}

still_status student_make_traces(still_student *s, size_t count);
still_status student_embed(still_student *s, const still_batch *batch, float *x);
/* trace->x is set; fills the rest of it and writes the next layer's input. */
void student_project(still_student *s, size_t layer, layer_trace *trace, size_t tokens);
void student_route(still_student *s, const still_batch *batch, size_t layer, layer_trace *trace);
void student_attend(still_student *s, const still_batch *batch, size_t layer, layer_trace *trace);
void student_finish_layer(still_student *s, size_t layer, layer_trace *trace, size_t tokens,
                          float *next);
/* s->dx (T, W) holds the gradient of the layer's output and then that of its input. */
void student_layer_backward(still_student *s, const still_batch *batch, size_t layer,
                            layer_trace *trace);
/* The gradient array of a parameter, NULL for -1. */
float *student_gradient(const still_student *s, int parameter);

/* Adds gradients of the heads' own parameters, summed over sequences in order. */
size_t student_head_gradient_floats(const still_student *s);
still_hybrid_gradients student_head_gradients(const still_student *s, size_t layer, size_t sequence,
                                              size_t head);
void student_reduce_head_gradients(still_student *s, size_t layer, size_t sequences);
/* W_g's own gradient: dlogit (T, H*D in rows of R)^T normed. */
void student_gate_gradient(still_student *s, size_t layer, size_t tokens);

#endif
