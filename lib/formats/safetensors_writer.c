/* SPDX-License-Identifier: MIT */
#include "base/files.h"
#include "base/memory.h"
#include "formats/byte_buffer.h"
#include "formats/json.h"
#include "formats/name_table.h"
#include "formats/safetensors.h"

#include <stdio.h>
#include <string.h>

static still_status append_quoted(still_byte_buffer *header, const char *text) {
  char *quoted;
  STILL_TRY(still_json_quote(&quoted, text));
  const still_status status = still_buffer_text(header, quoted);
  still_free(quoted);
  return status;
}

static still_status append_metadata(still_byte_buffer *header, const still_safetensors_pair *pairs,
                                    size_t count) {
  STILL_TRY(still_buffer_text(header, "\"__metadata__\":{"));
  for (size_t i = 0; i < count; i++) {
    if (i) STILL_TRY(still_buffer_text(header, ","));
    STILL_TRY(append_quoted(header, pairs[i].key));
    STILL_TRY(still_buffer_text(header, ":"));
    STILL_TRY(append_quoted(header, pairs[i].value));
  }
  return still_buffer_text(header, "}");
}

static still_status append_tensor(still_byte_buffer *header, const still_tensor *tensor,
                                  uint64_t offset) {
  char text[512], shape[256];
  STILL_TRY(append_quoted(header, tensor->name));
  snprintf(text, sizeof text, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}",
           still_type_traits_get(tensor->type)->safetensors,
           still_shape_text(shape, sizeof shape, tensor->dimensions, tensor->shape),
           (unsigned long long)offset, (unsigned long long)(offset + tensor->bytes));
  return still_buffer_text(header, text);
}

static still_status check_tensor(const still_tensor *tensor, still_name_table *names) {
  uint64_t items, bytes;
  STILL_TRY(still_tensor_bytes(tensor->name, tensor->type, tensor->dimensions, tensor->shape,
                               &items, &bytes));
  const still_type_traits *traits = still_type_traits_get(tensor->type);
  if (!traits->safetensors)
    return still_fail(STILL_ERROR_ARGUMENT, "tensor '%s': safetensors has no type %s", tensor->name,
                      traits->name);
  if (bytes != tensor->bytes)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "tensor '%s': %llu bytes are given, its shape needs %llu", tensor->name,
                      (unsigned long long)tensor->bytes, (unsigned long long)bytes);
  const still_status status =
      still_name_table_add(names, tensor->name, strlen(tensor->name), "tensor");
  return status == STILL_ERROR_FORMAT ? STILL_ERROR_ARGUMENT : status;
}

static still_status check_tensors(const still_tensor *tensors, size_t count) {
  still_name_table names = {0};
  still_status status = STILL_OK;
  for (size_t i = 0; i < count && !status; i++) status = check_tensor(&tensors[i], &names);
  still_name_table_free(&names);
  return status;
}

/* The whole header with its length in front, padded with spaces so that the data begins aligned. */
static still_status make_header(still_byte_buffer *header, const still_tensor *tensors,
                                size_t count, const still_safetensors_pair *metadata,
                                size_t pairs) {
  uint64_t length = 0, offset = 0;
  STILL_TRY(still_buffer_append(header, &length, sizeof length));
  STILL_TRY(still_buffer_text(header, "{"));
  if (pairs) STILL_TRY(append_metadata(header, metadata, pairs));
  for (size_t i = 0; i < count; i++) {
    if (i || pairs) STILL_TRY(still_buffer_text(header, ","));
    STILL_TRY(append_tensor(header, &tensors[i], offset));
    offset += tensors[i].bytes;
  }
  STILL_TRY(still_buffer_text(header, "}"));
  while (header->bytes % STILL_ALIGNMENT) STILL_TRY(still_buffer_text(header, " "));
  length = header->bytes - sizeof length;
  memcpy(header->data, &length, sizeof length);
  return STILL_OK;
}

still_status still_safetensors_write(const char *path, const still_tensor *tensors, size_t count,
                                     const still_safetensors_pair *metadata, size_t pairs) {
  still_byte_buffer header = {0};
  still_output output = {0};
  still_status status = check_tensors(tensors, count);
  if (!status) status = make_header(&header, tensors, count, metadata, pairs);
  if (!status) status = still_output_open(&output, path);
  if (!status) status = still_output_write(&output, header.data, header.bytes);
  for (size_t i = 0; i < count && !status; i++)
    status = still_output_write(&output, tensors[i].data, (size_t)tensors[i].bytes);
  if (!status) status = still_output_commit(&output);
  still_output_abandon(&output);
  still_buffer_free(&header);
  return status;
}
