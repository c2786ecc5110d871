/* SPDX-License-Identifier: MIT
 * Pairs are kept in the form that they have in the file; tensors are written from where they lie.
 */
#include "base/memory.h"
#include "formats/byte_buffer.h"
#include "formats/gguf_file.h"

#include <string.h>

struct still_gguf_writer {
  still_name_table keys, names;
  still_byte_buffer pairs;
  still_tensor *tensors;
  size_t room;
};

still_status still_gguf_writer_create(still_gguf_writer **writer) {
  return STILL_ALLOC(writer, 1, "a GGUF writer");
}

void still_gguf_writer_destroy(still_gguf_writer *writer) {
  if (!writer) return;
  still_name_table_free(&writer->keys);
  still_name_table_free(&writer->names);
  still_buffer_free(&writer->pairs);
  still_free(writer->tensors);
  still_free(writer);
}

/* ---- pairs */

static still_status append_u32(still_byte_buffer *buffer, uint32_t value) {
  return still_buffer_append(buffer, &value, sizeof value);
}

static still_status append_u64(still_byte_buffer *buffer, uint64_t value) {
  return still_buffer_append(buffer, &value, sizeof value);
}

static still_status append_string(still_byte_buffer *buffer, const char *text, size_t length) {
  STILL_TRY(append_u64(buffer, length));
  return still_buffer_append(buffer, text, length);
}

/* A new key and its type; a key that cannot be added is the caller's mistake. */
static still_status begin_pair(still_gguf_writer *writer, const char *key, still_gguf_type type) {
  if (!*key) return still_fail(STILL_ERROR_ARGUMENT, "a GGUF key must not be empty");
  const still_status status = still_name_table_add(&writer->keys, key, strlen(key), "key");
  if (status) return status == STILL_ERROR_FORMAT ? STILL_ERROR_ARGUMENT : status;
  STILL_TRY(append_string(&writer->pairs, key, strlen(key)));
  return append_u32(&writer->pairs, type);
}

static still_status put_scalar(still_gguf_writer *writer, const char *key, still_gguf_type type,
                               const void *value) {
  STILL_TRY(begin_pair(writer, key, type));
  return still_buffer_append(&writer->pairs, value, still_gguf_type_bytes(type));
}

still_status still_gguf_put_u32(still_gguf_writer *writer, const char *key, uint32_t value) {
  return put_scalar(writer, key, STILL_GGUF_U32, &value);
}

still_status still_gguf_put_f32(still_gguf_writer *writer, const char *key, float value) {
  return put_scalar(writer, key, STILL_GGUF_F32, &value);
}

still_status still_gguf_put_bool(still_gguf_writer *writer, const char *key, bool value) {
  const uint8_t byte = value;
  return put_scalar(writer, key, STILL_GGUF_BOOL, &byte);
}

still_status still_gguf_put_string(still_gguf_writer *writer, const char *key, const char *text,
                                   size_t length) {
  STILL_TRY(begin_pair(writer, key, STILL_GGUF_STRING));
  return append_string(&writer->pairs, text, length);
}

static still_status begin_array(still_gguf_writer *writer, const char *key, still_gguf_type type,
                                size_t count) {
  STILL_TRY(begin_pair(writer, key, STILL_GGUF_ARRAY));
  STILL_TRY(append_u32(&writer->pairs, type));
  return append_u64(&writer->pairs, count);
}

still_status still_gguf_put_strings(still_gguf_writer *writer, const char *key,
                                    const still_gguf_string *texts, size_t count) {
  STILL_TRY(begin_array(writer, key, STILL_GGUF_STRING, count));
  for (size_t i = 0; i < count; i++)
    STILL_TRY(append_string(&writer->pairs, texts[i].text, texts[i].length));
  return STILL_OK;
}

still_status still_gguf_put_array(still_gguf_writer *writer, const char *key, still_gguf_type type,
                                  const void *values, size_t count) {
  size_t bytes;
  if (!still_gguf_type_bytes(type))
    return still_fail(STILL_ERROR_ARGUMENT, "key '%s': an array of %s cannot be put like this", key,
                      still_gguf_type_name(type));
  if (!still_mul_size(count, still_gguf_type_bytes(type), &bytes))
    return still_fail(STILL_ERROR_ARGUMENT, "key '%s': %zu values are too many", key, count);
  STILL_TRY(begin_array(writer, key, type, count));
  return still_buffer_append(&writer->pairs, values, bytes);
}

/* Keys that describe the file itself rather than the model. */
static bool of_the_file(const char *key) {
  return !strcmp(key, STILL_GGUF_ALIGNMENT_KEY) || !strncmp(key, "split.", 6);
}

static still_status put_pair(still_gguf_writer *writer, const char *key,
                             const still_gguf_pair *pair) {
  if (pair->type == STILL_GGUF_ARRAY)
    STILL_TRY(begin_array(writer, key, pair->element, pair->count));
  else
    STILL_TRY(begin_pair(writer, key, pair->type));
  return still_buffer_append(&writer->pairs, pair->value, pair->bytes);
}

still_status still_gguf_put_all(still_gguf_writer *writer, const still_gguf *source) {
  for (size_t i = 0; i < source->keys.count; i++) {
    const char *key = still_name_table_get(&source->keys, i);
    if (of_the_file(key) || still_name_table_find(&writer->keys, key, strlen(key)) != SIZE_MAX)
      continue;
    STILL_TRY(put_pair(writer, key, &source->pairs[i]));
  }
  return STILL_OK;
}

/* ---- tensors */

still_status still_gguf_put_tensor(still_gguf_writer *writer, const still_tensor *tensor) {
  uint64_t items, bytes;
  const size_t index = writer->names.count;
  if (!*tensor->name) return still_fail(STILL_ERROR_ARGUMENT, "a tensor's name must not be empty");
  if (!tensor->dimensions || tensor->dimensions > STILL_GGUF_DIMENSIONS ||
      tensor->type >= STILL_TENSOR_U8)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "tensor '%s': GGUF holds 1 to %d dimensions and no U8 or BOOL", tensor->name,
                      STILL_GGUF_DIMENSIONS);
  STILL_TRY(still_tensor_bytes(tensor->name, tensor->type, tensor->dimensions, tensor->shape,
                               &items, &bytes));
  if (bytes != tensor->bytes)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "tensor '%s': %llu bytes are given, its shape needs %llu", tensor->name,
                      (unsigned long long)tensor->bytes, (unsigned long long)bytes);
  if (index == writer->room) {
    const size_t room = writer->room ? 2 * writer->room : 64;
    STILL_TRY(STILL_REALLOC(&writer->tensors, room, "tensors of a GGUF writer"));
    writer->room = room;
  }
  const still_status status =
      still_name_table_add(&writer->names, tensor->name, strlen(tensor->name), "tensor");
  if (status) return status == STILL_ERROR_FORMAT ? STILL_ERROR_ARGUMENT : status;
  writer->tensors[index] = *tensor;
  return STILL_OK;
}

/* ---- the file */

/* Header, pairs and tensor list; names are already checked. */
static still_status append_header(const still_gguf_writer *writer, still_byte_buffer *out) {
  STILL_TRY(still_buffer_text(out, STILL_GGUF_MAGIC));
  STILL_TRY(append_u32(out, STILL_GGUF_VERSION));
  STILL_TRY(append_u64(out, writer->names.count));
  STILL_TRY(append_u64(out, writer->keys.count));
  STILL_TRY(still_buffer_append(out, writer->pairs.data, writer->pairs.bytes));
  uint64_t offset = 0;
  for (size_t i = 0; i < writer->names.count; i++) {
    const still_tensor *tensor = &writer->tensors[i];
    const char *name = still_name_table_get(&writer->names, i);
    STILL_TRY(append_string(out, name, strlen(name)));
    STILL_TRY(append_u32(out, tensor->dimensions));
    for (uint32_t d = tensor->dimensions; d-- > 0;) STILL_TRY(append_u64(out, tensor->shape[d]));
    STILL_TRY(append_u32(out, tensor->type));
    STILL_TRY(append_u64(out, offset));
    offset += still_round_up((size_t)tensor->bytes, STILL_GGUF_ALIGNMENT);
  }
  return STILL_OK;
}

static still_status write_padded(still_output *output, const void *data, size_t bytes) {
  static const char zeros[STILL_GGUF_ALIGNMENT];
  STILL_TRY(still_output_write(output, data, bytes));
  return still_output_write(output, zeros, still_round_up(bytes, STILL_GGUF_ALIGNMENT) - bytes);
}

static still_status write_tensors(const still_gguf_writer *writer, still_output *output,
                                  still_gguf_data_callback *produce, void *user) {
  for (size_t i = 0; i < writer->names.count; i++) {
    const still_tensor *tensor = &writer->tensors[i];
    const void *data = tensor->data;
    if (!data && produce) STILL_TRY(produce(user, i, &data));
    if (!data)
      return still_fail(STILL_ERROR_ARGUMENT, "tensor '%s': no data is given",
                        still_name_table_get(&writer->names, i));
    STILL_TRY(write_padded(output, data, (size_t)tensor->bytes));
  }
  return STILL_OK;
}

still_status still_gguf_write_from(still_gguf_writer *writer, const char *path,
                                   still_gguf_data_callback *produce, void *user) {
  still_byte_buffer header = {0};
  still_output output = {0};
  still_status status = append_header(writer, &header);
  if (!status) status = still_output_open(&output, path);
  if (!status) status = write_padded(&output, header.data, header.bytes);
  if (!status) status = write_tensors(writer, &output, produce, user);
  if (!status) status = still_output_commit(&output);
  still_output_abandon(&output);
  still_buffer_free(&header);
  return status;
}

still_status still_gguf_write(still_gguf_writer *writer, const char *path) {
  return still_gguf_write_from(writer, path, NULL, NULL);
}
