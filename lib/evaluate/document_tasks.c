/* SPDX-License-Identifier: MIT
 * Questions about paragraphs: those that a question needs stand among as many others as there is
 * room for. */
#include "base/memory.h"
#include "evaluate/tasks.h"

#include <stdio.h>
#include <string.h>

typedef struct collection {
  const still_wording *wording;
  const still_questions *questions;
  const still_question *question;
  still_random shuffle;
  size_t *others; /* paragraphs that the question does not need, in random order */
  size_t other_count;
} collection;

static bool is_needed(const collection *c, size_t paragraph) {
  for (size_t i = c->question->first; i < c->question->end; i++)
    if (c->questions->needed[i] == paragraph) return true;
  return false;
}

static still_status find_others(collection *c, still_random *random) {
  const size_t count = c->questions->paragraphs.count;
  STILL_TRY(STILL_ALLOC(&c->others, count, "documents"));
  still_shuffle(random, c->others, count);
  for (size_t i = 0; i < count; i++)
    if (!is_needed(c, c->others[i])) c->others[c->other_count++] = c->others[i];
  return STILL_OK;
}

/* The paragraphs of a prompt with `others` of the others: needed[place] or others[place - needed]. */
static size_t paragraph_at(const collection *c, size_t place) {
  const size_t needed = c->question->end - c->question->first;
  return place < needed ? c->questions->needed[c->question->first + place]
                        : c->others[place - needed];
}

static still_status append_documents(const collection *c, const size_t *order, size_t count,
                                     char **text) {
  for (size_t i = 0; i < count; i++) {
    char number[24], *document;
    snprintf(number, sizeof number, "%zu", i + 1);
    const char *paragraph =
        still_name_table_get(&c->questions->paragraphs, paragraph_at(c, order[i]));
    STILL_TRY(still_fill_in(
        &document, c->wording->documents_document,
        (const still_field[]){{"number", number}, {"text", paragraph}, {NULL, NULL}}));
    const still_status status = still_append_text(text, document);
    still_free(document);
    if (status) return status;
  }
  return STILL_OK;
}

static still_status order_documents(const collection *c, size_t count, size_t **order) {
  still_random shuffle = c->shuffle;
  STILL_TRY(STILL_ALLOC(order, count, "documents"));
  still_shuffle(&shuffle, *order, count);
  return STILL_OK;
}

static still_status make_collection(void *user, size_t others, char **text, char **answer) {
  const collection *c = user;
  const size_t count = c->question->end - c->question->first + others;
  char *documents = NULL;
  size_t *order;
  STILL_TRY(order_documents(c, count, &order));
  still_status status = append_documents(c, order, count, &documents);
  if (!status)
    status = still_fill_in(text, "{intro}\n\n{documents}",
                           (const still_field[]){{"intro", c->wording->documents_intro},
                                                 {"documents", documents},
                                                 {NULL, NULL}});
  still_free(documents);
  still_free(order);
  char *question = NULL;
  if (!status)
    status = still_fill_in(&question, c->wording->documents_question,
                           (const still_field[]){{"question", c->question->text}, {NULL, NULL}});
  if (!status) status = still_append_text(text, question);
  still_free(question);
  if (!status) status = still_append_text(answer, " ");
  return status ? status : still_append_text(answer, c->question->answers[0]);
}

still_status still_make_documents(const still_task *task, still_task_order *order,
                                  still_sample *sample) {
  const still_questions *questions = order->material->questions;
  size_t item;
  STILL_TRY(still_order_item(order, questions->count, &item));
  collection c = {.wording = order->material->wording,
                  .questions = questions,
                  .question = &questions->items[item]};
  still_status status = find_others(&c, &order->random);
  still_random_seed(&c.shuffle, still_random_u64(&order->random));
  const still_piece_maker maker = {make_collection, &c, 0, c.other_count};
  if (!status) status = still_fit_piece(order, &maker, task->name, sample);
  if (!status)
    status = still_sample_expect(sample, (const char *const *)c.question->answers,
                                 c.question->answer_count);
  still_free(c.others);
  return status;
}
