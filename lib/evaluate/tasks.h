/* SPDX-License-Identifier: MIT
 * Tasks: what makes a sample of each. */
#ifndef STILL_EVALUATE_TASKS_H
#define STILL_EVALUATE_TASKS_H

#include "base/random.h"
#include "evaluate/babi.h"
#include "evaluate/passage.h"
#include "evaluate/wording.h"

/* A prompt and the answer after it. Zeroed = empty. */
typedef struct still_sample {
  still_token *ids;
  size_t count, room;
  size_t prompt; /* the answer begins here */
  double depth;  /* of the needle asked for (the first of several), as a part of the haystack */
} still_sample;

still_status still_sample_put_ids(still_sample *sample, const still_token *ids, size_t count);
/* The first text gets a begin-of-sequence token where the model wants one. */
still_status still_sample_put_text(still_sample *sample, const still_tokenizer *tokenizer,
                                   const char *text);
void still_sample_free(still_sample *sample);

/* What all samples are made of. */
typedef struct still_task_material {
  const still_tokenizer *tokenizer;
  const still_wording *wording;
  still_passage prose; /* count 0: none */
  still_passage noise;
  const still_babi *babi; /* of qa1 .. qa5; NULL: none */
} still_task_material;

/* One sample to make. */
typedef struct still_task_order {
  const still_task_material *material;
  still_random random;
  size_t length;
  double depth; /* of the needle; -1: drawn at random */
} still_task_order;

typedef struct still_task {
  const char *name;
  bool prose;  /* needs a text */
  bool depths; /* has one needle, which can stand anywhere */
  bool babi;   /* needs bAbI's files */
  /* Fills an empty sample. ARGUMENT: the length is too short, with what is needed. */
  still_status (*make)(const struct still_task *task, still_task_order *order,
                       still_sample *sample);
  int variant;
} still_task;

/* NULL: unknown. */
const still_task *still_task_find(const char *name);
const still_task *still_task_get(size_t index);

/* ---- for makers */

/* intro, newline, `tokens of haystack with the facts in order in it`, newline, question, answer:
 * exactly order->length tokens. asked: the fact whose depth is the sample's. haystack NULL: the
 * facts alone, as many of them as there are. */
typedef struct still_prompt {
  const char *intro, *question, *answer;
  const still_passage *haystack;
  char *const *facts;
  size_t fact_count, asked;
} still_prompt;

still_status still_prompt_write(still_task_order *order, const still_prompt *prompt,
                                const char *task, still_sample *sample);

/* A word of a list. */
const char *still_pick(still_random *random, const still_words *words);
/* 0 .. count-1 in random order. */
void still_shuffle(still_random *random, size_t *order, size_t count);

still_status still_make_needles(const still_task *task, still_task_order *order,
                                still_sample *sample);
still_status still_make_tracking(const still_task *task, still_task_order *order,
                                 still_sample *sample);
still_status still_make_babi(const still_task *task, still_task_order *order, still_sample *sample);
still_status still_make_story(const still_task *task, still_task_order *order,
                              still_sample *sample);

#endif
