/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static struct {
  still_log_callback *callback;
  void *user;
  still_log_level level;
} sink;

void still_set_log(still_log_callback *callback, void *user, still_log_level level) {
  sink.callback = callback;
  sink.user = user;
  sink.level = level;
}

void still_log(still_log_level level, const char *format, ...) {
  if (!sink.callback || level > sink.level) return;
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  sink.callback(sink.user, level, message);
}
