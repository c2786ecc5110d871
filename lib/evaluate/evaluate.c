/* SPDX-License-Identifier: MIT
 * The evaluation: lengths, runs, tasks, depths and samples, one within the other. */
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "evaluate/evaluator.h"
#include "evaluate/report.h"
#include "evaluate/results.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Everything that one call of still_evaluate works with. */
typedef struct evaluation {
  const still_evaluation_options *options;
  const still_evaluation_run *runs;
  size_t run_count;
  still_wording wording;
  still_babi babi[5];
  still_questions questions;
  char *haystack;
  size_t haystack_bytes;
  still_results results;
  still_evaluation_report *report;
  uint64_t done, total; /* samples */
} evaluation;

/* ---- arguments */

static int shards_of(const still_evaluation_options *o) {
  return o->shards ? o->shards : 1;
}

static still_status check_number(const char *name, long value, long low, long high) {
  if (value >= low && value <= high) return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT, "%s is %ld, must be %ld .. %ld", name, value, low, high);
}

static still_status check_task(const still_evaluation_options *o, const still_task *task) {
  const unsigned traits = task->traits;
  if (traits & STILL_TASK_PROSE && !o->haystack)
    return still_fail(STILL_ERROR_ARGUMENT, "task '%s' needs a text as its haystack (haystack)",
                      task->name);
  if (traits & STILL_TASK_BABI && !o->babi)
    return still_fail(STILL_ERROR_ARGUMENT, "task '%s' needs the folder of bAbI's files (babi)",
                      task->name);
  if (traits & STILL_TASK_QUESTIONS && !o->questions)
    return still_fail(STILL_ERROR_ARGUMENT, "task '%s' needs a file of questions (questions)",
                      task->name);
  if (o->depths && !(traits & STILL_TASK_DEPTHS))
    return still_fail(STILL_ERROR_ARGUMENT,
                      "task '%s' has no grid of depths: its needles are several", task->name);
  if (o->scoring == STILL_SCORING_EXACT && traits & STILL_TASK_FREE)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "task '%s' has no exact answer: it may be said in several ways", task->name);
  for (size_t i = 0; i < o->length_count; i++)
    if (!o->lengths[i] && !(traits & STILL_TASK_BARE))
      return still_fail(STILL_ERROR_ARGUMENT,
                        "task '%s' has no length 0: only qa1 .. qa5 and babi1 .. babi5 have facts "
                        "that stand alone",
                        task->name);
  return STILL_OK;
}

static still_status check_tasks(const still_evaluation_options *o) {
  for (size_t i = 0; i < o->task_count; i++) {
    const still_task *task = still_task_find(o->tasks[i]);
    if (!task)
      return still_fail(STILL_ERROR_ARGUMENT,
                        "task '%.60s' is unknown; known are sniah1 .. sniah3, multikey, "
                        "multikey_noise, multikey_dense, multikey_uuid, multivalue, multiquery, "
                        "tracking, common_words, frequent_words, documents, qa1 .. qa5, babi1 .. "
                        "babi5 and RULER's names",
                        o->tasks[i]);
    for (size_t k = 0; k < i; k++)
      if (still_task_find(o->tasks[k]) == task)
        return still_fail(STILL_ERROR_ARGUMENT, "task '%s' is given twice", task->name);
    STILL_TRY(check_task(o, task));
  }
  return STILL_OK;
}

static still_status check_length_of(const still_evaluation_options *o, size_t index) {
  STILL_TRY(check_number("a length", o->lengths[index], 0, 1 << 24));
  for (size_t i = 0; i < index; i++)
    if (o->lengths[i] == o->lengths[index])
      return still_fail(STILL_ERROR_ARGUMENT, "length %d is given twice", o->lengths[i]);
  return STILL_OK;
}

static still_status check_options(const still_evaluation_run *runs, size_t run_count,
                                  const still_evaluation_options *o) {
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(o, still_evaluation_options));
  if (!run_count || !o->task_count || !o->length_count)
    return still_fail(STILL_ERROR_ARGUMENT, "an evaluation needs a run, a task and a length");
  STILL_TRY(check_number("samples", o->samples, 1, 1000000));
  if (o->depths) STILL_TRY(check_number("depths", o->depths, 2, 101));
  STILL_TRY(check_number("scoring", (long)o->scoring, 0, 1));
  STILL_TRY(check_number("shards", o->shards, 0, 1000000));
  STILL_TRY(check_number("shard", o->shard, 0, shards_of(o) - 1));
  for (size_t i = 0; i < o->length_count; i++) STILL_TRY(check_length_of(o, i));
  for (size_t i = 0; i < run_count; i++) {
    if (!still_model_tokenizer(runs[i].model))
      return still_fail(STILL_ERROR_ARGUMENT, "run '%.60s': the model has no vocabulary",
                        runs[i].name);
    for (size_t k = 0; k < i; k++)
      if (!strcmp(runs[i].name, runs[k].name))
        return still_fail(STILL_ERROR_ARGUMENT, "two runs are named '%.60s'", runs[i].name);
  }
  return check_tasks(o);
}

/* ---- what samples are made of */

static still_status make_material(const evaluation *e, const still_model *model,
                                  still_task_material *material) {
  const still_words *noise = &e->wording.noise;
  still_status status = STILL_OK;
  memset(material, 0, sizeof *material);
  material->tokenizer = still_model_tokenizer(model);
  material->wording = &e->wording;
  material->babi = e->babi;
  material->questions = &e->questions;
  for (size_t i = 0; i < noise->count && !status; i++)
    status = still_passage_add(&material->noise, material->tokenizer, noise->items[i],
                               strlen(noise->items[i]));
  if (!status && e->haystack) {
    status = still_passage_from_text(&material->prose, material->tokenizer, e->haystack,
                                     e->haystack_bytes);
    if (!status)
      status =
          still_passage_select(&material->background, &material->prose, STILL_BACKGROUND_TOKENS);
    if (status) still_fail_in(status, "%s", e->options->haystack);
  }
  return status;
}

static void free_material(still_task_material *material) {
  still_passage_free(&material->prose);
  still_passage_free(&material->background);
  still_passage_free(&material->noise);
}

/* Tokens kept free for an answer; 0: as many as it has. */
static size_t answer_room(const still_evaluation_options *o, const still_task *task) {
  return o->scoring == STILL_SCORING_EXACT ? 0 : (size_t)task->generate;
}

/* Samples that differ in their depth alone are otherwise alike. */
static still_status make_sample(const evaluation *e, const still_task_material *material,
                                const still_task *task, const still_result *place,
                                still_sample *sample) {
  const int depths = e->options->depths;
  uint64_t seed = still_hash64(e->options->seed ^ still_hash_text(0, task->name));
  still_task_order order = {.material = material,
                            .length = (size_t)place->length,
                            .answer = answer_room(e->options, task),
                            .depth = depths ? (double)place->depth_index / (depths - 1) : -1,
                            .index = (size_t)place->index,
                            .item_seed = seed};
  seed = still_hash64(seed ^ (uint64_t)place->length);
  still_random_seed(&order.random, still_hash64(seed ^ (uint64_t)place->index));
  return task->make(task, &order, sample);
}

/* ---- one run at one length */

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A run at a length, and the task it is at. */
typedef struct station {
  const still_task_material *material;
  const still_evaluation_run *run;
  const still_task *task;
  size_t run_number, length_number, task_number;
  int length;
} station;

static still_result first_place(const evaluation *e, const station *at) {
  return (still_result){.run = at->run->name,
                        .task = at->task->name,
                        .length = at->length,
                        .depth_index = e->options->depths ? 0 : -1,
                        .index = e->options->shard};
}

/* The samples of a cell group in order: of each index all depths, so that neighbours share their
 * beginning. */
static void next_place(const evaluation *e, still_result *place) {
  if (e->options->depths && ++place->depth_index < e->options->depths) return;
  place->depth_index = e->options->depths ? 0 : -1;
  place->index += shards_of(e->options);
}

/* Samples of a task at a length. */
static uint64_t samples_of(const still_evaluation_options *o) {
  const int count = (o->samples - o->shard + shards_of(o) - 1) / shards_of(o);
  return count > 0 ? (uint64_t)count * (uint64_t)(o->depths ? o->depths : 1) : 0;
}

static still_status note(evaluation *e, const station *at, const still_result *r) {
  still_evaluation_cell *cell = still_report_cell(e->report, at->length_number, at->run_number,
                                                  at->task_number, r->depth_index);
  cell->count++;
  cell->right += r->right;
  cell->seconds += r->seconds;
  e->done++;
  const still_evaluation_options *o = e->options;
  if (o->progress && o->progress(o->progress_user, e->done, e->total))
    return still_fail(STILL_ERROR_CANCELLED, "evaluation: stopped after %llu of %llu samples",
                      (unsigned long long)e->done, (unsigned long long)e->total);
  return STILL_OK;
}

static still_status ask(evaluation *e, still_evaluator *evaluator, const station *at,
                        const still_sample *sample, const still_sample *next, still_result *place) {
  const double begin = now();
  still_answer answer = {.rule = at->task->rule, .most = answer_room(e->options, at->task)};
  still_status status = still_evaluator_ask(evaluator, sample, next->count ? next : NULL, &answer);
  place->right = answer.right;
  place->depth = sample->depth;
  place->seconds = now() - begin;
  place->output = answer.text;
  if (!status) status = still_results_put(&e->results, place);
  still_free(answer.text);
  place->output = NULL;
  return status;
}

/* What cannot be asked is an error, or (skip_long) left out with a warning. */
static still_status leave_out(evaluation *e, still_status status, uint64_t samples) {
  const bool too_long = status == STILL_ERROR_ARGUMENT || status == STILL_ERROR_LIMIT;
  if (!too_long || !e->options->skip_long) return status;
  still_log(STILL_LOG_WARNING, "left out: %s", still_last_error());
  e->total -= samples;
  return STILL_OK;
}

static still_status ask_or_leave_out(evaluation *e, still_evaluator *evaluator, const station *at,
                                     const still_sample *sample, const still_sample *next,
                                     still_result *place) {
  const still_status status = ask(e, evaluator, at, sample, next, place);
  if (!status) return note(e, at, place);
  still_fail_in(status, "%s of %d tokens", at->task->name, at->length);
  return leave_out(e, status, 1);
}

/* The next sample that the results file does not have; those it has are counted. count 0: none is
 * left. */
static still_status advance(evaluation *e, const station *at, still_result *place,
                            still_sample *sample) {
  still_sample_free(sample);
  for (; place->index < e->options->samples; next_place(e, place)) {
    place->seconds = 0;
    if (still_results_find(&e->results, place)) {
      STILL_TRY(note(e, at, place));
      continue;
    }
    const still_status status = make_sample(e, at->material, at->task, place, sample);
    if (!status) return STILL_OK;
    STILL_TRY(leave_out(e, status, 1));
    still_sample_free(sample);
  }
  return STILL_OK;
}

static still_status run_task(evaluation *e, still_evaluator *evaluator, const station *at) {
  still_result place = first_place(e, at);
  still_sample sample = {0}, next = {0};
  still_status status = advance(e, at, &place, &sample);
  while (!status && sample.count) {
    still_result asked = place;
    next_place(e, &place);
    status = advance(e, at, &place, &next);
    if (!status) status = ask_or_leave_out(e, evaluator, at, &sample, &next, &asked);
    still_sample_free(&sample);
    sample = next;
    memset(&next, 0, sizeof next);
  }
  still_sample_free(&sample);
  still_sample_free(&next);
  return status;
}

/* Whether a length fits model and task: the first sample is made to see, where all are about as
 * long. */
static still_status check_length(evaluation *e, const station *at) {
  const still_result place = first_place(e, at);
  still_model_info info;
  still_sample sample = {0};
  still_model_get_info(at->run->model, &info);
  if (info.trained_context > 0 && at->length > info.trained_context)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "%s: %d tokens are more than the %d that the model was trained for",
                      at->task->name, at->length, info.trained_context);
  if (at->task->traits & STILL_TASK_ITEMS) return STILL_OK;
  const still_status status = make_sample(e, at->material, at->task, &place, &sample);
  still_sample_free(&sample);
  return status;
}

static still_status run_tasks(evaluation *e, still_evaluator *evaluator, station *at) {
  for (at->task_number = 0; at->task_number < e->options->task_count; at->task_number++) {
    at->task = still_task_find(e->options->tasks[at->task_number]);
    const still_status status = check_length(e, at);
    STILL_TRY(status ? leave_out(e, status, samples_of(e->options)) : run_task(e, evaluator, at));
  }
  return STILL_OK;
}

/* Length 0: the tokens of the longest sample, of all shards. */
static still_status find_context(evaluation *e, const station *at, int *context) {
  *context = at->length;
  for (size_t t = 0; !at->length && t < e->options->task_count; t++) {
    const still_task *task = still_task_find(e->options->tasks[t]);
    const size_t room = answer_room(e->options, task);
    still_result place = {.depth_index = -1};
    for (; place.index < e->options->samples; place.index++) {
      still_sample sample = {0};
      const still_status status = make_sample(e, at->material, task, &place, &sample);
      const size_t given = sample.count - sample.prompt;
      const size_t tokens = sample.prompt + (given > room ? given : room);
      still_sample_free(&sample);
      if (status) return status;
      if (tokens > (size_t)*context) *context = (int)tokens;
    }
  }
  return STILL_OK;
}

/* Within a sample, whose tokens are not what is counted. */
static int ask_progress(void *user, uint64_t tokens, uint64_t all_tokens) {
  const evaluation *e = user;
  (void)tokens, (void)all_tokens;
  return e->options->progress(e->options->progress_user, e->done, e->total);
}

static still_status open_evaluator(evaluation *e, const station *at, still_evaluator *evaluator) {
  still_model_info info;
  still_session_options session = at->run->session;
  if (!session.context) STILL_TRY(find_context(e, at, &session.context));
  still_model_get_info(at->run->model, &info);
  evaluator->vocabulary = info.vocabulary;
  evaluator->tokenizer = at->material->tokenizer;
  evaluator->progress = e->options->progress ? ask_progress : NULL;
  evaluator->progress_user = e;
  return still_session_create(&evaluator->session, at->run->model, &session);
}

static still_status run_length(evaluation *e, station *at) {
  still_evaluator evaluator = {0};
  still_status status = open_evaluator(e, at, &evaluator);
  if (status)
    status = leave_out(e, status, e->options->task_count * samples_of(e->options));
  else
    status = run_tasks(e, &evaluator, at);
  still_evaluator_free(&evaluator);
  return status ? still_fail_in(status, "run '%s'", at->run->name) : STILL_OK;
}

/* ---- the report */

static still_status create_report(evaluation *e) {
  const still_evaluation_options *o = e->options;
  const char **names;
  STILL_TRY(STILL_ALLOC(&names, e->run_count + o->task_count, "a report"));
  for (size_t i = 0; i < e->run_count; i++) names[i] = e->runs[i].name;
  for (size_t i = 0; i < o->task_count; i++)
    names[e->run_count + i] = still_task_find(o->tasks[i])->name;
  const still_report_axes axes = {.runs = names,
                                  .run_count = e->run_count,
                                  .tasks = names + e->run_count,
                                  .task_count = o->task_count,
                                  .lengths = o->lengths,
                                  .length_count = o->length_count,
                                  .depths = o->depths};
  const still_status status = still_report_create(&e->report, &axes);
  still_free(names);
  e->total = (uint64_t)o->length_count * e->run_count * o->task_count * samples_of(o);
  return status;
}

/* ---- the whole */

static still_status evaluate_all(evaluation *e) {
  const still_evaluation_options *o = e->options;
  for (size_t r = 0; r < e->run_count; r++) {
    still_task_material material;
    still_status status = make_material(e, e->runs[r].model, &material);
    station at = {.material = &material, .run = &e->runs[r], .run_number = r};
    for (; at.length_number < o->length_count && !status; at.length_number++) {
      at.length = o->lengths[at.length_number];
      status = run_length(e, &at);
    }
    free_material(&material);
    if (status) return status;
  }
  still_report_finish(e->report);
  return STILL_OK;
}

/* What results must have in common to belong together. */
static void describe(const evaluation *e, char *text, size_t bytes) {
  const still_evaluation_options *o = e->options;
  const uint64_t questions = o->questions ? still_questions_hash(&e->questions) : 0;
  uint64_t babi = 0;
  for (int i = 0; i < 5; i++) babi = still_babi_hash(&e->babi[i], babi);
  snprintf(text, bytes,
           "seed %llu, depths %d, scoring %s, haystack %016llx, words %016llx, questions %016llx, "
           "babi %016llx",
           (unsigned long long)o->seed, o->depths,
           o->scoring == STILL_SCORING_EXACT ? "exact" : "task",
           (unsigned long long)(e->haystack ? still_hash_text(0, e->haystack) : 0),
           (unsigned long long)still_wording_hash(&e->wording), (unsigned long long)questions,
           (unsigned long long)babi);
}

static still_status open_all(evaluation *e) {
  const still_evaluation_options *o = e->options;
  enum { HAYSTACK_LIMIT = 64 * 1024 * 1024 };
  char settings[384];
  STILL_TRY(still_wording_open(&e->wording, o->templates, o->keys));
  if (o->haystack)
    STILL_TRY(still_read_text(o->haystack, HAYSTACK_LIMIT, &e->haystack, &e->haystack_bytes));
  for (size_t i = 0; i < o->task_count; i++) {
    const still_task *task = still_task_find(o->tasks[i]);
    if (task->traits & STILL_TASK_BABI)
      STILL_TRY(still_babi_open(&e->babi[task->variant - 1], o->babi, task->variant));
    if (task->traits & STILL_TASK_QUESTIONS)
      STILL_TRY(still_questions_read(&e->questions, o->questions));
  }
  describe(e, settings, sizeof settings);
  STILL_TRY(create_report(e));
  const still_results_plan plan = {.path = o->results,
                                   .resume = o->resume,
                                   .command = o->command,
                                   .settings = settings,
                                   .runs = e->runs,
                                   .run_count = e->run_count};
  return still_results_open(&e->results, &plan);
}

still_status still_evaluate(const still_evaluation_run *runs, size_t run_count,
                            const still_evaluation_options *options,
                            still_evaluation_report **report) {
  evaluation e = {.options = options, .runs = runs, .run_count = run_count};
  *report = NULL;
  STILL_TRY(check_options(runs, run_count, options));
  still_status status = open_all(&e);
  if (!status) status = evaluate_all(&e);
  still_results_close(&e.results);
  still_wording_close(&e.wording);
  for (int i = 0; i < 5; i++) still_babi_free(&e.babi[i]);
  still_questions_free(&e.questions);
  still_free(e.haystack);
  if (status)
    still_evaluation_report_destroy(e.report);
  else
    *report = e.report;
  return status;
}
