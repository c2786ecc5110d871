/* SPDX-License-Identifier: MIT */
#include "evaluate/tasks.h"

#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <still/evaluate.h>
#include <string.h>
#include <strings.h>

/* What RULER gives an answer, in tokens; BABILong gives 20. */
enum { NEEDLE = 128, TRACKING = 30, COMMON = 120, FREQUENT = 50, ANSWER = 32, LABEL = 20 };

#define PROSE STILL_TASK_PROSE
#define STORY (STILL_TASK_PROSE | STILL_TASK_BARE)
#define BABI (STILL_TASK_PROSE | STILL_TASK_BARE | STILL_TASK_BABI | STILL_TASK_ITEMS)
#define FREE STILL_TASK_FREE
#define QUESTIONS (STILL_TASK_QUESTIONS | STILL_TASK_ITEMS | STILL_TASK_FREE)
static const still_task tasks[] = {
    {"sniah1", "niah_single_1", STILL_TASK_DEPTHS, still_make_needles, 0, STILL_RULE_ALL, NEEDLE},
    {"sniah2", "niah_single_2", PROSE | STILL_TASK_DEPTHS, still_make_needles, 1, STILL_RULE_ALL,
     NEEDLE},
    {"sniah3", "niah_single_3", PROSE | STILL_TASK_DEPTHS, still_make_needles, 2, STILL_RULE_ALL,
     NEEDLE},
    {"multikey", "niah_multikey_1", PROSE, still_make_needles, 3, STILL_RULE_ALL, NEEDLE},
    {"multikey_noise", NULL, 0, still_make_needles, 4, STILL_RULE_ALL, NEEDLE},
    {"multikey_dense", "niah_multikey_2", 0, still_make_needles, 5, STILL_RULE_ALL, NEEDLE},
    {"multikey_uuid", "niah_multikey_3", 0, still_make_needles, 6, STILL_RULE_ALL, NEEDLE},
    {"multivalue", "niah_multivalue", PROSE, still_make_needles, 7, STILL_RULE_ALL, NEEDLE},
    {"multiquery", "niah_multiquery", PROSE, still_make_needles, 8, STILL_RULE_ALL, NEEDLE},
    {"tracking", "vt", 0, still_make_tracking, 0, STILL_RULE_ALL, TRACKING},
    {"common_words", "cwe", FREE, still_make_common_words, 0, STILL_RULE_ALL, COMMON},
    {"frequent_words", "fwe", FREE, still_make_frequent_words, 0, STILL_RULE_ALL, FREQUENT},
    {"documents", "qa", QUESTIONS, still_make_documents, 0, STILL_RULE_ANY, ANSWER},
    {"qa1", NULL, STORY, still_make_story, 1, STILL_RULE_LABEL, LABEL},
    {"qa2", NULL, STORY, still_make_story, 2, STILL_RULE_LABEL, LABEL},
    {"qa3", NULL, STORY, still_make_story, 3, STILL_RULE_LABEL, LABEL},
    {"qa4", NULL, STORY, still_make_story, 4, STILL_RULE_LABEL, LABEL},
    {"qa5", NULL, STORY, still_make_story, 5, STILL_RULE_LABEL, LABEL},
    {"babi1", NULL, BABI, still_make_babi, 1, STILL_RULE_LABEL, LABEL},
    {"babi2", NULL, BABI, still_make_babi, 2, STILL_RULE_LABEL, LABEL},
    {"babi3", NULL, BABI, still_make_babi, 3, STILL_RULE_LABEL, LABEL},
    {"babi4", NULL, BABI, still_make_babi, 4, STILL_RULE_LABEL, LABEL},
    {"babi5", NULL, BABI, still_make_babi, 5, STILL_RULE_LABEL, LABEL},
};
enum { TASKS = sizeof tasks / sizeof *tasks };

const still_task *still_task_get(size_t index) {
  return index < TASKS ? &tasks[index] : NULL;
}

const still_task *still_task_find(const char *name) {
  for (size_t i = 0; i < TASKS; i++)
    if (!strcmp(tasks[i].name, name) || (tasks[i].other_name && !strcmp(tasks[i].other_name, name)))
      return &tasks[i];
  return NULL;
}

const char *still_evaluation_task_name(size_t index) {
  return index < TASKS ? tasks[index].name : NULL;
}

/* ---- samples */

still_status still_sample_put_ids(still_sample *s, const still_token *ids, size_t count) {
  if (count > s->room - s->count) {
    const size_t room = 2 * s->room + count + 256;
    STILL_TRY(STILL_REALLOC(&s->ids, room, "a sample"));
    s->room = room;
  }
  if (count) memcpy(s->ids + s->count, ids, count * sizeof *ids);
  s->count += count;
  return STILL_OK;
}

still_status still_sample_put_text(still_sample *s, const still_tokenizer *tokenizer,
                                   const char *text) {
  still_token *ids;
  size_t count;
  STILL_TRY(still_tokenize_new(tokenizer, text, strlen(text),
                               s->count ? STILL_TOKENIZE_CONTINUE : STILL_TOKENIZE_ADD_BOS, &ids,
                               &count));
  const still_status status = still_sample_put_ids(s, ids, count);
  still_free(ids);
  return status;
}

void still_free_strings(char **strings, size_t count) {
  for (size_t i = 0; strings && i < count; i++) still_free(strings[i]);
  still_free(strings);
}

still_status still_sample_expect(still_sample *s, const char *const *answers, size_t count) {
  STILL_TRY(STILL_ALLOC(&s->answers, count, "answers"));
  for (; s->answer_count < count; s->answer_count++)
    STILL_TRY(still_copy_string(&s->answers[s->answer_count], answers[s->answer_count]));
  return STILL_OK;
}

static bool is_answer(const still_sample *s, const char *label) {
  for (size_t i = 0; i < s->answer_count; i++)
    if (!strcasecmp(s->answers[i], label)) return true;
  return false;
}

still_status still_sample_forbid(still_sample *s, const still_words *labels, const char *question) {
  STILL_TRY(STILL_REALLOC(&s->others, s->other_count + labels->count, "labels"));
  for (size_t i = 0; i < labels->count; i++) {
    if (is_answer(s, labels->items[i]) || still_find_folded(question, labels->items[i])) continue;
    STILL_TRY(still_copy_string(&s->others[s->other_count], labels->items[i]));
    s->other_count++;
  }
  return STILL_OK;
}

void still_sample_free(still_sample *s) {
  still_free_strings(s->answers, s->answer_count);
  still_free_strings(s->others, s->other_count);
  still_free(s->ids);
  memset(s, 0, sizeof *s);
}

/* ---- random choices */

const char *still_pick(still_random *random, const still_words *words) {
  return words->items[still_random_below(random, words->count)];
}

void still_shuffle(still_random *random, size_t *order, size_t count) {
  for (size_t i = 0; i < count; i++) order[i] = i;
  for (size_t i = count; i > 1; i--) {
    const size_t k = (size_t)still_random_below(random, i), last = order[i - 1];
    order[i - 1] = order[k];
    order[k] = last;
  }
}

still_status still_order_item(const still_task_order *order, size_t count, size_t *item) {
  still_random random;
  size_t *items;
  STILL_TRY(STILL_ALLOC(&items, count, "the order of questions"));
  still_random_seed(&random, order->item_seed);
  still_shuffle(&random, items, count);
  *item = items[order->index % count];
  still_free(items);
  return STILL_OK;
}

/* ---- words */

bool still_occurs(char *const *strings, size_t count, const char *text) {
  for (size_t i = 0; i < count; i++)
    if (!strcmp(strings[i], text)) return true;
  return false;
}

still_status still_new_word(still_random *random, const still_words *words, char **strings,
                            size_t index) {
  enum { TRIES = 10000 };
  for (int tries = 0; tries < TRIES; tries++) {
    const bool two = still_random_double(random) < 0.4;
    STILL_TRY(still_fill_in(&strings[index], two ? "{a}-{b}" : "{a}",
                            (const still_field[]){{"a", still_pick(random, words)},
                                                  {"b", two ? still_pick(random, words) : ""},
                                                  {NULL, NULL}}));
    if (!still_occurs(strings, index, strings[index])) return STILL_OK;
    still_free(strings[index]);
    strings[index] = NULL;
  }
  return still_fail(STILL_ERROR_ARGUMENT, "%zu key words are too few for %zu different ones",
                    words->count, index + 1);
}

/* ---- prompts */

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The facts one after the other, each with a space before it; ends[i] is where fact i ends. */
static still_status encode_facts(const still_tokenizer *tokenizer, const still_prompt *prompt,
                                 still_sample *facts, size_t *ends) {
  for (size_t i = 0; i < prompt->fact_count; i++) {
    const char *space = i || prompt->haystack ? " " : "";
    char *spaced;
    STILL_TRY(still_fill_in(
        &spaced, "{space}{fact}",
        (const still_field[]){{"space", space}, {"fact", prompt->facts[i]}, {NULL, NULL}}));
    still_token *ids;
    size_t count;
    still_status status = still_tokenize_new(tokenizer, spaced, strlen(spaced),
                                             STILL_TOKENIZE_CONTINUE, &ids, &count);
    still_free(spaced);
    if (status) return status;
    status = still_sample_put_ids(facts, ids, count);
    still_free(ids);
    if (status) return status;
    ends[i] = facts->count;
  }
  return STILL_OK;
}

/* Tokens from .. to-1 of the slice. */
static still_status put_slice(still_sample *s, const still_slice *slice, size_t from, size_t to) {
  still_token *ids;
  STILL_TRY(STILL_ALLOC(&ids, to - from, "a haystack"));
  still_slice_copy(slice, from, to, ids);
  const still_status status = still_sample_put_ids(s, ids, to - from);
  still_free(ids);
  return status;
}

/* Haystack with the facts at depths (in order) in it. */
static still_status put_haystack(still_task_order *order, const still_prompt *prompt,
                                 const still_sample *facts, const size_t *ends, double *depths,
                                 size_t tokens, still_sample *s) {
  const still_slice slice =
      still_passage_slice(prompt->haystack, still_random_u64(&order->random), tokens);
  size_t at = 0;
  for (size_t i = 0; i < prompt->fact_count; i++) depths[i] = still_random_double(&order->random);
  qsort(depths, prompt->fact_count, sizeof *depths, by_value);
  if (order->depth >= 0) depths[0] = order->depth;
  for (size_t i = 0; i < prompt->fact_count; i++) {
    size_t place = prompt->between ? still_slice_place(&slice, depths[i])
                                   : still_slice_nearest(&slice, depths[i] * (double)tokens);
    if (place < at) place = at;
    STILL_TRY(put_slice(s, &slice, at, place));
    const size_t begin = i ? ends[i - 1] : 0;
    STILL_TRY(still_sample_put_ids(s, facts->ids + begin, ends[i] - begin));
    if (i == prompt->asked) s->depth = tokens ? (double)place / (double)tokens : 0;
    at = place;
  }
  return put_slice(s, &slice, at, tokens);
}

/* What follows the haystack, the answer included; tail->prompt is where that begins. */
static still_status encode_tail(const still_tokenizer *tokenizer, const still_prompt *prompt,
                                still_sample *tail) {
  const still_token nothing = 0;
  STILL_TRY(still_sample_put_ids(tail, &nothing, 1)); /* so that the text is no beginning */
  STILL_TRY(still_sample_put_text(tail, tokenizer, "\n"));
  STILL_TRY(still_sample_put_text(tail, tokenizer, prompt->question));
  tail->prompt = tail->count;
  return still_sample_put_text(tail, tokenizer, prompt->answer);
}

static still_status write_parts(still_task_order *order, const still_prompt *prompt,
                                const char *task, const still_sample *facts, const size_t *ends,
                                const still_sample *tail, double *depths, still_sample *s) {
  const size_t answer = tail->count - tail->prompt;
  const size_t kept_free = order->answer > answer ? order->answer - answer : 0;
  const size_t fixed = s->count + facts->count + tail->count - 1 + kept_free;
  if (!answer)
    return still_fail(STILL_ERROR_ARGUMENT, "%s: the answer '%.40s' has no tokens", task,
                      prompt->answer);
  if (order->length && fixed > order->length)
    return still_fail(STILL_ERROR_ARGUMENT, "%s: a sample takes %zu tokens, the length is %zu",
                      task, fixed, order->length);
  if (prompt->haystack)
    STILL_TRY(put_haystack(order, prompt, facts, ends, depths, order->length - fixed, s));
  else
    STILL_TRY(still_sample_put_ids(s, facts->ids, facts->count));
  if (!prompt->haystack) s->depth = ((double)prompt->asked + 0.5) / (double)prompt->fact_count;
  s->prompt = s->count + tail->prompt - 1;
  return still_sample_put_ids(s, tail->ids + 1, tail->count - 1);
}

still_status still_prompt_write(still_task_order *order, const still_prompt *told, const char *task,
                                still_sample *s) {
  const still_tokenizer *tokenizer = order->material->tokenizer;
  still_prompt bare = *told;
  bare.haystack = NULL;
  const still_prompt *prompt = order->length ? told : &bare;
  still_sample facts = {0}, tail = {0};
  size_t *ends = NULL;
  double *depths = NULL;
  still_status status = STILL_ALLOC(&ends, prompt->fact_count, "a sample");
  if (!status) status = STILL_ALLOC(&depths, prompt->fact_count, "a sample");
  if (!status) status = still_sample_put_text(s, tokenizer, prompt->intro);
  if (!status) status = still_sample_put_text(s, tokenizer, "\n");
  if (!status) status = encode_facts(tokenizer, prompt, &facts, ends);
  if (!status) status = encode_tail(tokenizer, prompt, &tail);
  if (!status) status = write_parts(order, prompt, task, &facts, ends, &tail, depths, s);
  still_sample_free(&facts);
  still_sample_free(&tail);
  still_free(ends);
  still_free(depths);
  return status;
}

/* ---- texts in one piece */

/* The sample of a size, and the tokens it takes with those kept free. */
static still_status write_piece(still_task_order *order, const still_piece_maker *maker,
                                const char *task, size_t size, still_sample *s, size_t *tokens) {
  char *text = NULL, *answer = NULL;
  s->count = 0;
  still_status status = maker->make(maker->user, size, &text, &answer);
  if (!status) status = still_sample_put_text(s, order->material->tokenizer, text);
  s->prompt = s->count;
  if (!status) status = still_sample_put_text(s, order->material->tokenizer, answer);
  const size_t given = s->count - s->prompt;
  if (!status && !given)
    status = still_fail(STILL_ERROR_ARGUMENT, "%s: the answer '%.40s' has no tokens", task, answer);
  *tokens = s->prompt + (given > order->answer ? given : order->answer);
  still_free(text);
  still_free(answer);
  return status;
}

/* Steps are doubled until a size does not fit, then halved in between. */
still_status still_fit_piece(still_task_order *order, const still_piece_maker *maker,
                             const char *task, still_sample *s) {
  size_t low = maker->smallest, high = maker->largest + 1, step = 16, tokens;
  STILL_TRY(write_piece(order, maker, task, low, s, &tokens));
  if (tokens > order->length)
    return still_fail(STILL_ERROR_ARGUMENT, "%s: a sample takes %zu tokens, the length is %zu",
                      task, tokens, order->length);
  while (low + 1 < high) {
    const size_t size = still_smaller(low + step, (low + high) / 2);
    STILL_TRY(write_piece(order, maker, task, size, s, &tokens));
    if (tokens <= order->length)
      low = size, step *= 2;
    else
      high = size;
  }
  return write_piece(order, maker, task, low, s, &tokens);
}
