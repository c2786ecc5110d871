/* SPDX-License-Identifier: MIT
 * still_quantize: a GGUF file or a Hugging Face folder into a quantised GGUF file. */
#include "base/files.h"
#include "base/memory.h"
#include "formats/quantize_model.h"
#include "model/model_weights.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

/* ---- GGUF --------------------------------------------------------------------------------------- */

static still_status copy_metadata(void *user, still_gguf_writer *writer) {
  return still_gguf_put_all(writer, user);
}

static still_status quantize_gguf(const char *input, const char *output,
                                  const still_quantize_options *options) {
  still_gguf *gguf;
  still_tensor *tensors = NULL;
  STILL_TRY(still_gguf_open(&gguf, input, true));
  const size_t count = still_gguf_tensor_count(gguf);
  still_status status = STILL_ALLOC(&tensors, count, "the list of tensors");
  for (size_t i = 0; !status && i < count; i++) tensors[i] = *still_gguf_tensor(gguf, i);
  if (!status)
    status = still_quantize_from(
        &(still_quantize_source){tensors, count, copy_metadata, NULL, gguf}, output, options);
  still_free(tensors);
  still_gguf_close(gguf);
  return status;
}

/* ---- a folder ----------------------------------------------------------------------------------- */

typedef struct folder {
  still_model_weights *weights;
  still_tokenizer *tokenizer;
  still_gguf_tensors list;
  void *rows; /* of the tensor at work, in GGUF's order */
} folder;

static still_status put_metadata(void *user, still_gguf_writer *writer) {
  const folder *f = user;
  const still_model_config *config = &f->weights->config;
  STILL_TRY(still_model_config_put(writer, config));
  return still_tokenizer_put(writer, f->tokenizer, (size_t)config->vocabulary);
}

static still_status load(void *user, size_t index, const void **data) {
  folder *f = user;
  const still_tensor *tensor = &f->list.tensors[index];
  const int heads = f->list.permuted_heads[index];
  *data = tensor->data;
  if (!heads) return STILL_OK;
  still_free(f->rows);
  STILL_TRY(still_alloc_raw(&f->rows, tensor->bytes, tensor->name));
  still_rows_to_gguf(f->rows, tensor->data, (size_t)heads, (size_t)f->weights->config.head_dim,
                     tensor->bytes / tensor->shape[0]);
  *data = f->rows;
  return STILL_OK;
}

static still_status open_folder(folder *f, const char *path) {
  STILL_TRY(still_model_weights_open(&f->weights, path, true));
  STILL_TRY(still_tokenizer_from_folder(&f->tokenizer, path));
  if (!f->tokenizer)
    return still_fail(STILL_ERROR_FILE, "%s: holds no tokenizer.json, tokenizer.model, vocab.json",
                      path);
  return still_gguf_tensors_of(&f->list, f->weights);
}

static still_status quantize_folder(const char *input, const char *output,
                                    const still_quantize_options *options) {
  folder f = {0};
  still_status status = open_folder(&f, input);
  if (!status)
    status = still_quantize_from(
        &(still_quantize_source){f.list.tensors, f.list.count, put_metadata, load, &f}, output,
        options);
  still_free(f.rows);
  still_gguf_tensors_free(&f.list);
  still_tokenizer_destroy(f.tokenizer);
  still_model_weights_close(f.weights);
  return status;
}

still_status still_quantize(const char *input, const char *output,
                            const still_quantize_options *options) {
  static const still_quantize_options defaults = STILL_QUANTIZE_OPTIONS_INIT;
  if (!options) options = &defaults;
  STILL_TRY(still_quantize_check(options));
  const still_status status = still_path_is_folder(input) ? quantize_folder(input, output, options)
                                                          : quantize_gguf(input, output, options);
  if (status == STILL_ERROR_ARGUMENT || status == STILL_ERROR_NUMERIC)
    still_fail_in(status, "%s", input);
  return status;
}
