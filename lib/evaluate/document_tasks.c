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
  size_t *others; /* paragraphs that the question does not need: those of its own article first,
                     both parts in random order */
  size_t other_count;
} collection;

/* What a paragraph is to a question. */
typedef enum kinship { STRANGE, SAME_ARTICLE, NEEDED } kinship;

static bool same_article(const still_question *a, const still_question *b) {
  return a->title && b->title && !strcmp(a->title, b->title);
}

static void relate(const still_questions *all, const still_question *q, kinship is, kinship *kin) {
  for (size_t i = q->first; i < q->end; i++) kin[all->needed[i]] = is;
}

static void relate_all(const collection *c, kinship *kin) {
  for (size_t i = 0; i < c->questions->count; i++)
    if (same_article(&c->questions->items[i], c->question))
      relate(c->questions, &c->questions->items[i], SAME_ARTICLE, kin);
  relate(c->questions, c->question, NEEDED, kin);
}

static void add_kin(collection *c, const size_t *order, const kinship *kin, kinship wanted) {
  for (size_t i = 0; i < c->questions->paragraphs.count; i++)
    if (kin[order[i]] == wanted) c->others[c->other_count++] = order[i];
}

static still_status find_others(collection *c, still_random *random) {
  const size_t count = c->questions->paragraphs.count;
  kinship *kin;
  size_t *order;
  STILL_TRY(STILL_ALLOC(&kin, count, "documents"));
  still_status status = STILL_ALLOC(&order, count, "documents");
  if (!status) status = STILL_ALLOC(&c->others, count, "documents");
  if (!status) {
    relate_all(c, kin);
    still_shuffle(random, order, count);
    add_kin(c, order, kin, SAME_ARTICLE);
    add_kin(c, order, kin, STRANGE);
  }
  still_free(order);
  still_free(kin);
  return status;
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
