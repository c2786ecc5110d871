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
    STILL_TRY(still_session_evaluate(e->session, ids + at, shared - at, NULL, NULL));
    still_checkpoint_destroy(e->checkpoint);
    e->checkpoint = NULL;
    STILL_TRY(still_session_checkpoint(e->session, &e->checkpoint));
    e->held = at = shared;
  }
  return at < count ? still_session_evaluate(e->session, ids + at, count - at, NULL, NULL)
                    : STILL_OK;
}

void still_evaluator_free(still_evaluator *e) {
  still_checkpoint_destroy(e->checkpoint);
  still_session_destroy(e->session);
  memset(e, 0, sizeof *e);
}

/* ---- greedy answers */

typedef struct answer_check {
  const still_token *next; /* the tokens that should follow */
  int vocabulary;
  bool right;
} answer_check;

static void check_row(void *user, size_t index, const float *logits) {
  answer_check *check = user;
  if (still_most_likely(logits, check->vocabulary) != check->next[index]) check->right = false;
}

still_status still_evaluator_ask(still_evaluator *e, const still_sample *sample,
                                 const still_sample *next, bool *right) {
  const still_token *answer = sample->ids + sample->prompt;
  const size_t answer_count = sample->count - sample->prompt;
  size_t shared = 0;
  if (next)
    shared = still_common_tokens(sample->ids, next->ids,
                                 sample->prompt < next->prompt ? sample->prompt : next->prompt);
  STILL_TRY(still_evaluator_prompt(e, sample->ids, sample->prompt, shared));
  answer_check check = {answer + 1, e->vocabulary, true};
  *right = still_most_likely(still_session_logits(e->session), e->vocabulary) == answer[0];
  if (!*right || answer_count == 1) return STILL_OK;
  STILL_TRY(still_session_evaluate_all(e->session, answer, answer_count - 1, check_row, &check));
  *right = check.right;
  return STILL_OK;
}
