/* SPDX-License-Identifier: MIT
 * Whether a generated text is a right answer, by the rules of the benchmarks' authors. */
#ifndef STILL_EVALUATE_SCORING_H
#define STILL_EVALUATE_SCORING_H

#include <stdbool.h>
#include <stddef.h>

typedef enum still_rule {
  STILL_RULE_ALL,  /* RULER: the share of the answers that the text holds */
  STILL_RULE_ANY,  /* RULER's questions: 1 if it holds one of them */
  STILL_RULE_LABEL /* BABILong: 1 if what stands before the first full stop holds the answer and no
                      other of the task's labels */
} still_rule;

/* Answers, and labels that must not be there (LABEL). A text "holds" what occurs anywhere in it,
 * capital letters or small (ASCII). */
typedef struct still_expectation {
  still_rule rule;
  const char *const *answers, *const *others;
  size_t answer_count, other_count;
} still_expectation;

/* 0 .. 1. */
double still_score(const still_expectation *expected, const char *text);
/* Whether nothing that may come after the text changes its score. */
bool still_score_is_final(const still_expectation *expected, const char *text);
/* The first place where text holds part, NULL: nowhere. */
const char *still_find_folded(const char *text, const char *part);

#endif
