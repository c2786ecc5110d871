/* SPDX-License-Identifier: MIT
 * JSON: whatever parses can be walked, asked and its strings quoted and parsed again. */
#include "fuzz.h"

#include "base/memory.h"
#include "formats/json.h"

#include <string.h>

static void check_string(const char *text) {
  char *quoted;
  still_json *again;
  const char *back = NULL;
  FUZZ_CHECK(still_json_quote(&quoted, text) == STILL_OK);
  FUZZ_CHECK(still_json_parse(&again, "again", quoted, strlen(quoted), SIZE_MAX) == STILL_OK);
  FUZZ_CHECK(still_json_to_string(again, "again", &back) == STILL_OK && !strcmp(back, text));
  still_json_free(again);
  still_free(quoted);
}

static void walk(const still_json *value, int depth) {
  uint64_t u;
  double f;
  bool flag;
  const char *text;
  FUZZ_CHECK(depth <= STILL_JSON_DEPTH);
  if (!still_json_to_u64(value, "v", &u)) FUZZ_CHECK(u <= STILL_JSON_LARGEST_INTEGER);
  (void)still_json_to_f64(value, "v", &f);
  (void)still_json_to_bool(value, "v", &flag);
  if (!still_json_to_string(value, "v", &text)) check_string(text);
  const bool distinct = !still_json_check_keys(value, "key");
  for (const still_json *m = still_json_first(value); m; m = still_json_next(m)) {
    const char *key = still_json_key(m);
    if (key && distinct) FUZZ_CHECK(still_json_find(value, key) == m);
    walk(m, depth + 1);
  }
}

void fuzz_one(const uint8_t *data, size_t bytes) {
  still_json *document;
  if (still_json_parse(&document, "input", (const char *)data, bytes, 1 << 16)) return;
  walk(document, 0);
  still_json_free(document);
}
