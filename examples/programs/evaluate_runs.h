/* SPDX-License-Identifier: MIT
 * What still-evaluate compares: runs from their short form.
 *
 *   full,swa:256+sinks=4,still:256,still:256+metric=keynorm@a.safetensors,adapter:128@a.safetensors
 *
 * KIND[:N][+OPTION=VALUE]...[@ADAPTER]; N is still's budget and the window of the others. KIND
 * "adapter" takes the kind of each layer from the adapter. What is left out is as the program's
 * other flags say.
 */
#ifndef EVALUATE_RUNS_H
#define EVALUATE_RUNS_H

#include <still/evaluate.h>

typedef struct evaluate_runs {
  still_evaluation_run *items;
  size_t count;
  still_model **models; /* one for each adapter */
  char **adapters;      /* NULL: the base model alone */
  size_t model_count;
} evaluate_runs;

/* PROGRAM_DONE, PROGRAM_USAGE or PROGRAM_FAILED, said on stderr. Opens the models. */
int evaluate_runs_open(evaluate_runs *runs, const char *text);
void evaluate_runs_close(evaluate_runs *runs);

#endif
