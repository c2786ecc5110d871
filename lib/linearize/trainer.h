/* SPDX-License-Identifier: MIT
 * One training run: its state between steps, and what writes that state. */
#ifndef STILL_LINEARIZE_TRAINER_H
#define STILL_LINEARIZE_TRAINER_H

#include "base/progress.h"
#include "linearize/corpus.h"
#include "linearize/optimizer.h"

/* A line of the metrics. */
typedef struct metrics_row {
  int64_t step;
  uint64_t tokens;
  double seconds, rate, loss, norm, validation; /* validation NaN: none at this step */
} metrics_row;

typedef struct metrics_history {
  metrics_row *rows;
  size_t count, capacity;
} metrics_history;

still_status metrics_add(metrics_history *history, const metrics_row *row);
/* Reads a CSV as metrics_write wrote it, up to and with `last_step`. A missing file gives nothing.
 */
still_status metrics_read(metrics_history *history, const char *path, int64_t last_step);
still_status metrics_write(const metrics_history *history, const char *path);
/* An SVG of both losses over the steps. */
still_status metrics_draw(const metrics_history *history, const char *path, still_stage stage);

/* What a resumed run must know besides parameters and moments. */
typedef struct trainer_progress {
  int64_t step;
  uint64_t epoch, cursor; /* rows of this epoch's order that have been used */
  uint64_t tokens;
  double seconds; /* spent before this process */
  double plateau; /* factor of the rate */
  double best;    /* lowest validation loss so far, infinity before the first */
  int64_t stale;  /* validations since */
  double before;  /* validation loss at the start */
  uint64_t due;   /* 1: this step's validation was stopped and is still to be made */
} trainer_progress;

typedef struct trainer {
  still_training_options options; /* 0s resolved */
  const still_model_weights *weights;
  const still_training_data *data;
  still_attention_kind *kinds;
  still_student *student;
  still_optimizer optimizer;
  corpus_batch micro;
  size_t micro_tokens, micro_rows; /* the most of a micro-batch */
  size_t *order;                   /* of this epoch */
  size_t *step_rows;               /* rows of this step */
  size_t step_count, step_capacity;
  trainer_progress at;
  metrics_history history;
  double started, loop_started; /* clock */
  bool wrote_output, validating;
  bool stale; /* the student's matrices are not yet those of its parameters */
} trainer;

/* For calls that options.stop may end. */
still_progress trainer_stops(trainer *t);

/* training_state.c: all or nothing. */
still_status trainer_save(const trainer *t);
/* FORMAT where the state is of another model, data set, stage or shape. */
still_status trainer_load(trainer *t);

#endif
