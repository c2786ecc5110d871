/* SPDX-License-Identifier: MIT
 * Writes a quantised GGUF file from tensors, whatever file they lie in. */
#ifndef STILL_FORMATS_QUANTIZE_MODEL_H
#define STILL_FORMATS_QUANTIZE_MODEL_H

#include "formats/gguf.h"

#include <still/quantize.h>

typedef struct still_quantize_source {
  const still_tensor *tensors; /* by their GGUF names, in the order of the file to write */
  size_t count;
  still_status (*put_metadata)(void *user, still_gguf_writer *writer);
  still_gguf_data_callback
      *load; /* a tensor's data, valid until the next call; NULL: as the tensors say */
  void *user;
} still_quantize_source;

/* ARGUMENT for options that still_quantize would refuse. */
still_status still_quantize_check(const still_quantize_options *options);
still_status still_quantize_from(const still_quantize_source *source, const char *output,
                                 const still_quantize_options *options);

#endif
