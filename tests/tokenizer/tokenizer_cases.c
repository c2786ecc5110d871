/* SPDX-License-Identifier: MIT
 * Checks a tokenizer against files of cases:
 *
 *   tokenizer_cases [--optional] [--pattern NAME] MODEL [MERGES] CASES...
 *
 * MODEL: .gguf, tokenizer.json, tokenizer.model, a folder, or vocab.json / encoder.json with MERGES
 * (else looked for beside it). CASES: .jsonl, .json or .inp, see cases.h. No begin-of-sequence
 * token. References differ in whether they read the names of special tokens in a text as these
 * tokens: a case counts as exact either way, and how many needed the second is said. --optional:
 * status 77 (skipped) when MODEL or a file of cases is not there. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <still/model.h>
#include <string.h>
#include <unistd.h>

typedef struct totals {
  size_t cases, exact, special, decoded;
} totals;

static bool encodes_to(const still_tokenizer *tokenizer, const tokenizer_case *c, unsigned flags,
                       bool show) {
  still_token *ids = malloc((c->bytes + 16) * sizeof *ids);
  size_t count = 0;
  if (!ids) abort();
  const still_status status =
      still_tokenize(tokenizer, c->text, c->bytes, flags, ids, c->bytes + 16, &count);
  const bool same =
      !status && count == c->count && (!count || !memcmp(ids, c->ids, count * sizeof *ids));
  if (!same && show) {
    if (status) printf("  %s\n", still_last_error());
    printf("  text '%.200s'\n  want", c->text);
    for (size_t i = 0; i < c->count && i < 40; i++) printf(" %d", c->ids[i]);
    printf("\n  got ");
    for (size_t i = 0; i < count && i < 40; i++) printf(" %d", ids[i]);
    printf("\n");
  }
  free(ids);
  return same;
}

/* The text of the ids is the text they came from, or what the file says. */
static bool decodes_to(const still_tokenizer *tokenizer, const tokenizer_case *c, bool special) {
  const char *want = c->decoded ? c->decoded : c->text, *piece;
  const size_t want_bytes = c->decoded ? c->decoded_bytes : c->bytes;
  char *text = calloc(16 * c->count + want_bytes + 64, 1);
  size_t bytes = 0, piece_bytes;
  still_decoder *decoder;
  if (!text || still_decoder_create(&decoder, tokenizer)) abort();
  for (size_t i = 0; i <= c->count; i++) {
    const bool name = i < c->count && special && still_tokenizer_is_special(tokenizer, c->ids[i]);
    const still_status status = i < c->count
                                    ? still_decoder_push(decoder, c->ids[i], &piece, &piece_bytes)
                                    : still_decoder_flush(decoder, &piece, &piece_bytes);
    if (status || bytes + piece_bytes > want_bytes) break;
    memcpy(text + bytes, piece, piece_bytes);
    bytes += piece_bytes;
    if (name) bytes += still_token_text(tokenizer, c->ids[i], 1, text + bytes, want_bytes - bytes);
  }
  const bool same = bytes == want_bytes && /* more would not have been copied */
                    !memcmp(text, want, bytes);
  if (!same) printf("  decoded '%.200s'\n  want    '%.200s'\n", text, want);
  still_decoder_destroy(decoder);
  free(text);
  return same;
}

static void check_case(const still_tokenizer *tokenizer, const tokenizer_case *c, totals *sum) {
  const bool plain = encodes_to(tokenizer, c, 0, false);
  const bool special = !plain && encodes_to(tokenizer, c, STILL_TOKENIZE_PARSE_SPECIAL, true);
  sum->cases++;
  sum->exact += plain || special;
  sum->special += special;
  sum->decoded += decodes_to(tokenizer, c, special);
}

static bool check_file(const still_tokenizer *tokenizer, const char *path) {
  tokenizer_cases cases;
  totals sum = {0};
  if (!cases_read(&cases, path)) {
    cases_free(&cases);
    return false;
  }
  for (size_t i = 0; i < cases.count; i++) check_case(tokenizer, &cases.items[i], &sum);
  cases_free(&cases);
  printf("%s: %zu of %zu exact", path, sum.exact, sum.cases);
  if (sum.special) printf(" (%zu with names of special tokens read)", sum.special);
  printf(", %zu decoded\n", sum.decoded);
  return sum.exact == sum.cases && sum.decoded == sum.cases;
}

static bool is_merges(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot && (!strcmp(dot, ".txt") || !strcmp(dot, ".bpe"));
}

int main(int argc, char **argv) {
  int at = 1;
  const char *pattern = NULL, *merges = NULL;
  const bool optional = argc > 1 && !strcmp(argv[1], "--optional");
  at += optional;
  if (argc - at > 2 && !strcmp(argv[at], "--pattern")) pattern = argv[at + 1], at += 2;
  if (argc - at < 2) {
    fprintf(stderr, "usage: tokenizer_cases [--pattern NAME] MODEL [MERGES] CASES...\n");
    return 2;
  }
  for (int i = at; optional && i < argc; i++)
    if (access(argv[i], R_OK)) return printf("%s: not there\n", argv[i]), 77;
  const char *model = argv[at++];
  if (is_merges(argv[at]) && at + 1 < argc) merges = argv[at++];
  still_tokenizer *tokenizer;
  if (still_tokenizer_open(&tokenizer, model, merges, pattern)) {
    fprintf(stderr, "%s\n", still_last_error());
    return 1;
  }
  bool good = true;
  for (; at < argc; at++) good = check_file(tokenizer, argv[at]) && good;
  still_tokenizer_destroy(tokenizer);
  return good ? 0 : 1;
}
