/* SPDX-License-Identifier: MIT */
#include "tokenizer/merges.h"

#include "base/memory.h"
#include "base/random.h"
#include "tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table */

static const still_merge free_slot = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};

/* The slot of a pair, or the free one where it belongs. */
static still_merge *probe(const still_merges *merges, uint32_t left, uint32_t right) {
  size_t slot = still_hash64(merges->seed ^ ((uint64_t)left << 32 | right)) & merges->slot_mask;
  for (;; slot = (slot + 1) & merges->slot_mask) {
    still_merge *merge = &merges->slots[slot];
    if ((merge->left == left && merge->right == right) || merge->result == UINT32_MAX) return merge;
  }
}

still_status still_merges_reserve(still_merges *merges, size_t count) {
  if (count > STILL_MOST_MERGES)
    return still_fail(STILL_ERROR_FORMAT, "%zu merges, at most %d are allowed", count,
                      STILL_MOST_MERGES);
  size_t slots = 16;
  while (slots < count + count / 2) slots *= 2;
  STILL_TRY(STILL_ALLOC(&merges->slots, slots, "a table of merges"));
  for (size_t i = 0; i < slots; i++) merges->slots[i] = free_slot;
  merges->slot_mask = slots - 1;
  merges->seed = still_hash64((uintptr_t)merges->slots);
  return STILL_OK;
}

static void put(still_merges *merges, still_merge merge) {
  still_merge *slot = probe(merges, merge.left, merge.right);
  merges->count += slot->result == UINT32_MAX;
  *slot = merge;
}

static still_status find(const still_vocabulary *vocabulary, const char *text, size_t length,
                         uint32_t rank, uint32_t *id) {
  const int32_t found = still_vocabulary_find_text(vocabulary, text, length);
  if (found < 0)
    return still_fail(STILL_ERROR_FORMAT, "merge %u: token '%.*s' is not in the vocabulary", rank,
                      length < 100 ? (int)length : 100, text);
  *id = (uint32_t)found;
  return STILL_OK;
}

still_status still_merges_add(still_merges *merges, const still_vocabulary *vocabulary,
                              const char *left, size_t left_length, const char *right,
                              size_t right_length, uint32_t rank) {
  char both[STILL_MOST_TOKEN_BYTES];
  still_merge merge = {.rank = rank};
  if (left_length > sizeof both || right_length > sizeof both - left_length)
    return still_fail(STILL_ERROR_FORMAT, "merge %u makes a token of more than %zu bytes", rank,
                      sizeof both);
  STILL_TRY(find(vocabulary, left, left_length, rank, &merge.left));
  STILL_TRY(find(vocabulary, right, right_length, rank, &merge.right));
  memcpy(both, left, left_length);
  memcpy(both + left_length, right, right_length);
  STILL_TRY(find(vocabulary, both, left_length + right_length, rank, &merge.result));
  put(merges, merge);
  return STILL_OK;
}

still_status still_merges_add_line(still_merges *merges, const still_vocabulary *vocabulary,
                                   const char *line, size_t length, uint32_t rank) {
  const char *space = length > 1 ? memchr(line + 1, ' ', length - 1) : NULL;
  if (!space || space + 1 == line + length)
    return still_fail(STILL_ERROR_FORMAT, "merge %u is '%.*s', must be two tokens and a space",
                      rank, length < 100 ? (int)length : 100, line);
  const size_t left = (size_t)(space - line);
  return still_merges_add(merges, vocabulary, line, left, space + 1, length - left - 1, rank);
}

/* ---- from scores */

typedef struct scored_token {
  float score;
  uint32_t id;
} scored_token;

static int by_score(const void *a, const void *b) {
  const scored_token *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  return x->id < y->id ? -1 : 1;
}

/* Visits every way to cut a token into two tokens; merges may be NULL to count only. */
static size_t cut(still_merges *merges, const still_vocabulary *vocabulary, uint32_t id,
                  uint32_t rank) {
  size_t length, step, found = 0;
  const char *bytes = still_vocabulary_bytes(vocabulary, id, &length);
  for (size_t at = 0; at < length; at += step) {
    still_utf8_scan(bytes + at, length - at, &step);
    if (!at) continue;
    const int32_t left = still_vocabulary_find(vocabulary, bytes, at);
    const int32_t right =
        left < 0 ? -1 : still_vocabulary_find(vocabulary, bytes + at, length - at);
    if (right < 0) continue;
    found++;
    if (merges) put(merges, (still_merge){(uint32_t)left, (uint32_t)right, rank, id});
  }
  return found;
}

still_status still_merges_from_scores(still_merges *merges, const still_vocabulary *vocabulary,
                                      const float *scores) {
  still_status status;
  scored_token *order = NULL;
  size_t count = 0, cuts = 0;
  uint32_t rank = 0;
  STILL_TRY_GOTO(STILL_ALLOC(&order, vocabulary->count, "token scores"), done);
  for (uint32_t id = 0; id < vocabulary->count; id++) {
    if (vocabulary->kinds[id] != STILL_TOKEN_NORMAL) continue;
    if (scores[id] != scores[id]) {
      status = still_fail(STILL_ERROR_FORMAT, "the score of token %u is not a number", id);
      goto done;
    }
    order[count++] = (scored_token){scores[id], id};
    cuts += cut(NULL, vocabulary, id, 0);
  }
  qsort(order, count, sizeof *order, by_score);
  STILL_TRY_GOTO(still_merges_reserve(merges, cuts), done);
  for (size_t i = 0; i < count; i++) {
    if (i && order[i].score != order[i - 1].score) rank++;
    cut(merges, vocabulary, order[i].id, rank);
  }
done:
  still_free(order);
  return status;
}

void still_merges_free(still_merges *merges) {
  still_free(merges->slots);
  memset(merges, 0, sizeof *merges);
}

/* ---- merging a word: a linked list of tokens and a heap of the pairs that may merge */

typedef struct still_merge_node {
  uint32_t id; /* UINT32_MAX: merged into its left neighbour */
  uint32_t previous, next;
} still_merge_node;

typedef struct still_merge_candidate {
  uint64_t key; /* rank << 32 | place: the smallest goes first */
  uint32_t left, right, result;
} still_merge_candidate;

enum { NO_NODE = UINT32_MAX - 1 };

static void push(still_merge_work *work, still_merge_candidate candidate) {
  size_t at = work->heap_count++;
  for (; at && work->heap[(at - 1) / 2].key > candidate.key; at = (at - 1) / 2)
    work->heap[at] = work->heap[(at - 1) / 2];
  work->heap[at] = candidate;
}

static still_merge_candidate pop(still_merge_work *work) {
  still_merge_candidate *heap = work->heap;
  const still_merge_candidate top = heap[0], last = heap[--work->heap_count];
  const size_t count = work->heap_count;
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && heap[child + 1].key < heap[child].key) child++;
    if (heap[child].key >= last.key) break;
    heap[at] = heap[child];
  }
  heap[at] = last;
  return top;
}

/* Offers the pair that begins at a node. */
static void offer(const still_merges *merges, still_merge_work *work, uint32_t place) {
  const still_merge_node *node = &work->nodes[place];
  if (node->next == NO_NODE) return;
  const uint32_t right = work->nodes[node->next].id;
  const still_merge *merge = probe(merges, node->id, right);
  if (merge->result == UINT32_MAX) return;
  push(work, (still_merge_candidate){(uint64_t)merge->rank << 32 | place, node->id, right,
                                     merge->result});
}

/* A word of n tokens has n - 1 pairs, and each of at most n - 1 merges offers two more. */
static still_status make_room(still_merge_work *work, size_t count) {
  if (count > work->node_room) {
    const size_t room = count + count / 2 + 64;
    STILL_TRY(STILL_REALLOC(&work->nodes, room, "merging a word"));
    work->node_room = room;
  }
  if (3 * count > work->heap_room) {
    const size_t room = 3 * count + count / 2 + 64;
    STILL_TRY(STILL_REALLOC(&work->heap, room, "merging a word"));
    work->heap_room = room;
  }
  return STILL_OK;
}

static void merge_all(const still_merges *merges, still_merge_work *work) {
  still_merge_node *nodes = work->nodes;
  while (work->heap_count) {
    const still_merge_candidate best = pop(work);
    const uint32_t place = (uint32_t)best.key;
    still_merge_node *node = &nodes[place];
    if (node->id != best.left || node->next == NO_NODE || nodes[node->next].id != best.right)
      continue; /* one of the two has merged with another meanwhile */
    still_merge_node *gone = &nodes[node->next];
    node->id = best.result;
    node->next = gone->next;
    if (gone->next != NO_NODE) nodes[gone->next].previous = place;
    gone->id = UINT32_MAX;
    if (node->previous != NO_NODE) offer(merges, work, node->previous);
    offer(merges, work, place);
  }
}

still_status still_merge_word(const still_merges *merges, still_merge_work *work, uint32_t *ids,
                              size_t *count) {
  if (*count < 2 || !merges->count) return STILL_OK;
  const uint32_t n = (uint32_t)*count;
  STILL_TRY(make_room(work, n));
  for (uint32_t i = 0; i < n; i++)
    work->nodes[i] = (still_merge_node){ids[i], i ? i - 1 : NO_NODE, i + 1 < n ? i + 1 : NO_NODE};
  work->heap_count = 0;
  for (uint32_t i = 0; i + 1 < n; i++) offer(merges, work, i);
  merge_all(merges, work);
  *count = 0;
  for (uint32_t i = 0; i != NO_NODE; i = work->nodes[i].next) ids[(*count)++] = work->nodes[i].id;
  return STILL_OK;
}

void still_merge_work_free(still_merge_work *work) {
  still_free(work->nodes);
  still_free(work->heap);
  memset(work, 0, sizeof *work);
}
