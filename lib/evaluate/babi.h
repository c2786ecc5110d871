/* SPDX-License-Identifier: MIT
 * bAbI's files: numbered facts, and questions with their answers after tabs; a number 1 begins a
 * new story. */
#ifndef STILL_EVALUATE_BABI_H
#define STILL_EVALUATE_BABI_H

#include "evaluate/wording.h"

#include <stddef.h>

/* A question about facts first .. end-1. */
typedef struct still_babi_question {
  const char *question, *answer;
  size_t first, end;
} still_babi_question;

/* Zeroed = empty. Texts lie in `text`. */
typedef struct still_babi {
  char *text;
  char **facts;
  still_babi_question *questions;
  size_t fact_count, fact_room, question_count, question_room;
  still_words labels; /* the different answers */
} still_babi;

/* The file "qa<number>_..._test.txt" of a folder. FILE: there is none. FORMAT: with the line. */
still_status still_babi_open(still_babi *babi, const char *folder, int number);
/* Of all that the file says. */
uint64_t still_babi_hash(const still_babi *babi, uint64_t before);
void still_babi_free(still_babi *babi);

#endif
