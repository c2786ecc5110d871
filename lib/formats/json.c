/* SPDX-License-Identifier: MIT */
#include "formats/json.h"

#include "base/files.h"
#include "base/memory.h"
#include "formats/name_table.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- parsing */

/* What cJSON does not check. A string's "\u0000" would end it early, unseen. */
static still_status check_text(const char *name, const char *text, size_t bytes) {
  bool in_string = false;
  int depth = 0;
  for (size_t i = 0; i < bytes; i++) {
    const char c = text[i];
    if (!c) return still_fail(STILL_ERROR_FORMAT, "%s: byte %zu is a NUL", name, i);
    if (in_string && c == '\\') {
      if (bytes - i > 5 && !memcmp(text + i + 1, "u0000", 5))
        return still_fail(STILL_ERROR_FORMAT, "%s: byte %zu: \\u0000 in a string", name, i);
      i++;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '{' || c == '[')) {
      if (++depth > STILL_JSON_DEPTH)
        return still_fail(STILL_ERROR_FORMAT, "%s: byte %zu: nested deeper than %d", name, i,
                          STILL_JSON_DEPTH);
    } else if (!in_string && (c == '}' || c == ']')) {
      depth--;
    }
  }
  return STILL_OK;
}

static bool only_space(const char *text, const char *end) {
  while (text < end && strchr(" \t\r\n", *text)) text++;
  return text == end;
}

still_status still_json_parse(still_json **document, const char *name, const char *text,
                              size_t bytes, size_t limit) {
  *document = NULL;
  if (bytes > limit)
    return still_fail(STILL_ERROR_FORMAT, "%s: %zu bytes of JSON, at most %zu are allowed", name,
                      bytes, limit);
  STILL_TRY(check_text(name, text, bytes));
  const char *end = text;
  cJSON *parsed = cJSON_ParseWithLengthOpts(text, bytes, &end, 0);
  if (!parsed)
    return still_fail(STILL_ERROR_FORMAT, "%s: byte %zu of %zu: not valid JSON", name,
                      (size_t)(end - text), bytes);
  if (!only_space(end, text + bytes)) {
    cJSON_Delete(parsed);
    return still_fail(STILL_ERROR_FORMAT, "%s: byte %zu: something follows the JSON value", name,
                      (size_t)(end - text));
  }
  *document = parsed;
  return STILL_OK;
}

still_status still_json_read(still_json **document, const char *path, size_t limit) {
  *document = NULL;
  char *text;
  size_t bytes;
  STILL_TRY(still_read_text(path, limit, &text, &bytes));
  const still_status status = still_json_parse(document, path, text, bytes, limit);
  still_free(text);
  return status;
}

void still_json_free(still_json *document) {
  cJSON_Delete(document);
}

/* ---- walking */

still_json_type still_json_type_of(const still_json *value) {
  switch (value ? value->type & 0xff : cJSON_NULL) {
  case cJSON_False:
  case cJSON_True: return STILL_JSON_BOOL;
  case cJSON_Number: return STILL_JSON_NUMBER;
  case cJSON_String: return STILL_JSON_STRING;
  case cJSON_Array: return STILL_JSON_ARRAY;
  case cJSON_Object: return STILL_JSON_OBJECT;
  default: return STILL_JSON_NULL;
  }
}

size_t still_json_count(const still_json *value) {
  size_t count = 0;
  for (value = still_json_first(value); value; value = still_json_next(value)) count++;
  return count;
}

const still_json *still_json_first(const still_json *value) {
  return value ? value->child : NULL;
}

const still_json *still_json_next(const still_json *value) {
  return value ? value->next : NULL;
}

const char *still_json_key(const still_json *value) {
  return value ? value->string : NULL;
}

const still_json *still_json_find(const still_json *object, const char *key) {
  if (still_json_type_of(object) != STILL_JSON_OBJECT) return NULL;
  const still_json *member = object->child;
  while (member && strcmp(member->string, key)) member = member->next;
  return member;
}

still_status still_json_check_keys(const still_json *object, const char *what) {
  still_name_table seen = {0};
  still_status status = STILL_OK;
  for (const still_json *m = still_json_first(object); m && !status; m = still_json_next(m))
    if (m->string) status = still_name_table_add(&seen, m->string, strlen(m->string), what);
  still_name_table_free(&seen);
  return status;
}

/* ---- one value */

static still_status fail_type(const still_json *value, const char *what, const char *expected) {
  static const char *const names[] = {
      [STILL_JSON_NULL] = "missing",    [STILL_JSON_BOOL] = "true or false",
      [STILL_JSON_NUMBER] = "a number", [STILL_JSON_STRING] = "a string",
      [STILL_JSON_ARRAY] = "an array",  [STILL_JSON_OBJECT] = "an object"};
  const still_json_type type = still_json_type_of(value);
  char number[48] = "";
  if (type == STILL_JSON_NUMBER) snprintf(number, sizeof number, " (%.17g)", value->valuedouble);
  return still_fail(STILL_ERROR_FORMAT, "'%s' is %s%s, must be %s", what, names[type], number,
                    expected);
}

still_status still_json_to_u64(const still_json *value, const char *what, uint64_t *out) {
  const double number = still_json_type_of(value) == STILL_JSON_NUMBER ? value->valuedouble : -1;
  if (!(number >= 0 && number <= (double)STILL_JSON_LARGEST_INTEGER && number == floor(number)))
    return fail_type(value, what, "an integer from 0 to 2^53 - 1");
  *out = (uint64_t)number;
  return STILL_OK;
}

still_status still_json_to_f64(const still_json *value, const char *what, double *out) {
  if (still_json_type_of(value) != STILL_JSON_NUMBER || !isfinite(value->valuedouble))
    return fail_type(value, what, "a finite number");
  *out = value->valuedouble;
  return STILL_OK;
}

still_status still_json_to_bool(const still_json *value, const char *what, bool *out) {
  if (still_json_type_of(value) != STILL_JSON_BOOL) return fail_type(value, what, "true or false");
  *out = cJSON_IsTrue(value);
  return STILL_OK;
}

still_status still_json_to_string(const still_json *value, const char *what, const char **out) {
  if (still_json_type_of(value) != STILL_JSON_STRING) return fail_type(value, what, "a string");
  *out = value->valuestring;
  return STILL_OK;
}

/* ---- members of an object */

still_status still_json_get(const still_json *object, const char *key, still_json_type type,
                            const still_json **out) {
  static const char *const names[] = {"null",     "true or false", "a number",
                                      "a string", "an array",      "an object"};
  *out = still_json_find(object, key);
  return *out && still_json_type_of(*out) == type ? STILL_OK : fail_type(*out, key, names[type]);
}

#define GETTERS(name, type)                                                                        \
  still_status still_json_get_##name(const still_json *object, const char *key, type *out) {       \
    return still_json_to_##name(still_json_find(object, key), key, out);                           \
  }                                                                                                \
  still_status still_json_optional_##name(const still_json *object, const char *key, type *out) {  \
    const still_json *member = still_json_find(object, key);                                       \
    if (still_json_type_of(member) == STILL_JSON_NULL) return STILL_OK;                            \
    return still_json_to_##name(member, key, out);                                                 \
  }
GETTERS(u64, uint64_t)
GETTERS(f64, double)
GETTERS(bool, bool)
GETTERS(string, const char *)

/* ---- writing */

still_status still_json_quote(char **out, const char *text) {
  size_t room;
  *out = NULL;
  if (!still_mul_size(strlen(text), 6, &room) || !still_add_size(room, 3, &room))
    return still_fail(STILL_ERROR_MEMORY, "a string is too long to be quoted");
  STILL_TRY(still_alloc((void **)out, room, 1, "a quoted string"));
  char *to = *out;
  *to++ = '"';
  for (const unsigned char *from = (const unsigned char *)text; *from; from++) {
    if (*from == '"' || *from == '\\') *to++ = '\\';
    if (*from < 0x20)
      to += snprintf(to, 7, "\\u%04x", *from);
    else
      *to++ = (char)*from;
  }
  *to = '"';
  return STILL_OK;
}
