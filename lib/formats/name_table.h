/* SPDX-License-Identifier: MIT
 * A set of distinct names, numbered in the order in which they were added; look-up by hash. */
#ifndef STILL_FORMATS_NAME_TABLE_H
#define STILL_FORMATS_NAME_TABLE_H

#include "base/status.h"

#include <stdbool.h>

/* Zeroed = empty. Texts are copied one after the other into `text`, each with a closing NUL. */
typedef struct still_name_table {
  char *text;
  size_t text_bytes, text_room;
  size_t *starts; /* of name i in text */
  size_t count, room;
  size_t *slots; /* open addressing, 0 = free, else number + 1 */
  size_t slot_count;
  uint64_t seed; /* so that a file cannot be made to collide */
} still_name_table;

/* A name that is there already or holds a NUL is refused: FORMAT ("what 'name' occurs twice"). */
still_status still_name_table_add(still_name_table *table, const char *name, size_t length,
                                  const char *what);
/* The name's number, or SIZE_MAX. */
size_t still_name_table_find(const still_name_table *table, const char *name, size_t length);
/* Moves with the next addition. */
const char *still_name_table_get(const still_name_table *table, size_t number);
void still_name_table_free(still_name_table *table);

#endif
