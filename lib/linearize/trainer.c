/* SPDX-License-Identifier: MIT
 * The loop: pick rows, gradients by micro-batches, a step, now and then a validation and a save. */
#include "linearize/trainer.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "linearize/training_loop.h"

#include <math.h>
#include <string.h>
#include <time.h>

static const double least_progress =
    1e-3; /* a validation must be this much better, relatively, to count for PLATEAU */
static const double least_plateau = 1e-3; /* PLATEAU lowers the rate no further */
static const float least_factor = 1e-3f;  /* of LoLCATs' windows, which lie in (0, 1] */

double trainer_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double seconds_so_far(const trainer *t) {
  return t->at.seconds + trainer_clock() - t->started;
}

/* ---- rows ---- */

static size_t row_tokens(const still_training_data *data, size_t row) {
  return data->store.first[row + 1] - data->store.first[row];
}

/* The row that comes next, starting a new epoch where one ends. */
static size_t next_row(trainer *t) {
  if (t->at.cursor == t->data->training_rows) t->at.epoch++, t->at.cursor = 0;
  if (t->at.cursor == 0) corpus_shuffle(t->data, t->at.epoch, t->order);
  return t->order[t->at.cursor++];
}

/* Rows until a step's tokens are reached, the longest first, so that threads end together. */
static still_status pick_rows(trainer *t) {
  const size_t wanted = (size_t)t->options.batch * (size_t)t->data->options.length;
  size_t tokens = 0;
  t->step_count = 0;
  while (tokens < wanted) {
    if (t->step_count == t->step_capacity) {
      const size_t capacity = 2 * t->step_capacity + 64;
      STILL_TRY(STILL_REALLOC(&t->step_rows, capacity, "rows of a step"));
      t->step_capacity = capacity;
    }
    const size_t row = next_row(t);
    size_t i = t->step_count++;
    for (; i > 0 && row_tokens(t->data, t->step_rows[i - 1]) < row_tokens(t->data, row); i--)
      t->step_rows[i] = t->step_rows[i - 1];
    t->step_rows[i] = row;
    tokens += row_tokens(t->data, row);
  }
  return STILL_OK;
}

/* Each row's own budget: a hash of seed, step and row, so that a resumed run draws the same.
 * Validation rows keep theirs. */
static int budget_of(const trainer *t, size_t row) {
  if (!t->options.budget_count) return 0;
  const uint64_t step = t->validating ? 0 : (uint64_t)t->at.step;
  const uint64_t draw = still_hash64(still_hash64(t->options.seed ^ step << 32) ^ row);
  return t->options.budgets[draw % t->options.budget_count];
}

static double tokens_of(const still_training_data *data, const size_t *rows, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) sum += (double)row_tokens(data, rows[i]);
  return sum;
}

/* Fills the micro-batch with rows[*used ...] as far as they fit, and no more than its share of the
 * tokens that are left: a last micro-batch of one row would leave threads idle. */
static void fill_micro(trainer *t, const size_t *rows, size_t count, size_t *used) {
  const double left = tokens_of(t->data, rows + *used, count - *used);
  const double share = left / ceil(left / (double)t->micro_tokens);
  corpus_batch_clear(&t->micro);
  while (*used < count && t->micro.batch.sequences < t->micro_rows &&
         (double)t->micro.batch.tokens < share &&
         t->micro.batch.tokens + row_tokens(t->data, rows[*used]) <= t->micro_tokens) {
    corpus_batch_add(&t->micro, t->data, rows[*used], budget_of(t, rows[*used]));
    ++*used;
  }
}

/* ---- losses over a list of rows ---- */

static double weight_of(const still_training_data *data, const size_t *rows, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++)
    for (size_t t = data->store.first[rows[i]] + 1; t < data->store.first[rows[i] + 1]; t++)
      sum += data->store.weights[t];
  return sum;
}

/* Mean over layers of squared error / power. */
static double relative_error(const still_transfer_error *errors, size_t layers, double *each) {
  double sum = 0, count = 0;
  for (size_t i = 0; i < layers; i++) {
    const double error = errors[i].power > 0 ? errors[i].squared / errors[i].power : 0;
    if (each) each[i] = error;
    if (errors[i].elements > 0) sum += error, count++;
  }
  return count > 0 ? sum / count : 0;
}

static still_status transfer_rows(trainer *t, const size_t *rows, size_t count, bool gradients,
                                  double *loss, double *each) {
  const size_t layers = (size_t)t->weights->config.layers;
  const double all = tokens_of(t->data, rows, count);
  still_transfer_error *errors;
  STILL_TRY(STILL_ALLOC(&errors, layers, "layer errors"));
  still_status status = STILL_OK;
  for (size_t used = 0; !status && used < count;) {
    fill_micro(t, rows, count, &used);
    status = still_student_transfer(t->student, &t->micro.batch, gradients,
                                    (double)t->micro.batch.tokens / all, errors);
  }
  *loss = relative_error(errors, layers, each);
  still_free(errors);
  return status;
}

static still_status predict_rows(trainer *t, const size_t *rows, size_t count, bool gradients,
                                 double *loss) {
  const double all = weight_of(t->data, rows, count);
  double sum = 0, weight = 0;
  for (size_t used = 0; used < count;) {
    fill_micro(t, rows, count, &used);
    STILL_TRY(still_student_loss(t->student, &t->micro.batch, gradients, 1 / all, &sum, &weight));
  }
  *loss = sum / all;
  return STILL_OK;
}

static still_status loss_of(trainer *t, const size_t *rows, size_t count, bool gradients,
                            double *loss, double *each) {
  if (t->stale) STILL_TRY(still_student_refresh(t->student));
  t->stale = false;
  STILL_TRY(t->options.stage == STILL_STAGE_ATTENTION_TRANSFER
                ? transfer_rows(t, rows, count, gradients, loss, each)
                : predict_rows(t, rows, count, gradients, loss));
  if (!isfinite(*loss))
    return still_fail(STILL_ERROR_NUMERIC, "training: step %lld: the loss is not finite",
                      (long long)t->at.step + 1);
  return STILL_OK;
}

static int asks_to_stop(void *user, uint64_t done, uint64_t total) {
  const trainer *t = user;
  (void)done;
  (void)total;
  return t->options.stop(t->options.stop_user);
}

still_progress trainer_stops(trainer *t) {
  return (still_progress){
      .callback = t->options.stop ? asks_to_stop : NULL, .user = t, .what = "training"};
}

still_status trainer_validate(trainer *t, double *loss, double *each) {
  still_progress progress = trainer_stops(t);
  still_progress_begin(&progress);
  t->validating = true;
  const still_status status =
      loss_of(t, t->data->validation, t->data->validation_rows, false, loss, each);
  t->validating = false;
  still_progress_end(&progress);
  return status;
}

/* ---- rate ---- */

/* How much of the schedule is over, 0 .. 1: by steps, or by the clock where there are none. */
static double part_done(const trainer *t) {
  const double part = t->options.steps > 0 ? (double)t->at.step / (double)t->options.steps
                                           : seconds_so_far(t) / t->options.seconds;
  return part < 1 ? part : 1;
}

static double rate_factor(const trainer *t) {
  const double warm = t->options.warmup > 0 && t->at.step < t->options.warmup
                          ? (double)(t->at.step + 1) / t->options.warmup
                          : 1;
  switch (t->options.schedule) {
  case STILL_RATE_PLATEAU: return warm * t->at.plateau;
  case STILL_RATE_COSINE: return warm * 0.5 * (1 + cos(3.14159265358979323846 * part_done(t)));
  case STILL_RATE_LINEAR: return warm * (1 - part_done(t));
  default: return warm;
  }
}

/* ---- a step ---- */

/* LoLCATs' window factors stay in (0, 1]. */
static void clamp_factors(trainer *t) {
  for (size_t i = 0; i < t->optimizer.count; i++) {
    const still_parameter *p = &t->optimizer.parameters[i];
    const char *dot = strrchr(p->name, '.');
    if (!dot || strcmp(dot, ".window_factor")) continue;
    for (size_t j = 0; j < p->count; j++) p->value[j] = fminf(fmaxf(p->value[j], least_factor), 1);
  }
}

/* All of a step that changes no parameter. */
static still_status find_gradients(trainer *t, metrics_row *row) {
  still_progress progress = trainer_stops(t);
  still_progress_begin(&progress);
  still_student_clear_gradients(t->student);
  still_status status = loss_of(t, t->step_rows, t->step_count, true, &row->loss, NULL);
  if (!status) status = still_gradient_norm(&t->optimizer, &row->norm);
  still_progress_end(&progress);
  return status;
}

static still_status take_step(trainer *t, metrics_row *row) {
  const double factor = rate_factor(t);
  const still_step_options step = {factor * t->options.rate, factor * t->options.map_rate,
                                   t->options.beta1,         t->options.beta2,
                                   t->options.weight_decay,  t->options.clip};
  STILL_TRY(pick_rows(t));
  STILL_TRY(find_gradients(t, row));
  STILL_TRY(still_optimizer_step(&t->optimizer, &step, row->norm));
  clamp_factors(t);
  t->stale = true;
  t->at.step++;
  t->at.tokens += (uint64_t)tokens_of(t->data, t->step_rows, t->step_count);
  row->step = t->at.step, row->tokens = t->at.tokens;
  row->rate = t->options.stage == STILL_STAGE_ATTENTION_TRANSFER ? step.map_rate : step.rate;
  return STILL_OK;
}

/* ---- validation and output ---- */

static still_status write_adapter(trainer *t) {
  static const still_tensor_type types[] = {STILL_TENSOR_F32, STILL_TENSOR_F16, STILL_TENSOR_BF16};
  t->wrote_output = true;
  return still_adapter_write(still_student_adapter(t->student), t->options.output,
                             &t->weights->config, types[t->options.adapter_type]);
}

static still_status validate(trainer *t, metrics_row *row, double *each) {
  STILL_TRY(trainer_validate(t, &row->validation, each));
  const bool progress = row->validation < t->at.best * (1 - least_progress);
  if (row->validation < t->at.best) {
    t->at.best = row->validation;
    STILL_TRY(write_adapter(t));
  }
  t->at.stale = progress ? 0 : t->at.stale + 1;
  if (t->options.schedule == STILL_RATE_PLATEAU && t->at.stale > t->options.patience &&
      t->at.plateau > least_plateau) {
    t->at.plateau /= 10, t->at.stale = 0;
    still_log(STILL_LOG_INFO, "training: step %lld: the rate is lowered to %g of its start",
              (long long)t->at.step, t->at.plateau);
  }
  return STILL_OK;
}

/* State, metrics and picture, as far as asked for. The seconds of this process are part of the
 * state. */
static still_status save_all(trainer *t, bool picture) {
  if (t->options.state) {
    const double before = t->at.seconds, started = t->started;
    t->at.seconds = seconds_so_far(t), t->started = trainer_clock();
    const still_status status = trainer_save(t);
    if (status) {
      t->at.seconds = before, t->started = started;
      return status;
    }
  }
  if (t->options.metrics) STILL_TRY(metrics_write(&t->history, t->options.metrics));
  if (picture && t->options.curve)
    STILL_TRY(metrics_draw(&t->history, t->options.curve, t->options.stage));
  return STILL_OK;
}

static still_training_report report_of(const trainer *t, const metrics_row *row,
                                       uint64_t first_tokens) {
  const double here = trainer_clock() - t->loop_started;
  still_training_report r = {.stage = t->options.stage,
                             .step = row->step,
                             .steps = t->options.steps,
                             .tokens = row->tokens,
                             .loss = row->loss,
                             .validation = row->validation,
                             .rate = row->rate,
                             .gradient_norm = row->norm,
                             .seconds = row->seconds};
  r.tokens_per_second = here > 0 ? (double)(row->tokens - first_tokens) / here : 0;
  r.seconds_left = NAN;
  const double part = part_done(t);
  if (part > 0) r.seconds_left = row->seconds * (1 - part) / part;
  if (t->options.seconds > 0 && !(r.seconds_left <= t->options.seconds - row->seconds))
    r.seconds_left = fmax(t->options.seconds - row->seconds, 0);
  return r;
}

static bool is_over(const trainer *t) {
  return (t->options.steps > 0 && t->at.step >= t->options.steps) ||
         (t->options.seconds > 0 && seconds_so_far(t) >= t->options.seconds);
}

/* A step, or *stopped and everything that is saved as before it. */
static still_status step_or_none(trainer *t, metrics_row *row, bool *stopped) {
  const trainer_progress before = t->at;
  const still_status status = take_step(t, row);
  if (status != STILL_ERROR_CANCELLED) return status;
  t->at = before;
  *stopped = true;
  return STILL_OK;
}

/* A validation, or *stopped and a note that it is still due. */
static still_status validate_or_owe(trainer *t, metrics_row *row, double *each, bool *stopped) {
  const still_status status = validate(t, row, each);
  t->at.due = status == STILL_ERROR_CANCELLED;
  *stopped = t->at.due;
  return t->at.due ? STILL_OK : status;
}

still_status trainer_run(trainer *t, still_training_callback *callback, void *user, double *each) {
  const uint64_t first_tokens = t->at.tokens;
  metrics_row owed;
  bool stopped = false;
  t->loop_started = trainer_clock();
  if (t->at.due) STILL_TRY(validate_or_owe(t, &owed, each, &stopped));
  while (!stopped && !is_over(t)) {
    metrics_row row = {.validation = NAN};
    STILL_TRY(step_or_none(t, &row, &stopped));
    if (stopped) break;
    if (t->at.step % t->options.validate_every == 0 || is_over(t))
      STILL_TRY(validate_or_owe(t, &row, each, &stopped));
    row.seconds = seconds_so_far(t);
    STILL_TRY(metrics_add(&t->history, &row));
    const still_training_report report = report_of(t, &row, first_tokens);
    stopped = (callback && callback(user, &report)) || stopped;
    if (t->at.step % t->options.save_every == 0) STILL_TRY(save_all(t, false));
  }
  if (stopped && !t->at.step)
    return still_fail(STILL_ERROR_CANCELLED, "training: stopped within the first step");
  if (!t->wrote_output && !(t->at.best < INFINITY)) STILL_TRY(write_adapter(t));
  STILL_TRY(save_all(t, true));
  if (!stopped || (is_over(t) && !t->at.due)) return STILL_OK;
  const long long step = (long long)t->at.step, steps = (long long)t->options.steps;
  return steps ? still_fail(STILL_ERROR_CANCELLED, "training: stopped after step %lld of %lld",
                            step, steps)
               : still_fail(STILL_ERROR_CANCELLED, "training: stopped after step %lld", step);
}
