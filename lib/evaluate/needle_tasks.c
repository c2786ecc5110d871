/* SPDX-License-Identifier: MIT
 * Needles in haystacks and variables passed on. */
#include "base/memory.h"
#include "evaluate/tasks.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

typedef enum value_kind { WORD, NUMBER, UUID } value_kind;
typedef enum question_kind { ONE, ALL_VALUES, ALL_KEYS } question_kind;
typedef enum haystack_kind { NOISE, PROSE, NEEDLES } haystack_kind;

typedef struct needle_task {
  haystack_kind haystack;
  value_kind keys, values;
  size_t needles; /* NEEDLES: as many as there is room for */
  question_kind question;
} needle_task;

static const needle_task variants[] = {
    {NOISE, WORD, NUMBER, 1, ONE},      {PROSE, WORD, NUMBER, 1, ONE},
    {PROSE, WORD, UUID, 1, ONE},        {PROSE, WORD, NUMBER, 4, ONE},
    {NOISE, WORD, NUMBER, 4, ONE},      {NEEDLES, WORD, NUMBER, 0, ONE},
    {NEEDLES, UUID, UUID, 0, ONE},      {PROSE, WORD, NUMBER, 4, ALL_VALUES},
    {PROSE, WORD, NUMBER, 4, ALL_KEYS},
};

/* Keys and values of a sample and the sentences that tell them. */
typedef struct needle_set {
  const needle_task *task;
  const still_wording *wording;
  const char *noun, *nouns;
  size_t count, shown; /* NEEDLES: the last of them may not fit */
  char **keys, **values, **facts;
  size_t asked[4]; /* in the order of the answer; ONE: the first alone */
  char *question, *answer;
} needle_set;

static void free_set(needle_set *set) {
  still_free_strings(set->keys, set->count);
  still_free_strings(set->values, set->count);
  still_free_strings(set->facts, set->count);
  still_free(set->question);
  still_free(set->answer);
}

/* ---- keys and values */

static still_status make_uuid(still_random *random, char **out) {
  const unsigned long long high = still_random_u64(random), low = still_random_u64(random);
  char text[37];
  snprintf(text, sizeof text, "%08llx-%04llx-%04llx-%04llx-%012llx", high >> 32,
           high >> 16 & 0xffff, high & 0xffff, low >> 48, low & 0xffffffffffff);
  return still_copy_string(out, text);
}

static still_status make_number(still_random *random, char **out) {
  char number[16];
  snprintf(number, sizeof number, "%d", 1000000 + (int)still_random_below(random, 9000000));
  return still_copy_string(out, number);
}

/* strings[index], unlike those before it. */
static still_status make_distinct(still_random *random, const still_words *words, value_kind kind,
                                  char **strings, size_t index) {
  if (kind == WORD) return still_new_word(random, words, strings, index);
  for (;;) {
    STILL_TRY((kind == UUID ? make_uuid : make_number)(random, &strings[index]));
    if (!still_occurs(strings, index, strings[index])) return STILL_OK;
    still_free(strings[index]);
    strings[index] = NULL;
  }
}

static still_status make_fact(needle_set *set, still_random *random, size_t index) {
  const needle_task *task = set->task;
  const still_words *words = &set->wording->keys;
  if (index && task->question == ALL_VALUES)
    STILL_TRY(still_copy_string(&set->keys[index], set->keys[0]));
  else
    STILL_TRY(make_distinct(random, words, task->keys, set->keys, index));
  STILL_TRY(make_distinct(random, words, task->values, set->values, index));
  return still_fill_in(&set->facts[index], set->wording->needle,
                       (const still_field[]){{"noun", set->noun},
                                             {"nouns", set->nouns},
                                             {"key", set->keys[index]},
                                             {"value", set->values[index]},
                                             {NULL, NULL}});
}

/* ---- question and answer */

static still_status append_answer(needle_set *set, size_t index, bool with_key) {
  STILL_TRY(still_append_text(&set->answer, set->answer ? ", " : " "));
  if (with_key) {
    STILL_TRY(still_append_text(&set->answer, set->keys[index]));
    STILL_TRY(still_append_text(&set->answer, ": "));
  }
  return still_append_text(&set->answer, set->values[index]);
}

static still_status fill_question(needle_set *set, const char *template, const char *key) {
  return still_fill_in(&set->question, template,
                       (const still_field[]){
                           {"noun", set->noun}, {"nouns", set->nouns}, {"key", key}, {NULL, NULL}});
}

/* "a, b, c and d" */
static still_status join_keys(const needle_set *set, char **joined) {
  for (size_t i = 0; i < set->count; i++) {
    if (i) STILL_TRY(still_append_text(joined, i + 1 == set->count ? " and " : ", "));
    STILL_TRY(still_append_text(joined, set->keys[set->asked[i]]));
  }
  return STILL_OK;
}

static still_status ask(needle_set *set) {
  const still_wording *w = set->wording;
  still_free(set->question);
  still_free(set->answer);
  set->question = set->answer = NULL;
  if (set->task->question == ALL_KEYS) {
    char *keys = NULL;
    still_status status = join_keys(set, &keys);
    if (!status) status = fill_question(set, w->questions_queries, keys);
    still_free(keys);
    for (size_t i = 0; i < set->count && !status; i++)
      status = append_answer(set, set->asked[i], true);
    return status;
  }
  const bool all = set->task->question == ALL_VALUES;
  STILL_TRY(fill_question(set, all ? w->questions_values : w->question, set->keys[set->asked[0]]));
  for (size_t i = 0; i < (all ? set->count : 1); i++)
    STILL_TRY(append_answer(set, all ? i : set->asked[0], false));
  return STILL_OK;
}

/* ---- samples */

static still_status count_tokens(const still_tokenizer *tokenizer, const char *text,
                                 size_t *count) {
  return still_tokenize(tokenizer, text, strlen(text), STILL_TOKENIZE_CONTINUE, NULL, 0, count);
}

static still_status count_fact(const still_tokenizer *tokenizer, const char *fact, size_t *count) {
  char *spaced;
  STILL_TRY(still_fill_in(&spaced, " {fact}", (const still_field[]){{"fact", fact}, {NULL, NULL}}));
  const still_status status = count_tokens(tokenizer, spaced, count);
  still_free(spaced);
  return status;
}

/* Makes needles until no more fit with intro, question and answer; asks for one `place` of the way
 * through them. sizes has room for a number of tokens each. */
static still_status make_fitting(needle_set *set, still_task_order *order, const char *intro,
                                 size_t *sizes, size_t room) {
  const still_tokenizer *tokenizer = order->material->tokenizer;
  const double place = still_random_double(&order->random);
  size_t size, question, answer, total;
  STILL_TRY(count_tokens(tokenizer, intro, &size));
  total = size + 3; /* begin of sequence and newlines */
  while (set->count < room && total <= order->length) {
    STILL_TRY(make_fact(set, &order->random, set->count++));
    STILL_TRY(count_fact(tokenizer, set->facts[set->count - 1], &sizes[set->count - 1]));
    total += sizes[set->count - 1];
  }
  for (set->shown = set->count; set->shown; total -= sizes[--set->shown]) {
    set->asked[0] = (size_t)(place * (double)set->shown);
    STILL_TRY(ask(set));
    STILL_TRY(count_tokens(tokenizer, set->question, &question));
    STILL_TRY(count_tokens(tokenizer, set->answer, &answer));
    if (answer < order->answer) answer = order->answer;
    if (total + question + answer <= order->length) break;
  }
  return STILL_OK;
}

static still_status make_dense(needle_set *set, still_task_order *order, const char *name,
                               const char *intro, size_t room) {
  size_t *sizes;
  STILL_TRY(STILL_ALLOC(&sizes, room, "needles"));
  const still_status status = make_fitting(set, order, intro, sizes, room);
  still_free(sizes);
  if (status || set->shown > 1) return status;
  return still_fail(STILL_ERROR_ARGUMENT, "%s: two needles do not fit into %zu tokens", name,
                    order->length);
}

static still_status make_few(needle_set *set, still_task_order *order) {
  while (set->count < set->task->needles) STILL_TRY(make_fact(set, &order->random, set->count++));
  set->shown = set->count;
  still_shuffle(&order->random, set->asked, set->count);
  return ask(set);
}

static still_status make_prompt(needle_set *set, still_task_order *order, const char *name,
                                const char *intro, still_sample *sample) {
  const still_task_material *material = order->material;
  const bool dense = set->task->haystack == NEEDLES;
  const size_t room =
      dense ? order->length / 8 + 2 : set->task->needles; /* a needle has 8 tokens */
  STILL_TRY(STILL_ALLOC(&set->keys, room, "keys"));
  STILL_TRY(STILL_ALLOC(&set->values, room, "values"));
  STILL_TRY(STILL_ALLOC(&set->facts, room, "needles"));
  STILL_TRY(dense ? make_dense(set, order, name, intro, room) : make_few(set, order));
  const still_prompt prompt = {.intro = intro,
                               .question = set->question,
                               .answer = set->answer,
                               .haystack = dense                          ? NULL
                                           : set->task->haystack == PROSE ? &material->prose
                                                                          : &material->noise,
                               .facts = set->facts,
                               .fact_count = set->shown,
                               .asked = set->task->question == ALL_VALUES ? 0 : set->asked[0]};
  const char *asked = set->values[set->asked[0]];
  if (set->task->question == ONE)
    STILL_TRY(still_sample_expect(sample, &asked, 1));
  else
    STILL_TRY(still_sample_expect(sample, (const char *const *)set->values, set->count));
  return still_prompt_write(order, &prompt, name, sample);
}

still_status still_make_needles(const still_task *task, still_task_order *order,
                                still_sample *sample) {
  const still_wording *wording = order->material->wording;
  needle_set set = {.task = &variants[task->variant], .wording = wording};
  const bool uuid = set.task->values == UUID;
  char *intro;
  set.noun = uuid ? "uuid" : "number";
  set.nouns = uuid ? "uuids" : "numbers";
  STILL_TRY(
      still_fill_in(&intro, set.task->needles == 1 ? wording->intro_one : wording->intro_many,
                    (const still_field[]){{"noun", set.noun}, {"nouns", set.nouns}, {NULL, NULL}}));
  const still_status status = make_prompt(&set, order, task->name, intro, sample);
  still_free(intro);
  free_set(&set);
  return status;
}

/* ---- variable tracking */

enum { NAMES = 5, NAME_LETTERS = 5, EXAMPLE_LETTERS = 3 };

/* A chain of assignments and the question about it. */
typedef struct chain {
  char names[NAMES][NAME_LETTERS + 1];
  char *facts[NAMES], *question;
  char answer[NAMES * (NAME_LETTERS + 2) + 1];
} chain;

static void free_chain(chain *c) {
  for (int i = 0; i < NAMES; i++) still_free(c->facts[i]);
  still_free(c->question);
}

static void make_names(chain *c, still_random *random, int letters) {
  for (int i = 0; i < NAMES; i++) {
    bool again = true;
    while (again) {
      for (int k = 0; k < letters; k++)
        c->names[i][k] = (char)('A' + still_random_below(random, 26));
      c->names[i][letters] = 0;
      again = false;
      for (int j = 0; j < i; j++) again = again || !strcmp(c->names[i], c->names[j]);
    }
  }
}

static still_status make_chain(chain *c, const still_wording *w, still_random *random,
                               int letters) {
  char value[16];
  make_names(c, random, letters);
  snprintf(value, sizeof value, "%d", 10000 + (int)still_random_below(random, 90000));
  for (int i = 0; i < NAMES; i++) {
    STILL_TRY(still_fill_in(&c->facts[i], i ? w->tracking_next : w->tracking_first,
                            (const still_field[]){{"name", c->names[i]},
                                                  {"source", i ? c->names[i - 1] : value},
                                                  {NULL, NULL}}));
    strcat(strcat(c->answer, i ? ", " : " "), c->names[i]);
  }
  return still_fill_in(&c->question, w->tracking_question,
                       (const still_field[]){{"value", value}, {NULL, NULL}});
}

/* A short chain in a few sentences of noise, answered, then the intro of the long one. */
static still_status tell_example(const still_wording *w, const chain *c, char **intro) {
  char *text = NULL;
  still_status status = STILL_OK;
  for (size_t i = 0; i < 2 * NAMES && !status; i++) {
    if (i) status = still_append_text(&text, " ");
    if (!status)
      status = still_append_text(&text,
                                 i % 2 ? w->noise.items[i / 2 % w->noise.count] : c->facts[i / 2]);
  }
  if (!status)
    status = still_fill_in(intro, w->tracking_example,
                           (const still_field[]){{"intro", w->tracking_intro},
                                                 {"text", text},
                                                 {"question", c->question},
                                                 {"answer", c->answer},
                                                 {NULL, NULL}});
  still_free(text);
  return status ? status : still_append_text(intro, w->tracking_intro);
}

static still_status make_intro(const still_wording *w, still_random *random, char **intro) {
  chain example = {.question = NULL};
  still_status status = make_chain(&example, w, random, EXAMPLE_LETTERS);
  if (!status) status = tell_example(w, &example, intro);
  free_chain(&example);
  return status;
}

still_status still_make_tracking(const still_task *task, still_task_order *order,
                                 still_sample *sample) {
  const still_wording *w = order->material->wording;
  chain asked = {.question = NULL};
  const char *answers[NAMES];
  char *intro = NULL;
  still_status status = make_chain(&asked, w, &order->random, NAME_LETTERS);
  for (int i = 0; i < NAMES; i++) answers[i] = asked.names[i];
  if (!status) status = still_sample_expect(sample, answers, NAMES);
  if (!status) status = make_intro(w, &order->random, &intro);
  const still_prompt prompt = {.intro = intro,
                               .question = asked.question,
                               .answer = asked.answer,
                               .haystack = &order->material->noise,
                               .facts = asked.facts,
                               .fact_count = NAMES};
  if (!status) status = still_prompt_write(order, &prompt, task->name, sample);
  still_free(intro);
  free_chain(&asked);
  return status;
}
