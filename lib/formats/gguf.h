/* SPDX-License-Identifier: MIT
 * GGUF v3 (v2 too): read, one file or shards, and write.
 *
 *   "GGUF" u32 version u64 tensor_count u64 pair_count
 *   pairs:    string key, u32 type, value
 *             string = u64 length, bytes      array = u32 type, u64 count, values
 *   tensors:  string name, u32 n_dims, u64 ne[n_dims], u32 type,
 *             u64 offset (from the data start, aligned)
 *   padding to general.alignment (default 32), data
 */
#ifndef STILL_FORMATS_GGUF_H
#define STILL_FORMATS_GGUF_H

#include "formats/tensor.h"

typedef enum still_gguf_type {
  STILL_GGUF_U8 = 0,
  STILL_GGUF_I8 = 1,
  STILL_GGUF_U16 = 2,
  STILL_GGUF_I16 = 3,
  STILL_GGUF_U32 = 4,
  STILL_GGUF_I32 = 5,
  STILL_GGUF_F32 = 6,
  STILL_GGUF_BOOL = 7,
  STILL_GGUF_STRING = 8,
  STILL_GGUF_ARRAY = 9,
  STILL_GGUF_U64 = 10,
  STILL_GGUF_I64 = 11,
  STILL_GGUF_F64 = 12
} still_gguf_type;

typedef struct still_gguf still_gguf;

/* Everything is checked against the file's length before it is used. For "x-00001-of-00003.gguf"
 * the other shards are opened too and their tensors follow; metadata is the first shard's. FILE,
 * FORMAT, UNSUPPORTED, MEMORY. With use_mmap a file must keep its length while it is open: where it
 * may shrink (another program rewrites it in place), the system ends the process at the next
 * access; use_mmap false reads all of it at once instead. */
still_status still_gguf_open(still_gguf **gguf, const char *path, bool use_mmap);
/* The same from bytes in memory (fuzzing); the bytes must stay. */
still_status still_gguf_open_memory(still_gguf **gguf, const void *data, size_t bytes);
void still_gguf_close(still_gguf *gguf);
/* Gives back the pages that were read so far, where files are mapped. */
void still_gguf_forget(const still_gguf *gguf);

size_t still_gguf_tensor_count(const still_gguf *gguf);
const still_tensor *still_gguf_tensor(const still_gguf *gguf, size_t index);
const still_tensor *still_gguf_find_tensor(const still_gguf *gguf,
                                           const char *name); /* NULL: none */

/* Metadata. A string value is `length` bytes, not NUL-terminated. The typed getters return false
 * where the key is missing, and where its type does not fit (any integer type fits an integer in
 * range); has_key tells the two apart. */
size_t still_gguf_key_count(const still_gguf *gguf);
const char *still_gguf_key(const still_gguf *gguf, size_t index, still_gguf_type *type);
bool still_gguf_has_key(const still_gguf *gguf, const char *key);
bool still_gguf_get_u64(const still_gguf *gguf, const char *key, uint64_t *value);
bool still_gguf_get_f64(const still_gguf *gguf, const char *key, double *value);
bool still_gguf_get_bool(const still_gguf *gguf, const char *key, bool *value);
bool still_gguf_get_string(const still_gguf *gguf, const char *key, const char **text,
                           size_t *length);
/* Arrays: element type and count; elements by index with their type checked. */
bool still_gguf_get_array(const still_gguf *gguf, const char *key, still_gguf_type *type,
                          size_t *count);
bool still_gguf_array_string(const still_gguf *gguf, const char *key, size_t index,
                             const char **text, size_t *length);
/* All elements in one go, for arrays of strings (NULL for anything else): they were found when the
 * file was opened. */
typedef struct still_gguf_string {
  const char *text;
  size_t length;
} still_gguf_string;
const still_gguf_string *still_gguf_array_strings(const still_gguf *gguf, const char *key,
                                                  size_t *count);
bool still_gguf_array_f64(const still_gguf *gguf, const char *key, size_t index, double *value);
bool still_gguf_array_i64(const still_gguf *gguf, const char *key, size_t index, int64_t *value);

/* Writer: add keys and tensors, then write (version 3, alignment 32). Names are copied; data
 * pointers must stay until the file is written. A key or tensor that is there already: ARGUMENT. */
typedef struct still_gguf_writer still_gguf_writer;
still_status still_gguf_writer_create(still_gguf_writer **writer);
void still_gguf_writer_destroy(still_gguf_writer *writer);
still_status still_gguf_put_u32(still_gguf_writer *writer, const char *key, uint32_t value);
still_status still_gguf_put_f32(still_gguf_writer *writer, const char *key, float value);
still_status still_gguf_put_bool(still_gguf_writer *writer, const char *key, bool value);
still_status still_gguf_put_string(still_gguf_writer *writer, const char *key, const char *text,
                                   size_t length);
still_status still_gguf_put_strings(still_gguf_writer *writer, const char *key,
                                    const still_gguf_string *texts, size_t count);
still_status still_gguf_put_array(still_gguf_writer *writer, const char *key, still_gguf_type type,
                                  const void *values, size_t count);
/* Copies the metadata of another file (for conversion): keys that were put already keep their
 * value, those that describe the file (general.alignment, split.*) are left out. */
still_status still_gguf_put_all(still_gguf_writer *writer, const still_gguf *source);
still_status still_gguf_put_tensor(still_gguf_writer *writer, const still_tensor *tensor);
/* All or nothing. */
still_status still_gguf_write(still_gguf_writer *writer, const char *path);

/* The same where data would not fit into memory at once: `produce` gives the bytes of tensor
 * `index` (in the order of addition) for each tensor whose data is NULL, valid until the next call.
 */
typedef still_status still_gguf_data_callback(void *user, size_t index, const void **data);
still_status still_gguf_write_from(still_gguf_writer *writer, const char *path,
                                   still_gguf_data_callback *produce, void *user);

#endif
