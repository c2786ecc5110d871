/* SPDX-License-Identifier: MIT
 * A text of any length, read in pieces that a tokenizer may see one by one. */
#include "program_input.h"
#include "program_arguments.h"
#include "program_terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16, LARGEST_PIECE = 1 << 20 };

int program_input_open(program_input *input, const char *path) {
  memset(input, 0, sizeof *input);
  input->path = path;
  input->file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
  input->capacity = PIECE;
  input->buffer = malloc(input->capacity);
  if (input->file && input->buffer) return PROGRAM_DONE;
  program_complain("-f %s: %s", path, strerror(errno));
  program_input_close(input);
  return PROGRAM_FAILED;
}

void program_input_close(program_input *input) {
  if (input->file && input->file != stdin) fclose(input->file);
  free(input->buffer);
  memset(input, 0, sizeof *input);
}

static int is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int is_visible(char c) {
  return c > ' ' && c < 127;
}

size_t program_safe_cut(const char *text, size_t bytes) {
  for (size_t i = bytes; i-- > 2;)
    if (text[i - 1] == '\n' && is_visible(text[i - 2]) && is_letter(text[i])) return i;
  for (size_t i = bytes; i-- > 2;)
    if (text[i - 1] == ' ' && is_letter(text[i - 2]) && is_letter(text[i])) return i - 1;
  return 0;
}

/* The last border between characters. */
static size_t character_cut(const char *text, size_t bytes) {
  size_t cut = bytes;
  while (cut > bytes - 4 && ((unsigned char)text[cut - 1] & 0xc0) == 0x80) cut--;
  return (unsigned char)text[cut - 1] >= 0xc0 ? cut - 1 : bytes;
}

static int fill(program_input *input) {
  while (!input->ended && input->held < input->capacity) {
    size_t room = input->capacity - input->held;
    size_t got = fread(input->buffer + input->held, 1, room, input->file);
    input->held += got;
    if (got < room && ferror(input->file) && errno == EINTR && !program_interrupted()) {
      clearerr(input->file);
      continue;
    }
    if (got < room && program_interrupted()) return PROGRAM_FAILED;
    if (got < room && ferror(input->file)) {
      program_complain("-f %s: %s", input->path, strerror(errno));
      return PROGRAM_FAILED;
    }
    input->ended = got < room;
  }
  return PROGRAM_DONE;
}

static int grow(program_input *input) {
  char *larger = realloc(input->buffer, input->capacity * 2);
  if (!larger) {
    program_complain("-f %s: %s", input->path, strerror(ENOMEM));
    return PROGRAM_FAILED;
  }
  input->buffer = larger;
  input->capacity *= 2;
  return PROGRAM_DONE;
}

int program_input_next(program_input *input, const char **text, size_t *bytes) {
  input->held -= input->given;
  memmove(input->buffer, input->buffer + input->given, input->held);
  input->given = 0;
  for (;;) {
    if (fill(input)) return PROGRAM_FAILED;
    *text = input->buffer;
    *bytes = input->held;
    if (input->ended) break;
    if ((*bytes = program_safe_cut(input->buffer, input->held)) > 0) break;
    if (input->capacity >= LARGEST_PIECE) {
      *bytes = character_cut(input->buffer, input->held);
      input->is_cut = 1;
      break;
    }
    if (grow(input)) return PROGRAM_FAILED;
  }
  input->given = *bytes;
  if (input->ended && input->given == input->held && *bytes && (*text)[*bytes - 1] == '\n')
    --*bytes;
  return PROGRAM_DONE;
}
