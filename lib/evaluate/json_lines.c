/* SPDX-License-Identifier: MIT */
#include "evaluate/json_lines.h"

#include "base/files.h"
#include "base/memory.h"

#include <string.h>

static bool is_blank(const char *text, size_t bytes) {
  while (bytes && strchr(" \t\r", text[bytes - 1])) bytes--;
  return !bytes;
}

static still_status read_line(const char *text, size_t bytes,
                              still_status (*line)(void *user, const still_json *document),
                              void *user) {
  still_json *document;
  STILL_TRY(still_json_parse(&document, "line", text, bytes, bytes));
  const still_status status = line(user, document);
  still_json_free(document);
  return status;
}

still_status still_json_lines(const char *path,
                              still_status (*line)(void *user, const still_json *document),
                              void *user) {
  char *text;
  size_t bytes, number = 1, lines = 0;
  still_status status = STILL_OK;
  STILL_TRY(still_read_text(path, STILL_JSON_FILE_LIMIT, &text, &bytes));
  for (size_t at = 0; at < bytes && !status; number++) {
    const char *end = memchr(text + at, '\n', bytes - at);
    const size_t length = end ? (size_t)(end - text) - at : bytes - at;
    if (!is_blank(text + at, length)) {
      status = read_line(text + at, length, line, user);
      lines++;
    }
    if (status) still_fail_in(status, "%s, line %zu", path, number);
    at += length + 1;
  }
  still_free(text);
  if (!status && !lines) status = still_fail(STILL_ERROR_FORMAT, "%s: holds no question", path);
  return status;
}

bool still_is_blank(const char *text) {
  return !text[strspn(text, " \t\r\n")];
}
