/* SPDX-License-Identifier: MIT
 * Running a trainer that linearize.c has set up. */
#ifndef STILL_LINEARIZE_TRAINING_LOOP_H
#define STILL_LINEARIZE_TRAINING_LOOP_H

#include "linearize/trainer.h"

/* Seconds of a clock that never jumps. */
double trainer_clock(void);

/* Loss of the validation rows; each (layers): stage 1's relative errors, NULL = not wanted. */
still_status trainer_validate(trainer *t, double *loss, double *each);

/* Steps until the end, the time limit or the callback's stop. each as above, of the last
 * validation. */
still_status trainer_run(trainer *t, still_training_callback *callback, void *user, double *each);

#endif
