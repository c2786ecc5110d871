/* SPDX-License-Identifier: MIT
 * Multiple-choice items from JSON lines. */
#ifndef STILL_EVALUATE_CHOICE_ITEMS_H
#define STILL_EVALUATE_CHOICE_ITEMS_H

#include "base/status.h"

#include <stddef.h>
#include <still/evaluate.h>

enum { STILL_MOST_CHOICES = 16 };

/* What is scored is ends[i] after starts[i]. */
typedef struct still_choice_item {
  char *starts[STILL_MOST_CHOICES], *ends[STILL_MOST_CHOICES];
  size_t bytes[STILL_MOST_CHOICES]; /* of the choice itself */
  size_t count, answer;
  char *subject; /* NULL: none */
} still_choice_item;

typedef struct still_choice_items {
  still_choice_item *items;
  size_t count, room;
  still_choice_format format;
} still_choice_items;

/* FORMAT: with the line. An empty file is refused. */
still_status still_choice_items_read(still_choice_items *items, const char *path,
                                     still_choice_format format);
void still_choice_items_free(still_choice_items *items);

#endif
