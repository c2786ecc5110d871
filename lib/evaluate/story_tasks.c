/* SPDX-License-Identifier: MIT
 * Stories: people move about, carry things and pass them on; a question asks for the state of
 * things at the end. In the manner of bAbI's first five question types, the wording our own. */
#include "base/memory.h"
#include "evaluate/tasks.h"

#include <string.h>

enum { MOST_NAMES = 16, MOST_STEPS = 24, MOST_QUESTIONS = 64, NOWHERE = -1 };

typedef struct story {
  const still_wording *w;
  still_random *random;
  char *facts[MOST_STEPS];
  size_t fact_count;
  char *questions[MOST_QUESTIONS];
  const char *answers[MOST_QUESTIONS];
  size_t question_count;
} story;

static int below(story *s, int bound) {
  return (int)still_random_below(s->random, (uint64_t)bound);
}

/* low .. high, both included */
static int between(story *s, int low, int high) {
  return low + below(s, high - low + 1);
}

/* A few different names of a list; returns how many. */
static int some(story *s, const still_words *words, int low, int high, const char **names) {
  size_t order[MOST_NAMES];
  const size_t all = words->count < MOST_NAMES ? words->count : MOST_NAMES;
  const int wanted = between(s, low, high);
  const int count = (size_t)wanted < all ? wanted : (int)all;
  still_shuffle(s->random, order, all);
  for (int i = 0; i < count; i++) names[i] = words->items[order[i]];
  return count;
}

static still_status say(story *s, const still_words *templates, const still_field *fields) {
  if (s->fact_count == MOST_STEPS) return STILL_OK;
  STILL_TRY(still_fill_in(&s->facts[s->fact_count], still_pick(s->random, templates), fields));
  s->fact_count++;
  return STILL_OK;
}

static still_status asks(story *s, const char *template, const still_field *fields,
                         const char *answer) {
  if (s->question_count == MOST_QUESTIONS) return STILL_OK;
  STILL_TRY(still_fill_in(&s->questions[s->question_count], template, fields));
  s->answers[s->question_count++] = answer;
  return STILL_OK;
}

#define FIELDS(...)                                                                                \
  (const still_field[]) {                                                                          \
    __VA_ARGS__, {                                                                                 \
      NULL, NULL                                                                                   \
    }                                                                                              \
  }

/* ---- where people are */

static still_status tell_moves(story *s) {
  const char *people[MOST_NAMES];
  const char *where[MOST_NAMES] = {NULL};
  const int count = some(s, &s->w->people, 2, 5, people);
  for (int step = between(s, 2, 10); step; step--) {
    const int who = below(s, count);
    const char *place = still_pick(s->random, &s->w->places);
    if (where[who] == place) continue;
    where[who] = place;
    STILL_TRY(say(s, &s->w->move, FIELDS({"who", people[who]}, {"place", place})));
  }
  for (int i = 0; i < count; i++)
    if (where[i]) STILL_TRY(asks(s, s->w->where, FIELDS({"what", people[i]}), where[i]));
  return STILL_OK;
}

/* ---- what they carry */

typedef struct thing {
  const char *name;
  int holder;        /* or NOWHERE */
  const char *place; /* where it lies; NULL: not known, or held */
  const char *history[MOST_STEPS];
  int visits;
} thing;

typedef struct world {
  const char *people[MOST_NAMES], *where[MOST_NAMES];
  int people_count;
  thing things[MOST_NAMES];
  int thing_count;
} world;

static void arrive(thing *t, const char *place) {
  if (t->visits == MOST_STEPS || (t->visits && t->history[t->visits - 1] == place)) return;
  t->history[t->visits++] = place;
}

/* One of the things that person who could take (held false) or drop (held true); -1: none. */
static int some_thing(story *s, const world *w, int who, bool held) {
  int found[MOST_NAMES], count = 0;
  for (int i = 0; i < w->thing_count; i++) {
    const thing *t = &w->things[i];
    const bool here = !t->place || t->place == w->where[who];
    if (held ? t->holder == who : t->holder == NOWHERE && here && w->where[who]) found[count++] = i;
  }
  return count ? found[below(s, count)] : -1;
}

static still_status step(story *s, world *w) {
  const double chance = still_random_double(s->random);
  const int who = below(s, w->people_count);
  const int takes = chance < 0.22 ? some_thing(s, w, who, false) : -1;
  const int drops = chance >= 0.22 && chance < 0.34 ? some_thing(s, w, who, true) : -1;
  if (takes >= 0 || drops >= 0) {
    thing *t = &w->things[takes >= 0 ? takes : drops];
    t->holder = takes >= 0 ? who : NOWHERE;
    t->place = takes >= 0 ? NULL : w->where[who];
    if (takes >= 0) arrive(t, w->where[who]);
    return say(s, takes >= 0 ? &s->w->take : &s->w->drop,
               FIELDS({"who", w->people[who]}, {"thing", t->name}));
  }
  const char *place = still_pick(s->random, &s->w->places);
  while (place == w->where[who]) place = still_pick(s->random, &s->w->places);
  w->where[who] = place;
  for (int i = 0; i < w->thing_count; i++)
    if (w->things[i].holder == who) arrive(&w->things[i], place);
  return say(s, &s->w->move, FIELDS({"who", w->people[who]}, {"place", place}));
}

static still_status carry(story *s, world *w, int steps) {
  const char *names[MOST_NAMES];
  memset(w, 0, sizeof *w);
  w->people_count = some(s, &s->w->people, 2, 4, w->people);
  w->thing_count = some(s, &s->w->things, 1, 3, names);
  for (int i = 0; i < w->thing_count; i++)
    w->things[i] = (thing){.name = names[i], .holder = NOWHERE};
  for (; steps; steps--) STILL_TRY(step(s, w));
  return STILL_OK;
}

static still_status tell_things(story *s) {
  world w;
  STILL_TRY(carry(s, &w, between(s, 4, 14)));
  for (int i = 0; i < w.thing_count; i++) {
    const thing *t = &w.things[i];
    char *what;
    if (!t->visits) continue;
    STILL_TRY(still_fill_in(&what, "the {thing}", FIELDS({"thing", t->name})));
    const still_status status =
        asks(s, s->w->where, FIELDS({"what", what}), t->history[t->visits - 1]);
    still_free(what);
    if (status) return status;
  }
  return STILL_OK;
}

static still_status tell_places_before(story *s) {
  world w;
  STILL_TRY(carry(s, &w, between(s, 6, 20)));
  for (int i = 0; i < w.thing_count; i++) {
    const thing *t = &w.things[i];
    for (int k = 1; k < t->visits; k++) {
      bool again = false; /* only the last visit to a place is asked about */
      for (int later = k + 1; later < t->visits; later++)
        again = again || t->history[later] == t->history[k];
      if (!again)
        STILL_TRY(asks(s, s->w->before, FIELDS({"thing", t->name}, {"place", t->history[k]}),
                       t->history[k - 1]));
    }
  }
  return STILL_OK;
}

/* ---- directions, gifts */

static still_status tell_directions(story *s) {
  const char *p[3], *d[2];
  some(s, &s->w->places, 3, 3, p);
  some(s, &s->w->directions, 2, 2, d);
  const int first = below(s, 2) * 2; /* places 0 and 2 lie beside place 1 */
  for (int i = 0; i < 2; i++) {
    const int at = i ? 2 - first : first;
    STILL_TRY(say(s, &s->w->lies, FIELDS({"a", p[at]}, {"d", d[at / 2]}, {"b", p[1]})));
  }
  for (int at = 0; at < 3; at += 2) {
    STILL_TRY(asks(s, s->w->what_is, FIELDS({"d", d[at / 2]}, {"b", p[1]}), p[at]));
    STILL_TRY(asks(s, s->w->what_of, FIELDS({"d", d[at / 2]}, {"a", p[at]}), p[1]));
  }
  return STILL_OK;
}

typedef struct gift {
  const char *from, *what, *to;
} gift;

/* The last gift that agrees in what is given (NULL: anything). */
static bool is_last(const gift *gifts, int count, int index, bool from, bool what, bool to) {
  const gift *g = &gifts[index];
  for (int i = index + 1; i < count; i++)
    if ((!from || gifts[i].from == g->from) && (!what || gifts[i].what == g->what) &&
        (!to || gifts[i].to == g->to))
      return false;
  return true;
}

static still_status ask_of_gifts(story *s, const gift *gifts, int count) {
  for (int i = 0; i < count; i++) {
    const gift *g = &gifts[i];
    if (is_last(gifts, count, i, false, true, false)) {
      STILL_TRY(asks(s, s->w->who_gave, FIELDS({"thing", g->what}), g->from));
      STILL_TRY(asks(s, s->w->who_got, FIELDS({"thing", g->what}), g->to));
    }
    if (is_last(gifts, count, i, true, false, true))
      STILL_TRY(asks(s, s->w->what_given, FIELDS({"a", g->from}, {"b", g->to}), g->what));
    if (is_last(gifts, count, i, true, true, false))
      STILL_TRY(asks(s, s->w->to_whom, FIELDS({"a", g->from}, {"thing", g->what}), g->to));
  }
  return STILL_OK;
}

static still_status tell_gifts(story *s) {
  const char *people[MOST_NAMES], *things[MOST_NAMES];
  const int people_count = some(s, &s->w->people, 3, 5, people);
  const int thing_count = some(s, &s->w->things, 1, 3, things);
  gift gifts[MOST_STEPS];
  int count = 0;
  for (int i = between(s, 2, 8); i; i--) {
    const int from = below(s, people_count);
    if (still_random_double(s->random) < 0.45) {
      const int to = (from + 1 + below(s, people_count - 1)) % people_count;
      const gift g = {people[from], things[below(s, thing_count)], people[to]};
      gifts[count++] = g;
      STILL_TRY(say(s, &s->w->give, FIELDS({"a", g.from}, {"b", g.to}, {"thing", g.what})));
    } else {
      STILL_TRY(
          say(s, &s->w->move,
              FIELDS({"who", people[from]}, {"place", still_pick(s->random, &s->w->places)})));
    }
  }
  return ask_of_gifts(s, gifts, count);
}

/* ---- samples */

static void forget(story *s) {
  for (size_t i = 0; i < s->fact_count; i++) still_free(s->facts[i]);
  for (size_t i = 0; i < s->question_count; i++) still_free(s->questions[i]);
  s->fact_count = s->question_count = 0;
}

/* Until a story has something to ask about. */
static still_status tell(story *s, int type) {
  static still_status (*const tellers[])(story *) = {tell_moves, tell_things, tell_places_before,
                                                     tell_directions, tell_gifts};
  enum { TRIES = 1000 };
  for (int tries = 0; tries < TRIES; tries++) {
    forget(s);
    STILL_TRY(tellers[type - 1](s));
    if (s->question_count) return STILL_OK;
  }
  return still_fail(STILL_ERROR_ARGUMENT, "qa%d: the templates give no question", type);
}

/* What a story asks and how it is asked. */
typedef struct story_question {
  const char *intro, *template, *question, *answer;
  const still_words *labels[2]; /* what an answer may be; the second may be NULL */
} story_question;

/* A prompt that ends with one of the questions about the facts. */
static still_status write_facts(still_task_order *order, const char *name, char *const *facts,
                                size_t fact_count, const story_question *q, still_sample *sample) {
  char *question, *answer = NULL;
  if (order->length && !order->material->background.count)
    return still_fail(STILL_ERROR_FORMAT,
                      "%s: the haystack has no sentence of %d tokens, one is needed", name,
                      STILL_BACKGROUND_TOKENS);
  STILL_TRY(still_fill_in(&question, q->template, FIELDS({"question", q->question})));
  still_status status = still_fill_in(&answer, " {answer}", FIELDS({"answer", q->answer}));
  const still_prompt prompt = {.intro = q->intro,
                               .question = question,
                               .answer = answer,
                               .haystack = &order->material->background,
                               .between = true,
                               .facts = facts,
                               .fact_count = fact_count,
                               .asked = fact_count - 1};
  if (!status) status = still_sample_expect(sample, &q->answer, 1);
  for (int i = 0; i < 2 && q->labels[i] && !status; i++)
    status = still_sample_forbid(sample, q->labels[i], q->question);
  if (!status) status = still_prompt_write(order, &prompt, name, sample);
  still_free(question);
  still_free(answer);
  return status;
}

still_status still_make_story(const still_task *task, still_task_order *order,
                              still_sample *sample) {
  const still_wording *w = order->material->wording;
  story s = {.w = w, .random = &order->random};
  if (w->people.count < 3 || w->places.count < 3 || w->things.count < 1 || w->directions.count < 2)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "%s: the templates need 3 people and places, 2 directions, a thing",
                      task->name);
  still_status status = tell(&s, task->variant);
  if (!status) {
    const size_t chosen = (size_t)below(&s, (int)s.question_count);
    const bool gifts = task->variant == 5;
    const story_question q = {w->world_intro,
                              w->world_question,
                              s.questions[chosen],
                              s.answers[chosen],
                              {gifts ? &w->people : &w->places, gifts ? &w->things : NULL}};
    status = write_facts(order, task->name, s.facts, s.fact_count, &q, sample);
  }
  forget(&s);
  return status;
}

still_status still_make_babi(const still_task *task, still_task_order *order,
                             still_sample *sample) {
  const still_wording *w = order->material->wording;
  const still_babi *babi = &order->material->babi[task->variant - 1];
  size_t item;
  STILL_TRY(still_order_item(order, babi->question_count, &item));
  const still_babi_question *asked = &babi->questions[item];
  const story_question q = {w->babi_intro[task->variant - 1],
                            w->babi_question,
                            asked->question,
                            asked->answer,
                            {&babi->labels, NULL}};
  return write_facts(order, task->name, babi->facts + asked->first, asked->end - asked->first, &q,
                     sample);
}
