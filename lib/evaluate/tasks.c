/* SPDX-License-Identifier: MIT */
#include "evaluate/tasks.h"

#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <still/evaluate.h>
#include <string.h>

static const still_task tasks[] = {
    {"sniah1", false, true, false, still_make_needles, 0},
    {"sniah2", true, true, false, still_make_needles, 1},
    {"sniah3", true, true, false, still_make_needles, 2},
    {"multikey", true, false, false, still_make_needles, 3},
    {"multikey_noise", false, false, false, still_make_needles, 4},
    {"multikey_dense", false, false, false, still_make_needles, 5},
    {"multikey_uuid", false, false, false, still_make_needles, 6},
    {"multivalue", true, false, false, still_make_needles, 7},
    {"multiquery", true, false, false, still_make_needles, 8},
    {"tracking", false, false, false, still_make_tracking, 0},
    {"qa1", true, false, false, still_make_story, 1},
    {"qa2", true, false, false, still_make_story, 2},
    {"qa3", true, false, false, still_make_story, 3},
    {"qa4", true, false, false, still_make_story, 4},
    {"qa5", true, false, false, still_make_story, 5},
    {"babi1", true, false, true, still_make_babi, 1},
    {"babi2", true, false, true, still_make_babi, 2},
    {"babi3", true, false, true, still_make_babi, 3},
    {"babi4", true, false, true, still_make_babi, 4},
    {"babi5", true, false, true, still_make_babi, 5},
};
enum { TASKS = sizeof tasks / sizeof *tasks };

const still_task *still_task_get(size_t index) {
  return index < TASKS ? &tasks[index] : NULL;
}

const still_task *still_task_find(const char *name) {
  for (size_t i = 0; i < TASKS; i++)
    if (!strcmp(tasks[i].name, name)) return &tasks[i];
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

void still_sample_free(still_sample *s) {
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
    size_t place = still_slice_nearest(&slice, depths[i] * (double)tokens);
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
  const size_t fixed = s->count + facts->count + tail->count - 1;
  if (fixed > order->length)
    return still_fail(STILL_ERROR_ARGUMENT, "%s: a sample takes %zu tokens, the length is %zu",
                      task, fixed, order->length);
  if (tail->prompt == tail->count)
    return still_fail(STILL_ERROR_ARGUMENT, "%s: the answer '%.40s' has no tokens", task,
                      prompt->answer);
  if (prompt->haystack)
    STILL_TRY(put_haystack(order, prompt, facts, ends, depths, order->length - fixed, s));
  else
    STILL_TRY(still_sample_put_ids(s, facts->ids, facts->count));
  if (!prompt->haystack) s->depth = ((double)prompt->asked + 0.5) / (double)prompt->fact_count;
  s->prompt = s->count + tail->prompt - 1;
  return still_sample_put_ids(s, tail->ids + 1, tail->count - 1);
}

still_status still_prompt_write(still_task_order *order, const still_prompt *prompt,
                                const char *task, still_sample *s) {
  const still_tokenizer *tokenizer = order->material->tokenizer;
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
