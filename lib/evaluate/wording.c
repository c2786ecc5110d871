/* SPDX-License-Identifier: MIT */
#include "evaluate/wording.h"

#include "base/memory.h"
#include "base/random.h"

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
    .tracking_example = "{intro}\n{text}\n{question}{answer}\n\n",
    .common_intro =
        "Here is a numbered list of words. Some of them occur more often than the rest. "
        "Remember the most frequent ones.",
    .common_question = "Question: Which 10 words are the most frequent in the list? Answer: The 10 "
                       "most frequent words in the list are:",
    .frequent_intro = "Here is a text in coded words. Watch how often each of them occurs, for a "
                      "question about the three most frequent ones comes after the text.",
    .frequent_question =
        "Question: Which three coded words are the most frequent in the text? The dots are no "
        "word. Answer: The three most frequent coded words in the text are:",
    .documents_intro = "Read these documents. A question about them comes at the end, to be "
                       "answered in a few words and without any explanation.",
    .documents_document = "Document {number}:\n{text}\n\n",
    .documents_question = "Answer in a few words, from the documents above and without any "
                          "explanation.\n\nQuestion: {question} Answer:",
    .babi_intro =
        {"Hidden in the following text are facts about where people are. Answer the question after "
         "the text from these facts alone. If somebody has been in several places, the last one "
         "counts. Answer in the form: Paul is in the attic.\n\n"
         "Example: Paul went to the cellar. Julia moved to the porch. Paul travelled to the attic. "
         "Question: Where is Paul? Answer: Paul is in the attic.\n",
         "Hidden in the following text are facts about people who move about and carry things. "
         "Answer the question after the text from these facts alone. What somebody carries comes "
         "along, what has been put down stays there. Answer in the form: The lamp is in the "
         "attic.\n\n"
         "Example: Paul went to the cellar. Paul took the lamp. Paul travelled to the attic. "
         "Question: Where is the lamp? Answer: The lamp is in the attic.\n",
         "Hidden in the following text are facts about people who move about and carry things. "
         "Answer the question after the text from these facts alone. What somebody carries comes "
         "along, what has been put down stays there. Answer in the form: Before the attic the lamp "
         "was in the cellar.\n\n"
         "Example: Paul went to the cellar. Paul took the lamp. Paul travelled to the attic. "
         "Question: Where was the lamp before the attic? Answer: Before the attic the lamp was in "
         "the cellar.\n",
         "Hidden in the following text are facts about which place lies in which direction of "
         "another. Answer the question after the text from these facts alone, with one word: the "
         "place.\n\n"
         "Example: The porch is south of the cellar. The attic is north of the cellar. Question: "
         "What is north of the cellar? Answer: attic\n",
         "Hidden in the following text are facts about people who pass things on to each other. "
         "Answer the question after the text from these facts alone, with one word.\n\n"
         "Example: Paul took the lamp. Paul handed the lamp to Julia. Question: Who received the "
         "lamp? Answer: Julia\n"},
    .babi_question = "Question: {question} Answer:",
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
    TEXT("tracking", "example", tracking_example),
    TEXT("common_words", "intro", common_intro),
    TEXT("common_words", "question", common_question),
    TEXT("frequent_words", "intro", frequent_intro),
    TEXT("frequent_words", "question", frequent_question),
    TEXT("documents", "intro", documents_intro),
    TEXT("documents", "document", documents_document),
    TEXT("documents", "question", documents_question),
    TEXT("babi", "intro1", babi_intro[0]),
    TEXT("babi", "intro2", babi_intro[1]),
    TEXT("babi", "intro3", babi_intro[2]),
    TEXT("babi", "intro4", babi_intro[3]),
    TEXT("babi", "intro5", babi_intro[4]),
    TEXT("babi", "question", babi_question),
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

/* A model that was trained on stories in its own wording is asked about bAbI's in the same. */
static void adopt_world(still_wording *w) {
  if (!still_json_find(w->templates, "world") || still_json_find(w->templates, "babi")) return;
  for (int i = 0; i < 5; i++) w->babi_intro[i] = w->world_intro;
  w->babi_question = w->world_question;
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
  adopt_world(w);
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

static uint64_t hash_words(uint64_t hash, const still_words *words) {
  for (size_t i = 0; i < words->count; i++) hash = still_hash_text(hash, words->items[i]);
  return hash;
}

uint64_t still_wording_hash(const still_wording *w) {
  uint64_t hash = hash_words(0, &w->keys);
  for (size_t i = 0; i < MEMBERS; i++) {
    const void *field = (const char *)w + members[i].offset;
    hash = members[i].list ? hash_words(hash, field)
                           : still_hash_text(hash, *(const char *const *)field);
  }
  return hash;
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

still_status still_append_text(char **text, const char *more) {
  const size_t had = *text ? strlen(*text) : 0, bytes = strlen(more) + 1;
  STILL_TRY(STILL_REALLOC(text, had + bytes, "a text"));
  memcpy(*text + had, more, bytes);
  return STILL_OK;
}
