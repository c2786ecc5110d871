/* SPDX-License-Identifier: MIT
 * An open GGUF file, for gguf_reader.c (fills it), gguf_metadata.c and gguf_writer.c (read it). */
#ifndef STILL_FORMATS_GGUF_FILE_H
#define STILL_FORMATS_GGUF_FILE_H

#include "base/files.h"
#include "formats/gguf.h"
#include "formats/name_table.h"

typedef struct still_gguf_pair {
  still_gguf_type type;
  still_gguf_type element; /* of an ARRAY */
  const uint8_t *value; /* as it stands in the file, after the type (and, for arrays, the count) */
  size_t bytes;         /* of it */
  size_t count;         /* elements; 1 unless ARRAY */
  still_gguf_string *strings; /* `count` of them for STRING and for ARRAY of STRING */
} still_gguf_pair;

struct still_gguf {
  still_file file;
  const uint8_t *data;
  size_t bytes;
  still_name_table keys;  /* number = index of the pair */
  still_name_table names; /* number = index of the tensor */
  still_gguf_pair *pairs;
  still_tensor *tensors;
  size_t pair_room, string_total;
  size_t alignment;
  still_gguf **shards; /* the others; their tensors are in ours too */
  size_t shard_count;
};

/* Bytes of a value of a fixed size, 0 for STRING, ARRAY and unknown types. */
size_t still_gguf_type_bytes(still_gguf_type type);
const char *still_gguf_type_name(uint32_t type);
/* NULL if missing. */
const still_gguf_pair *still_gguf_find_pair(const still_gguf *gguf, const char *key);

#define STILL_GGUF_MAGIC "GGUF"
enum { STILL_GGUF_VERSION = 3, STILL_GGUF_DIMENSIONS = 4, STILL_GGUF_ALIGNMENT = 32 };
#define STILL_GGUF_ALIGNMENT_KEY "general.alignment"

#endif
