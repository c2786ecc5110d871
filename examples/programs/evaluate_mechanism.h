/* SPDX-License-Identifier: MIT
 * still-evaluate --mechanism: how heads choose, and whether their linear branch is used. */
#ifndef EVALUATE_MECHANISM_H
#define EVALUATE_MECHANISM_H

#include "evaluate_runs.h"

typedef struct mechanism_question {
  const char *text;
  size_t bytes;
  int length;          /* tokens */
  const char *results; /* file for every head and word; NULL: none */
  int resume;          /* runs that it has are not measured again */
  const char *command; /* for its head */
} mechanism_question;

/* Tables of every run on stdout; a run named "full" is the others' reference. An exit status. */
int evaluate_mechanism(const evaluate_runs *runs, const mechanism_question *question);

#endif
