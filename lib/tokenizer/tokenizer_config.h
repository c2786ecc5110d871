/* SPDX-License-Identifier: MIT
 * The small files beside a Hugging Face tokenizer: special tokens, chat template, ids that end an
 * answer. */
#ifndef STILL_TOKENIZER_TOKENIZER_CONFIG_H
#define STILL_TOKENIZER_TOKENIZER_CONFIG_H

#include "tokenizer/tokenizer_build.h"

/* The file `name` in the folder of `path`, freed with still_free; NULL if there is none. */
still_status still_path_beside(char **out, const char *path, const char *name);

/* tokenizer_config.json beside path; NULL if there is none. */
still_status still_tokenizer_config_read(still_json **config, const char *path);

/* Once the tokens are set: bos and eos token, whether bos is put first, the chat template. config
 * may be NULL. Tokens that the vocabulary lacks are passed over. */
still_status still_tokenizer_config_apply(still_tokenizer *tokenizer, const still_json *config);

/* chat_template.jinja, and the ids that end an answer from generation_config.json and config.json,
 * beside path. */
still_status still_tokenizer_apply_beside(still_tokenizer *tokenizer, const char *path);

/* An entry of "added_tokens" or "added_tokens_decoder". */
still_status still_added_token_entry(const still_json *token, still_token_entry *entry);

#endif
