/* SPDX-License-Identifier: MIT
 * Introduces: sessions on disk. What was read is saved, loaded into a new session (in another process, on
 * another day), and goes on bit for bit the same.
 *
 *   06_save_and_restore MODEL TEXT FILE */
#include <still/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s MODEL TEXT FILE\n", argv[0]);
    return 2;
  }
  still_model *model = NULL;
  still_session *first = NULL, *second = NULL;
  still_token *ids = NULL;
  size_t count, capacity = strlen(argv[2]) + 64;
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  int code = 1;
  if (still_model_open(&model, argv[1], NULL) || still_session_create(&first, model, &options) ||
      still_session_create(&second, model, &options))
    goto end;
  ids = malloc(capacity * sizeof *ids);
  if (!ids || still_tokenize(still_model_tokenizer(model), argv[2], strlen(argv[2]),
                             STILL_TOKENIZE_ADD_BOS, ids, capacity, &count))
    goto end;
  if (still_session_evaluate(first, ids, count, NULL, NULL) ||
      still_session_save(first, argv[3], NULL, NULL) ||
      still_session_load(second, argv[3], NULL, NULL))
    goto end;

  /* Both take the same next token. */
  still_token next = ids[count - 1];
  if (still_session_evaluate(first, &next, 1, NULL, NULL) ||
      still_session_evaluate(second, &next, 1, NULL, NULL))
    goto end;
  still_model_info info;
  still_model_get_info(model, &info);
  code = memcmp(still_session_logits(first), still_session_logits(second),
                (size_t)info.vocabulary * sizeof(float)) != 0;
  printf("%lld tokens restored; the next logits are %s\n",
         (long long)still_session_position(second), code ? "DIFFERENT" : "the same, bit for bit");
end:
  if (code) fprintf(stderr, "%s\n", still_last_error());
  free(ids);
  still_session_destroy(first);
  still_session_destroy(second);
  still_model_destroy(model);
  return code;
}
