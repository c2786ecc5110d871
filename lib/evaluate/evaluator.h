/* SPDX-License-Identifier: MIT
 * Asks a session, one sample after the other; what two samples begin with alike is evaluated
 * once. */
#ifndef STILL_EVALUATE_EVALUATOR_H
#define STILL_EVALUATE_EVALUATOR_H

#include "evaluate/tasks.h"

typedef struct still_evaluator {
  still_session *session;
  const still_tokenizer *tokenizer;
  int vocabulary;
  still_checkpoint *checkpoint; /* at `held` tokens, NULL: none */
  size_t held;
  still_progress_callback *progress; /* asked within prompts, for it may stop them; NULL: nobody */
  void *progress_user;
} still_evaluator;

/* Evaluates count tokens from an empty session, or from the checkpoint where they begin as it does.
 * At `shared` tokens (0: nowhere) a new checkpoint is made, for the sample that comes next. */
still_status still_evaluator_prompt(still_evaluator *evaluator, const still_token *ids,
                                    size_t count, size_t shared);
/* Tokens that two sequences begin with alike, at most most. */
size_t still_common_tokens(const still_token *a, const still_token *b, size_t most);

/* How a sample is answered. */
typedef struct still_answer {
  still_rule rule; /* in */
  size_t most;     /* in: tokens to generate; 0: the sample's own answer is looked for instead */
  double right;    /* out: the score; without generation 1 if greedy decoding gives the answer */
  char *text;      /* out: what was generated, freed with still_free; NULL without generation */
} still_answer;

/* next (NULL: none) is asked afterwards. */
still_status still_evaluator_ask(still_evaluator *evaluator, const still_sample *sample,
                                 const still_sample *next, still_answer *answer);
void still_evaluator_free(still_evaluator *evaluator);

#endif
