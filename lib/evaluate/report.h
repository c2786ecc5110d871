/* SPDX-License-Identifier: MIT
 * The grid of cells of a report: lengths, runs, tasks, depths, one within the other. */
#ifndef STILL_EVALUATE_REPORT_H
#define STILL_EVALUATE_REPORT_H

#include "base/status.h"

#include <still/evaluate.h>

/* What the grid spans; names are copied. depths 0: no grid of depths. */
typedef struct still_report_axes {
  const char *const *runs, *const *tasks;
  const int *lengths;
  size_t run_count, task_count, length_count;
  int depths;
} still_report_axes;

/* Cells without samples. */
still_status still_report_create(still_evaluation_report **report, const still_report_axes *axes);
/* The cell at numbers of the axes; depth_index -1 without a grid of depths. */
still_evaluation_cell *still_report_cell(still_evaluation_report *report, size_t length, size_t run,
                                         size_t task, int depth_index);
/* Works out the intervals once all samples are counted. */
void still_report_finish(still_evaluation_report *report);

#endif
