/* SPDX-License-Identifier: MIT */
#include "evaluate/wording.h"

#include "base/memory.h"

#include <string.h>

#define WORDS(...)                                                                                 \
  {                                                                                                \
    (const char *const[]){__VA_ARGS__},                                                            \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)                          \
  }

static const still_wording built_in = {
    .intro_one = "A special magic {noun} is hidden in the following text. Remember it, for a "
                 "question about it comes after the text.",
    .intro_many = "Several special magic {nouns} are hidden in the following text. Remember them, "
                  "for a question about them comes after the text.",
    .needle = "One of the special magic {nouns} for {key} is: {value}.",
    .question = "What is the special magic {noun} for {key} mentioned in the provided text? The "
                "special magic {noun} for {key} mentioned in the provided text is",
    .questions_values =
        "What are all the special magic {nouns} for {key} mentioned in the provided text? The "
        "special magic {nouns} for {key} mentioned in the provided text are",
    .questions_queries =
        "What are all the special magic {nouns} for {key} mentioned in the provided text? The "
        "special magic {nouns} for {key} mentioned in the provided text are",
    .tracking_intro = "Keep track of the variables that are assigned in the following text.",
    .tracking_first = "VAR {name} = {source}.",
    .tracking_next = "VAR {name} = VAR {source}.",
    .tracking_question =
        "Which variables hold the value {value}? Following the assignments in the text above, the "
        "variables that hold the value {value} are",
    .world_intro = "The following text tells of people, places and things. Remember the facts and "
                   "answer the question after the text with one word.",
    .world_question = "Question: {question} Answer:",
    .where = "Where is {what}?",
    .before = "Where was the {thing} before the {place}?",
    .what_is = "What is {d} of the {b}?",
    .what_of = "What is the {a} {d} of?",
    .who_gave = "Who gave the {thing} away last?",
    .who_got = "Who got the {thing} last?",
    .what_given = "What did {a} last give to {b}?",
    .to_whom = "To whom did {a} last give the {thing}?",
    .noise = WORDS("The hills are quiet.", "The river is wide.", "The road is long.", "On we walk.",
                   "Up and down once more."),
    .people = WORDS("Anna", "Peter", "Martha", "Robert", "Clara", "Hugo", "Emma", "Lucas"),
    .places =
        WORDS("kitchen", "garden", "hallway", "bedroom", "bathroom", "office", "cellar", "library"),
    .things = WORDS("apple", "lamp", "letter", "basket", "football", "coat", "key", "cup"),
    .directions = WORDS("north", "south", "east", "west"),
    .move = WORDS("{who} went to the {place}.", "{who} moved to the {place}.",
                  "{who} walked to the {place}.", "{who} went back to the {place}."),
    .take = WORDS("{who} took the {thing}.", "{who} picked up the {thing}.",
                  "{who} got the {thing} there."),
    .drop = WORDS("{who} dropped the {thing}.", "{who} put down the {thing}.",
                  "{who} left the {thing} there."),
    .give = WORDS("{a} gave the {thing} to {b}.", "{a} handed the {thing} to {b}.",
                  "{a} passed the {thing} to {b}."),
    .lies = WORDS("The {a} is {d} of the {b}."),
    .keys = WORDS("anchor", "barley", "candle", "dragon", "engine", "feather", "glacier", "harvest",
                  "island", "jacket", "kettle", "lantern", "marble", "needle", "orchard", "pepper",
                  "quarry", "ribbon", "saddle", "temple", "umbrella", "velvet", "window", "yellow",
                  "zephyr", "bridge", "copper", "desert", "falcon", "garlic", "hammer", "ivory",
                  "jungle", "ladder", "mirror", "nutmeg", "oyster", "parrot", "quiver", "rocket",
                  "silver", "tunnel", "violin", "walnut", "beacon", "cradle", "donkey", "ember"),
};

/* Members of templates.json and where they go. */
typedef struct member {
  const char *object, *name;
  size_t offset;
  bool list;
} member;
#define TEXT(object, name, field)                                                                  \
  { object, name, offsetof(still_wording, field), false }
#define LIST(object, name, field)                                                                  \
  { object, name, offsetof(still_wording, field), true }
static const member members[] = {
    TEXT(NULL, "intro_one", intro_one),
    TEXT(NULL, "intro_many", intro_many),
    TEXT("needle", "needle", needle),
    TEXT("needle", "question", question),
    TEXT("needle", "questions_values", questions_values),
    TEXT("needle", "questions_queries", questions_queries),
    LIST(NULL, "noise", noise),
    TEXT("tracking", "intro", tracking_intro),
    TEXT("tracking", "first", tracking_first),
    TEXT("tracking", "next", tracking_next),
    TEXT("tracking", "question", tracking_question),
    TEXT("world", "intro", world_intro),
    TEXT("world", "question", world_question),
    LIST("world", "people", people),
    LIST("world", "places", places),
    LIST("world", "things", things),
    LIST("world", "directions", directions),
    LIST("world", "move", move),
    LIST("world", "take", take),
    LIST("world", "drop", drop),
    LIST("world", "give", give),
    LIST("world", "lies", lies),
    TEXT("world", "where", where),
    TEXT("world", "before", before),
    TEXT("world", "what_is", what_is),
    TEXT("world", "what_of", what_of),
    TEXT("world", "who_gave", who_gave),
    TEXT("world", "who_got", who_got),
    TEXT("world", "what_given", what_given),
    TEXT("world", "to_whom", to_whom),
};
enum { MEMBERS = sizeof members / sizeof *members };

/* Fills *words from an array of strings; the pointers go to *next, which moves behind them. */
static still_status read_words(still_words *words, const still_json *array, const char *what,
                               const char ***next) {
  const char **items = *next;
  size_t count = 0;
  for (const still_json *v = still_json_first(array); v; v = still_json_next(v))
    STILL_TRY(still_json_to_string(v, what, &items[count++]));
  if (!count) return still_fail(STILL_ERROR_FORMAT, "'%s' has no entries", what);
  *words = (still_words){items, count};
  *next += count;
  return STILL_OK;
}

static const still_json *find_member(const still_wording *w, const member *m) {
  const still_json *object = w->templates;
  if (m->object) object = still_json_find(object, m->object);
  return still_json_find(object, m->name);
}

static const still_json *key_array(const still_json *document) {
  const bool object = still_json_type_of(document) == STILL_JSON_OBJECT;
  return object ? still_json_find(document, "evaluation") : document;
}

static still_status read_members(still_wording *w, const char ***next) {
  for (size_t i = 0; i < MEMBERS; i++) {
    const member *m = &members[i];
    const still_json *value = find_member(w, m);
    void *field = (char *)w + m->offset;
    if (still_json_type_of(value) == STILL_JSON_NULL) continue;
    if (m->list)
      STILL_TRY(read_words(field, value, m->name, next));
    else
      STILL_TRY(still_json_to_string(value, m->name, (const char **)field));
  }
  return w->key_list ? read_words(&w->keys, key_array(w->key_list), "keys", next) : STILL_OK;
}

static still_status read_documents(still_wording *w) {
  size_t words = still_json_count(key_array(w->key_list));
  for (size_t i = 0; i < MEMBERS; i++)
    if (members[i].list) words += still_json_count(find_member(w, &members[i]));
  const char **next;
  STILL_TRY(STILL_ALLOC(&next, words + 1, "words of tasks"));
  w->lists = next;
  return read_members(w, &next);
}

still_status still_wording_open(still_wording *w, const char *templates, const char *keys) {
  *w = built_in;
  still_status status = STILL_OK;
  if (templates)
    STILL_TRY_GOTO(still_json_read(&w->templates, templates, STILL_JSON_FILE_LIMIT), failed);
  if (keys) STILL_TRY_GOTO(still_json_read(&w->key_list, keys, STILL_JSON_FILE_LIMIT), failed);
  status = read_documents(w);
  if (!status) return STILL_OK;
  still_fail_in(status, "%s%s%s", templates ? templates : "", templates && keys ? ", " : "",
                keys ? keys : "");
failed:
  still_wording_close(w);
  return status;
}

void still_wording_close(still_wording *w) {
  still_json_free(w->templates);
  still_json_free(w->key_list);
  still_free(w->lists);
  memset(w, 0, sizeof *w);
}

/* ---- fields */

static const still_field *find_field(const still_field *fields, const char *name, size_t length) {
  for (; fields->name; fields++)
    if (strlen(fields->name) == length && !memcmp(fields->name, name, length)) return fields;
  return NULL;
}

/* Writes to out (NULL: counts only); returns the length or SIZE_MAX for an unknown field. */
static size_t fill_in(char *out, const char *text, const still_field *fields) {
  size_t at = 0;
  while (*text) {
    const char *open = strchr(text, '{'), *close = open ? strchr(open, '}') : NULL;
    const size_t plain = close ? (size_t)(open - text) : strlen(text);
    if (out) memcpy(out + at, text, plain);
    at += plain;
    text += plain;
    if (!close) continue;
    const still_field *field = find_field(fields, open + 1, (size_t)(close - open - 1));
    if (!field) return SIZE_MAX;
    if (out) memcpy(out + at, field->text, strlen(field->text));
    at += strlen(field->text);
    text = close + 1;
  }
  return at;
}

still_status still_fill_in(char **out, const char *text, const still_field *fields) {
  const size_t length = fill_in(NULL, text, fields);
  *out = NULL;
  if (length == SIZE_MAX)
    return still_fail(STILL_ERROR_FORMAT, "template '%.80s' has a field that this task does not",
                      text);
  STILL_TRY(still_alloc((void **)out, length + 1, 1, "a sentence"));
  fill_in(*out, text, fields);
  return STILL_OK;
}
