/* SPDX-License-Identifier: MIT
 * A model of two small layers for fuzz targets that need one, and bytes that choose what happens. */
#ifndef STILL_TESTS_FUZZ_MODEL_H
#define STILL_TESTS_FUZZ_MODEL_H

#include "fuzz.h"

#include <still/model.h>

enum { FUZZ_VOCABULARY = 32, FUZZ_LAYERS = 2 };

/* Opened before the first input and closed at exit. */
const still_model *fuzz_model(void);

/* The input, read number by number; 0 behind its end. */
typedef struct fuzz_bytes {
  const uint8_t *data;
  size_t bytes, at;
} fuzz_bytes;

static inline unsigned fuzz_byte(fuzz_bytes *in) {
  return in->at < in->bytes ? in->data[in->at++] : 0;
}
/* 0 .. below-1 */
static inline unsigned fuzz_choose(fuzz_bytes *in, unsigned below) {
  return fuzz_byte(in) % below;
}
static inline int fuzz_more(const fuzz_bytes *in) {
  return in->at < in->bytes;
}

/* A path in a folder that is removed at exit. */
const char *fuzz_path(const char *name);

#endif
