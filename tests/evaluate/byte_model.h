/* SPDX-License-Identifier: MIT
 * A small random model whose tokens are the 256 bytes. */
#ifndef STILL_TESTS_BYTE_MODEL_H
#define STILL_TESTS_BYTE_MODEL_H

#include "../model/model_fixtures.h"
#include "../tokenizer/small_vocabulary.h"

#include <stdlib.h>
#include <string.h>

/* Its folder; context 2048, no begin-of-sequence token. */
static inline const char *byte_model(void) {
  static const char *const merges[] = {NULL};
  made_model shape = made_shape();
  shape.vocabulary = 256;
  shape.context = 2048;
  made_fill(&shape, 3);
  const char *folder = made_folder(&shape, "bytes", STILL_TENSOR_F32);
  char *json = small_byte_level(SMALL_LLAMA3, merges, false, "", "");
  check_file("bytes/tokenizer.json", json, strlen(json));
  free(json);
  made_free(&shape);
  return folder;
}

#endif
