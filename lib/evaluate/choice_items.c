/* SPDX-License-Identifier: MIT */
#include "evaluate/choice_items.h"

#include "base/memory.h"
#include "evaluate/json_lines.h"
#include "evaluate/wording.h"

#include <ctype.h>
#include <string.h>

/* A line in any of the shapes that still/evaluate.h names, its strings the document's. */
typedef struct shape {
  const char *question, *subject;
  const char *choices[STILL_MOST_CHOICES], *labels[STILL_MOST_CHOICES];
  size_t count;
  const still_json *answer, *story; /* story: HellaSwag's line, whose texts are cleaned first */
  const char *gap;                  /* the question's "_" that a choice fills */
  int first;                        /* the number of the first choice */
} shape;

static still_status add_choice(shape *s, const still_json *text, const still_json *label) {
  if (s->count == STILL_MOST_CHOICES)
    return still_fail(STILL_ERROR_FORMAT, "more than %d choices", STILL_MOST_CHOICES);
  STILL_TRY(still_json_to_string(text, "choices", &s->choices[s->count]));
  if (still_is_blank(s->choices[s->count]))
    return still_fail(STILL_ERROR_FORMAT, "choice %zu is empty", s->count);
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
  if (!text) return still_fail(STILL_ERROR_FORMAT, "'choices' is no array of texts");
  for (; text; text = still_json_next(text), label = still_json_next(label)) {
    if (still_json_type_of(text) == STILL_JSON_OBJECT)
      STILL_TRY(add_choice(s, still_json_find(text, "text"), still_json_find(text, "label")));
    else
      STILL_TRY(add_choice(s, text, label));
  }
  return STILL_OK;
}

/* A text's only "_". */
static const char *only_gap(const char *text) {
  const char *gap = strchr(text, '_');
  return gap && !strchr(gap + 1, '_') ? gap : NULL;
}

/* That of a question, where a longer line of them is no gap, nor is an index (CO_{2}). */
static const char *question_gap(const char *text) {
  const char *gap = only_gap(text);
  return gap && gap > text && isalnum((unsigned char)gap[-1]) ? NULL : gap;
}

static still_status read_sentence(shape *s, const still_json *line) {
  s->first = 1;
  STILL_TRY(add_choice(s, still_json_find(line, "option1"), NULL));
  STILL_TRY(add_choice(s, still_json_find(line, "option2"), NULL));
  STILL_TRY(still_json_get_string(line, "sentence", &s->question));
  s->gap = only_gap(s->question);
  if (s->gap) return STILL_OK;
  return still_fail(STILL_ERROR_FORMAT, "'sentence' must have one gap, written '_'");
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
    s->story = line;
    return read_choices(s, still_json_find(line, "endings"));
  }
  if (still_json_find(line, "sentence")) return read_sentence(s, line);
  if (still_json_type_of(question) == STILL_JSON_OBJECT) {
    STILL_TRY(read_choices(s, still_json_find(question, "choices")));
    return still_json_get_string(question, "stem", &s->question);
  }
  STILL_TRY(read_choices(s, still_json_find(line, "choices")));
  STILL_TRY(still_json_optional_string(line, "subject", &s->subject));
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

/* ---- how choices follow the question: as lm-evaluation-harness has it */

/* text without white space at its ends; freed by the caller. */
static still_status stripped(const char *text, char **out) {
  size_t bytes = strlen(text);
  while (bytes && isspace((unsigned char)*text)) text++, bytes--;
  while (bytes && isspace((unsigned char)text[bytes - 1])) bytes--;
  STILL_TRY(still_alloc((void **)out, bytes + 1, 1, "a question"));
  memcpy(*out, text, bytes);
  return STILL_OK;
}

/* The sentence up to its gap with the choice in it; what is left is scored. */
static still_status fill_gap(still_choice_item *item, const shape *s, size_t i) {
  char *before, *after = NULL;
  STILL_TRY(still_copy_string(&before, s->question));
  before[s->gap - s->question] = 0;
  still_status status = still_fill_in(
      &item->starts[i], "{before}{choice}",
      (const still_field[]){{"before", before}, {"choice", s->choices[i]}, {NULL, NULL}});
  if (!status) status = stripped(s->gap + 1, &after);
  if (!status)
    status = still_fill_in(&item->ends[i], " {after}",
                           (const still_field[]){{"after", after}, {NULL, NULL}});
  still_free(before);
  still_free(after);
  return status;
}

/* After the question and a list of all choices with letters, the letter is scored (MMLU). */
static still_status put_letter(still_choice_item *item, const shape *s, size_t i) {
  char *question, letter[] = {' ', (char)('A' + i), 0};
  char **start = &item->starts[i];
  STILL_TRY(stripped(s->question, &question));
  still_status status = still_append_text(start, question);
  for (size_t k = 0; k < s->count && !status; k++) {
    const char option[] = {'\n', (char)('A' + k), '.', ' ', 0};
    status = still_append_text(start, option);
    if (!status) status = still_append_text(start, s->choices[k]);
  }
  if (!status) status = still_append_text(start, "\nAnswer:");
  if (!status) status = still_copy_string(&item->ends[i], letter);
  still_free(question);
  item->bytes[i] = 1;
  return status;
}

static still_status put_choice(still_choice_item *item, const char *start, const char *question,
                               const char *choice, size_t i) {
  item->bytes[i] = strlen(choice);
  STILL_TRY(still_fill_in(&item->starts[i], start,
                          (const still_field[]){{"question", question}, {NULL, NULL}}));
  return still_fill_in(&item->ends[i], " {choice}",
                       (const still_field[]){{"choice", choice}, {NULL, NULL}});
}

/* HellaSwag's texts: " [title]" ends a sentence, other marks in brackets go, two spaces become
 * one. */
static still_status clean(const char *text, char **out) {
  static const char title[] = " [title]";
  STILL_TRY(stripped(text, out));
  const char *from = *out;
  char *to = *out;
  while (*from) {
    const char *close = *from == '[' ? strchr(from, ']') : NULL;
    if (!strncmp(from, title, sizeof title - 1)) {
      *to++ = '.', *to++ = ' ';
      from += sizeof title - 1;
    } else if (close) {
      from = close + 1;
    } else {
      *to++ = *from++;
    }
  }
  *to = 0;
  for (from = *out, to = *out; *from; from++) {
    if (from[0] == ' ' && from[1] == ' ') from++;
    *to++ = *from;
  }
  *to = 0;
  return STILL_OK;
}

/* The first letter large, the others small, as Python's capitalize() has it (ASCII). */
static void capitalize(char *text) {
  for (size_t i = 0; text[i]; i++)
    text[i] = (char)(i ? tolower((unsigned char)text[i]) : toupper((unsigned char)text[i]));
}

/* "activity: ctx_a Ctx_b", or "ctx" where the line has no parts; cleaned. */
static still_status tell_story(const still_json *line, char **question) {
  const char *activity = NULL, *first = NULL, *second = "", *whole;
  char *after = NULL, *text = NULL;
  STILL_TRY(still_json_optional_string(line, "activity_label", &activity));
  STILL_TRY(still_json_optional_string(line, "ctx_a", &first));
  STILL_TRY(still_json_optional_string(line, "ctx_b", &second));
  if (!first) {
    STILL_TRY(still_json_get_string(line, "ctx", &whole));
    return clean(whole, question);
  }
  STILL_TRY(still_copy_string(&after, second));
  capitalize(after);
  still_status status =
      still_fill_in(&text, activity ? "{activity}: {first} {second}" : "{first} {second}",
                    (const still_field[]){
                        {"activity", activity}, {"first", first}, {"second", after}, {NULL, NULL}});
  if (!status) status = clean(text, question);
  still_free(after);
  still_free(text);
  return status;
}

static still_status put_ending(still_choice_item *item, const shape *s, size_t i) {
  char *question = NULL, *ending = NULL;
  still_status status = tell_story(s->story, &question);
  if (!status) status = clean(s->choices[i], &ending);
  if (!status) status = put_choice(item, "{question}", question, ending, i);
  still_free(question);
  still_free(ending);
  return status;
}

static still_status put_one(still_choice_item *item, const shape *s, bool letters, size_t i) {
  if (s->story) return put_ending(item, s, i);
  if (letters) return put_letter(item, s, i);
  item->bytes[i] = strlen(s->choices[i]);
  if (s->gap) return fill_gap(item, s, i);
  return put_choice(item, "Question: {question}\nAnswer:", s->question, s->choices[i], i);
}

static still_status make_item(still_choice_item *item, const shape *s, still_choice_format format) {
  const bool letters =
      format == STILL_CHOICES_LETTERS || (format == STILL_CHOICES_AS_FILE && s->subject);
  STILL_TRY(find_answer(s, &item->answer));
  if (letters && s->story)
    return still_fail(STILL_ERROR_FORMAT, "'endings' go on where the text ends, not with letters");
  if (letters && s->subject) STILL_TRY(still_copy_string(&item->subject, s->subject));
  for (; item->count < s->count; item->count++) STILL_TRY(put_one(item, s, letters, item->count));
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
  if (!s.story && !s.gap) s.gap = question_gap(s.question);
  return make_item(&items->items[items->count++], &s, items->format);
}

still_status still_choice_items_read(still_choice_items *items, const char *path,
                                     still_choice_format format) {
  *items = (still_choice_items){.format = format};
  const still_status status = still_json_lines(path, add_line, items);
  if (status) still_choice_items_free(items);
  return status;
}

void still_choice_items_free(still_choice_items *items) {
  for (size_t i = 0; i < items->count; i++) {
    still_free(items->items[i].subject);
    for (size_t k = 0; k < STILL_MOST_CHOICES; k++) {
      still_free(items->items[i].starts[k]);
      still_free(items->items[i].ends[k]);
    }
  }
  still_free(items->items);
  memset(items, 0, sizeof *items);
}
