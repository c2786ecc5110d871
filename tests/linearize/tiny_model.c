/* SPDX-License-Identifier: MIT */
#include "tiny_model.h"

#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static still_tensor make(still_random *random, const char *name, uint64_t rows, uint64_t columns,
                         double size, double middle) {
  still_tensor t = {.name = name, .type = STILL_TENSOR_F32, .dimensions = rows ? 2 : 1};
  t.shape[0] = rows ? rows : columns, t.shape[1] = columns;
  const uint64_t items = (rows ? rows : 1) * columns;
  float *data = malloc(items * sizeof *data);
  for (uint64_t i = 0; i < items; i++)
    data[i] = (float)(middle + size * still_random_normal(random));
  t.data = data, t.bytes = items * sizeof *data;
  return t;
}

void tiny_model_make(still_model_weights *w, uint64_t seed) {
  still_random random;
  still_random_seed(&random, seed);
  memset(w, 0, sizeof *w);
  w->config = (still_model_config){.layers = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 8,
                                   .width = 24,
                                   .feed_forward = 40,
                                   .vocabulary = 50,
                                   .trained_context = 512,
                                   .norm_eps = 1e-5f};
  w->hash = 42, w->rope_scale = 1;
  w->embedding = w->output = make(&random, "embedding", 50, 24, 0.5, 0);
  w->output_norm = make(&random, "output_norm", 0, 24, 0.1, 1);
  w->frequencies = calloc(4, sizeof(float));
  for (int i = 0; i < 4; i++) w->frequencies[i] = (float)pow(100, -i / 4.0);
  w->layers = calloc(2, sizeof *w->layers);
  for (int l = 0; l < 2; l++) {
    w->layers[l].attention_norm = make(&random, "attention_norm", 0, 24, 0.1, 1);
    w->layers[l].feed_norm = make(&random, "feed_norm", 0, 24, 0.1, 1);
    for (int i = 0; i < STILL_BASE_LINEARS; i++) {
      uint64_t out, in;
      still_linear_shape(&w->config, (still_linear)i, &out, &in);
      w->layers[l].linear[i] = make(&random, "linear", out, in, 1 / sqrt((double)in), 0);
    }
  }
}

void tiny_model_free(still_model_weights *w) {
  free((void *)w->embedding.data), free((void *)w->output_norm.data), free(w->frequencies);
  for (int l = 0; l < 2; l++) {
    free((void *)w->layers[l].attention_norm.data), free((void *)w->layers[l].feed_norm.data);
    for (int i = 0; i < STILL_BASE_LINEARS; i++) free((void *)w->layers[l].linear[i].data);
  }
  free(w->layers);
}
