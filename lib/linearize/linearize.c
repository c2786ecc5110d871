/* SPDX-License-Identifier: MIT
 * still_train: checks, sets a trainer up, runs it. */
#include <still/linearize.h>

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads.h"
#include "linearize/training_loop.h"
#include "model/session.h"

#include <math.h>
#include <string.h>

enum { DEFAULT_MICRO_TOKENS = 8192, MOST_BATCH = 65536, MOST_RANK = 1024 };
/* The paper's, for 0. */
static const float stage_rates[] = {0, 1e-2f, 1e-4f};
static const float stage_clips[] = {0, 0, 1};

/* ---- checks ---- */

static still_status check_range(const char *name, double value, double low, double high) {
  if (!(value >= low && value <= high))
    return still_fail(STILL_ERROR_ARGUMENT, "training: %s is %g, must be %g .. %g", name, value,
                      low, high);
  return STILL_OK;
}

static still_status check_numbers(const still_training_options *o) {
  STILL_TRY(check_range("stage", (double)o->stage, 1, 2));
  STILL_TRY(check_range("steps", (double)o->steps, 0, 1e12));
  STILL_TRY(check_range("seconds", o->seconds, 0, 1e9));
  STILL_TRY(check_range("batch", o->batch, 1, MOST_BATCH));
  STILL_TRY(check_range("rate", (double)o->rate, 0, 10));
  STILL_TRY(check_range("map_rate", (double)o->map_rate, 0, 10));
  STILL_TRY(check_range("schedule", (double)o->schedule, 0, STILL_RATE_LINEAR));
  STILL_TRY(check_range("warmup", o->warmup, 0, 1e9));
  STILL_TRY(check_range("weight_decay", (double)o->weight_decay, 0, 10));
  STILL_TRY(check_range("beta1", (double)o->beta1, 0, 0.999999));
  STILL_TRY(check_range("beta2", (double)o->beta2, 0, 0.999999));
  STILL_TRY(check_range("lora_rank", o->lora_rank, 1, MOST_RANK));
  STILL_TRY(check_range("lora_alpha", (double)o->lora_alpha, 1e-3, 1e4));
  STILL_TRY(check_range("validate_every", o->validate_every, 1, 1e9));
  STILL_TRY(check_range("patience", o->patience, 0, 1e9));
  STILL_TRY(check_range("save_every", o->save_every, 1, 1e9));
  STILL_TRY(check_range("micro_tokens", o->micro_tokens, 0, 1 << 24));
  STILL_TRY(check_range("adapter_type", (double)o->adapter_type, 0, STILL_BF16));
  if (!o->steps && !(o->seconds > 0))
    return still_fail(STILL_ERROR_ARGUMENT,
                      "training: neither steps nor seconds say when to stop; one must be above 0");
  return STILL_OK;
}

static still_status check_writable(const char *path) {
  still_output probe;
  if (!path) return STILL_OK;
  STILL_TRY(still_output_open(&probe, path));
  still_output_abandon(&probe);
  return STILL_OK;
}

static still_status check_outputs(const still_training_options *o) {
  if (!o->output) return still_fail(STILL_ERROR_ARGUMENT, "training: no output was named");
  if (o->resume && !o->state)
    return still_fail(STILL_ERROR_ARGUMENT, "training: resume needs a state file");
  STILL_TRY(check_writable(o->output));
  STILL_TRY(check_writable(o->state));
  STILL_TRY(check_writable(o->metrics));
  return check_writable(o->curve);
}

static bool has_still_layer(const trainer *t) {
  for (int i = 0; i < t->weights->config.layers; i++)
    if (t->kinds[i] == STILL_ATTENTION_STILL) return true;
  return false;
}

/* The operator's own checks, with each budget. */
static still_status check_attention(const trainer *t, int budget) {
  still_attention_options options = t->options.attention;
  still_attention_plan *plan = NULL;
  options.kind = has_still_layer(t) ? STILL_ATTENTION_STILL : STILL_ATTENTION_SWA;
  options.heads = t->weights->config.heads, options.kv_heads = t->weights->config.kv_heads;
  options.head_dim = t->weights->config.head_dim;
  if (budget) options.budget = options.window = budget;
  if (!options.context) options.context = (int)t->data->longest;
  const still_status status = still_attention_plan_create(&plan, &options, NULL);
  still_attention_plan_destroy(plan);
  return status ? still_fail_in(status, "training") : STILL_OK;
}

/* Tokens at the end of a row's sight that a layer of this kind attends to exactly: the linear branch
 * learns from rows that are longer. */
static size_t exact_tokens(const still_training_options *o, still_attention_kind kind) {
  size_t window = (size_t)o->attention.window;
  for (size_t i = 0; i < o->budget_count; i++)
    if (!i || (size_t)o->budgets[i] < window) window = (size_t)o->budgets[i];
  return kind == STILL_ATTENTION_STILL     ? 2 * (size_t)o->attention.chunk
         : kind == STILL_ATTENTION_LOLCATS ? window
                                           : 0;
}

/* Attention transfer learns nothing from rows that softmax attention covers. */
static still_status check_rows(const trainer *t) {
  const size_t *first = t->data->store.first, rows = t->data->store.rows;
  size_t exact = SIZE_MAX, longer = 0;
  if (t->options.stage != STILL_STAGE_ATTENTION_TRANSFER) return STILL_OK;
  for (int i = 0; i < t->weights->config.layers; i++)
    if (t->kinds[i] != STILL_ATTENTION_FULL && t->kinds[i] != STILL_ATTENTION_SWA)
      exact = still_smaller(exact, exact_tokens(&t->options, t->kinds[i]));
  for (size_t i = 0; i < rows; i++) longer += first[i + 1] - first[i] > exact;
  if (!longer)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "training: no row is longer than the %zu tokens that are attended to exactly "
                      "(the longest has %zu): attention transfer has nothing to learn from; give "
                      "longer rows or a smaller chunk or window",
                      exact, t->data->longest);
  if (longer < rows)
    still_log(longer < rows / 2 ? STILL_LOG_WARNING : STILL_LOG_INFO,
              "training: %zu of %zu rows are no longer than the %zu tokens that are attended to "
              "exactly: attention transfer learns nothing from them",
              rows - longer, rows, exact);
  return STILL_OK;
}

/* ---- set-up ---- */

static void resolve(still_training_options *o, const still_training_data *data) {
  const size_t longest = data->longest; /* and the most that a step can hold: */
  const size_t step = (size_t)o->batch * (size_t)data->options.length + longest;
  if (!(o->rate > 0)) o->rate = stage_rates[o->stage];
  if (!(o->map_rate > 0)) o->map_rate = o->rate;
  if (!(o->clip > 0) && !(o->clip < 0)) o->clip = stage_clips[o->stage];
  if (!o->micro_tokens) o->micro_tokens = DEFAULT_MICRO_TOKENS;
  if ((size_t)o->micro_tokens > step) o->micro_tokens = (int)step;
  if ((size_t)o->micro_tokens < longest) o->micro_tokens = (int)longest;
  o->threads = still_resolve_threads(o->threads);
}

/* An option that was changed from its default, to something else than the adapter's. */
static still_status contradicts(const trainer *t, const char *what, int asked, int usual, int has) {
  if (asked == usual || asked == has) return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT,
                    "training: %s was made with another %s, which stands: leave the option out, or "
                    "start without an adapter",
                    t->options.adapter, what);
}

static still_status check_kinds(const trainer *t, const still_adapter *adapter) {
  const still_attention_kind kind = t->options.attention.kind;
  if (!t->options.layer_kinds && kind == STILL_ATTENTION_STILL) return STILL_OK;
  for (int i = 0; i < adapter->layer_count; i++)
    if (t->kinds[i] != adapter->layers[i].kind)
      return still_fail(STILL_ERROR_ARGUMENT,
                        "training: layer %d is %s in %s, which stands: %s is asked for", i,
                        still_attention_kind_name(adapter->layers[i].kind), t->options.adapter,
                        still_attention_kind_name(t->kinds[i]));
  return STILL_OK;
}

/* With an adapter: what it is made for stands, what this run varies (budget, schedule, context) is
 * the options'. */
static still_status follow_adapter(trainer *t, const still_adapter *adapter) {
  still_attention_options *o = &t->options.attention;
  const still_attention_options *a = &adapter->attention;
  const still_attention_options usual =
      ((still_training_options)STILL_TRAINING_OPTIONS_INIT).attention;
  if (!adapter->has_attention) return STILL_OK;
  STILL_TRY(check_kinds(t, adapter));
  STILL_TRY(contradicts(t, "chunk", o->chunk, usual.chunk, a->chunk));
  STILL_TRY(contradicts(t, "feature map", o->feature_map, usual.feature_map, a->feature_map));
  STILL_TRY(contradicts(t, "metric", o->metric, usual.metric, a->metric));
  STILL_TRY(contradicts(t, "routing", o->routing, usual.routing, a->routing));
  STILL_TRY(contradicts(t, "window", o->window, usual.window, a->window));
  STILL_TRY(contradicts(t, "sinks", o->sinks, usual.sinks, a->sinks));
  for (int i = 0; i < adapter->layer_count; i++) t->kinds[i] = adapter->layers[i].kind;
  o->chunk = a->chunk, o->feature_map = a->feature_map, o->metric = a->metric;
  o->routing = a->routing, o->window = a->window, o->sinks = a->sinks;
  return STILL_OK;
}

static still_status choose_kinds(trainer *t) {
  const int layers = t->weights->config.layers;
  STILL_TRY(STILL_ALLOC(&t->kinds, (size_t)layers, "layer kinds"));
  for (int i = 0; i < layers; i++) t->kinds[i] = t->options.attention.kind;
  return t->options.layer_kinds ? still_parse_layer_kinds(t->options.layer_kinds, t->kinds, layers)
                                : STILL_OK;
}

static still_status read_adapter(trainer *t, still_adapter **adapter) {
  *adapter = NULL;
  if (!t->options.adapter) return STILL_OK;
  STILL_TRY(still_adapter_read(adapter, t->options.adapter, &t->weights->config));
  if (!(*adapter)->base_hash || (*adapter)->base_hash == t->weights->hash) return STILL_OK;
  const still_status status =
      still_fail(STILL_ERROR_FORMAT,
                 "%s: it was made for another base model: hash %016llx, this one has %016llx",
                 t->options.adapter, (unsigned long long)(*adapter)->base_hash,
                 (unsigned long long)t->weights->hash);
  still_adapter_destroy(*adapter);
  return status;
}

static still_status make_student(trainer *t) {
  still_adapter *adapter;
  STILL_TRY(read_adapter(t, &adapter));
  const still_status follows = adapter ? follow_adapter(t, adapter) : STILL_OK;
  if (follows) {
    still_adapter_destroy(adapter);
    return follows;
  }
  const bool low_rank = t->options.stage == STILL_STAGE_LOW_RANK;
  t->micro_tokens = (size_t)t->options.micro_tokens;
  t->micro_rows = t->micro_tokens / 16 + 1;
  const still_student_options options = {.attention = t->options.attention,
                                         .kinds = t->kinds,
                                         .gate = t->options.gate,
                                         .maps = true,
                                         .lora_rank = low_rank ? t->options.lora_rank : 0,
                                         .lora_alpha = t->options.lora_alpha,
                                         .longest = t->data->longest,
                                         .most = t->micro_tokens,
                                         .sequences = t->micro_rows,
                                         .threads = t->options.threads,
                                         .seed = t->options.seed};
  STILL_TRY(still_student_create(&t->student, t->weights, adapter, &options));
  still_attention_options *stored = &still_student_adapter(t->student)->attention;
  if (!stored->context) stored->context = (int)t->data->longest;
  return still_optimizer_create(&t->optimizer, t->student, !low_rank || t->options.train_maps,
                                low_rank);
}

static still_status resume(trainer *t) {
  t->at = (trainer_progress){.plateau = 1, .best = INFINITY, .before = NAN};
  if (!t->options.resume || !still_path_exists(t->options.state)) return STILL_OK;
  STILL_TRY(trainer_load(t));
  t->stale = true;
  if (t->options.metrics) STILL_TRY(metrics_read(&t->history, t->options.metrics, t->at.step));
  if (t->at.cursor) corpus_shuffle(t->data, t->at.epoch, t->order);
  return STILL_OK;
}

static still_status prepare(trainer *t) {
  STILL_TRY(check_numbers(&t->options));
  STILL_TRY(check_outputs(&t->options));
  resolve(&t->options, t->data);
  STILL_TRY(choose_kinds(t));
  STILL_TRY(make_student(t));
  STILL_TRY(check_rows(t));
  STILL_TRY(check_attention(t, 0));
  for (size_t i = 0; i < t->options.budget_count; i++)
    STILL_TRY(check_attention(t, t->options.budgets[i]));
  STILL_TRY(corpus_batch_create(&t->micro, t->micro_tokens, t->micro_rows));
  STILL_TRY(STILL_ALLOC(&t->order, t->data->training_rows, "order of rows"));
  return resume(t);
}

/* Nothing is written where it is stopped. */
static still_status set_up(trainer *t) {
  still_progress progress = trainer_stops(t);
  still_progress_begin(&progress);
  const still_status status = prepare(t);
  still_progress_end(&progress);
  return status;
}

static void tear_down(trainer *t) {
  still_student_destroy(t->student);
  still_optimizer_destroy(&t->optimizer);
  corpus_batch_destroy(&t->micro);
  still_free(t->kinds), still_free(t->order), still_free(t->step_rows);
  still_free(t->history.rows);
}

/* ---- the run ---- */

static double last_validation(const trainer *t) {
  for (size_t i = t->history.count; i > 0; i--)
    if (!isnan(t->history.rows[i - 1].validation)) return t->history.rows[i - 1].validation;
  return NAN;
}

static void fill_result(const trainer *t, still_training_result *result, const double *before,
                        const double *after) {
  still_layer_error *errors = result->layer_errors;
  *result = (still_training_result){.steps = t->at.step,
                                    .tokens = t->at.tokens,
                                    .seconds = t->at.seconds + trainer_clock() - t->started,
                                    .validation_before = t->at.before,
                                    .validation_best = t->at.best < INFINITY ? t->at.best : NAN,
                                    .validation_last = last_validation(t),
                                    .layers = t->weights->config.layers,
                                    .layer_errors = errors,
                                    .timed_out = t->at.step < t->options.steps};
  for (int i = 0; errors && i < result->layers; i++)
    errors[i] = (still_layer_error){before[i], after[i]};
}

static still_status run(trainer *t, still_training_callback *callback, void *user,
                        still_training_result *result) {
  const size_t layers = (size_t)t->weights->config.layers;
  double *each, before;
  STILL_TRY(STILL_ALLOC(&each, 2 * layers, "layer errors"));
  t->started = trainer_clock();
  still_status status = trainer_validate(t, &before, each);
  if (!status && isnan(t->at.before)) t->at.before = before;
  if (!status) memcpy(each + layers, each, layers * sizeof *each);
  if (!status) status = trainer_run(t, callback, user, each + layers);
  if (result) fill_result(t, result, each, each + layers);
  still_free(each);
  return status;
}

still_status still_training_check(const still_model *model, const still_training_data *data,
                                  const still_training_options *options) {
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(options, still_training_options));
  trainer t = {.options = *options, .weights = still_model_get_weights(model), .data = data};
  const still_status status = set_up(&t);
  tear_down(&t);
  return status;
}

still_status still_train(const still_model *model, const still_training_data *data,
                         const still_training_options *options, still_training_callback *callback,
                         void *user, still_training_result *result) {
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(options, still_training_options));
  trainer t = {.options = *options, .weights = still_model_get_weights(model), .data = data};
  still_status status = set_up(&t);
  if (!status) status = run(&t, callback, user, result);
  tear_down(&t);
  return status;
}
