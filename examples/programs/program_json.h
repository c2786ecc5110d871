/* SPDX-License-Identifier: MIT
 * Writes one flat JSON object, member by member. */
#ifndef PROGRAM_JSON_H
#define PROGRAM_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct program_json {
  FILE *stream;
  int members;
  const char *gap, *end; /* between members, after the last */
} program_json;

/* A member a line; all in one line, for files of JSON lines. */
program_json program_json_begin(FILE *stream);
program_json program_json_begin_line(FILE *stream);
/* Bytes that are not UTF-8 become U+FFFD. */
void program_json_text(program_json *json, const char *name, const char *text, size_t bytes);
void program_json_string(program_json *json, const char *name, const char *text); /* NULL = null */
void program_json_integer(program_json *json, const char *name, int64_t value);
void program_json_number(program_json *json, const char *name, double value);
void program_json_end(program_json *json);

/* Length of the UTF-8 character at text, 0 if the bytes there are none. */
size_t program_utf8_length(const char *text, size_t bytes);

#endif
