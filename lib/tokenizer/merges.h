/* SPDX-License-Identifier: MIT
 * Byte pair encoding: which two neighbouring tokens become one, and in which order. */
#ifndef STILL_TOKENIZER_MERGES_H
#define STILL_TOKENIZER_MERGES_H

#include "tokenizer/vocabulary.h"

/* left + right -> result; the smallest rank of a word is merged first, of equal ranks the
 * leftmost. */
typedef struct still_merge {
  uint32_t left, right, rank, result;
} still_merge;

enum { STILL_MOST_MERGES = 1 << 26 };

/* A hash table by (left, right); free slots have left = right = result = UINT32_MAX. Zeroed =
 * without merges. */
typedef struct still_merges {
  still_merge *slots;
  size_t slot_mask, count;
  uint64_t seed;
} still_merges;

/* Room for `count` merges. FORMAT (too many), MEMORY. */
still_status still_merges_reserve(still_merges *merges, size_t count);
/* Adds the merge of two tokens as a file writes them. One given twice counts where it stands last,
 * as in the common implementations. FORMAT names a token that the vocabulary lacks. */
still_status still_merges_add(still_merges *merges, const still_vocabulary *vocabulary,
                              const char *left, size_t left_length, const char *right,
                              size_t right_length, uint32_t rank);
/* The same from "left right". */
still_status still_merges_add_line(still_merges *merges, const still_vocabulary *vocabulary,
                                   const char *line, size_t length, uint32_t rank);
/* The merges that SentencePiece's scores mean: every two NORMAL tokens that together are a third,
 * the one with the largest score first. scores has one entry a token. */
still_status still_merges_from_scores(still_merges *merges, const still_vocabulary *vocabulary,
                                      const float *scores);
void still_merges_free(still_merges *merges);

/* Arrays for one caller of still_merge_word, kept between calls. Zeroed = empty. */
typedef struct still_merge_work {
  struct still_merge_node *nodes;
  struct still_merge_candidate *heap;
  size_t node_room, heap_room, heap_count;
} still_merge_work;

/* Merges a word: *count ids in place, *count becomes smaller. Time count * log(count). MEMORY. */
still_status still_merge_word(const still_merges *merges, still_merge_work *work, uint32_t *ids,
                              size_t *count);
void still_merge_work_free(still_merge_work *work);

#endif
