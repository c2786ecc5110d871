/* SPDX-License-Identifier: MIT
 * Introduces: a model, a session, a sampler, a decoder. Answers one message, with the chat template of the
 * model if it has one, and with STILL attention in every layer.
 *
 *   04_load_and_chat MODEL TEXT */
#include <still/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER = 12 };

/* The ids of the prompt, freed by the caller; NULL on failure. */
static still_token *encode(const still_tokenizer *tokenizer, const char *text, size_t *count) {
  size_t capacity =
      strlen(text) + 64; /* no tokenizer makes more tokens than bytes, template aside */
  still_token *ids = malloc(capacity * sizeof *ids);
  still_message message = {"user", text};
  still_status status = still_tokenizer_chat_family(tokenizer)
                            ? still_format_chat(tokenizer, &message, 1, 0, 1, ids, capacity, count)
                            : still_tokenize(tokenizer, text, strlen(text), STILL_TOKENIZE_ADD_BOS,
                                             ids, capacity, count);
  if (!status && *count <= capacity) return ids;
  free(ids);
  return NULL;
}

static still_status answer(const still_model *model, still_session *session, still_sampler *sampler,
                           still_decoder *decoder) {
  const still_tokenizer *tokenizer = still_model_tokenizer(model);
  still_model_info info;
  still_model_get_info(model, &info);
  const char *text;
  size_t bytes;
  for (int i = 0; i < ANSWER; i++) {
    still_token token;
    still_status status = still_sampler_sample(sampler, still_session_logits(session),
                                               (size_t)info.vocabulary, &token);
    if (status || still_tokenizer_is_end(tokenizer, token)) return status;
    if ((status = still_decoder_push(decoder, token, &text, &bytes))) return status;
    fputs(text, stdout);
    if ((status = still_session_evaluate(session, &token, 1, NULL, NULL))) return status;
  }
  return STILL_OK;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL TEXT\n", argv[0]);
    return 2;
  }
  still_model *model = NULL;
  still_session *session = NULL;
  still_sampler *sampler = NULL;
  still_decoder *decoder = NULL;
  still_token *ids = NULL;
  size_t count = 0;
  int code = 1;

  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  still_sampler_options greedy = STILL_SAMPLER_OPTIONS_INIT;
  greedy.temperature = 0;
  if (still_model_open(&model, argv[1], NULL) || still_session_create(&session, model, &options) ||
      still_sampler_create(&sampler, &greedy) ||
      still_decoder_create(&decoder, still_model_tokenizer(model)))
    goto end;
  ids = encode(still_model_tokenizer(model), argv[2], &count);
  if (!ids || still_session_evaluate(session, ids, count, NULL, NULL)) goto end;
  if (answer(model, session, sampler, decoder)) goto end;
  putchar('\n');
  code = 0;
end:
  if (code) fprintf(stderr, "%s\n", still_last_error());
  free(ids);
  still_decoder_destroy(decoder);
  still_sampler_destroy(sampler);
  still_session_destroy(session);
  still_model_destroy(model);
  return code;
}
