/* SPDX-License-Identifier: MIT
 *
 * Smaller files: the weights of a model in blocks of few bits, as a GGUF file.
 *
 * A type is a name, in capitals or small letters: "Q8_0" (8.5 bits a weight), "Q6_K" (6.56), "Q4_K" (4.5), "Q4_0" (4.5, simpler
 * and a little worse than Q4_K). Only float weights of two or more dimensions change; norms, biases
 * and what is quantised already are copied (vectors of 16 bits as F32). Where a type's blocks do not divide a row, Q8_0 takes
 * its place; in Q4_K and Q4_0 files the token embedding and the output matrix, on which quality
 * hangs most, become Q6_K or, where that does not fit, Q8_0.
 */
#ifndef STILL_QUANTIZE_H
#define STILL_QUANTIZE_H

#include <still/still.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What became of one tensor. Strings live until the callback returns. */
typedef struct still_quantized_tensor {
  const char *name;
  const char *from, *to; /* types; equal where it was copied */
  uint64_t values;
  uint64_t bytes_before, bytes_after;
  double error;   /* root mean square of the differences over that of the values; 0 where copied */
  double largest; /* the largest difference */
} still_quantized_tensor;

typedef void still_quantized_callback(void *user, const still_quantized_tensor *tensor);

typedef struct still_quantize_options {
  size_t size;
  const char *type; /* default "Q8_0" */
  int threads;      /* 0 = still_default_threads(); the file does not depend on it */
  still_quantized_callback *report; /* after each tensor, in the file's order; NULL = none */
  void *report_user;
  still_progress_callback *progress; /* bytes of the input; NULL = none */
  void *progress_user;
} still_quantize_options;

#define STILL_QUANTIZE_OPTIONS_INIT                                                                \
  { sizeof(still_quantize_options), "Q8_0", 0, NULL, NULL, NULL, NULL }

/* Writes the model at `input` to one GGUF file at `output`, which appears only when it is complete
 * and may be the input itself. The input: a GGUF file (or the first of shards), whose metadata are
 * copied; or a Hugging Face folder of an architecture that still_model_open knows, with its
 * tokenizer, single or sharded. Memory: the largest tensor, quantised. Errors: ARGUMENT (unknown
 * type: the known ones are listed; a model without float weights), FILE (what is missing is named),
 * FORMAT (a missing tensor: its name and shape), UNSUPPORTED (also a tokenizer whose way to cut
 * words GGUF has no name for), NUMERIC (a weight that is not finite: which), MEMORY, CANCELLED. */
STILL_API still_status still_quantize(const char *input, const char *output,
                                      const still_quantize_options *options);

#ifdef __cplusplus
}
#endif

#endif
