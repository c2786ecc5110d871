/* SPDX-License-Identifier: MIT */
#include "small_vocabulary.h"

#include "tokenizer/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- byte-level */

/* GPT-2's printable stand-in for a byte, the way it was made: bytes that print stand for
 * themselves, the others follow from U+0100 on. */
static uint32_t character_of(int byte) {
  uint32_t next = 0x100;
  for (int b = 0; b < 256; b++) {
    const bool prints = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    if (b == byte) return prints ? (uint32_t)b : next;
    next += !prints;
  }
  return 0;
}

static void put_vocabulary(FILE *out, const char *const *merges) {
  for (int b = 0; b < 256; b++) {
    char text[5] = "";
    still_utf8_encode(character_of(b), text);
    fprintf(out, "%s\"%s%s\":%d", b ? "," : "", *text == '"' || *text == '\\' ? "\\" : "", text, b);
  }
  for (int i = 0; merges[i]; i++) {
    const char *space = strchr(merges[i], ' ');
    fprintf(out, ",\"%.*s%s\":%d", space ? (int)(space - merges[i]) : 0, merges[i],
            space ? space + 1 : merges[i], 256 + i);
  }
}

char *small_byte_level(const char *pre_tokenizer, const char *const *merges, bool ignore_merges,
                       const char *added, const char *more) {
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  assert_non_null(out);
  fprintf(out, "{\"added_tokens\":[%s],\"normalizer\":null,\"pre_tokenizer\":%s%s,", added,
          pre_tokenizer, more);
  fprintf(out, "\"model\":{\"type\":\"BPE\",\"ignore_merges\":%s,\"vocab\":{",
          ignore_merges ? "true" : "false");
  put_vocabulary(out, merges);
  fprintf(out, "},\"merges\":[");
  const char *comma = "";
  for (int i = 0; merges[i]; i++) {
    if (!strchr(merges[i], ' ')) continue;
    fprintf(out, "%s\"%s\"", comma, merges[i]);
    comma = ",";
  }
  fprintf(out, "]}}");
  fclose(out);
  return text;
}

/* ---- SentencePiece */

const small_piece small_pieces[] = {
    {"<unk>", 0, 2},
    {"<s>", 0, 3},
    {"</s>", 0, 3},
    {"\xe2\x96\x81", -9, 1},
    {"a", -10, 1},
    {"b", -11, 1},
    {"c", -12, 1},
    {"G", -13, 1},
    {"\xe2\x96\x81"
     "a",
     -2, 1},
    {"ab", -1, 1},
    {"bc", -3, 1},
    {"\xe2\x96\x81"
     "G",
     -4, 1},
    {"abc", -5, 1},
    {"\xe2\x96\x81\xe2\x96\x81", -6, 1},
    {"\xc3\xa9", -14, 1},
};
const size_t small_piece_count = CHECK_COUNT(small_pieces);

static void put_varint(FILE *out, size_t value) {
  for (; value > 127; value >>= 7) fputc((int)(value & 127) | 128, out);
  fputc((int)value, out);
}

static void put_piece(FILE *out, const small_piece *piece) {
  const size_t length = strlen(piece->text);
  uint8_t score[4];
  memcpy(score, &piece->score, 4);
  fputc(1 << 3 | 2, out);
  put_varint(out, 2 + length + 5 + 2);
  fputc(1 << 3 | 2, out);
  put_varint(out, length);
  fwrite(piece->text, 1, length, out);
  fputc(2 << 3 | 5, out);
  fwrite(score, 1, 4, out);
  fputc(3 << 3, out);
  fputc(piece->type, out);
}

unsigned char *small_sentencepiece(const small_piece *pieces, size_t count, bool byte_tokens,
                                   size_t *bytes) {
  static const uint8_t trainer[] = {2 << 3 | 2, 2, 3 << 3, 2};    /* model_type BPE */
  static const uint8_t normalizer[] = {3 << 3 | 2, 2, 4 << 3, 0}; /* keeps spaces */
  char *data = NULL;
  FILE *out = open_memstream(&data, bytes);
  assert_non_null(out);
  for (size_t i = 0; i < count; i++) put_piece(out, &pieces[i]);
  for (int b = 0; b < 256 && byte_tokens; b++) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
    put_piece(out, &(small_piece){name, 0, 6});
  }
  fwrite(trainer, 1, sizeof trainer, out);
  fwrite(normalizer, 1, sizeof normalizer, out);
  fclose(out);
  return (unsigned char *)data;
}

/* ---- both */

still_tokenizer *small_open(const char *name, const void *data, size_t bytes) {
  still_tokenizer *tokenizer;
  check_ok(still_tokenizer_open(&tokenizer, check_file(name, data, bytes), NULL, NULL));
  return tokenizer;
}

void check_ids(const still_tokenizer *tokenizer, const char *text, size_t bytes, unsigned flags,
               const int *ids) {
  still_token got[256] = {0};
  size_t count, want = 0;
  check_ok(still_tokenize(tokenizer, text, bytes, flags, got, CHECK_COUNT(got), &count));
  while (ids[want] >= 0) want++;
  bool same = count == want;
  for (size_t i = 0; i < count && same; i++) same = got[i] == ids[i];
  if (same) return;
  print_error("'%s' became", text);
  for (size_t i = 0; i < count && i < CHECK_COUNT(got); i++) print_error(" %d", got[i]);
  fail_msg("; %zu ids, wanted %zu", count, want);
}
