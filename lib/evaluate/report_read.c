/* SPDX-License-Identifier: MIT
 * Reports from files of results. */
#include "base/memory.h"
#include "evaluate/report.h"
#include "evaluate/results.h"

#include <stdlib.h>

static int by_size(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b; /* none is below 0 */
}

/* The different lengths of the records, the shortest first, into lengths, which has room for all. */
static size_t find_lengths(const still_results *results, int *lengths) {
  size_t count = 0;
  for (size_t i = 0; i < results->samples.count; i++) lengths[i] = results->records[i].length;
  qsort(lengths, results->samples.count, sizeof *lengths, by_size);
  for (size_t i = 0; i < results->samples.count; i++)
    if (!count || lengths[count - 1] != lengths[i]) lengths[count++] = lengths[i];
  return count;
}

static void count_records(const still_results *results, const int *lengths, size_t length_count,
                          still_evaluation_report *report) {
  for (size_t i = 0; i < results->samples.count; i++) {
    const still_record *r = &results->records[i];
    const int *length = bsearch(&r->length, lengths, length_count, sizeof *lengths, by_size);
    still_evaluation_cell *cell =
        still_report_cell(report, (size_t)(length - lengths), r->run, r->task, r->depth_index);
    cell->count++;
    cell->right += r->right;
  }
  still_report_finish(report);
}

static still_status report_records(const still_results *results, const char **names, int *lengths,
                                   still_evaluation_report **report) {
  still_report_axes axes = {.runs = names,
                            .run_count = results->runs.count,
                            .tasks = names + results->runs.count,
                            .task_count = results->tasks.count,
                            .lengths = lengths,
                            .length_count = find_lengths(results, lengths)};
  for (size_t i = 0; i < axes.run_count; i++) names[i] = still_name_table_get(&results->runs, i);
  for (size_t i = 0; i < axes.task_count; i++)
    names[axes.run_count + i] = still_name_table_get(&results->tasks, i);
  for (size_t i = 0; i < results->samples.count; i++)
    if (results->records[i].depth_index >= axes.depths)
      axes.depths = results->records[i].depth_index + 1;
  if (axes.depths == 1) axes.depths = 2; /* of a grid that has only begun */
  STILL_TRY(still_report_create(report, &axes));
  count_records(results, lengths, axes.length_count, *report);
  return STILL_OK;
}

still_status still_evaluation_report_read(const char *const *paths, size_t path_count,
                                          still_evaluation_report **report) {
  still_results results = {0};
  const char **names = NULL;
  int *lengths = NULL;
  still_status status = STILL_OK;
  *report = NULL;
  for (size_t i = 0; i < path_count && !status; i++)
    status = still_results_read(&results, paths[i]);
  if (!status && !results.samples.count)
    status = still_fail(STILL_ERROR_FORMAT, "%s: the results hold no sample",
                        path_count ? paths[0] : "no file");
  if (!status) status = STILL_ALLOC(&names, results.runs.count + results.tasks.count, "a report");
  if (!status) status = STILL_ALLOC(&lengths, results.samples.count, "a report");
  if (!status) status = report_records(&results, names, lengths, report);
  still_free(names);
  still_free(lengths);
  still_results_close(&results);
  return status;
}
