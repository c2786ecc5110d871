/* SPDX-License-Identifier: MIT
 * safetensors: u64 header length, JSON header, data.
 *   header: {name: {"dtype", "shape", "data_offsets"} ..., "__metadata__": {string: string}} */
#ifndef STILL_FORMATS_SAFETENSORS_H
#define STILL_FORMATS_SAFETENSORS_H

#include "formats/tensor.h"

typedef struct still_safetensors still_safetensors;

/* One .safetensors file, or an index (*.json with a weight_map) with its shards, or a folder that
 * holds model.safetensors.index.json, model.safetensors or adapter_model.safetensors (sought in
 * this order). Shards must lie in the index's folder. FILE, FORMAT, UNSUPPORTED, MEMORY. As with
 * GGUF, a mapped file must not shrink while it is open; use_mmap false reads all of it at once. */
still_status still_safetensors_open(still_safetensors **file, const char *path, bool use_mmap);
still_status still_safetensors_open_memory(still_safetensors **file, const void *data,
                                           size_t bytes);
void still_safetensors_close(still_safetensors *file);

size_t still_safetensors_count(const still_safetensors *file);
const still_tensor *still_safetensors_tensor(const still_safetensors *file, size_t index);
const still_tensor *still_safetensors_find(const still_safetensors *file, const char *name);
/* A value of __metadata__ (the first shard's); NULL if missing. */
const char *still_safetensors_metadata(const still_safetensors *file, const char *key);
size_t still_safetensors_metadata_count(const still_safetensors *file);
const char *still_safetensors_metadata_key(const still_safetensors *file, size_t index);

typedef struct still_safetensors_pair {
  const char *key, *value;
} still_safetensors_pair;

/* Writes all tensors (in the given order, data beginning at a multiple of 64 bytes) and metadata,
 * all or nothing. A name twice, a type that safetensors lacks, bytes that do not fit the shape:
 * ARGUMENT. */
still_status still_safetensors_write(const char *path, const still_tensor *tensors, size_t count,
                                     const still_safetensors_pair *metadata, size_t pairs);

#endif
