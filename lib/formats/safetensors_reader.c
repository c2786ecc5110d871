/* SPDX-License-Identifier: MIT
 * One file, an index with its shards, or a folder of them. Each file must be consistent in itself:
 * shape times type = offsets, and the tensors cover its data without gaps. */
#include "base/files.h"
#include "base/memory.h"
#include "formats/json.h"
#include "formats/name_table.h"
#include "formats/safetensors.h"

#include <string.h>

enum {
  LENGTH_BYTES = 8,
  HEADER_LIMIT = 100 * 1000 * 1000, /* the format's own */
  MOST_SHARDS = 1024
};
#define METADATA_KEY "__metadata__"
#define INDEX_SUFFIX ".json"

/* One file and what its header said. */
typedef struct part {
  still_file file;
  still_json *header; /* kept for the metadata's strings */
} part;

struct still_safetensors {
  part *parts;
  size_t part_count;
  still_name_table names; /* number = index of the tensor */
  still_tensor *tensors;
  size_t room;
  const still_json *metadata; /* of the first part; NULL if it has none */
  size_t metadata_count;
};

/* ---- one tensor's entry */

static still_status read_shape(const still_json *entry, still_tensor *tensor) {
  const still_json *shape;
  STILL_TRY(still_json_get(entry, "shape", STILL_JSON_ARRAY, &shape));
  for (const still_json *d = still_json_first(shape); d; d = still_json_next(d)) {
    if (tensor->dimensions == STILL_MOST_DIMENSIONS)
      return still_fail(STILL_ERROR_FORMAT, "'shape' has %zu dimensions, at most %d are allowed",
                        still_json_count(shape), STILL_MOST_DIMENSIONS);
    STILL_TRY(still_json_to_u64(d, "shape", &tensor->shape[tensor->dimensions++]));
  }
  return STILL_OK;
}

static still_status read_offsets(const still_json *entry, still_tensor_span *span) {
  const still_json *offsets;
  STILL_TRY(still_json_get(entry, "data_offsets", STILL_JSON_ARRAY, &offsets));
  const still_json *begin = still_json_first(offsets), *end = still_json_next(begin);
  if (!end || still_json_next(end))
    return still_fail(STILL_ERROR_FORMAT, "'data_offsets' has %zu values, must have 2",
                      still_json_count(offsets));
  STILL_TRY(still_json_to_u64(begin, "data_offsets", &span->begin));
  return still_json_to_u64(end, "data_offsets", &span->end);
}

static still_status check_span(const still_tensor *tensor, const char *name,
                               const still_tensor_span *span, size_t data_bytes) {
  char shape[256];
  if (span->end < span->begin || span->end - span->begin != tensor->bytes)
    return still_fail(STILL_ERROR_FORMAT,
                      "tensor '%s': data_offsets [%llu, %llu], but shape %s of %s takes %llu bytes",
                      name, (unsigned long long)span->begin, (unsigned long long)span->end,
                      still_shape_text(shape, sizeof shape, tensor->dimensions, tensor->shape),
                      still_type_traits_get(tensor->type)->name, (unsigned long long)tensor->bytes);
  if (span->end > data_bytes)
    return still_fail(
        STILL_ERROR_FORMAT,
        "tensor '%s': ends at byte %llu of the data, but the file has %zu (cut short?)", name,
        (unsigned long long)span->end, data_bytes);
  return STILL_OK;
}

static still_status read_entry(const still_json *entry, still_tensor *tensor,
                               still_tensor_span *span) {
  char known[128];
  const char *dtype;
  STILL_TRY(still_json_get_string(entry, "dtype", &dtype));
  const still_type_traits *traits = still_type_traits_by_safetensors(dtype);
  if (!traits)
    return still_fail(STILL_ERROR_UNSUPPORTED, "'dtype' is '%.40s', known are %s", dtype,
                      still_type_names(known, sizeof known, true));
  tensor->type = traits->type;
  STILL_TRY(read_shape(entry, tensor));
  return read_offsets(entry, span);
}

/* ---- one file */

static still_status add_tensor(still_safetensors *file, const still_json *entry,
                               const uint8_t *data, size_t data_bytes, still_tensor_span *span) {
  const char *name = still_json_key(entry);
  if (!*name) return still_fail(STILL_ERROR_FORMAT, "a tensor has an empty name");
  if (file->names.count == file->room) {
    const size_t room = file->room ? 2 * file->room : 64;
    STILL_TRY(STILL_REALLOC(&file->tensors, room, "tensors of a safetensors file"));
    file->room = room;
  }
  still_tensor *tensor = &file->tensors[file->names.count];
  memset(tensor, 0, sizeof *tensor);
  STILL_TRY(still_name_table_add(&file->names, name, strlen(name), "tensor"));
  const still_status status = read_entry(entry, tensor, span);
  if (status) return still_fail_in(status, "tensor '%.200s'", name);
  uint64_t items;
  STILL_TRY(still_tensor_bytes(name, tensor->type, tensor->dimensions, tensor->shape, &items,
                               &tensor->bytes));
  STILL_TRY(check_span(tensor, name, span, data_bytes));
  span->name = name;
  tensor->data = data + span->begin;
  return STILL_OK;
}

static still_status take_metadata(still_safetensors *file, const still_json *metadata) {
  if (still_json_type_of(metadata) != STILL_JSON_OBJECT)
    return still_fail(STILL_ERROR_FORMAT, "'" METADATA_KEY "' must be an object of strings");
  STILL_TRY(still_json_check_keys(metadata, METADATA_KEY));
  const char *text;
  for (const still_json *m = still_json_first(metadata); m; m = still_json_next(m))
    STILL_TRY(still_json_to_string(m, still_json_key(m), &text));
  if (file->metadata || file->part_count > 1) return STILL_OK;
  file->metadata = metadata;
  file->metadata_count = still_json_count(metadata);
  return STILL_OK;
}

static still_status add_entries(still_safetensors *file, const still_json *header,
                                const uint8_t *data, size_t data_bytes) {
  still_tensor_span *spans;
  size_t count = 0;
  const still_json *metadata = NULL;
  STILL_TRY(STILL_ALLOC(&spans, still_json_count(header), "tensors of a safetensors file"));
  still_status status = STILL_OK;
  for (const still_json *e = still_json_first(header); e && !status; e = still_json_next(e)) {
    if (strcmp(still_json_key(e), METADATA_KEY))
      status = add_tensor(file, e, data, data_bytes, &spans[count++]);
    else if (metadata)
      status = still_fail(STILL_ERROR_FORMAT, "'" METADATA_KEY "' occurs twice");
    else
      status = take_metadata(file, metadata = e);
  }
  if (!status) status = still_tensor_spans_check(spans, count, false);
  const uint64_t covered = !status && count ? spans[count - 1].end : 0;
  if (!status && covered != data_bytes)
    status = still_fail(STILL_ERROR_FORMAT,
                        "the tensors end at byte %llu of the data, but the file has %zu",
                        (unsigned long long)covered, data_bytes);
  still_free(spans);
  return status;
}

static still_status parse_part(still_safetensors *file, part *p, const uint8_t *data,
                               size_t bytes) {
  uint64_t length;
  if (bytes < LENGTH_BYTES)
    return still_fail(STILL_ERROR_FORMAT, "%zu bytes are no safetensors file", bytes);
  memcpy(&length, data, sizeof length);
  if (length > HEADER_LIMIT || length > bytes - LENGTH_BYTES)
    return still_fail(
        STILL_ERROR_FORMAT,
        "no safetensors file, or cut short: the header should have %llu bytes, but the "
        "file has %zu and %d are allowed",
        (unsigned long long)length, bytes, HEADER_LIMIT);
  data += LENGTH_BYTES;
  bytes -= LENGTH_BYTES;
  STILL_TRY(
      still_json_parse(&p->header, "header", (const char *)data, (size_t)length, HEADER_LIMIT));
  if (still_json_type_of(p->header) != STILL_JSON_OBJECT)
    return still_fail(STILL_ERROR_FORMAT, "the header is no JSON object");
  return add_entries(file, p->header, data + length, bytes - (size_t)length);
}

static still_status open_part(still_safetensors *file, const char *path, bool use_mmap) {
  part *p = &file->parts[file->part_count++];
  STILL_TRY(still_file_open(&p->file, path, use_mmap));
  const still_status status = parse_part(file, p, p->file.data, p->file.bytes);
  return status ? still_fail_in(status, "%s", path) : STILL_OK;
}

/* ---- shards */

/* A bare file name: an index must not reach out of its folder. */
static bool is_bare_name(const char *name) {
  return *name && !strchr(name, '/') && !strchr(name, '\\') && strcmp(name, ".") &&
         strcmp(name, "..");
}

static still_status open_beside(still_safetensors *file, const char *index_path, const char *name,
                                bool use_mmap) {
  const char *slash = strrchr(index_path, '/');
  const size_t folder = slash ? (size_t)(slash - index_path) + 1 : 0, bytes = strlen(name) + 1;
  char *path;
  STILL_TRY(still_alloc((void **)&path, folder + bytes, 1, "a path"));
  memcpy(path, index_path, folder);
  memcpy(path + folder, name, bytes);
  const still_status status = open_part(file, path, use_mmap);
  still_free(path);
  return status;
}

/* The distinct files of the weight map. */
static still_status list_shards(const still_json *map, still_name_table *shards) {
  const char *name;
  for (const still_json *m = still_json_first(map); m; m = still_json_next(m)) {
    STILL_TRY(still_json_to_string(m, still_json_key(m), &name));
    if (!is_bare_name(name))
      return still_fail(STILL_ERROR_FORMAT,
                        "tensor '%.200s' lies in '%.200s': must be a file of the same folder",
                        still_json_key(m), name);
    if (still_name_table_find(shards, name, strlen(name)) != SIZE_MAX) continue;
    if (shards->count == MOST_SHARDS)
      return still_fail(STILL_ERROR_FORMAT, "more than %d shards", MOST_SHARDS);
    STILL_TRY(still_name_table_add(shards, name, strlen(name), "shard"));
  }
  return STILL_OK;
}

static still_status read_index(still_safetensors *file, const still_json *index, const char *path,
                               bool use_mmap) {
  const still_json *map;
  still_name_table shards = {0};
  still_status status = still_json_get(index, "weight_map", STILL_JSON_OBJECT, &map);
  if (!status) status = list_shards(map, &shards);
  if (status) {
    still_fail_in(status, "%s", path);
    goto done;
  }
  STILL_TRY_GOTO(STILL_ALLOC(&file->parts, shards.count, "shards of a model"), done);
  for (size_t i = 0; i < shards.count; i++)
    STILL_TRY_GOTO(open_beside(file, path, still_name_table_get(&shards, i), use_mmap), done);
  for (const still_json *m = still_json_first(map); m && !status; m = still_json_next(m))
    if (still_name_table_find(&file->names, still_json_key(m), strlen(still_json_key(m))) ==
        SIZE_MAX)
      status = still_fail(STILL_ERROR_FORMAT, "%s: tensor '%.200s' is in none of the %zu shards",
                          path, still_json_key(m), shards.count);
done:
  still_name_table_free(&shards);
  return status;
}

static still_status open_index(still_safetensors *file, const char *path, bool use_mmap) {
  still_json *index;
  STILL_TRY(still_json_read(&index, path, STILL_JSON_FILE_LIMIT));
  const still_status status = read_index(file, index, path, use_mmap);
  still_json_free(index);
  return status;
}

/* ---- opening */

static still_status create(still_safetensors **file, size_t parts) {
  STILL_TRY(STILL_ALLOC(file, 1, "a safetensors file"));
  const still_status status = STILL_ALLOC(&(*file)->parts, parts, "a safetensors file");
  if (status) still_free(*file);
  return status;
}

void still_safetensors_close(still_safetensors *file) {
  if (!file) return;
  for (size_t i = 0; i < file->part_count; i++) {
    still_json_free(file->parts[i].header);
    still_file_close(&file->parts[i].file);
  }
  still_free(file->parts);
  still_free(file->tensors);
  still_name_table_free(&file->names);
  still_free(file);
}

/* Names moved while tensors were added. */
static still_status finish(still_safetensors **out, still_safetensors *file, still_status status) {
  if (status) {
    still_safetensors_close(file);
    return status;
  }
  for (size_t i = 0; i < file->names.count; i++)
    file->tensors[i].name = still_name_table_get(&file->names, i);
  *out = file;
  return STILL_OK;
}

still_status still_safetensors_open_memory(still_safetensors **out, const void *data,
                                           size_t bytes) {
  still_safetensors *file;
  *out = NULL;
  STILL_TRY(create(&file, 1));
  file->part_count = 1;
  return finish(out, file, parse_part(file, file->parts, data, bytes));
}

/* The file of a folder that is to be opened. */
static still_status find_in_folder(char **out, const char *folder) {
  static const char *const names[] = {"model.safetensors.index.json", "model.safetensors",
                                      "adapter_model.safetensors"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    STILL_TRY(still_join_path(out, folder, names[i]));
    if (still_path_exists(*out)) return STILL_OK;
    still_free(*out);
  }
  *out = NULL;
  return still_fail(STILL_ERROR_FILE, "%s: holds no %s, %s or %s", folder, names[0], names[1],
                    names[2]);
}

still_status still_safetensors_open(still_safetensors **out, const char *path, bool use_mmap) {
  still_safetensors *file = NULL;
  char *found = NULL;
  *out = NULL;
  if (still_path_is_folder(path)) {
    STILL_TRY(find_in_folder(&found, path));
    path = found;
  }
  const size_t length = strlen(path), suffix = sizeof INDEX_SUFFIX - 1;
  const bool index = length > suffix && !strcmp(path + length - suffix, INDEX_SUFFIX);
  still_status status = create(&file, index ? 0 : 1);
  if (!status)
    status = finish(out, file,
                    index ? open_index(file, path, use_mmap) : open_part(file, path, use_mmap));
  still_free(found);
  return status;
}

/* ---- access */

size_t still_safetensors_count(const still_safetensors *file) {
  return file->names.count;
}

const still_tensor *still_safetensors_tensor(const still_safetensors *file, size_t index) {
  return &file->tensors[index];
}

const still_tensor *still_safetensors_find(const still_safetensors *file, const char *name) {
  const size_t index = still_name_table_find(&file->names, name, strlen(name));
  return index == SIZE_MAX ? NULL : &file->tensors[index];
}

const char *still_safetensors_metadata(const still_safetensors *file, const char *key) {
  const char *value = NULL;
  still_json_optional_string(file->metadata, key, &value);
  return value;
}

size_t still_safetensors_metadata_count(const still_safetensors *file) {
  return file->metadata_count;
}

const char *still_safetensors_metadata_key(const still_safetensors *file, size_t index) {
  const still_json *member = still_json_first(file->metadata);
  while (index--) member = still_json_next(member);
  return still_json_key(member);
}
