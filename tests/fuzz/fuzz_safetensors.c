/* SPDX-License-Identifier: MIT
 * safetensors: whatever opens can be read and converted, and covers its data. */
#include "fuzz.h"

#include "formats/safetensors.h"

#include <string.h>

static volatile unsigned seen;

static uint64_t read_tensor(const still_safetensors *file, const still_tensor *tensor) {
  enum { MOST = 300 };
  float values[MOST];
  FUZZ_CHECK(still_safetensors_find(file, tensor->name) == tensor);
  for (uint64_t i = 0; i < tensor->bytes; i++) seen += ((const uint8_t *)tensor->data)[i];
  const uint64_t items = still_tensor_items(tensor);
  const uint64_t count = items < MOST ? items : MOST;
  if (still_type_to_f32(tensor->type))
    FUZZ_CHECK(still_tensor_to_f32(tensor, items - count, count, values) == STILL_OK);
  return tensor->bytes;
}

void fuzz_one(const uint8_t *data, size_t bytes) {
  still_safetensors *file;
  uint64_t header, covered = 0;
  if (still_safetensors_open_memory(&file, data, bytes)) return;
  memcpy(&header, data, sizeof header);
  for (size_t i = 0; i < still_safetensors_count(file); i++)
    covered += read_tensor(file, still_safetensors_tensor(file, i));
  FUZZ_CHECK(covered + header + sizeof header == bytes);
  for (size_t i = 0; i < still_safetensors_metadata_count(file); i++) {
    const char *key = still_safetensors_metadata_key(file, i);
    FUZZ_CHECK(still_safetensors_metadata(file, key));
  }
  still_safetensors_close(file);
}
