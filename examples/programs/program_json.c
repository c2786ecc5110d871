/* SPDX-License-Identifier: MIT
 * Writes one flat JSON object, member by member. */
#include "program_json.h"

#include <math.h>
#include <string.h>

size_t program_utf8_length(const char *text, size_t bytes) {
  const unsigned char *byte = (const unsigned char *)text;
  if (!bytes || byte[0] < 0x80) return bytes ? 1 : 0;
  size_t length = byte[0] >= 0xf0 ? 4 : byte[0] >= 0xe0 ? 3 : 2;
  if (byte[0] < 0xc2 || byte[0] > 0xf4 || length > bytes) return 0;
  for (size_t i = 1; i < length; i++)
    if ((byte[i] & 0xc0) != 0x80) return 0;
  /* No overlong forms, no surrogates, nothing above U+10FFFF. */
  if ((byte[0] == 0xe0 && byte[1] < 0xa0) || (byte[0] == 0xed && byte[1] > 0x9f) ||
      (byte[0] == 0xf0 && byte[1] < 0x90) || (byte[0] == 0xf4 && byte[1] > 0x8f))
    return 0;
  return length;
}

program_json program_json_begin(FILE *stream) {
  fputc('{', stream);
  return (program_json){stream, 0, "\n  ", "\n}\n"};
}

program_json program_json_begin_line(FILE *stream) {
  fputc('{', stream);
  return (program_json){stream, 0, "", "}\n"};
}

static void begin_member(program_json *json, const char *name) {
  const char *comma = !json->members ? "" : *json->gap ? "," : ", ";
  fprintf(json->stream, "%s%s\"%s\": ", comma, json->gap, name);
  json->members++;
}

static void write_byte(FILE *stream, unsigned char byte) {
  if (byte == '"' || byte == '\\')
    fprintf(stream, "\\%c", byte);
  else if (byte == '\n')
    fputs("\\n", stream);
  else if (byte < 0x20 || byte == 0x7f)
    fprintf(stream, "\\u%04x", byte);
  else
    fputc(byte, stream);
}

void program_json_text(program_json *json, const char *name, const char *text, size_t bytes) {
  begin_member(json, name);
  fputc('"', json->stream);
  for (size_t i = 0; i < bytes;) {
    size_t length = program_utf8_length(text + i, bytes - i);
    if (length == 1)
      write_byte(json->stream, (unsigned char)text[i]);
    else if (length)
      fwrite(text + i, 1, length, json->stream);
    else
      fputs("\\ufffd", json->stream);
    i += length ? length : 1;
  }
  fputc('"', json->stream);
}

void program_json_string(program_json *json, const char *name, const char *text) {
  if (text) {
    program_json_text(json, name, text, strlen(text));
  } else {
    begin_member(json, name);
    fputs("null", json->stream);
  }
}

void program_json_integer(program_json *json, const char *name, int64_t value) {
  begin_member(json, name);
  fprintf(json->stream, "%lld", (long long)value);
}

void program_json_number(program_json *json, const char *name, double value) {
  begin_member(json, name);
  if (isfinite(value))
    fprintf(json->stream, "%.6g", value);
  else
    fputs("null", json->stream);
}

void program_json_end(program_json *json) {
  fputs(json->end, json->stream);
}
