/* SPDX-License-Identifier: MIT */
#include "formats/name_table.h"

#include "base/memory.h"
#include "base/random.h"

#include <string.h>

static size_t slot_of(const still_name_table *table, const char *name, size_t length) {
  return still_hash_bytes(table->seed ^ length, name, length) & (table->slot_count - 1);
}

/* The slot that holds the name, or the free one where it belongs. */
static size_t probe(const still_name_table *table, const char *name, size_t length) {
  size_t slot = slot_of(table, name, length);
  for (; table->slots[slot]; slot = (slot + 1) & (table->slot_count - 1)) {
    const char *other = still_name_table_get(table, table->slots[slot] - 1);
    if (strlen(other) == length && !memcmp(other, name, length)) break;
  }
  return slot;
}

size_t still_name_table_find(const still_name_table *table, const char *name, size_t length) {
  if (!table->count) return SIZE_MAX;
  const size_t held = table->slots[probe(table, name, length)];
  return held ? held - 1 : SIZE_MAX;
}

const char *still_name_table_get(const still_name_table *table, size_t number) {
  return table->text + table->starts[number];
}

static still_status grow_slots(still_name_table *table) {
  still_name_table bigger = *table;
  bigger.slot_count = table->slot_count ? 2 * table->slot_count : 64;
  STILL_TRY(STILL_ALLOC(&bigger.slots, bigger.slot_count, "a table of names"));
  if (!bigger.seed) bigger.seed = still_hash64((uintptr_t)bigger.slots);
  still_free(table->slots);
  *table = bigger;
  for (size_t i = 0; i < table->count; i++) {
    const char *name = still_name_table_get(table, i);
    table->slots[probe(table, name, strlen(name))] = i + 1;
  }
  return STILL_OK;
}

static still_status make_room(still_name_table *table, size_t length) {
  if (table->count == table->room) {
    const size_t room = table->room ? 2 * table->room : 32;
    STILL_TRY(STILL_REALLOC(&table->starts, room, "a table of names"));
    table->room = room;
  }
  if (table->text_room - table->text_bytes <= length) {
    const size_t room = 2 * table->text_room + length + 1024;
    STILL_TRY(STILL_REALLOC(&table->text, room, "a table of names"));
    table->text_room = room;
  }
  return 2 * table->count >= table->slot_count ? grow_slots(table) : STILL_OK;
}

still_status still_name_table_add(still_name_table *table, const char *name, size_t length,
                                  const char *what) {
  const int shown = length < 200 ? (int)length : 200;
  if (memchr(name, 0, length))
    return still_fail(STILL_ERROR_FORMAT, "%s '%.*s': the name holds a NUL byte", what, shown,
                      name);
  STILL_TRY(make_room(table, length));
  const size_t slot = probe(table, name, length);
  if (table->slots[slot])
    return still_fail(STILL_ERROR_FORMAT, "%s '%.*s' occurs twice", what, shown, name);
  table->starts[table->count] = table->text_bytes;
  memcpy(table->text + table->text_bytes, name, length);
  table->text[table->text_bytes + length] = 0;
  table->text_bytes += length + 1;
  table->slots[slot] = ++table->count;
  return STILL_OK;
}

void still_name_table_free(still_name_table *table) {
  still_free(table->text);
  still_free(table->starts);
  still_free(table->slots);
  memset(table, 0, sizeof *table);
}
