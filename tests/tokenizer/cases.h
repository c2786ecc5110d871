/* SPDX-License-Identifier: MIT
 * Files of tokenizer cases: {"text", "ids", "decoded"} one a line (.jsonl), the same in "cases" of
 * one object (.json), or a .inp with its .out beside it, as llama.cpp has them. */
#ifndef STILL_TESTS_CASES_H
#define STILL_TESTS_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tokenizer_case {
  char *text; /* may hold NUL bytes */
  size_t bytes;
  int32_t *ids;
  size_t count;
  char *decoded; /* NULL: not given */
  size_t decoded_bytes;
} tokenizer_case;

typedef struct tokenizer_cases {
  tokenizer_case *items;
  size_t count;
} tokenizer_cases;

/* False (with a sentence on stderr) for a file that cannot be read or is of another form. */
bool cases_read(tokenizer_cases *cases, const char *path);
void cases_free(tokenizer_cases *cases);

#endif
