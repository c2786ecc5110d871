/* SPDX-License-Identifier: MIT
 * stories260K out of the shared folder, from its own format. */
#include "harness/check.h"
#include "model/model_fixtures.h"
#include "model/model_weights.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = 512 };

/* Takes the next array out of the file. */
static float *take(const float **at, size_t count) {
  float *copy = malloc(count * sizeof *copy);
  assert_non_null(copy);
  memcpy(copy, *at, count * sizeof *copy);
  *at += count;
  return copy;
}

/* The file has each array of all layers in one piece, and the rows of q and k in the order of GGUF. */
static void take_layers(made_model *m, const float **at, size_t offset, size_t rows, size_t columns,
                        size_t heads) {
  for (int i = 0; i < m->layers; i++) {
    float **array = (float **)((char *)&m->layer[i] + offset);
    *array = take(at, rows * columns);
    if (heads)
      still_rows_from_gguf(*array, *at - rows * columns, heads, rows / heads,
                           columns * sizeof(float));
  }
}

made_model made_stories(void) {
  char *data = check_read(check_shared("data/stories260K/stories260K.bin"), NULL);
  made_model m = made_shape();
  m.layers = 5;
  m.heads = 8;
  m.kv_heads = 4;
  m.head_dim = 8;
  m.width = 64;
  m.feed_forward = 172;
  m.vocabulary = VOCABULARY;
  m.context = 512;
  const float *at = (const float *)(data + 7 * sizeof(int32_t));
  m.embedding = take(&at, VOCABULARY * 64);
#define LAYERS(member, rows, columns, heads)                                                       \
  take_layers(&m, &at, offsetof(made_layer, member), rows, columns, heads)
  LAYERS(attention_norm, 1, 64, 0);
  LAYERS(q, 64, 64, 8);
  LAYERS(k, 32, 64, 4);
  LAYERS(v, 32, 64, 0);
  LAYERS(o, 64, 64, 0);
  LAYERS(feed_norm, 1, 64, 0);
  LAYERS(gate, 172, 64, 0);
  LAYERS(down, 64, 172, 0);
  LAYERS(up, 172, 64, 0);
#undef LAYERS
  m.output_norm = take(&at, 64);
  free(data);
  return m;
}
