/* SPDX-License-Identifier: MIT */
#include "evaluate/questions.h"

#include "base/memory.h"
#include "base/random.h"
#include "evaluate/json_lines.h"

#include <string.h>

/* Calls `each` for a string, or for each string of an array. */
static still_status for_each_string(const still_json *value, const char *what,
                                    still_status (*each)(void *user, const char *text),
                                    void *user) {
  const char *text;
  if (still_json_type_of(value) != STILL_JSON_ARRAY) {
    STILL_TRY(still_json_to_string(value, what, &text));
    return each(user, text);
  }
  for (const still_json *v = still_json_first(value); v; v = still_json_next(v)) {
    STILL_TRY(still_json_to_string(v, what, &text));
    STILL_TRY(each(user, text));
  }
  return STILL_OK;
}

static still_status add_answer(void *user, const char *text) {
  still_question *q = user;
  if (still_is_blank(text)) return still_fail(STILL_ERROR_FORMAT, "an answer is empty");
  STILL_TRY(STILL_REALLOC(&q->answers, q->answer_count + 1, "answers"));
  return still_copy_string(&q->answers[q->answer_count++], text);
}

static still_status read_answers(still_question *q, const still_json *line) {
  const still_json *answers = still_json_find(line, "answers");
  if (!answers) answers = still_json_find(line, "answer");
  if (still_json_type_of(answers) == STILL_JSON_OBJECT) answers = still_json_find(answers, "text");
  STILL_TRY(for_each_string(answers, "answers", add_answer, q));
  return q->answer_count ? STILL_OK : still_fail(STILL_ERROR_FORMAT, "'answers' has no entries");
}

static still_status add_paragraph(void *user, const char *text) {
  still_questions *all = user;
  const size_t length = strlen(text);
  size_t number = still_name_table_find(&all->paragraphs, text, length);
  if (still_is_blank(text))
    return still_fail(STILL_ERROR_FORMAT, "a paragraph of 'context' is empty");
  if (number == SIZE_MAX) {
    number = all->paragraphs.count;
    STILL_TRY(still_name_table_add(&all->paragraphs, text, length, "paragraph"));
  }
  if (all->needed_count == all->needed_room) {
    const size_t room = 2 * all->needed_room + 256;
    STILL_TRY(STILL_REALLOC(&all->needed, room, "paragraphs"));
    all->needed_room = room;
  }
  all->needed[all->needed_count++] = number;
  return STILL_OK;
}

static still_status read_question(void *user, const still_json *line) {
  still_questions *all = user;
  const char *text, *title = NULL;
  if (all->count == all->room) {
    const size_t room = 2 * all->room + 64;
    STILL_TRY(STILL_REALLOC(&all->items, room, "questions"));
    all->room = room;
  }
  still_question *q = &all->items[all->count++];
  STILL_TRY(still_json_get_string(line, "question", &text));
  STILL_TRY(still_copy_string(&q->text, text));
  STILL_TRY(still_json_optional_string(line, "title", &title));
  if (title) STILL_TRY(still_copy_string(&q->title, title));
  STILL_TRY(read_answers(q, line));
  q->first = all->needed_count;
  STILL_TRY(for_each_string(still_json_find(line, "context"), "context", add_paragraph, all));
  q->end = all->needed_count;
  return q->end > q->first ? STILL_OK : still_fail(STILL_ERROR_FORMAT, "'context' has no entries");
}

still_status still_questions_read(still_questions *questions, const char *path) {
  memset(questions, 0, sizeof *questions);
  const still_status status = still_json_lines(path, read_question, questions);
  if (status) still_questions_free(questions);
  return status;
}

uint64_t still_questions_hash(const still_questions *questions) {
  uint64_t hash = questions->count;
  for (size_t i = 0; i < questions->count; i++) {
    hash = still_hash_text(hash, questions->items[i].text);
    if (questions->items[i].title) hash = still_hash_text(hash, questions->items[i].title);
    for (size_t k = 0; k < questions->items[i].answer_count; k++)
      hash = still_hash_text(hash, questions->items[i].answers[k]);
  }
  for (size_t i = 0; i < questions->paragraphs.count; i++)
    hash = still_hash_text(hash, still_name_table_get(&questions->paragraphs, i));
  return hash;
}

void still_questions_free(still_questions *questions) {
  for (size_t i = 0; i < questions->count; i++) {
    still_question *q = &questions->items[i];
    for (size_t k = 0; k < q->answer_count; k++) still_free(q->answers[k]);
    still_free(q->answers);
    still_free(q->text);
    still_free(q->title);
  }
  still_free(questions->items);
  still_free(questions->needed);
  still_name_table_free(&questions->paragraphs);
  memset(questions, 0, sizeof *questions);
}
