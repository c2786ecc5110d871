/* SPDX-License-Identifier: MIT */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE_BYTES = 1024 };
static _Thread_local char last_error[SENTENCE_BYTES];

const char *still_last_error(void) {
  return last_error;
}

still_status still_fail(still_status status, const char *format, ...) {
  char sentence[SENTENCE_BYTES]; /* the arguments may point into last_error */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  /* Names come from untrusted files: no control character reaches a terminal. */
  for (char *c = sentence; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
  memcpy(last_error, sentence, sizeof sentence);
  return status;
}

still_status still_fail_in(still_status status, const char *format, ...) {
  char prefix[SENTENCE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(prefix, sizeof prefix, format, arguments);
  va_end(arguments);
  return still_fail(status, "%s: %s", prefix, last_error);
}

const char *still_status_text(still_status status) {
  switch (status) {
  case STILL_OK: return "no error";
  case STILL_ERROR_ARGUMENT: return "argument out of range";
  case STILL_ERROR_MEMORY: return "out of memory";
  case STILL_ERROR_FILE: return "file error";
  case STILL_ERROR_FORMAT: return "damaged file";
  case STILL_ERROR_UNSUPPORTED: return "not supported";
  case STILL_ERROR_NUMERIC: return "not a finite number";
  case STILL_ERROR_CANCELLED: return "cancelled";
  case STILL_ERROR_DEVICE: return "device failure";
  case STILL_ERROR_LIMIT: return "context is full";
  }
  return "unknown status";
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
const char *still_version(void) {
  return TEXT(STILL_VERSION_MAJOR) "." TEXT(STILL_VERSION_MINOR) "." TEXT(STILL_VERSION_PATCH);
}
