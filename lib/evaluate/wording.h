/* SPDX-License-Identifier: MIT
 * What tasks say: sentences with fields, key words. */
#ifndef STILL_EVALUATE_WORDING_H
#define STILL_EVALUATE_WORDING_H

#include "formats/json.h"

/* A list of strings. */
typedef struct still_words {
  const char *const *items;
  size_t count;
} still_words;

/* The names are those of templates.json of the model needle. Strings are static or belong to the
 * documents. */
typedef struct still_wording {
  const char *intro_one, *intro_many;
  const char *needle, *question, *questions_values, *questions_queries;
  const char *tracking_intro, *tracking_first, *tracking_next, *tracking_question;
  const char *tracking_example; /* an answered one before the intro; "" for none */
  const char *common_intro, *common_question, *frequent_intro, *frequent_question;
  const char *documents_intro, *documents_document, *documents_question;
  const char *babi_intro[5], *babi_question;
  const char *world_intro, *world_question;
  const char *where, *before, *what_is, *what_of, *who_gave, *who_got, *what_given, *to_whom;
  still_words noise, people, places, things, directions, move, take, drop, give, lies, keys;
  still_json *templates, *key_list; /* what was read */
  void *lists;                      /* arrays of pointers into them */
} still_wording;

/* Paths may be NULL: the built-in ones. FILE, FORMAT. */
still_status still_wording_open(still_wording *wording, const char *templates, const char *keys);
void still_wording_close(still_wording *wording);
/* Of all that it says. */
uint64_t still_wording_hash(const still_wording *wording);

typedef struct still_field {
  const char *name, *text;
} still_field;

/* The template with each {name} replaced; fields end with a NULL name. *out is freed with
 * still_free. FORMAT: a name that is none of them. */
still_status still_fill_in(char **out, const char *text, const still_field *fields);
/* *text and more, one after the other, in place of *text (NULL: empty). */
still_status still_append_text(char **text, const char *more);

#endif
