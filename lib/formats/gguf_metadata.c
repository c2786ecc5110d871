/* SPDX-License-Identifier: MIT
 * The typed getters of GGUF metadata. */
#include "formats/gguf_file.h"

#include <string.h>

size_t still_gguf_type_bytes(still_gguf_type type) {
  switch (type) {
  case STILL_GGUF_U8:
  case STILL_GGUF_I8:
  case STILL_GGUF_BOOL: return 1;
  case STILL_GGUF_U16:
  case STILL_GGUF_I16: return 2;
  case STILL_GGUF_U32:
  case STILL_GGUF_I32:
  case STILL_GGUF_F32: return 4;
  case STILL_GGUF_U64:
  case STILL_GGUF_I64:
  case STILL_GGUF_F64: return 8;
  default: return 0;
  }
}

const char *still_gguf_type_name(uint32_t type) {
  static const char *const names[] = {"uint8",  "int8",    "uint16",  "int16",  "uint32",
                                      "int32",  "float32", "boolean", "string", "array",
                                      "uint64", "int64",   "float64"};
  return type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

const still_gguf_pair *still_gguf_find_pair(const still_gguf *gguf, const char *key) {
  const size_t index = still_name_table_find(&gguf->keys, key, strlen(key));
  return index == SIZE_MAX ? NULL : &gguf->pairs[index];
}

size_t still_gguf_key_count(const still_gguf *gguf) {
  return gguf->keys.count;
}

const char *still_gguf_key(const still_gguf *gguf, size_t index, still_gguf_type *type) {
  if (type) *type = gguf->pairs[index].type;
  return still_name_table_get(&gguf->keys, index);
}

bool still_gguf_has_key(const still_gguf *gguf, const char *key) {
  return still_gguf_find_pair(gguf, key) != NULL;
}

/* ---- one number, wherever it stands */

typedef struct number {
  enum { NOT_A_NUMBER, UNSIGNED, SIGNED, REAL } kind;
  uint64_t u;
  int64_t i;
  double f;
} number;

#define READ(c_type, kind_, member)                                                                \
  {                                                                                                \
    c_type value;                                                                                  \
    memcpy(&value, at, sizeof value);                                                              \
    return (number){.kind = kind_, .member = value};                                               \
  }

static number read_number(still_gguf_type type, const uint8_t *at) {
  switch (type) {
  case STILL_GGUF_U8: READ(uint8_t, UNSIGNED, u)
  case STILL_GGUF_I8: READ(int8_t, SIGNED, i)
  case STILL_GGUF_U16: READ(uint16_t, UNSIGNED, u)
  case STILL_GGUF_I16: READ(int16_t, SIGNED, i)
  case STILL_GGUF_U32: READ(uint32_t, UNSIGNED, u)
  case STILL_GGUF_I32: READ(int32_t, SIGNED, i)
  case STILL_GGUF_U64: READ(uint64_t, UNSIGNED, u)
  case STILL_GGUF_I64: READ(int64_t, SIGNED, i)
  case STILL_GGUF_F32: READ(float, REAL, f)
  case STILL_GGUF_F64: READ(double, REAL, f)
  default: return (number){.kind = NOT_A_NUMBER};
  }
}

static bool to_f64(number n, double *value) {
  if (n.kind == NOT_A_NUMBER) return false;
  *value = n.kind == REAL ? n.f : n.kind == SIGNED ? (double)n.i : (double)n.u;
  return true;
}

static number scalar(const still_gguf *gguf, const char *key) {
  const still_gguf_pair *pair = still_gguf_find_pair(gguf, key);
  return pair ? read_number(pair->type, pair->value) : (number){.kind = NOT_A_NUMBER};
}

bool still_gguf_get_u64(const still_gguf *gguf, const char *key, uint64_t *value) {
  const number n = scalar(gguf, key);
  if (n.kind != UNSIGNED && !(n.kind == SIGNED && n.i >= 0)) return false;
  *value = n.kind == UNSIGNED ? n.u : (uint64_t)n.i;
  return true;
}

bool still_gguf_get_f64(const still_gguf *gguf, const char *key, double *value) {
  return to_f64(scalar(gguf, key), value);
}

bool still_gguf_get_bool(const still_gguf *gguf, const char *key, bool *value) {
  const still_gguf_pair *pair = still_gguf_find_pair(gguf, key);
  if (!pair || pair->type != STILL_GGUF_BOOL) return false;
  *value = *pair->value != 0;
  return true;
}

bool still_gguf_get_string(const still_gguf *gguf, const char *key, const char **text,
                           size_t *length) {
  const still_gguf_pair *pair = still_gguf_find_pair(gguf, key);
  if (!pair || pair->type != STILL_GGUF_STRING) return false;
  *text = pair->strings->text;
  *length = pair->strings->length;
  return true;
}

/* ---- arrays */

static const still_gguf_pair *find_array(const still_gguf *gguf, const char *key) {
  const still_gguf_pair *pair = still_gguf_find_pair(gguf, key);
  return pair && pair->type == STILL_GGUF_ARRAY ? pair : NULL;
}

bool still_gguf_get_array(const still_gguf *gguf, const char *key, still_gguf_type *type,
                          size_t *count) {
  const still_gguf_pair *pair = find_array(gguf, key);
  if (!pair) return false;
  *type = pair->element;
  *count = pair->count;
  return true;
}

const still_gguf_string *still_gguf_array_strings(const still_gguf *gguf, const char *key,
                                                  size_t *count) {
  static const still_gguf_string none = {"", 0}; /* what an empty array points at */
  const still_gguf_pair *pair = find_array(gguf, key);
  if (!pair || pair->element != STILL_GGUF_STRING) return NULL;
  *count = pair->count;
  return pair->count ? pair->strings : &none;
}

bool still_gguf_array_string(const still_gguf *gguf, const char *key, size_t index,
                             const char **text, size_t *length) {
  size_t count;
  const still_gguf_string *strings = still_gguf_array_strings(gguf, key, &count);
  if (!strings || index >= count) return false;
  *text = strings[index].text;
  *length = strings[index].length;
  return true;
}

static number element(const still_gguf *gguf, const char *key, size_t index) {
  const still_gguf_pair *pair = find_array(gguf, key);
  if (!pair || index >= pair->count) return (number){.kind = NOT_A_NUMBER};
  return read_number(pair->element, pair->value + index * still_gguf_type_bytes(pair->element));
}

bool still_gguf_array_f64(const still_gguf *gguf, const char *key, size_t index, double *value) {
  return to_f64(element(gguf, key, index), value);
}

bool still_gguf_array_i64(const still_gguf *gguf, const char *key, size_t index, int64_t *value) {
  const number n = element(gguf, key, index);
  if (n.kind != SIGNED && !(n.kind == UNSIGNED && n.u <= INT64_MAX)) return false;
  *value = n.kind == SIGNED ? n.i : (int64_t)n.u;
  return true;
}
