/* SPDX-License-Identifier: MIT */
#include "evaluate/evaluator.h"

#include "evaluate/distribution.h"

#include <string.h>

enum { WORTH_SHARING = 64 }; /* tokens: fewer are evaluated faster than restored */

size_t still_common_tokens(const still_token *a, const still_token *b, size_t most) {
  size_t count = 0;
  while (count < most && a[count] == b[count]) count++;
  return count;
}

static bool begins_as_held(const still_evaluator *e, const still_token *ids, size_t count) {
  return e->checkpoint && e->held <= count &&
         !memcmp(ids, still_session_tokens(e->session), e->held * sizeof *ids);
}

static still_status evaluate(still_evaluator *e, const still_token *ids, size_t count) {
  return still_session_evaluate(e->session, ids, count, e->progress, e->progress_user);
}

still_status still_evaluator_prompt(still_evaluator *e, const still_token *ids, size_t count,
                                    size_t shared) {
  size_t at = 0;
  if (begins_as_held(e, ids, count)) {
    STILL_TRY(still_session_rollback(e->session, e->checkpoint));
    at = e->held;
  } else {
    still_checkpoint_destroy(e->checkpoint);
    e->checkpoint = NULL;
    still_session_reset(e->session);
  }
  if (shared >= at + WORTH_SHARING && shared < count) {
    STILL_TRY(evaluate(e, ids + at, shared - at));
    still_checkpoint_destroy(e->checkpoint);
    e->checkpoint = NULL;
    STILL_TRY(still_session_checkpoint(e->session, &e->checkpoint));
    e->held = at = shared;
  }
  return at < count ? evaluate(e, ids + at, count - at) : STILL_OK;
}

void still_evaluator_free(still_evaluator *e) {
  still_checkpoint_destroy(e->checkpoint);
  still_session_destroy(e->session);
  memset(e, 0, sizeof *e);
}

/* ---- whether greedy decoding gives an answer: one evaluation of all its tokens */

typedef struct answer_check {
  const still_token *next; /* the tokens that should follow */
  int vocabulary;
  bool right;
} answer_check;

static void check_row(void *user, size_t index, const float *logits) {
  answer_check *check = user;
  if (still_most_likely(logits, check->vocabulary) != check->next[index]) check->right = false;
}

static still_status check_exactly(still_evaluator *e, const still_sample *sample, double *right) {
  const still_token *answer = sample->ids + sample->prompt;
  const size_t count = sample->count - sample->prompt;
  answer_check check = {answer + 1, e->vocabulary, true};
  *right = still_most_likely(still_session_logits(e->session), e->vocabulary) == answer[0];
  if (!*right || count == 1) return STILL_OK;
  STILL_TRY(still_session_evaluate_all(e->session, answer, count - 1, check_row, &check));
  *right = check.right;
  return STILL_OK;
}

/* ---- generated answers */

/* Up to `most` tokens, fewer once the model ends its answer or the score is final. */
static still_status generate(still_evaluator *e, const still_expectation *expected, size_t most,
                             still_decoder *decoder, char **text) {
  const char *piece;
  size_t bytes;
  for (size_t i = 0; i < most; i++) {
    const still_token token = still_most_likely(still_session_logits(e->session), e->vocabulary);
    if (still_tokenizer_is_end(e->tokenizer, token)) break;
    STILL_TRY(still_decoder_push(decoder, token, &piece, &bytes));
    STILL_TRY(still_append_text(text, piece));
    if (still_score_is_final(expected, *text) || i + 1 == most) break;
    STILL_TRY(still_session_evaluate(e->session, &token, 1, NULL, NULL));
  }
  STILL_TRY(still_decoder_flush(decoder, &piece, &bytes));
  return still_append_text(text, piece);
}

static still_status answer_freely(still_evaluator *e, const still_sample *sample,
                                  still_answer *answer) {
  const still_expectation expected = {.rule = answer->rule,
                                      .answers = (const char *const *)sample->answers,
                                      .answer_count = sample->answer_count,
                                      .others = (const char *const *)sample->others,
                                      .other_count = sample->other_count};
  still_decoder *decoder;
  STILL_TRY(still_decoder_create(&decoder, e->tokenizer));
  still_status status = still_append_text(&answer->text, "");
  if (!status) status = generate(e, &expected, answer->most, decoder, &answer->text);
  if (!status) answer->right = still_score(&expected, answer->text);
  still_decoder_destroy(decoder);
  return status;
}

still_status still_evaluator_ask(still_evaluator *e, const still_sample *sample,
                                 const still_sample *next, still_answer *answer) {
  size_t shared = 0;
  if (next)
    shared = still_common_tokens(sample->ids, next->ids,
                                 sample->prompt < next->prompt ? sample->prompt : next->prompt);
  STILL_TRY(still_evaluator_prompt(e, sample->ids, sample->prompt, shared));
  return answer->most ? answer_freely(e, sample, answer) : check_exactly(e, sample, &answer->right);
}
