/* SPDX-License-Identifier: MIT
 * Cuts text into the words within which byte-level BPE merges. */
#ifndef STILL_TOKENIZER_PRETOKENIZER_H
#define STILL_TOKENIZER_PRETOKENIZER_H

#include "formats/json.h"

typedef struct still_pretokenizer still_pretokenizer;

/* "gpt2", "smollm", "llama3", "qwen2", "tekken". UNSUPPORTED names the known ones. */
still_status still_pretokenizer_create(still_pretokenizer **pretokenizer, const char *name);
/* The name for what GGUF's tokenizer.ggml.pre says (several models share a pattern); NULL if
 * unknown. */
const char *still_pretokenizer_name_of_gguf(const char *pre, size_t length);
/* A name that tokenizer.ggml.pre has for it; NULL: none. */
const char *still_pretokenizer_gguf_name(const still_pretokenizer *pretokenizer);
/* Whether that name also says that a word which is a token is not merged. */
bool still_pretokenizer_keeps_words(const char *gguf_name);
/* From "pre_tokenizer" of a tokenizer.json: ByteLevel, Digits, Split by one of the known patterns,
 * and Sequences of these. UNSUPPORTED names what is none of them. */
still_status still_pretokenizer_from_json(still_pretokenizer **pretokenizer,
                                          const still_json *description);
void still_pretokenizer_destroy(still_pretokenizer *pretokenizer);

/* Matching state for one caller. */
typedef struct still_splitter still_splitter;
still_status still_splitter_create(still_splitter **splitter,
                                   const still_pretokenizer *pretokenizer);
void still_splitter_destroy(still_splitter *splitter);

/* Calls word for every piece of text, in order; together they are the text. A byte that is no part
 * of valid UTF-8 is a piece of its own. A failure of word ends it and is passed on. */
typedef still_status still_word_callback(void *user, const char *word, size_t bytes);
still_status still_split(still_splitter *splitter, const char *text, size_t bytes,
                         still_word_callback *word, void *user);

#endif
