/* SPDX-License-Identifier: MIT
 * Every count and length is compared with what is left of the file before anything is allocated or
 * read. */
#include "base/memory.h"
#include "formats/gguf_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Far above any real model (a 405B has 1,138 tensors; vocabularies end at 262,144 tokens), far
 * below what would hurt. */
#define MOST_PAIRS ((uint64_t)1 << 16)
#define MOST_TENSORS ((uint64_t)1 << 20)
#define MOST_STRINGS ((size_t)1 << 23)
#define MOST_METADATA_BYTES ((size_t)256 << 20)
enum {
  LEAST_PAIR_BYTES = 8 + 1 + 4 + 1,           /* length, a letter, type, a byte */
  LEAST_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* length, a letter, n_dims, one ne, type, offset */
  LONGEST_NAME = 65535,
  LEAST_ALIGNMENT = 8,
  LARGEST_ALIGNMENT = 1 << 20,
  MOST_SHARDS = 1024,
  SHARD_SUFFIX = 20 /* "-00001-of-00003.gguf" */
};

/* ---- a cursor over the bytes */

typedef struct cursor {
  const uint8_t *data;
  size_t at, bytes;
} cursor;

static size_t left(const cursor *c) {
  return c->bytes - c->at;
}

static still_status take(cursor *c, uint64_t bytes, const uint8_t **out) {
  *out = c->data + c->at;
  if (bytes > left(c))
    return still_fail(STILL_ERROR_FORMAT,
                      "byte %zu: %llu bytes should follow, but the file ends at byte %zu", c->at,
                      (unsigned long long)bytes, c->bytes);
  c->at += (size_t)bytes;
  return STILL_OK;
}

static still_status take_u32(cursor *c, uint32_t *out) {
  const uint8_t *at;
  *out = 0;
  STILL_TRY(take(c, sizeof *out, &at));
  memcpy(out, at, sizeof *out);
  return STILL_OK;
}

static still_status take_u64(cursor *c, uint64_t *out) {
  const uint8_t *at;
  *out = 0;
  STILL_TRY(take(c, sizeof *out, &at));
  memcpy(out, at, sizeof *out);
  return STILL_OK;
}

static still_status take_string(cursor *c, still_gguf_string *out) {
  uint64_t length;
  const uint8_t *at;
  STILL_TRY(take_u64(c, &length));
  STILL_TRY(take(c, length, &at));
  *out = (still_gguf_string){(const char *)at, (size_t)length};
  return STILL_OK;
}

/* A key or a tensor's name. */
static still_status take_name(cursor *c, still_name_table *table, const char *what) {
  still_gguf_string name;
  const size_t at = c->at;
  STILL_TRY(take_string(c, &name));
  if (!name.length || name.length > LONGEST_NAME)
    return still_fail(STILL_ERROR_FORMAT,
                      "byte %zu: a %s has a name of %zu bytes, allowed are 1 to %d", at, what,
                      name.length, LONGEST_NAME);
  return still_name_table_add(table, name.text, name.length, what);
}

/* ---- metadata */

static still_status take_strings(still_gguf *gguf, cursor *c, still_gguf_pair *pair,
                                 uint64_t count) {
  if (count > left(c) / sizeof(uint64_t) || count > MOST_STRINGS - gguf->string_total)
    return still_fail(STILL_ERROR_FORMAT,
                      "byte %zu: %llu strings, but %zu bytes are left and %zu strings are allowed",
                      c->at, (unsigned long long)count, left(c), MOST_STRINGS);
  gguf->string_total += (size_t)count;
  STILL_TRY(STILL_ALLOC(&pair->strings, (size_t)count, "strings of a GGUF file"));
  const size_t begin = c->at;
  for (size_t i = 0; i < count; i++) STILL_TRY(take_string(c, &pair->strings[i]));
  pair->value = c->data + begin;
  pair->bytes = c->at - begin;
  pair->count = (size_t)count;
  return STILL_OK;
}

static still_status take_numbers(cursor *c, still_gguf_pair *pair, still_gguf_type type,
                                 uint64_t count) {
  const size_t size = still_gguf_type_bytes(type);
  if (!size)
    return still_fail(STILL_ERROR_UNSUPPORTED, "byte %zu: %s type %u cannot be read", c->at,
                      pair->type == STILL_GGUF_ARRAY ? "array element" : "value", (unsigned)type);
  if (count > left(c) / size)
    return still_fail(STILL_ERROR_FORMAT,
                      "byte %zu: %llu values of %zu bytes should follow, but %zu bytes are left",
                      c->at, (unsigned long long)count, size, left(c));
  pair->count = (size_t)count;
  pair->bytes = (size_t)count * size;
  return take(c, pair->bytes, &pair->value);
}

static still_status take_value(still_gguf *gguf, cursor *c, still_gguf_pair *pair) {
  uint32_t type, element;
  uint64_t count;
  STILL_TRY(take_u32(c, &type));
  pair->type = type;
  if (type == STILL_GGUF_STRING) return take_strings(gguf, c, pair, 1);
  if (type != STILL_GGUF_ARRAY) return take_numbers(c, pair, type, 1);
  STILL_TRY(take_u32(c, &element));
  STILL_TRY(take_u64(c, &count));
  pair->element = element;
  if (element == STILL_GGUF_STRING) return take_strings(gguf, c, pair, count);
  return take_numbers(c, pair, element, count);
}

static still_status take_pairs(still_gguf *gguf, cursor *c, uint64_t count) {
  if (count > left(c) / LEAST_PAIR_BYTES || count > MOST_PAIRS)
    return still_fail(STILL_ERROR_FORMAT,
                      "%llu metadata pairs, but %zu bytes are left and %llu pairs are allowed",
                      (unsigned long long)count, left(c), (unsigned long long)MOST_PAIRS);
  STILL_TRY(STILL_ALLOC(&gguf->pairs, (size_t)count, "metadata of a GGUF file"));
  for (size_t i = 0; i < count; i++) {
    STILL_TRY(take_name(c, &gguf->keys, "key"));
    const still_status status = take_value(gguf, c, &gguf->pairs[i]);
    if (status) return still_fail_in(status, "key '%.200s'", still_name_table_get(&gguf->keys, i));
    if (c->at > MOST_METADATA_BYTES)
      return still_fail(STILL_ERROR_FORMAT, "more than %zu bytes of metadata", MOST_METADATA_BYTES);
  }
  return STILL_OK;
}

static still_status read_alignment(still_gguf *gguf) {
  gguf->alignment = STILL_GGUF_ALIGNMENT;
  const still_gguf_pair *pair = still_gguf_find_pair(gguf, STILL_GGUF_ALIGNMENT_KEY);
  if (!pair) return STILL_OK;
  uint64_t value = 0;
  if (pair->type != STILL_GGUF_U32)
    return still_fail(STILL_ERROR_FORMAT, "key '%s' has type %s, must be uint32",
                      STILL_GGUF_ALIGNMENT_KEY, still_gguf_type_name(pair->type));
  still_gguf_get_u64(gguf, STILL_GGUF_ALIGNMENT_KEY, &value);
  if (value < LEAST_ALIGNMENT || value > LARGEST_ALIGNMENT || (value & (value - 1)))
    return still_fail(STILL_ERROR_FORMAT, "key '%s' is %llu, must be a power of two from %d to %d",
                      STILL_GGUF_ALIGNMENT_KEY, (unsigned long long)value, LEAST_ALIGNMENT,
                      LARGEST_ALIGNMENT);
  gguf->alignment = (size_t)value;
  return STILL_OK;
}

/* ---- tensors */

static still_status take_shape(cursor *c, const char *name, still_tensor *tensor) {
  STILL_TRY(take_u32(c, &tensor->dimensions));
  if (!tensor->dimensions || tensor->dimensions > STILL_GGUF_DIMENSIONS)
    return still_fail(STILL_ERROR_FORMAT, "tensor '%s': %u dimensions, allowed are 1 to %d", name,
                      tensor->dimensions, STILL_GGUF_DIMENSIONS);
  for (uint32_t i = tensor->dimensions; i-- > 0;) STILL_TRY(take_u64(c, &tensor->shape[i]));
  return STILL_OK;
}

static still_status take_tensor(still_gguf *gguf, cursor *c, still_tensor *tensor,
                                still_tensor_span *span) {
  uint32_t type;
  uint64_t items;
  STILL_TRY(take_name(c, &gguf->names, "tensor"));
  const char *name = still_name_table_get(&gguf->names, gguf->names.count - 1);
  STILL_TRY(take_shape(c, name, tensor));
  STILL_TRY(take_u32(c, &type));
  STILL_TRY(take_u64(c, &span->begin));
  if (type >= STILL_TENSOR_U8) type = UINT32_MAX; /* ours, for safetensors only */
  STILL_TRY(
      still_tensor_bytes(name, type, tensor->dimensions, tensor->shape, &items, &tensor->bytes));
  tensor->type = type;
  if (span->begin % gguf->alignment)
    return still_fail(STILL_ERROR_FORMAT, "tensor '%s': offset %llu is no multiple of %zu", name,
                      (unsigned long long)span->begin, gguf->alignment);
  if (!still_add_u64(span->begin, tensor->bytes, &span->end))
    return still_fail(STILL_ERROR_FORMAT, "tensor '%s': offset %llu + %llu bytes exceed 2^64", name,
                      (unsigned long long)span->begin, (unsigned long long)tensor->bytes);
  return STILL_OK;
}

/* Names have come to rest: tensors may point at them and at their data. */
static still_status place_tensors(still_gguf *gguf, size_t data_start, still_tensor_span *spans) {
  const size_t count = gguf->names.count;
  const size_t room = gguf->bytes > data_start ? gguf->bytes - data_start : 0;
  for (size_t i = 0; i < count; i++) {
    still_tensor *tensor = &gguf->tensors[i];
    tensor->name = spans[i].name = still_name_table_get(&gguf->names, i);
    if (spans[i].end > room) {
      uint64_t needed = UINT64_MAX;
      still_add_u64(spans[i].end, data_start, &needed);
      return still_fail(
          STILL_ERROR_FORMAT,
          "tensor '%s': its %llu bytes from offset %llu need a file of %llu bytes, it "
          "has %zu (cut short?)",
          tensor->name, (unsigned long long)tensor->bytes, (unsigned long long)spans[i].begin,
          (unsigned long long)needed, gguf->bytes);
    }
    tensor->data = gguf->data + data_start + spans[i].begin;
  }
  return still_tensor_spans_check(spans, count, true);
}

static still_status take_tensors(still_gguf *gguf, cursor *c, uint64_t count) {
  if (count > left(c) / LEAST_TENSOR_BYTES || count > MOST_TENSORS)
    return still_fail(STILL_ERROR_FORMAT,
                      "%llu tensors, but %zu bytes are left and %llu tensors are allowed",
                      (unsigned long long)count, left(c), (unsigned long long)MOST_TENSORS);
  still_tensor_span *spans = NULL;
  still_status status = STILL_ALLOC(&gguf->tensors, (size_t)count, "tensors of a GGUF file");
  if (!status) status = STILL_ALLOC(&spans, (size_t)count, "tensors of a GGUF file");
  for (size_t i = 0; i < count && !status; i++)
    status = take_tensor(gguf, c, &gguf->tensors[i], &spans[i]);
  /* no overflow: a file's size is far from SIZE_MAX */
  if (!status) status = place_tensors(gguf, still_round_up(c->at, gguf->alignment), spans);
  still_free(spans);
  return status;
}

/* ---- a file */

static still_status parse(still_gguf *gguf) {
  cursor c = {gguf->data, 0, gguf->bytes};
  const uint8_t *magic;
  uint32_t version;
  uint64_t tensors, pairs;
  if (!gguf->bytes) return still_fail(STILL_ERROR_FORMAT, "not a GGUF file: it is empty");
  STILL_TRY(take(&c, 4, &magic));
  if (memcmp(magic, STILL_GGUF_MAGIC, 4))
    return still_fail(STILL_ERROR_FORMAT, "not a GGUF file: it begins with %02x %02x %02x %02x",
                      magic[0], magic[1], magic[2], magic[3]);
  STILL_TRY(take_u32(&c, &version));
  if (version && !(version & 0xffff))
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "the file is big-endian (version 0x%08x), only little-endian GGUF is read",
                      version);
  if (version != 2 && version != STILL_GGUF_VERSION)
    return still_fail(STILL_ERROR_UNSUPPORTED, "GGUF version %u, known are 2 and 3", version);
  STILL_TRY(take_u64(&c, &tensors));
  STILL_TRY(take_u64(&c, &pairs));
  STILL_TRY(take_pairs(gguf, &c, pairs));
  STILL_TRY(read_alignment(gguf));
  return take_tensors(gguf, &c, tensors);
}

void still_gguf_forget(const still_gguf *gguf) {
  still_file_forget(&gguf->file);
  for (size_t i = 0; i < gguf->shard_count; i++) still_gguf_forget(gguf->shards[i]);
}

void still_gguf_close(still_gguf *gguf) {
  if (!gguf) return;
  for (size_t i = 0; i < gguf->shard_count; i++) still_gguf_close(gguf->shards[i]);
  still_free(gguf->shards);
  for (size_t i = 0; gguf->pairs && i < gguf->keys.count; i++) still_free(gguf->pairs[i].strings);
  still_free(gguf->pairs);
  still_free(gguf->tensors);
  still_name_table_free(&gguf->keys);
  still_name_table_free(&gguf->names);
  still_file_close(&gguf->file);
  still_free(gguf);
}

still_status still_gguf_open_memory(still_gguf **out, const void *data, size_t bytes) {
  *out = NULL;
  still_gguf *gguf;
  STILL_TRY(STILL_ALLOC(&gguf, 1, "a GGUF file"));
  gguf->data = data;
  gguf->bytes = bytes;
  const still_status status = parse(gguf);
  if (status)
    still_gguf_close(gguf);
  else
    *out = gguf;
  return status;
}

static still_status open_file(still_gguf **out, const char *path, bool use_mmap) {
  still_file file;
  STILL_TRY(still_file_open(&file, path, use_mmap));
  const still_status status = still_gguf_open_memory(out, file.data, file.bytes);
  if (status) {
    still_file_close(&file);
    return still_fail_in(status, "%s", path);
  }
  (*out)->file = file;
  return STILL_OK;
}

/* ---- shards */

/* The place and the number that "...-00001-of-00003.gguf" says; both 1 for any other name. */
static void parse_shard_name(const char *path, unsigned *number, unsigned *count) {
  char same[SHARD_SUFFIX + 1];
  const size_t length = strlen(path);
  const char *suffix = path + (length > SHARD_SUFFIX ? length - SHARD_SUFFIX : 0);
  if (sscanf(suffix, "-%5u-of-%5u", number, count) == 2) {
    snprintf(same, sizeof same, "-%05u-of-%05u.gguf", *number % 100000, *count % 100000);
    if (!strcmp(same, suffix)) return;
  }
  *number = *count = 1;
}

/* Takes the shard's tensors over; the shard itself keeps their data and is closed with us. */
static still_status append_shard(still_gguf *gguf, still_gguf *shard) {
  const size_t had = gguf->names.count, more = shard->names.count;
  STILL_TRY(STILL_REALLOC(&gguf->tensors, had + more, "tensors of a GGUF file"));
  if (more) memcpy(gguf->tensors + had, shard->tensors, more * sizeof *shard->tensors);
  for (size_t i = 0; i < more; i++) {
    const char *name = shard->tensors[i].name;
    STILL_TRY(still_name_table_add(&gguf->names, name, strlen(name), "tensor"));
  }
  for (size_t i = 0; i < had + more; i++)
    gguf->tensors[i].name = still_name_table_get(&gguf->names, i);
  return STILL_OK;
}

static still_status open_shards(still_gguf *gguf, const char *path, unsigned count, bool use_mmap) {
  char *name = NULL;
  still_status status = STILL_OK;
  STILL_TRY(STILL_ALLOC(&gguf->shards, count - 1, "shards of a GGUF file"));
  STILL_TRY(still_copy_string(&name, path));
  char *suffix = name + strlen(name) - SHARD_SUFFIX;
  for (unsigned i = 2; i <= count && !status; i++) {
    snprintf(suffix, SHARD_SUFFIX + 1, "-%05u-of-%05u.gguf", i, count);
    still_gguf *shard;
    status = open_file(&shard, name, use_mmap);
    if (status) break;
    gguf->shards[gguf->shard_count++] = shard;
    status = append_shard(gguf, shard);
    if (status) still_fail_in(status, "%s", name);
  }
  still_free(name);
  return status;
}

/* What the file's name and its split.* keys say about shards must agree. */
static still_status join_shards(still_gguf *gguf, const char *path, bool use_mmap) {
  unsigned number, count;
  uint64_t said, tensors;
  parse_shard_name(path, &number, &count);
  if (!still_gguf_get_u64(gguf, "split.count", &said) || !said) said = count;
  if (said != count)
    return still_fail(STILL_ERROR_FORMAT,
                      "%s: one of %llu shards; the first must be named like x-00001-of-%05llu.gguf",
                      path, (unsigned long long)said, (unsigned long long)said);
  if (number != 1 || !count || count > MOST_SHARDS)
    return still_fail(STILL_ERROR_FORMAT,
                      "%s: shard %u of %u; open the first one, there may be up to %d", path, number,
                      count, MOST_SHARDS);
  if (count > 1) STILL_TRY(open_shards(gguf, path, count, use_mmap));
  if (still_gguf_get_u64(gguf, "split.tensors.count", &tensors) && tensors != gguf->names.count)
    return still_fail(STILL_ERROR_FORMAT, "%s: %zu tensors in %u shards, there should be %llu",
                      path, gguf->names.count, count, (unsigned long long)tensors);
  return STILL_OK;
}

still_status still_gguf_open(still_gguf **out, const char *path, bool use_mmap) {
  still_gguf *gguf;
  *out = NULL;
  STILL_TRY(open_file(&gguf, path, use_mmap));
  const still_status status = join_shards(gguf, path, use_mmap);
  if (status)
    still_gguf_close(gguf);
  else
    *out = gguf;
  return status;
}

size_t still_gguf_tensor_count(const still_gguf *gguf) {
  return gguf->names.count;
}

const still_tensor *still_gguf_tensor(const still_gguf *gguf, size_t index) {
  return &gguf->tensors[index];
}

const still_tensor *still_gguf_find_tensor(const still_gguf *gguf, const char *name) {
  const size_t index = still_name_table_find(&gguf->names, name, strlen(name));
  return index == SIZE_MAX ? NULL : &gguf->tensors[index];
}
