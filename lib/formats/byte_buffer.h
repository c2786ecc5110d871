/* SPDX-License-Identifier: MIT
 * A growing buffer, for headers that are written in one piece. */
#ifndef STILL_FORMATS_BYTE_BUFFER_H
#define STILL_FORMATS_BYTE_BUFFER_H

#include "base/status.h"

/* Zeroed = empty. */
typedef struct still_byte_buffer {
  uint8_t *data;
  size_t bytes, room;
} still_byte_buffer;

/* MEMORY; what was there stays then. */
still_status still_buffer_append(still_byte_buffer *buffer, const void *data, size_t bytes);
still_status still_buffer_text(still_byte_buffer *buffer, const char *text);
void still_buffer_free(still_byte_buffer *buffer);

#endif
