/* SPDX-License-Identifier: MIT
 * Tasks: what makes a sample of each. */
#ifndef STILL_EVALUATE_TASKS_H
#define STILL_EVALUATE_TASKS_H

#include "base/random.h"
#include "evaluate/babi.h"
#include "evaluate/passage.h"
#include "evaluate/questions.h"
#include "evaluate/scoring.h"
#include "evaluate/wording.h"

/* A prompt and the answer after it. Zeroed = empty. */
typedef struct still_sample {
  still_token *ids;
  size_t count, room;
  size_t prompt;  /* the answer begins here */
  double depth;   /* of the needle asked for (the first of several), as a part of the haystack */
  char **answers; /* what a generated text is looked through for */
  char **others;  /* and what must not be there */
  size_t answer_count, other_count;
} still_sample;

still_status still_sample_put_ids(still_sample *sample, const still_token *ids, size_t count);
/* The first text gets a begin-of-sequence token where the model wants one. */
still_status still_sample_put_text(still_sample *sample, const still_tokenizer *tokenizer,
                                   const char *text);
/* Copies of count answers. */
still_status still_sample_expect(still_sample *sample, const char *const *answers, size_t count);
/* Copies of the labels that are neither the answer nor in the question. */
still_status still_sample_forbid(still_sample *sample, const still_words *labels,
                                 const char *question);
void still_sample_free(still_sample *sample);

/* What all samples are made of. */
typedef struct still_task_material {
  const still_tokenizer *tokenizer;
  const still_wording *wording;
  still_passage prose; /* count 0: none */
  still_passage noise;
  still_passage background;         /* of stories: prose without its short sentences */
  const still_babi *babi;           /* of qa1 .. qa5; NULL: none */
  const still_questions *questions; /* of a user's file; NULL: none */
} still_task_material;

/* One sample to make. */
typedef struct still_task_order {
  const still_task_material *material;
  still_random random;
  size_t length; /* 0: the facts alone, without a haystack (STILL_TASK_BARE) */
  size_t answer; /* tokens to keep free for the answer, if that has fewer */
  double depth;  /* of the needle; -1: drawn at random */
  /* Tasks that ask questions of a file ask number `index` of them, in an order that item_seed
   * says. */
  size_t index;
  uint64_t item_seed;
} still_task_order;

enum { STILL_BACKGROUND_TOKENS = 10 }; /* of a sentence that stories may stand among, at least */

/* A task's needs and ways. */
enum {
  STILL_TASK_PROSE = 1,     /* needs a text */
  STILL_TASK_DEPTHS = 2,    /* has one needle, which can stand anywhere */
  STILL_TASK_BABI = 4,      /* needs bAbI's files */
  STILL_TASK_QUESTIONS = 8, /* needs a user's questions */
  STILL_TASK_BARE = 16,     /* can do without a haystack: length 0 */
  STILL_TASK_ITEMS = 32,    /* asks about items of a file, some of which may be too long */
  STILL_TASK_FREE = 64      /* the answer may be said in several ways */
};

typedef struct still_task {
  const char *name;
  const char *other_name; /* RULER's, NULL: none */
  unsigned traits;
  /* Fills an empty sample. ARGUMENT: the length is too short, with what is needed. */
  still_status (*make)(const struct still_task *task, still_task_order *order,
                       still_sample *sample);
  int variant;
  still_rule rule;
  int generate; /* tokens of an answer, at most */
} still_task;

/* NULL: unknown. */
const still_task *still_task_find(const char *name);
const still_task *still_task_get(size_t index);

/* ---- for makers */

/* intro, newline, `tokens of haystack with the facts in order in it`, newline, question, answer:
 * exactly order->length tokens with those kept free. asked: the fact whose depth is the sample's.
 * haystack NULL: the facts alone, as many of them as there are. between: facts stand at places drawn
 * from all those between sentences; else where tokens that were drawn are nearest to such a place.
 */
typedef struct still_prompt {
  const char *intro, *question, *answer;
  const still_passage *haystack;
  char *const *facts;
  size_t fact_count, asked;
  bool between;
} still_prompt;

still_status still_prompt_write(still_task_order *order, const still_prompt *prompt,
                                const char *task, still_sample *sample);

/* A sample whose text is made in one piece, of a size: words, documents ... */
typedef struct still_piece_maker {
  /* text and answer (freed by the caller) for a size; the same every time it is called. */
  still_status (*make)(void *user, size_t size, char **text, char **answer);
  void *user;
  size_t smallest, largest;
} still_piece_maker;

/* The sample of the largest size that fits order->length. ARGUMENT where the smallest does not. */
still_status still_fit_piece(still_task_order *order, const still_piece_maker *maker,
                             const char *task, still_sample *sample);

/* A word of a list. */
const char *still_pick(still_random *random, const still_words *words);
/* 0 .. count-1 in random order. */
void still_shuffle(still_random *random, size_t *order, size_t count);
/* The item that this order asks about. */
still_status still_order_item(const still_task_order *order, size_t count, size_t *item);
/* strings[index], a word of the list or two of them with a hyphen, unlike those before it. */
still_status still_new_word(still_random *random, const still_words *words, char **strings,
                            size_t index);
bool still_occurs(char *const *strings, size_t count, const char *text);
void still_free_strings(char **strings, size_t count);

still_status still_make_needles(const still_task *task, still_task_order *order,
                                still_sample *sample);
still_status still_make_tracking(const still_task *task, still_task_order *order,
                                 still_sample *sample);
still_status still_make_common_words(const still_task *task, still_task_order *order,
                                     still_sample *sample);
still_status still_make_frequent_words(const still_task *task, still_task_order *order,
                                       still_sample *sample);
still_status still_make_documents(const still_task *task, still_task_order *order,
                                  still_sample *sample);
still_status still_make_babi(const still_task *task, still_task_order *order, still_sample *sample);
still_status still_make_story(const still_task *task, still_task_order *order,
                              still_sample *sample);

#endif
