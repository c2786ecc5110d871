/* SPDX-License-Identifier: MIT */
#include "formats/byte_buffer.h"

#include "base/memory.h"

#include <string.h>

still_status still_buffer_append(still_byte_buffer *buffer, const void *data, size_t bytes) {
  if (!bytes) return STILL_OK;
  size_t needed;
  if (!still_add_size(buffer->bytes, bytes, &needed) || needed > SIZE_MAX / 2)
    return still_fail(STILL_ERROR_MEMORY, "a header: %zu more bytes do not fit into memory", bytes);
  if (needed > buffer->room) {
    const size_t room = 2 * needed < 256 ? 256 : 2 * needed;
    STILL_TRY(STILL_REALLOC(&buffer->data, room, "a header"));
    buffer->room = room;
  }
  memcpy(buffer->data + buffer->bytes, data, bytes);
  buffer->bytes = needed;
  return STILL_OK;
}

still_status still_buffer_text(still_byte_buffer *buffer, const char *text) {
  return still_buffer_append(buffer, text, strlen(text));
}

void still_buffer_free(still_byte_buffer *buffer) {
  still_free(buffer->data);
  memset(buffer, 0, sizeof *buffer);
}
