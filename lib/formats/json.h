/* SPDX-License-Identifier: MIT
 * JSON of untrusted files: parse within limits, then ask for typed members.
 *
 * Parsing is cJSON's, whose tree is not counted by still_allocated_bytes (its allocation hook is
 * one for the whole process, so it is the host's). No tree outlives the public call that read it: still.h promises that,
 * and the most that it takes. Refused beyond cJSON's own errors: more bytes or
 * deeper nesting than allowed, a NUL in a string, anything after the value.
 *
 * The getters' sentences name the member and what it should be, not the file: callers put the path
 * before them with still_fail_in.
 */
#ifndef STILL_FORMATS_JSON_H
#define STILL_FORMATS_JSON_H

#include "base/status.h"

#include <stdbool.h>

/* A value of a parsed document. The first one is the document and the one to free. */
typedef struct cJSON still_json;

typedef enum still_json_type {
  STILL_JSON_NULL,
  STILL_JSON_BOOL,
  STILL_JSON_NUMBER,
  STILL_JSON_STRING,
  STILL_JSON_ARRAY,
  STILL_JSON_OBJECT
} still_json_type;

enum { STILL_JSON_DEPTH = 64 };                              /* deepest nesting accepted */
#define STILL_JSON_LARGEST_INTEGER (((uint64_t)1 << 53) - 1) /* exact in a double */
enum { STILL_JSON_FILE_LIMIT = 256 * 1024 * 1024 };          /* for whole files */

/* name stands before every sentence ("model/config.json: ..."). text need not be NUL-terminated and
 * is not kept. FORMAT with the byte's position, MEMORY. */
still_status still_json_parse(still_json **document, const char *name, const char *text,
                              size_t bytes, size_t limit);
still_status still_json_read(still_json **document, const char *path, size_t limit);
void still_json_free(still_json *document);

/* ---- walking: all accept NULL, which is a value of type NULL without members */

still_json_type still_json_type_of(const still_json *value);
/* Members of an array or object; takes a time in proportion to their number. */
size_t still_json_count(const still_json *value);
const still_json *still_json_first(const still_json *value);
const still_json *still_json_next(const still_json *value);
/* The name of an object's member; NULL for an array's. */
const char *still_json_key(const still_json *value);
/* An object's member by its exact name; NULL if there is none. Linear in the number of members. */
const still_json *still_json_find(const still_json *object, const char *key);
/* An object that gives one key twice is refused: FORMAT. Only this object, not those inside it. */
still_status still_json_check_keys(const still_json *object, const char *what);

/* ---- one value; `what` names it in the sentence. FORMAT where the type or range does not fit */

still_status still_json_to_u64(const still_json *value, const char *what, uint64_t *out);
still_status still_json_to_f64(const still_json *value, const char *what, double *out);
still_status still_json_to_bool(const still_json *value, const char *what, bool *out);
/* NUL-terminated, of the document's. */
still_status still_json_to_string(const still_json *value, const char *what, const char **out);

/* ---- members of an object. A missing one (null counts as missing) is a FORMAT error here ... */

still_status still_json_get_u64(const still_json *object, const char *key, uint64_t *out);
still_status still_json_get_f64(const still_json *object, const char *key, double *out);
still_status still_json_get_bool(const still_json *object, const char *key, bool *out);
still_status still_json_get_string(const still_json *object, const char *key, const char **out);
/* A member of this type, ARRAY or OBJECT mostly. */
still_status still_json_get(const still_json *object, const char *key, still_json_type type,
                            const still_json **out);

/* ---- ... and leaves *out as it was here */

still_status still_json_optional_u64(const still_json *object, const char *key, uint64_t *out);
still_status still_json_optional_f64(const still_json *object, const char *key, double *out);
still_status still_json_optional_bool(const still_json *object, const char *key, bool *out);
still_status still_json_optional_string(const still_json *object, const char *key,
                                        const char **out);

/* ---- writing */

/* text as a JSON string with its quotes, freed with still_free. Bytes that are no UTF-8 are kept.
 */
still_status still_json_quote(char **out, const char *text);

#endif
