/* SPDX-License-Identifier: MIT */
#include "evaluate/report.h"

#include "base/memory.h"

#include <stdbool.h>

struct still_evaluation_report {
  still_evaluation_cell *cells;
  size_t count;
  char **names; /* of runs, then of tasks */
  size_t name_count;
  size_t run_count, task_count;
  int depths; /* at least 1 */
};

/* Every length of every run of every task, whether or not it was asked: a file of some thousand lines can name 10^9. */
enum { MOST_CELLS = 1 << 22 };

static still_status count_cells(const still_report_axes *axes, size_t depths, size_t *cells) {
  if (still_mul_size(axes->length_count, axes->run_count, cells) &&
      still_mul_size(*cells, axes->task_count, cells) && still_mul_size(*cells, depths, cells) &&
      *cells <= MOST_CELLS)
    return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT,
                    "the evaluation has more than %d parts (runs x tasks x lengths x depths)",
                    MOST_CELLS);
}

static still_status copy_names(still_evaluation_report *report, const char *const *names,
                               size_t count) {
  for (size_t i = 0; i < count; i++, report->name_count++)
    STILL_TRY(still_copy_string(&report->names[report->name_count], names[i]));
  return STILL_OK;
}

static void fill_cells(still_evaluation_report *report, const still_report_axes *axes) {
  still_evaluation_cell *cell = report->cells;
  for (size_t l = 0; l < axes->length_count; l++)
    for (size_t r = 0; r < axes->run_count; r++)
      for (size_t t = 0; t < axes->task_count; t++)
        for (int d = 0; d < report->depths; d++, cell++) {
          cell->run = report->names[r];
          cell->task = report->names[axes->run_count + t];
          cell->length = axes->lengths[l];
          cell->depth = axes->depths ? (double)d / (axes->depths - 1) : -1;
        }
}

static still_status fill_report(still_evaluation_report *report, const still_report_axes *axes) {
  report->depths = axes->depths ? axes->depths : 1;
  report->run_count = axes->run_count;
  report->task_count = axes->task_count;
  STILL_TRY(count_cells(axes, (size_t)report->depths, &report->count));
  STILL_TRY(STILL_ALLOC(&report->cells, report->count, "a report"));
  STILL_TRY(STILL_ALLOC(&report->names, axes->run_count + axes->task_count, "a report"));
  STILL_TRY(copy_names(report, axes->runs, axes->run_count));
  STILL_TRY(copy_names(report, axes->tasks, axes->task_count));
  fill_cells(report, axes);
  return STILL_OK;
}

still_status still_report_create(still_evaluation_report **report, const still_report_axes *axes) {
  STILL_TRY(STILL_ALLOC(report, 1, "a report"));
  const still_status status = fill_report(*report, axes);
  if (!status) return STILL_OK;
  still_evaluation_report_destroy(*report);
  *report = NULL;
  return status;
}

still_evaluation_cell *still_report_cell(still_evaluation_report *report, size_t length, size_t run,
                                         size_t task, int depth_index) {
  const size_t place = (length * report->run_count + run) * report->task_count + task;
  const size_t depth = depth_index > 0 ? (size_t)depth_index : 0;
  return &report->cells[place * (size_t)report->depths + depth];
}

void still_report_finish(still_evaluation_report *report) {
  for (size_t i = 0; i < report->count; i++) {
    still_evaluation_cell *cell = &report->cells[i];
    still_wilson_interval(cell->right, cell->count, &cell->low, &cell->high);
  }
}

void still_evaluation_report_destroy(still_evaluation_report *report) {
  if (!report) return;
  for (size_t i = 0; i < report->name_count; i++) still_free(report->names[i]);
  still_free(report->names);
  still_free(report->cells);
  still_free(report);
}

const still_evaluation_cell *still_evaluation_report_cells(const still_evaluation_report *report,
                                                           size_t *count) {
  *count = report->count;
  return report->cells;
}
