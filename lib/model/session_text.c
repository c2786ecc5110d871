/* SPDX-License-Identifier: MIT
 * Text in, text out: tokenizer, sampler, decoder and session put together. */
#include "base/memory.h"
#include "model/session.h"

/* A session that speaks: what generate needs at each token. */
typedef struct speaker {
  still_session *session;
  const still_tokenizer *tokenizer;
  still_sampler *sampler;
  still_decoder *decoder;
  still_text_callback *callback;
  void *user;
} speaker;

static still_status find_tokenizer(const still_session *session,
                                   const still_tokenizer **tokenizer) {
  *tokenizer = still_model_tokenizer(session->model);
  if (*tokenizer) return STILL_OK;
  return still_fail(STILL_ERROR_UNSUPPORTED,
                    "the model's files hold no vocabulary, which text needs");
}

still_status still_session_evaluate_text(still_session *session, const char *text, size_t bytes,
                                         unsigned flags, still_progress_callback *progress,
                                         void *progress_user) {
  const still_tokenizer *tokenizer;
  still_token *ids;
  size_t count;
  STILL_TRY(find_tokenizer(session, &tokenizer));
  STILL_TRY(still_tokenize(tokenizer, text, bytes, flags, NULL, 0, &count));
  if (!count) return STILL_OK;
  STILL_TRY(STILL_ALLOC(&ids, count, "tokens of a text"));
  still_status status = still_tokenize(tokenizer, text, bytes, flags, ids, count, &count);
  if (!status) status = still_session_evaluate(session, ids, count, progress, progress_user);
  still_free(ids);
  return status;
}

/* What is missing of the answer that the session ends with: its end token, where it was cut; -1 = nothing. */
static still_token missing_end(const still_session *session, const still_tokenizer *tokenizer) {
  const int64_t count = still_session_position(session) - still_session_first_token(session);
  if (!count || still_tokenizer_is_end(tokenizer, still_session_tokens(session)[count - 1]))
    return -1;
  return still_tokenizer_eos(tokenizer);
}

still_status still_session_evaluate_chat(still_session *session, const still_message *messages,
                                         size_t message_count, size_t first,
                                         still_progress_callback *progress, void *progress_user) {
  const still_tokenizer *tokenizer;
  still_token *ids;
  size_t count;
  STILL_TRY(find_tokenizer(session, &tokenizer));
  STILL_TRY(still_format_chat(tokenizer, messages, message_count, first, 1, NULL, 0, &count));
  const still_token end = first ? missing_end(session, tokenizer) : -1;
  const size_t more = end >= 0;
  STILL_TRY(STILL_ALLOC(&ids, count + more, "tokens of a chat"));
  if (more) ids[0] = end;
  still_status status =
      still_format_chat(tokenizer, messages, message_count, first, 1, ids + more, count, &count);
  if (!status) status = still_session_evaluate(session, ids, count + more, progress, progress_user);
  still_free(ids);
  return status;
}

static int hand_on(const speaker *s, const char *text, size_t bytes) {
  return bytes && s->callback && s->callback(s->user, text, bytes);
}

/* The next token; *end: the answer ends with it. */
static still_status say_token(const speaker *s, int64_t *said, bool *end) {
  const size_t vocabulary = (size_t)s->session->model->weights->config.vocabulary;
  still_token token;
  const char *text = "";
  size_t bytes = 0;
  STILL_TRY(still_sampler_sample(s->sampler, still_session_logits(s->session), vocabulary, &token));
  STILL_TRY(still_session_evaluate(s->session, &token, 1, NULL, NULL));
  *end = still_tokenizer_is_end(s->tokenizer, token);
  if (*end) return STILL_OK;
  ++*said;
  STILL_TRY(still_decoder_push(s->decoder, token, &text, &bytes));
  *end = hand_on(s, text, bytes);
  return STILL_OK;
}

static still_status say_all(const speaker *s, int64_t most, int64_t *said) {
  bool end = false;
  const char *text;
  size_t bytes;
  while (!end && (most < 0 || *said < most)) STILL_TRY(say_token(s, said, &end));
  STILL_TRY(still_decoder_flush(s->decoder, &text, &bytes));
  hand_on(s, text, bytes);
  return STILL_OK;
}

still_status still_session_generate(still_session *session, still_sampler *sampler, int64_t most,
                                    still_text_callback *callback, void *user, int64_t *said) {
  still_sampler_options greedy = STILL_SAMPLER_OPTIONS_INIT;
  greedy.temperature = 0;
  still_sampler *own = NULL;
  int64_t count = 0;
  speaker s = {.session = session, .callback = callback, .user = user};
  STILL_TRY(find_tokenizer(session, &s.tokenizer));
  if (!still_session_logits(session))
    return still_fail(STILL_ERROR_ARGUMENT,
                      "still_session_generate: nothing has been evaluated yet, so nothing follows");
  still_status status = still_decoder_create(&s.decoder, s.tokenizer);
  if (!status && !sampler) status = still_sampler_create(&own, &greedy);
  s.sampler = sampler ? sampler : own;
  if (!status) status = say_all(&s, most, &count);
  if (said) *said = count;
  still_sampler_destroy(own);
  still_decoder_destroy(s.decoder);
  return status;
}
