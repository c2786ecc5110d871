/* SPDX-License-Identifier: MIT
 * The results file: JSON lines, a head and then one for each sample, from which a stopped
 * evaluation goes on.
 *
 *   {"still_evaluation": 1, "version": ..., "command": ..., "settings": ...,
 *    "runs": [{"run", "model", "hash"}]}
 *   {"run": "full", "task": "sniah1", "length": 4096, "depth_index": -1, "index": 0,
 *    "depth": 0.31, "right": 1, "seconds": 0.8}
 */
#ifndef STILL_EVALUATE_RESULTS_H
#define STILL_EVALUATE_RESULTS_H

#include "formats/name_table.h"

#include <stdio.h>
#include <still/evaluate.h>

typedef struct still_results {
  FILE *stream; /* NULL: no file, nothing is written */
  char *path;
  still_name_table done; /* samples that the file had */
  double *right, *depth; /* of these, by their number in `done` */
  size_t room;
} still_results;

typedef struct still_result {
  const char *run, *task;
  int length, depth_index, index; /* depth_index -1: no grid */
  double depth, right, seconds;
} still_result;

/* settings: whatever results must have in common to belong together, as text. ARGUMENT: the file
 * there is of other settings or models. FORMAT: a line that is damaged, with its number; the last
 * one may be cut off, it is dropped. */
still_status still_results_open(still_results *results, const still_evaluation_options *options,
                                const still_evaluation_run *runs, size_t run_count,
                                const char *settings);
void still_results_close(still_results *results);

/* Fills in depth and right of a sample that the file had. */
bool still_results_find(const still_results *results, still_result *result);
still_status still_results_put(still_results *results, const still_result *result);

#endif
