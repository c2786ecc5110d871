/* SPDX-License-Identifier: MIT
 * Words to be counted: a numbered list of which ten are more frequent, and a text of coded words
 * whose frequencies fall as Zipf's law says; the parameters are RULER's. */
#include "base/memory.h"
#include "evaluate/tasks.h"

#include <stdio.h>
#include <string.h>

/* ---- common words: every word of the list often or rarely */

enum { COMMON = 10, LONG = 4096, MOST_WORDS = 1 << 20 };

/* How often words of both kinds stand in the list. */
typedef struct frequencies {
  size_t often, rarely;
} frequencies;

typedef struct word_list {
  const still_wording *wording;
  still_random random;  /* of the words */
  still_random shuffle; /* of their order */
  char **words;         /* those asked for first */
  size_t count, room;
  frequencies times;
  const char *before; /* the example */
} word_list;

static still_status need_words(word_list *list, size_t count) {
  if (count > list->room) {
    const size_t room = 2 * count;
    STILL_TRY(STILL_REALLOC(&list->words, room, "words"));
    list->room = room;
  }
  for (; list->count < count; list->count++)
    STILL_TRY(still_new_word(&list->random, &list->wording->keys, list->words, list->count));
  return STILL_OK;
}

/* The word at a place of the list in which every word stands beside its copies. */
static const char *word_at(char *const *words, size_t place, const frequencies *times) {
  const size_t often = COMMON * times->often;
  return words[place < often ? place / times->often : COMMON + (place - often) / times->rarely];
}

/* " 1. word 2. word ...", the words of the places in order (NULL: 0, 1, 2 ...). */
static still_status number_words(char *const *words, const size_t *order, size_t count,
                                 const frequencies *times, char **text) {
  enum { NUMBER_BYTES = 24 };
  size_t bytes = 1, at = 0;
  for (size_t i = 0; i < count; i++)
    bytes += strlen(word_at(words, order ? order[i] : i, times)) + NUMBER_BYTES;
  STILL_TRY(still_alloc((void **)text, bytes, 1, "a list of words"));
  for (size_t i = 0; i < count; i++)
    at += (size_t)snprintf(*text + at, bytes - at, " %zu. %s", i + 1,
                           word_at(words, order ? order[i] : i, times));
  return STILL_OK;
}

/* The list with `rare` words beside the common ones, and the common ones as its answer. */
static still_status write_list(word_list *list, size_t rare, char **text, char **answer) {
  static const frequencies once = {1, 1};
  const size_t count = COMMON * list->times.often + rare * list->times.rarely;
  still_random shuffle = list->shuffle;
  size_t *order;
  char *numbered = NULL;
  STILL_TRY(need_words(list, COMMON + rare));
  STILL_TRY(STILL_ALLOC(&order, count, "a list of words"));
  still_shuffle(&shuffle, order, count);
  still_status status = number_words(list->words, order, count, &list->times, &numbered);
  const still_wording *w = list->wording;
  if (!status)
    status = still_fill_in(text, "{before}{intro}\n{list}\n{question}",
                           (const still_field[]){{"before", list->before},
                                                 {"intro", w->common_intro},
                                                 {"list", numbered ? numbered + 1 : ""},
                                                 {"question", w->common_question},
                                                 {NULL, NULL}});
  if (!status) status = number_words(list->words, NULL, COMMON, &once, answer);
  still_free(numbered);
  still_free(order);
  return status;
}

static still_status make_list(void *user, size_t rare, char **text, char **answer) {
  return write_list(user, rare, text, answer);
}

/* A short list, answered. */
static still_status write_example(const still_task_order *order, still_random *random,
                                  char **example) {
  const bool large = order->length >= LONG;
  word_list list = {.wording = order->material->wording,
                    .random = *random,
                    .before = "",
                    .times = large ? (frequencies){10, 3} : (frequencies){3, 1}};
  char *text = NULL, *answer = NULL;
  list.shuffle = list.random;
  still_status status = write_list(&list, large ? 30 : 10, &text, &answer);
  if (!status)
    status = still_fill_in(example, "{text}{answer}\n",
                           (const still_field[]){{"text", text}, {"answer", answer}, {NULL, NULL}});
  still_random_u64(random);
  still_free(text);
  still_free(answer);
  still_free_strings(list.words, list.count);
  return status;
}

still_status still_make_common_words(const still_task *task, still_task_order *order,
                                     still_sample *sample) {
  char *example = NULL;
  STILL_TRY(write_example(order, &order->random, &example));
  word_list list = {.wording = order->material->wording,
                    .before = example,
                    .times = order->length >= LONG ? (frequencies){30, 3} : (frequencies){6, 1}};
  still_random_seed(&list.random, still_random_u64(&order->random));
  still_random_seed(&list.shuffle, still_random_u64(&order->random));
  const still_piece_maker maker = {make_list, &list, 1, MOST_WORDS};
  still_status status = still_fit_piece(order, &maker, task->name, sample);
  if (!status) status = still_sample_expect(sample, (const char *const *)list.words, COMMON);
  still_free_strings(list.words, list.count);
  still_free(example);
  return status;
}

/* ---- frequent words: the k-th most frequent of them n / (zeta(2) k^2) times */

enum { LETTERS = 6, ASKED = 3, FEWEST_CODED = 80, TOKENS_A_CODE = 50 };
static const double zeta_2 = 1.6449340668482264; /* pi^2 / 6 */

typedef char coded_word[LETTERS + 1];

typedef struct coded_text {
  const still_wording *wording;
  still_random shuffle;
  coded_word *words; /* the first is "...", which is not asked for */
  size_t count;
} coded_text;

static void make_code(coded_text *coded, still_random *random, size_t index) {
  bool again = true;
  while (again) {
    for (int k = 0; k < LETTERS; k++)
      coded->words[index][k] = (char)('a' + still_random_below(random, 26));
    again = false;
    for (size_t i = 0; i < index; i++)
      again = again || !strcmp(coded->words[i], coded->words[index]);
  }
}

static size_t times_of(size_t words, size_t rank) {
  return (size_t)((double)words / (zeta_2 * (double)rank * (double)rank));
}

/* Every word as often as its rank says, in random order. */
static still_status shuffle_codes(const coded_text *coded, size_t words, char **text) {
  still_random shuffle = coded->shuffle;
  size_t total = 0, filled = 0, *ranks, *order;
  for (size_t i = 0; i < coded->count; i++) total += times_of(words, i + 1);
  STILL_TRY(STILL_ALLOC(&ranks, 2 * total, "a coded text"));
  order = ranks + total;
  const still_status status =
      still_alloc((void **)text, total * (LETTERS + 1) + 1, 1, "a coded text");
  for (size_t i = 0; i < coded->count; i++)
    for (size_t k = times_of(words, i + 1); k; k--) ranks[filled++] = i;
  still_shuffle(&shuffle, order, total);
  char *at = *text;
  for (size_t i = 0; i < total && !status; i++) {
    if (i) *at++ = ' ';
    at = stpcpy(at, coded->words[ranks[order[i]]]);
  }
  still_free(ranks);
  return status;
}

static still_status make_coded(void *user, size_t words, char **text, char **answer) {
  const coded_text *coded = user;
  char *codes = NULL;
  still_status status = shuffle_codes(coded, words, &codes);
  if (!status)
    status = still_fill_in(text, "{intro} {codes}\n{question}",
                           (const still_field[]){{"intro", coded->wording->frequent_intro},
                                                 {"codes", codes},
                                                 {"question", coded->wording->frequent_question},
                                                 {NULL, NULL}});
  for (size_t i = 1; i <= ASKED && !status; i++) {
    status = still_append_text(answer, " ");
    if (!status) status = still_append_text(answer, coded->words[i]);
  }
  still_free(codes);
  return status;
}

still_status still_make_frequent_words(const still_task *task, still_task_order *order,
                                       still_sample *sample) {
  const size_t fewest = ASKED + 2, wanted = order->length / TOKENS_A_CODE;
  coded_text coded = {.wording = order->material->wording,
                      .count = wanted > fewest ? wanted : fewest};
  const char *answers[ASKED];
  STILL_TRY(STILL_ALLOC(&coded.words, coded.count, "coded words"));
  strcpy(coded.words[0], "...");
  for (size_t i = 1; i < coded.count; i++) make_code(&coded, &order->random, i);
  for (int i = 0; i < ASKED; i++) answers[i] = coded.words[i + 1];
  still_random_seed(&coded.shuffle, still_random_u64(&order->random));
  const still_piece_maker maker = {make_coded, &coded, FEWEST_CODED, MOST_WORDS};
  still_status status = still_fit_piece(order, &maker, task->name, sample);
  if (!status) status = still_sample_expect(sample, answers, ASKED);
  still_free(coded.words);
  return status;
}
