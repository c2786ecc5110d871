/* SPDX-License-Identifier: MIT
 * A text of any length, read in pieces that a tokenizer may see one by one. */
#ifndef PROGRAM_INPUT_H
#define PROGRAM_INPUT_H

#include <stddef.h>
#include <stdio.h>

typedef struct program_input {
  FILE *file;
  const char *path; /* "-" = stdin */
  char *buffer;
  size_t capacity, held, given; /* bytes in the buffer; of those handed out last time */
  int ended;
  int is_cut; /* some piece had to end where nothing better than a character border was found */
} program_input;

/* PROGRAM_DONE or PROGRAM_FAILED (said on stderr). path must outlive the input. */
int program_input_open(program_input *input, const char *path);
void program_input_close(program_input *input);

/* The next piece, owned by the input, valid until the next call. *bytes 0 = the end. Pieces end where
 * every known tokenizer ends a token, too: after a line feed between two visible characters, or between a
 * letter and the space before a letter. One line feed at the very end of the text is dropped. */
int program_input_next(program_input *input, const char **text, size_t *bytes);

/* Where the first piece of text may end, at most bytes; 0 = nowhere. */
size_t program_safe_cut(const char *text, size_t bytes);

#endif
