/* SPDX-License-Identifier: MIT
 * A random Llama in memory, small enough for finite differences. */
#ifndef TESTS_LINEARIZE_TINY_MODEL_H
#define TESTS_LINEARIZE_TINY_MODEL_H

#include "model/model_weights.h"

/* width 24, 2 layers, 4 heads on 2 kv heads of dimension 8, feed forward 40, vocabulary 50. */
void tiny_model_make(still_model_weights *weights, uint64_t seed);
void tiny_model_free(still_model_weights *weights);

#endif
