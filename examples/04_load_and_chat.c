/* SPDX-License-Identifier: MIT
 * Introduces: a model, a session, a sampler. Answers one message, piece by piece as it comes, with the chat
 * template of the model if it has one, and with STILL attention in every layer.
 *
 *   04_load_and_chat MODEL TEXT */
#include <still/model.h>

#include <stdio.h>
#include <string.h>

enum { ANSWER = 12 };

/* Returning 1 would end the answer here. */
static int print(void *user, const char *text, size_t bytes) {
  (void)user;
  fwrite(text, 1, bytes, stdout);
  fflush(stdout);
  return 0;
}

static still_status evaluate(still_session *session, const still_tokenizer *tokenizer,
                             const char *text) {
  still_message message = {"user", text};
  if (still_tokenizer_chat_family(tokenizer))
    return still_session_evaluate_chat(session, &message, 1, 0, NULL, NULL);
  return still_session_evaluate_text(session, text, strlen(text), STILL_TOKENIZE_ADD_BOS, NULL,
                                     NULL);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL TEXT\n", argv[0]);
    return 2;
  }
  still_model *model = NULL;
  still_session *session = NULL;
  still_sampler *sampler = NULL;
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  still_sampler_options choice = STILL_SAMPLER_OPTIONS_INIT;
  choice.temperature = 0.5f;
  choice.seed = 1;
  int code = 1;
  if (still_model_open(&model, argv[1], NULL) || still_session_create(&session, model, &options) ||
      still_sampler_create(&sampler, &choice) ||
      evaluate(session, still_model_tokenizer(model), argv[2]) ||
      still_session_generate(session, sampler, ANSWER, print, NULL, NULL))
    goto end;
  putchar('\n');
  code = 0;
end:
  if (code) fprintf(stderr, "%s\n", still_last_error());
  still_sampler_destroy(sampler);
  still_session_destroy(session);
  still_model_destroy(model);
  return code;
}
