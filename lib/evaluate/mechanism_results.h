/* SPDX-License-Identifier: MIT
 * Measured heads and words in a file of results (results.h): one line for each run,
 *
 *   {"run": "still:256", "mechanism": {"tokens": 1024, "heads": [{"layer": 0, "head": 0, ...}, ...],
 *    "words": [{"token": 13, "kept": 80, "seen": 96, "word": "..."}, ...]}}
 */
#ifndef STILL_EVALUATE_MECHANISM_RESULTS_H
#define STILL_EVALUATE_MECHANISM_RESULTS_H

#include "evaluate/mechanism.h"
#include "evaluate/results.h"

still_status still_results_put_mechanism(still_results *results, const char *run,
                                         const still_mechanism *mechanism);

/* Such a line as heads and words, for a model of this tokenizer and this many heads; FORMAT. */
still_status still_mechanism_read(still_mechanism **mechanism, const still_json *line,
                                  const still_model *model);

#endif
