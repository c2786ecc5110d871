/* SPDX-License-Identifier: MIT */
#include "linearize/optimizer.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/threads.h"

#include <math.h>
#include <string.h>

static const double epsilon = 1e-8; /* Adam's */

bool still_optimizer_trains(const still_optimizer *o, const still_parameter *parameter) {
  return parameter->is_map ? o->maps : o->lora;
}

still_status still_optimizer_create(still_optimizer *o, still_student *student, bool maps,
                                    bool lora) {
  *o = (still_optimizer){.maps = maps, .lora = lora};
  o->parameters = still_student_parameters(student, &o->count);
  for (size_t i = 0; i < o->count; i++) {
    if (still_optimizer_trains(o, &o->parameters[i]))
      o->floats += o->parameters[i].count;
    else
      o->parameters[i].gradient = NULL; /* not wanted: saves its products */
  }
  if (!o->floats)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "training: this stage has nothing to train for these kinds of attention");
  STILL_TRY(STILL_ALLOC(&o->first, o->floats, "optimizer state"));
  return STILL_ALLOC(&o->second, o->floats, "optimizer state");
}

void still_optimizer_destroy(still_optimizer *o) {
  still_free(o->first), still_free(o->second);
  memset(o, 0, sizeof *o);
}

static double sum_of_squares(const float *values, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += (double)values[i] * values[i];
  return sum;
}

/* Of each parameter, those that are not trained aside. */
static void sum_squares(const still_optimizer *o, double *sums) {
  const still_progress *progress = still_progress_here();
  STILL_OMP(parallel for schedule(dynamic, 1))
  for (size_t i = 0; i < o->count; i++) {
    const still_parameter *p = &o->parameters[i];
    if (still_optimizer_trains(o, p) && !still_progress_stops(progress))
      sums[i] = sum_of_squares(p->gradient, p->count);
  }
}

still_status still_gradient_norm(const still_optimizer *o, double *norm) {
  double total = 0, *sums;
  STILL_TRY(STILL_ALLOC(&sums, o->count, "sums of gradients"));
  sum_squares(o, sums);
  still_status status = still_progress_add(0);
  for (size_t i = 0; !status && i < o->count; i++) {
    if (!isfinite(sums[i]))
      status =
          still_fail(STILL_ERROR_NUMERIC, "training: step %lld: the gradient of %s is not finite",
                     (long long)o->steps + 1, o->parameters[i].name);
    total += sums[i];
  }
  still_free(sums);
  *norm = sqrt(total);
  return status;
}

/* False where a value is not finite any more. */
static bool update(const still_optimizer *o, const still_parameter *p, float *first, float *second,
                   const still_step_options *options, double scale) {
  const double correct1 = 1 - pow(options->beta1, (double)o->steps);
  const double correct2 = 1 - pow(options->beta2, (double)o->steps);
  const double base = p->is_map ? options->map_rate : options->rate;
  const float rate = (float)(base / correct1), keep = (float)(1 - base * options->decay);
  const float beta1 = (float)options->beta1, beta2 = (float)options->beta2;
  const float root = (float)(1 / sqrt(correct2)), factor = (float)scale;
  int broken = 0;
  STILL_OMP(parallel for schedule(static) reduction(| : broken))
  for (size_t j = 0; j < p->count; j++) {
    const float g = p->gradient[j] * factor;
    first[j] = beta1 * first[j] + (1 - beta1) * g;
    second[j] = beta2 * second[j] + (1 - beta2) * g * g;
    p->value[j] = p->value[j] * keep - rate * first[j] / (sqrtf(second[j]) * root + (float)epsilon);
    broken |= !isfinite(p->value[j]);
  }
  return !broken;
}

still_status still_optimizer_step(still_optimizer *o, const still_step_options *options,
                                  double norm) {
  const double scale = options->clip > 0 && norm > options->clip ? options->clip / norm : 1;
  size_t at = 0;
  o->steps++;
  for (size_t i = 0; i < o->count; i++) {
    const still_parameter *p = &o->parameters[i];
    if (!still_optimizer_trains(o, p)) continue;
    const bool finite = update(o, p, o->first + at, o->second + at, options, scale);
    at += p->count;
    if (!finite)
      return still_fail(STILL_ERROR_NUMERIC, "training: step %lld: %s is not finite",
                        (long long)o->steps, p->name);
  }
  return STILL_OK;
}
