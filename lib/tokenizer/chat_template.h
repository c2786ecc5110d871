/* SPDX-License-Identifier: MIT
 * Chat formats: recognised from the text of a model's (Jinja) chat template, written in C. */
#ifndef STILL_TOKENIZER_CHAT_TEMPLATE_H
#define STILL_TOKENIZER_CHAT_TEMPLATE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum still_chat_family {
  STILL_CHAT_NONE, /* the model has no template */
  STILL_CHAT_UNKNOWN,
  STILL_CHAT_LLAMA2,
  STILL_CHAT_LLAMA3,
  STILL_CHAT_MISTRAL,
  STILL_CHAT_CHATML
} still_chat_family;

/* Zeroed = no template. Texts are NULL or owned. */
typedef struct still_chat_template {
  still_chat_family family;
  bool bos;             /* the template puts a begin-of-sequence token first */
  bool dated;           /* LLAMA3: 3.1's lines with dates begin the system message */
  char *default_system; /* CHATML: the system message when there is none */
  char *open, *close;   /* MISTRAL: what stands before and after the user's text */
  bool space_answers;   /* MISTRAL: a space before the assistant's text, */
  bool space_ends;      /* and one after its end token */
  char *beginning;      /* UNKNOWN: the first characters, for the sentence */
  char *text;           /* the template itself */
} still_chat_template;

/* Recognises a template. MEMORY only. */
still_status still_chat_template_parse(still_chat_template *chat, const char *text, size_t bytes);
void still_chat_template_free(still_chat_template *chat);

#endif
