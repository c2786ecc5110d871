/* SPDX-License-Identifier: MIT
 * Introduces: checkpoints. A text is read once; each question starts from the checkpoint behind it, not
 * from the beginning.
 *
 *   05_checkpoint_and_roll_back MODEL TEXT QUESTION... */
#include <still/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static still_status read_text(still_session *session, const still_tokenizer *tokenizer,
                              const char *text, unsigned flags) {
  size_t count, capacity = strlen(text) + 64;
  still_token *ids = malloc(capacity * sizeof *ids);
  still_status status =
      ids ? still_tokenize(tokenizer, text, strlen(text), flags, ids, capacity, &count)
          : STILL_ERROR_MEMORY;
  if (!status) status = still_session_evaluate(session, ids, count, NULL, NULL);
  free(ids);
  return status;
}

/* The likeliest next token. */
static still_token best(const still_session *session, int vocabulary) {
  const float *logits = still_session_logits(session);
  still_token token = 0;
  for (int i = 1; i < vocabulary; i++)
    if (logits[i] > logits[token]) token = i;
  return token;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s MODEL TEXT QUESTION...\n", argv[0]);
    return 2;
  }
  still_model *model = NULL;
  still_session *session = NULL;
  still_checkpoint *after_text = NULL;
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  int code = 1;
  if (still_model_open(&model, argv[1], NULL) || still_session_create(&session, model, &options))
    goto end;
  const still_tokenizer *tokenizer = still_model_tokenizer(model);
  still_model_info info;
  still_model_get_info(model, &info);
  if (read_text(session, tokenizer, argv[2], STILL_TOKENIZE_ADD_BOS) ||
      still_session_checkpoint(session, &after_text))
    goto end;
  printf("the checkpoint after %lld tokens takes %zu bytes\n",
         (long long)still_session_position(session), still_checkpoint_bytes(after_text));
  for (int i = 3; i < argc; i++) {
    char piece[64] = "";
    if (read_text(session, tokenizer, argv[i], STILL_TOKENIZE_CONTINUE)) goto end;
    still_token token = best(session, info.vocabulary);
    size_t bytes = still_token_text(tokenizer, token, 0, piece, sizeof piece - 1);
    printf("%s ->%.*s\n", argv[i], (int)bytes, piece);
    if (still_session_rollback(session, after_text)) goto end;
  }
  code = 0;
end:
  if (code) fprintf(stderr, "%s\n", still_last_error());
  still_checkpoint_destroy(after_text);
  still_session_destroy(session);
  still_model_destroy(model);
  return code;
}
