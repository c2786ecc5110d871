/* SPDX-License-Identifier: MIT
 * token_logits MODEL FILE BLOCK OUT: the logits after every token of the file's text, as floats one after the other,
 * under full attention with an f32 cache; BLOCK 1 reads token by token (decode), more as a prompt. For
 * compare-llama-cpp.py. */
#include <still/model.h>

#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 1 << 16 };

typedef struct sink {
  FILE *out;
  size_t vocabulary;
  int failed;
} sink;

static void write_row(void *user, size_t index, const float *logits) {
  sink *to = user;
  (void)index;
  if (fwrite(logits, sizeof *logits, to->vocabulary, to->out) != to->vocabulary) to->failed = 1;
}

static still_status write_logits(const char *path, const char *text, size_t bytes, size_t block,
                                 FILE *out) {
  still_model *model = NULL;
  still_session *session = NULL;
  static still_token ids[BYTES];
  size_t count = 0;
  const still_model_options model_options = STILL_MODEL_OPTIONS_INIT;
  still_status status = still_model_open(&model, path, &model_options);
  if (status) return status;
  const still_tokenizer *tokenizer = still_model_tokenizer(model);
  sink to = {out, (size_t)still_tokenizer_size(tokenizer), 0};
  status = still_tokenize(tokenizer, text, bytes, STILL_TOKENIZE_ADD_BOS, ids, BYTES, &count);
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.context = (int)count;
  if (!status) status = still_session_create(&session, model, &options);
  for (size_t i = 0; !status && i < count; i += block)
    status = still_session_evaluate_all(session, ids + i, count - i < block ? count - i : block,
                                        write_row, &to);
  still_session_destroy(session);
  still_model_destroy(model);
  return status ? status : to.failed ? STILL_ERROR_FILE : STILL_OK;
}

int main(int argc, char **argv) {
  static char text[BYTES];
  FILE *in = argc == 5 ? fopen(argv[2], "rb") : NULL, *out = in ? fopen(argv[4], "wb") : NULL;
  const long block = argc == 5 ? strtol(argv[3], NULL, 10) : 0;
  if (!out || block < 1) {
    fprintf(stderr, "usage: token_logits MODEL FILE BLOCK OUT\n");
    return 2;
  }
  const size_t bytes = fread(text, 1, sizeof text, in);
  const still_status status = write_logits(argv[1], text, bytes, (size_t)block, out);
  if (status) fprintf(stderr, "token_logits: %s\n", still_last_error());
  fclose(in);
  return fclose(out) || status ? 1 : 0;
}
