/* SPDX-License-Identifier: MIT
 * Saving and resuming: parameters, moments and progress in one safetensors file. Numbers are
 * written so that they come back bit for bit. */
#include "linearize/trainer.h"

#include "base/files.h"
#include "base/memory.h"
#include "base/random.h"
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char version[] = "2"; /* 2: a checksum */
/* Of the numbers' texts and the tensors' bytes, in the order in which they are written. */
static const char checksum_key[] = "checksum";
enum { TEXT_BYTES = 32 };

/* The numbers of a state by name: whole ones as hexadecimal integers, the others as hexadecimal
 * floats. */
typedef struct state_field {
  const char *key;
  uint64_t *whole;
  double *real;
} state_field;

enum { FIELDS = 15 };

/* identity: what must be equal; then the progress. */
static void list_fields(state_field *fields, trainer_progress *at, uint64_t *identity) {
  const state_field all[FIELDS] = {{"stage", &identity[0], NULL},
                                   {"base_hash", &identity[1], NULL},
                                   {"data_hash", &identity[2], NULL},
                                   {"seed", &identity[3], NULL},
                                   {"batch", &identity[4], NULL},
                                   {"step", (uint64_t *)&at->step, NULL},
                                   {"epoch", &at->epoch, NULL},
                                   {"cursor", &at->cursor, NULL},
                                   {"tokens", &at->tokens, NULL},
                                   {"stale", (uint64_t *)&at->stale, NULL},
                                   {"seconds", NULL, &at->seconds},
                                   {"plateau", NULL, &at->plateau},
                                   {"best", NULL, &at->best},
                                   {"before", NULL, &at->before},
                                   {"due", &at->due, NULL}};
  memcpy(fields, all, sizeof all);
}
enum { IDENTITY_FIELDS = 5 };

static void identify(const trainer *t, uint64_t *identity) {
  identity[0] = (uint64_t)t->options.stage, identity[1] = t->weights->hash;
  identity[2] = t->data->hash, identity[3] = t->options.seed;
  identity[4] = (uint64_t)t->options.batch;
}

static still_tensor flat(const char *name, const float *data, size_t count) {
  still_tensor tensor = {.name = name, .type = STILL_TENSOR_F32, .dimensions = 1, .data = data};
  tensor.shape[0] = count, tensor.bytes = count * sizeof *data;
  return tensor;
}

still_status trainer_save(const trainer *t) {
  const still_optimizer *o = &t->optimizer;
  trainer_progress at = t->at;
  uint64_t identity[IDENTITY_FIELDS];
  state_field fields[FIELDS];
  still_safetensors_pair pairs[FIELDS + 2] = {{"still_training_state", version}};
  char text[FIELDS + 1][TEXT_BYTES];
  uint64_t sum = 0;
  identify(t, identity);
  list_fields(fields, &at, identity);
  for (int i = 0; i < FIELDS; i++) {
    if (fields[i].whole)
      snprintf(text[i], TEXT_BYTES, "%" PRIx64, *fields[i].whole);
    else
      snprintf(text[i], TEXT_BYTES, "%a", *fields[i].real);
    pairs[i + 1] = (still_safetensors_pair){fields[i].key, text[i]};
    sum = still_hash_text(sum, text[i]);
  }
  still_tensor *tensors;
  STILL_TRY(STILL_ALLOC(&tensors, o->count + 2, "list of tensors"));
  for (size_t i = 0; i < o->count; i++)
    tensors[i] = flat(o->parameters[i].name, o->parameters[i].value, o->parameters[i].count);
  tensors[o->count] = flat("first_moments", o->first, o->floats);
  tensors[o->count + 1] = flat("second_moments", o->second, o->floats);
  for (size_t i = 0; i < o->count + 2; i++)
    sum = still_hash_bytes(sum, tensors[i].data, tensors[i].bytes);
  snprintf(text[FIELDS], TEXT_BYTES, "%" PRIx64, sum);
  pairs[FIELDS + 1] = (still_safetensors_pair){checksum_key, text[FIELDS]};
  const still_status status =
      still_safetensors_write(t->options.state, tensors, o->count + 2, pairs, FIELDS + 2);
  still_free(tensors);
  return status;
}

static still_status read_field(const still_safetensors *file, const state_field *field) {
  const char *text = still_safetensors_metadata(file, field->key);
  char *end = NULL;
  if (!text) return still_fail(STILL_ERROR_FORMAT, "metadata '%s' is missing", field->key);
  if (field->whole)
    *field->whole = strtoull(text, &end, 16);
  else
    *field->real = strtod(text, &end);
  if (end == text || *end)
    return still_fail(STILL_ERROR_FORMAT, "metadata '%s' is '%s', no number", field->key, text);
  return STILL_OK;
}

static still_status read_progress(const trainer *t, const still_safetensors *file,
                                  trainer_progress *at) {
  uint64_t identity[IDENTITY_FIELDS], own[IDENTITY_FIELDS];
  state_field fields[FIELDS];
  const char *text = still_safetensors_metadata(file, "still_training_state");
  if (!text || strcmp(text, version))
    return still_fail(STILL_ERROR_FORMAT, "this is no training state of version %s", version);
  list_fields(fields, at, identity);
  identify(t, own);
  for (int i = 0; i < FIELDS; i++) STILL_TRY(read_field(file, &fields[i]));
  for (int i = 0; i < IDENTITY_FIELDS; i++)
    if (identity[i] != own[i])
      return still_fail(STILL_ERROR_FORMAT,
                        "it was made with another %s: %" PRIx64 " there, %" PRIx64 " here",
                        fields[i].key, identity[i], own[i]);
  if (at->step < 0 || at->cursor > t->data->training_rows)
    return still_fail(STILL_ERROR_FORMAT, "its progress makes no sense");
  return STILL_OK;
}

static still_status read_array(const still_safetensors *file, const char *name, float *out,
                               size_t count) {
  const still_tensor *tensor = still_safetensors_find(file, name);
  if (!tensor) return still_fail(STILL_ERROR_FORMAT, "tensor '%s' is missing", name);
  const uint64_t shape[] = {count};
  if (!still_tensor_has_shape(tensor, 1, shape)) {
    char text[64];
    return still_fail(STILL_ERROR_FORMAT, "tensor '%s' has shape %s, must have [%zu]", name,
                      still_shape_text(text, sizeof text, tensor->dimensions, tensor->shape),
                      count);
  }
  return out ? still_tensor_to_f32(tensor, 0, count, out) : STILL_OK;
}

/* With fill false only checks, so that a bad file changes nothing. */
static still_status read_arrays(const trainer *t, const still_safetensors *file, bool fill) {
  const still_optimizer *o = &t->optimizer;
  for (size_t i = 0; i < o->count; i++)
    STILL_TRY(read_array(file, o->parameters[i].name, fill ? o->parameters[i].value : NULL,
                         o->parameters[i].count));
  STILL_TRY(read_array(file, "first_moments", fill ? o->first : NULL, o->floats));
  return read_array(file, "second_moments", fill ? o->second : NULL, o->floats);
}

static void sum_array(const still_safetensors *file, const char *name, uint64_t *sum) {
  const still_tensor *tensor = still_safetensors_find(file, name);
  *sum = still_hash_bytes(*sum, tensor->data, tensor->bytes);
}

/* Of a state whose fields and arrays are all there. */
static still_status check_sum(const trainer *t, const still_safetensors *file) {
  const still_optimizer *o = &t->optimizer;
  uint64_t sum = 0, wanted;
  trainer_progress at;
  uint64_t identity[IDENTITY_FIELDS];
  state_field fields[FIELDS];
  list_fields(fields, &at, identity);
  for (int i = 0; i < FIELDS; i++)
    sum = still_hash_text(sum, still_safetensors_metadata(file, fields[i].key));
  for (size_t i = 0; i < o->count; i++) sum_array(file, o->parameters[i].name, &sum);
  sum_array(file, "first_moments", &sum);
  sum_array(file, "second_moments", &sum);
  STILL_TRY(read_field(file, &(state_field){checksum_key, &wanted, NULL}));
  return sum == wanted ? STILL_OK
                       : still_fail(STILL_ERROR_FORMAT, "damaged training state: wrong checksum");
}

still_status trainer_load(trainer *t) {
  still_safetensors *file;
  trainer_progress at;
  STILL_TRY(still_safetensors_open(&file, t->options.state, false));
  still_status status = read_progress(t, file, &at);
  if (!status) status = read_arrays(t, file, false);
  if (!status) status = check_sum(t, file);
  if (!status) status = read_arrays(t, file, true);
  still_safetensors_close(file);
  if (status) return still_fail_in(status, "%s", t->options.state);
  t->at = at;
  t->optimizer.steps = at.step;
  return STILL_OK;
}
