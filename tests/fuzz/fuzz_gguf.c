/* SPDX-License-Identifier: MIT
 * GGUF: whatever opens can be read through every getter, converted, and written again. */
#include "fuzz.h"

#include "base/memory.h"
#include "formats/gguf.h"

#include <string.h>

static volatile unsigned seen; /* so that reading is not optimised away */

static void touch(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) seen += (unsigned char)text[i];
}

static void read_key(const still_gguf *gguf, size_t index) {
  uint64_t u;
  double f;
  bool flag;
  int64_t i;
  const char *text;
  size_t length, count;
  still_gguf_type type;
  const char *key = still_gguf_key(gguf, index, &type);
  FUZZ_CHECK(*key && still_gguf_has_key(gguf, key));
  if (still_gguf_get_u64(gguf, key, &u)) seen += (unsigned)u;
  if (still_gguf_get_f64(gguf, key, &f)) seen += f > 0;
  if (still_gguf_get_bool(gguf, key, &flag)) seen += flag;
  if (still_gguf_get_string(gguf, key, &text, &length)) touch(text, length);
  if (!still_gguf_get_array(gguf, key, &type, &count)) return;
  for (size_t n = 0; n < count; n++) {
    if (still_gguf_array_string(gguf, key, n, &text, &length)) touch(text, length);
    if (still_gguf_array_f64(gguf, key, n, &f)) seen += f > 0;
    if (still_gguf_array_i64(gguf, key, n, &i)) seen += i > 0;
  }
}

static void read_tensor(const still_gguf *gguf, const still_tensor *tensor) {
  enum { MOST = 1024 }; /* a multiple of every block */
  float values[MOST];
  FUZZ_CHECK(still_gguf_find_tensor(gguf, tensor->name) == tensor);
  touch(tensor->data, (size_t)tensor->bytes);
  const uint64_t items = still_tensor_items(tensor);
  const uint64_t count = items < MOST ? items : MOST;
  if (!still_type_to_f32(tensor->type)) return;
  FUZZ_CHECK(still_tensor_to_f32(tensor, 0, count, values) == STILL_OK);
  FUZZ_CHECK(still_tensor_to_f32(tensor, items - count / 256 * 256, count / 256 * 256, values) ==
             STILL_OK);
}

static void copy(const still_gguf *gguf) {
  still_gguf_writer *writer;
  FUZZ_CHECK(still_gguf_writer_create(&writer) == STILL_OK);
  FUZZ_CHECK(still_gguf_put_all(writer, gguf) == STILL_OK);
  for (size_t i = 0; i < still_gguf_tensor_count(gguf); i++)
    FUZZ_CHECK(still_gguf_put_tensor(writer, still_gguf_tensor(gguf, i)) == STILL_OK);
  still_gguf_writer_destroy(writer);
}

void fuzz_one(const uint8_t *data, size_t bytes) {
  still_gguf *gguf;
  still_reset_peak_bytes();
  const still_status status = still_gguf_open_memory(&gguf, data, bytes);
  /* a tensor's entry of 33 bytes becomes less than 300, a string's 8 become 16 */
  FUZZ_CHECK(still_peak_bytes() < 64 * 1024 + 32 * (uint64_t)bytes);
  if (status) return;
  for (size_t i = 0; i < still_gguf_key_count(gguf); i++) read_key(gguf, i);
  for (size_t i = 0; i < still_gguf_tensor_count(gguf); i++)
    read_tensor(gguf, still_gguf_tensor(gguf, i));
  copy(gguf);
  still_gguf_close(gguf);
}
