/* SPDX-License-Identifier: MIT
 * What a recorded session holds, for the files that record, measure and draw it. */
#ifndef STILL_EVALUATE_MECHANISM_H
#define STILL_EVALUATE_MECHANISM_H

#include "base/status.h"

#include <still/evaluate.h>

#include <stdbool.h>

/* What one layer told, token by token. */
typedef struct still_recorded_layer {
  float *q, *k;                       /* (tokens, H D), (tokens, G D) */
  float *scores;                      /* (tokens, H); nothing where the layer does not route */
  float *linear_mass, *linear_output; /* (tokens, H) */
  size_t tokens, room;
  bool routes;
  size_t chunk;
} still_recorded_layer;

/* What was measured of one head, for pictures. Arrays of the report's tokens. */
typedef struct still_measured_head {
  float *scores, *attention;
  unsigned char *kept;
} still_measured_head;

struct still_mechanism {
  still_session *session;
  const still_tokenizer *tokenizer;
  int layer_count, head_count, kv_heads, dim;
  size_t most; /* tokens to be recorded */
  still_recorded_layer *layers;
  still_status failed; /* of the probe, which has then stopped the evaluation */

  /* Measured; NULL before. */
  size_t tokens;
  still_token *ids;
  still_measured_head *measured; /* (layers, heads) */
  still_mechanism_head *heads;   /* (layers, heads) */
  still_mechanism_word *words;
  size_t word_count;
};

/* mechanism_record.c: ends recording; what was measured stays. */
void still_mechanism_detach(still_mechanism *mechanism);

/* rank_correlation.c: Spearman's, equal values sharing the mean of their ranks; NaN for fewer than
 * two pairs, or where all values of one side are equal. */
still_status still_rank_correlation(const float *a, const float *b, size_t count, double *result);

#endif
