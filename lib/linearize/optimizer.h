/* SPDX-License-Identifier: MIT
 * AdamW over a student's parameters (Loshchilov and Hutter), with clipping by the norm of all
 * gradients. */
#ifndef STILL_LINEARIZE_OPTIMIZER_H
#define STILL_LINEARIZE_OPTIMIZER_H

#include "linearize/student.h"

typedef struct still_optimizer {
  still_parameter *parameters;
  size_t count;
  float *first, *second; /* moments of all parameters that are trained, one after the other */
  size_t floats;
  bool maps, lora; /* which of them are trained */
  int64_t steps;   /* taken */
} still_optimizer;

typedef struct still_step_options {
  double rate, map_rate;
  double beta1, beta2, decay;
  double clip; /* <= 0: none */
} still_step_options;

still_status still_optimizer_create(still_optimizer *optimizer, still_student *student, bool maps,
                                    bool lora);
void still_optimizer_destroy(still_optimizer *optimizer);

/* Is this parameter trained here? */
bool still_optimizer_trains(const still_optimizer *optimizer, const still_parameter *parameter);

/* Norm of all gradients; NUMERIC names the step and the first tensor with a gradient that is not
 * finite. CANCELLED where the call's progress says stop. */
still_status still_gradient_norm(const still_optimizer *optimizer, double *norm);

/* One step, which nothing stops; norm as above. NUMERIC names a tensor that stopped being finite. */
still_status still_optimizer_step(still_optimizer *optimizer, const still_step_options *options,
                                  double norm);

#endif
