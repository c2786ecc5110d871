/* SPDX-License-Identifier: MIT
 * A user's questions about paragraphs, as SQuAD has them, from JSON lines. */
#ifndef STILL_EVALUATE_QUESTIONS_H
#define STILL_EVALUATE_QUESTIONS_H

#include "formats/name_table.h"

#include <stddef.h>

/* A question; what it needs is in paragraphs first .. end-1 of `needed`. */
typedef struct still_question {
  char *text;
  char *title;    /* of its article; NULL: none told */
  char **answers; /* any of them is right */
  size_t answer_count;
  size_t first, end;
} still_question;

/* Zeroed = empty. */
typedef struct still_questions {
  still_question *items;
  size_t count, room;
  still_name_table paragraphs; /* of all questions, each once */
  size_t *needed;              /* numbers of paragraphs */
  size_t needed_count, needed_room;
} still_questions;

/* Lines {"title" (may be missing), "question", "context": paragraph or list of them, "answers": text, list or {"text": list}
 * ("answer" is understood, too)}. FILE, FORMAT (with the line): no question, no context, no answer
 * or an empty one. */
still_status still_questions_read(still_questions *questions, const char *path);
/* Of all that they say. */
uint64_t still_questions_hash(const still_questions *questions);
void still_questions_free(still_questions *questions);

#endif
