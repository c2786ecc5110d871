/* SPDX-License-Identifier: MIT
 * Tokenizers for the rooms above: from an open model file instead of a path. The rest of the
 * interface is in still/model.h. */
#ifndef STILL_TOKENIZER_TOKENIZER_H
#define STILL_TOKENIZER_TOKENIZER_H

#include "formats/gguf.h"

#include <still/model.h>

/* The vocabulary, special ids and chat template that a GGUF file holds. *tokenizer is NULL (and the
 * result OK) when the file has no vocabulary. The file may be closed afterwards. FORMAT,
 * UNSUPPORTED, MEMORY. */
still_status still_tokenizer_from_gguf(still_tokenizer **tokenizer, const still_gguf *gguf);

/* The same from a Hugging Face folder: tokenizer.json or tokenizer.model or vocab.json +
 * merges.txt, with tokenizer_config.json (special tokens, chat template), chat_template.jinja and
 * generation_config.json (ids that end an answer) where they are there. *tokenizer is NULL when the
 * folder has no vocabulary. */
still_status still_tokenizer_from_folder(still_tokenizer **tokenizer, const char *folder);

/* Puts all of that into the metadata of a GGUF file, for a model of `count` ids; ids without a token become "[PAD7]". What
 * GGUF has no key for is lost: white space beside added tokens, SentencePiece without a space after them. UNSUPPORTED: words
 * are cut in a way that has no name there. */
still_status still_tokenizer_put(still_gguf_writer *writer, const still_tokenizer *tokenizer,
                                 size_t count);

/* still_tokenize into an array of its own, freed with still_free. */
still_status still_tokenize_new(const still_tokenizer *tokenizer, const char *text, size_t bytes,
                                unsigned flags, still_token **ids, size_t *count);

#endif
