/* SPDX-License-Identifier: MIT
 * The results file: JSON lines, a head and then one for each sample, from which a stopped
 * evaluation goes on and reports of several files are made.
 *
 *   {"still_evaluation": 1, "version": ..., "command": ..., "settings": ...,
 *    "runs": [{"run", "model", "hash", "adapter", "options", "device_layers"}]}
 * device_layers: how many layers ran on a device other than the CPU.
 *
 *   {"run": "full", "task": "sniah1", "length": 4096, "depth_index": -1, "index": 0,
 *    "depth": 0.31, "right": 1, "seconds": 0.8, "output": " 1234567."}
 *
 * Perplexity has lines of its own, a row each and then their sum:
 *
 *   {"run": "still", "language_row": 0, "tokens": 1023, "bytes": 4711, "nats": 2870.1,
 *    "agreed": 801, "divergences": [0.01, ...]}
 *   {"run": "still", "language": {...}}
 *
 * and so has the mechanism (mechanism_results.h).
 */
#ifndef STILL_EVALUATE_RESULTS_H
#define STILL_EVALUATE_RESULTS_H

#include "formats/json.h"
#include "formats/name_table.h"

#include <stdio.h>
#include <still/evaluate.h>

/* A sample that was read; run and task are numbers in the tables of names. */
typedef struct still_record {
  size_t run, task;
  int length, depth_index;
  double depth, right;
} still_record;

/* Zeroed = nothing read, nothing is written. */
typedef struct still_results {
  FILE *stream; /* NULL: no file */
  char *path;
  char *settings; /* what all heads have in common; NULL: no head was read */
  still_name_table runs, tasks;
  char **identities; /* of runs, by their numbers; NULL where no head named the run */
  size_t identity_room;
  still_name_table samples;
  still_record *records; /* of samples, by their numbers */
  size_t record_room;
} still_results;

typedef struct still_result {
  const char *run, *task;
  int length, depth_index, index; /* depth_index -1: no grid */
  double depth, right, seconds;
  const char *output;        /* NULL: none to tell */
  const double *likelihoods; /* of choices; NULL: none to tell */
  size_t likelihood_count;
} still_result;

/* What a run did on a row of a text. */
typedef struct still_language_row {
  size_t index, tokens, agreed;
  uint64_t bytes;
  double nats;              /* their sum */
  const float *divergences; /* of each token; NULL: no reference */
} still_language_row;

/* What a file of results is opened with. */
typedef struct still_results_plan {
  const char *path;     /* NULL: no file, nothing is written */
  int resume;           /* what is there is read and goes on, instead of being replaced */
  int append;           /* what is there stays, unread unless `line` is to have it */
  const char *command;  /* NULL: none */
  const char *settings; /* whatever results must have in common to belong together */
  const still_evaluation_run *runs;
  size_t run_count;
  /* For results of no task. With resume, it is given each line (not heads) below a head like the one
   * of this plan; other lines are passed over. No head is written where the last one is such,
   * or where *finished says (by `line`) that nothing will be added. */
  still_status (*line)(void *user, const still_json *line);
  void *user;
  const bool *finished; /* NULL: never */
} still_results_plan;

/* What tells texts apart in settings. */
uint64_t still_results_text_hash(const still_token *ids, size_t count);

/* ARGUMENT: the file there is of other settings or models. FORMAT: a line that is damaged, with its
 * number; the last one may be cut off, it is dropped. */
still_status still_results_open(still_results *results, const still_results_plan *plan);
void still_results_close(still_results *results);

/* Adds what another file holds, samples that occur twice once. Errors as above, FORMAT for a file
 * without a head. */
still_status still_results_read(still_results *results, const char *path);

/* Fills in depth and right of a sample that the file had. */
bool still_results_find(const still_results *results, still_result *result);
still_status still_results_put(still_results *results, const still_result *result);
still_status still_results_put_row(still_results *results, const char *run,
                                   const still_language_row *row);
still_status still_results_put_language(still_results *results, const char *run,
                                        const still_language_result *result);

#endif
