/* SPDX-License-Identifier: MIT */
#include "tokenizer/utf8.h"

/* Length of the sequence that a lead byte begins and the range of its second byte (Unicode, table
 * 3-7); 0 = no lead byte. */
static size_t lead_byte(uint8_t lead, uint8_t *low, uint8_t *high) {
  *low = 0x80, *high = 0xbf;
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead == 0xe0) *low = 0xa0;  /* shorter forms exist */
  if (lead == 0xed) *high = 0x9f; /* surrogates */
  if (lead < 0xf0) return 3;
  if (lead == 0xf0) *low = 0x90;
  if (lead == 0xf4) *high = 0x8f; /* beyond U+10FFFF */
  return lead < 0xf5 ? 4 : 0;
}

still_utf8_state still_utf8_scan(const char *text, size_t left, size_t *length) {
  const uint8_t *bytes = (const uint8_t *)text;
  uint8_t low, high;
  const size_t need = lead_byte(bytes[0], &low, &high);
  *length = 1;
  if (!need) return STILL_UTF8_INVALID;
  for (; *length < need; ++*length) {
    if (*length == left) return STILL_UTF8_INCOMPLETE;
    if (bytes[*length] < low || bytes[*length] > high) return STILL_UTF8_INVALID;
    low = 0x80, high = 0xbf;
  }
  return STILL_UTF8_VALID;
}

uint32_t still_utf8_decode(const char *text, size_t length) {
  static const uint8_t lead_mask[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t code = (uint8_t)text[0] & lead_mask[length];
  for (size_t i = 1; i < length; i++) code = code << 6 | ((uint8_t)text[i] & 0x3f);
  return code;
}

size_t still_utf8_encode(uint32_t code, char *text) {
  static const uint8_t lead_mark[5] = {0, 0, 0xc0, 0xe0, 0xf0};
  const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = length - 1; i; i--, code >>= 6) text[i] = (char)(0x80 | (code & 0x3f));
  text[0] = (char)(lead_mark[length] | code);
  return length;
}

bool still_is_space(uint32_t code) {
  return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}
