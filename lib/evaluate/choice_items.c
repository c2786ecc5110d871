/* SPDX-License-Identifier: MIT */
#include "evaluate/choice_items.h"

#include "base/memory.h"
#include "evaluate/json_lines.h"
#include "evaluate/wording.h"

#include <string.h>

/* A line in any of the shapes that still/evaluate.h names, its strings the document's. */
typedef struct shape {
  const char *question;
  const char *choices[STILL_MOST_CHOICES], *labels[STILL_MOST_CHOICES];
  size_t count;
  const still_json *answer;
  bool plain; /* the choice goes on where the question ends, without "Question:" */
  int first;  /* the number of the first choice */
} shape;

static still_status add_choice(shape *s, const still_json *text, const still_json *label) {
  if (s->count == STILL_MOST_CHOICES)
    return still_fail(STILL_ERROR_FORMAT, "more than %d choices", STILL_MOST_CHOICES);
  STILL_TRY(still_json_to_string(text, "choices", &s->choices[s->count]));
  if (still_json_type_of(label) == STILL_JSON_STRING)
    STILL_TRY(still_json_to_string(label, "label", &s->labels[s->count]));
  s->count++;
  return STILL_OK;
}

/* ["a", "b"], {"text": [...], "label": [...]} or [{"text", "label"}, ...] */
static still_status read_choices(shape *s, const still_json *choices) {
  const bool object = still_json_type_of(choices) == STILL_JSON_OBJECT;
  const still_json *text = still_json_first(object ? still_json_find(choices, "text") : choices);
  const still_json *label = object ? still_json_first(still_json_find(choices, "label")) : NULL;
  for (; text; text = still_json_next(text), label = still_json_next(label)) {
    if (still_json_type_of(text) == STILL_JSON_OBJECT)
      STILL_TRY(add_choice(s, still_json_find(text, "text"), still_json_find(text, "label")));
    else
      STILL_TRY(add_choice(s, text, label));
  }
  return STILL_OK;
}

static still_status read_shape(shape *s, const still_json *line) {
  const still_json *question = still_json_find(line, "question");
  s->answer = still_json_find(line, "answer");
  if (!s->answer) s->answer = still_json_find(line, "answerKey");
  if (!s->answer) s->answer = still_json_find(line, "label");
  if (still_json_find(line, "goal")) {
    STILL_TRY(add_choice(s, still_json_find(line, "sol1"), NULL));
    STILL_TRY(add_choice(s, still_json_find(line, "sol2"), NULL));
    return still_json_get_string(line, "goal", &s->question);
  }
  if (still_json_find(line, "endings")) {
    s->plain = true;
    STILL_TRY(read_choices(s, still_json_find(line, "endings")));
    return still_json_get_string(line, "ctx", &s->question);
  }
  if (still_json_find(line, "sentence")) {
    s->first = 1;
    STILL_TRY(add_choice(s, still_json_find(line, "option1"), NULL));
    STILL_TRY(add_choice(s, still_json_find(line, "option2"), NULL));
    return still_json_get_string(line, "sentence", &s->question);
  }
  if (still_json_type_of(question) == STILL_JSON_OBJECT) {
    STILL_TRY(read_choices(s, still_json_find(question, "choices")));
    return still_json_get_string(question, "stem", &s->question);
  }
  STILL_TRY(read_choices(s, still_json_find(line, "choices")));
  return still_json_get_string(line, "question", &s->question);
}

/* A number, a digit, a letter or one of the labels. */
static still_status find_answer(const shape *s, size_t *answer) {
  uint64_t number = 0;
  const char *text = NULL;
  if (still_json_type_of(s->answer) == STILL_JSON_STRING) {
    STILL_TRY(still_json_to_string(s->answer, "answer", &text));
    for (size_t i = 0; i < s->count; i++)
      if (s->labels[i] && !strcmp(s->labels[i], text)) {
        *answer = i;
        return STILL_OK;
      }
    const bool letter = *text >= 'A' && *text <= 'Z', digit = *text >= '0' && *text <= '9';
    number = letter ? (uint64_t)(*text - 'A' + s->first) : (uint64_t)(*text - '0');
    if ((!letter && !digit) || text[1])
      return still_fail(STILL_ERROR_FORMAT, "'answer' is '%.40s', must be an index or a letter",
                        text);
  } else {
    STILL_TRY(still_json_to_u64(s->answer, "answer", &number));
  }
  if (number < (uint64_t)s->first || number - (uint64_t)s->first >= s->count)
    return still_fail(STILL_ERROR_FORMAT, "'answer' is %llu, there are %zu choices",
                      (unsigned long long)number, s->count);
  *answer = (size_t)number - (size_t)s->first;
  return STILL_OK;
}

/* The sentence up to its gap with the choice in it; what is left is scored. */
static still_status fill_gap(still_choice_item *item, const shape *s, size_t i, const char *gap) {
  char *before;
  STILL_TRY(still_copy_string(&before, s->question));
  before[gap - s->question] = 0;
  still_status status = still_fill_in(
      &item->starts[i], "{before}{choice}",
      (const still_field[]){{"before", before}, {"choice", s->choices[i]}, {NULL, NULL}});
  still_free(before);
  return status ? status : still_copy_string(&item->ends[i], gap + 1);
}

static still_status make_item(still_choice_item *item, const shape *s) {
  const char *gap = s->plain ? NULL : strchr(s->question, '_');
  STILL_TRY(find_answer(s, &item->answer));
  for (; item->count < s->count; item->count++) {
    const size_t i = item->count;
    item->bytes[i] = strlen(s->choices[i]);
    if (gap) {
      STILL_TRY(fill_gap(item, s, i, gap));
      continue;
    }
    STILL_TRY(still_fill_in(&item->starts[i],
                            s->plain ? "{question}" : "Question: {question}\nAnswer:",
                            (const still_field[]){{"question", s->question}, {NULL, NULL}}));
    STILL_TRY(still_fill_in(&item->ends[i], " {choice}",
                            (const still_field[]){{"choice", s->choices[i]}, {NULL, NULL}}));
  }
  if (item->count > 1) return STILL_OK;
  return still_fail(STILL_ERROR_FORMAT, "%zu choices, must be 2 .. %d", item->count,
                    STILL_MOST_CHOICES);
}

static still_status add_line(void *user, const still_json *line) {
  still_choice_items *items = user;
  shape s = {0};
  if (items->count == items->room) {
    const size_t room = 2 * items->room + 64;
    STILL_TRY(STILL_REALLOC(&items->items, room, "questions"));
    items->room = room;
  }
  STILL_TRY(read_shape(&s, line));
  return make_item(&items->items[items->count++], &s);
}

still_status still_choice_items_read(still_choice_items *items, const char *path) {
  memset(items, 0, sizeof *items);
  const still_status status = still_json_lines(path, add_line, items);
  if (status) still_choice_items_free(items);
  return status;
}

void still_choice_items_free(still_choice_items *items) {
  for (size_t i = 0; i < items->count; i++)
    for (size_t k = 0; k < STILL_MOST_CHOICES; k++) {
      still_free(items->items[i].starts[k]);
      still_free(items->items[i].ends[k]);
    }
  still_free(items->items);
  memset(items, 0, sizeof *items);
}
