/* SPDX-License-Identifier: MIT
 * UTF-8 that may be damaged, and the few facts about Unicode that tokenizers need. */
#ifndef STILL_TOKENIZER_UTF8_H
#define STILL_TOKENIZER_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum still_utf8_state {
  STILL_UTF8_VALID,
  STILL_UTF8_INVALID,   /* whatever may follow */
  STILL_UTF8_INCOMPLETE /* valid as far as it goes */
} still_utf8_state;

/* Looks at the character at text (left >= 1 bytes). *length is its length, or for an invalid or
 * incomplete one the length of what Unicode replaces by one U+FFFD (the maximal subpart, at least
 * 1). */
still_utf8_state still_utf8_scan(const char *text, size_t left, size_t *length);

/* The code point of a valid character. */
uint32_t still_utf8_decode(const char *text, size_t length);
/* Writes at most 4 bytes, returns how many. */
size_t still_utf8_encode(uint32_t code, char *text);

/* Unicode's White_Space. */
bool still_is_space(uint32_t code);

#endif
