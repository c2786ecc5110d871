/* SPDX-License-Identifier: MIT
 * Multiple choice: the likelihood of each choice after the question. */
#include "base/log.h"
#include "base/memory.h"
#include "evaluate/choice_items.h"
#include "evaluate/distribution.h"
#include "evaluate/evaluator.h"
#include "evaluate/results.h"

#include <inttypes.h>
#include <string.h>

typedef struct quiz {
  const still_evaluation_run *run;
  const still_choice_options *options;
  const still_tokenizer *tokenizer;
  still_choice_items items, shown; /* shown: of a file of their own, else empty */
  still_evaluator evaluator;
  still_results results;
  char *names[2]; /* of the tasks in results: acc, acc_norm */
  int context;    /* the most tokens that the session takes */
} quiz;

/* ---- prompts */

static bool same_subject(const still_choice_item *a, const still_choice_item *b) {
  if (!a->subject || !b->subject) return a->subject == b->subject;
  return !strcmp(a->subject, b->subject);
}

/* Which items are shown before item `index`: different ones, of its subject and never itself.
 * chosen has room for all; returns how many there are. */
static size_t choose_examples(const quiz *q, size_t index, size_t *chosen) {
  const bool own_file = q->shown.count > 0;
  const still_choice_items *from = own_file ? &q->shown : &q->items;
  const still_choice_item *item = &q->items.items[index];
  const size_t wanted = (size_t)q->options->examples;
  size_t candidates = 0;
  still_random random;
  if (!wanted) return 0;
  for (size_t i = 0; i < from->count; i++)
    if ((own_file || i != index) && same_subject(&from->items[i], item)) chosen[candidates++] = i;
  still_random_seed(&random, still_hash64(q->options->seed ^ still_hash64(index)));
  for (size_t i = 0; i < wanted && i < candidates; i++) {
    const size_t k = i + (size_t)still_random_below(&random, candidates - i), other = chosen[i];
    chosen[i] = chosen[k];
    chosen[k] = other;
  }
  return candidates < wanted ? candidates : wanted;
}

/* MMLU's first line. */
static still_status put_subject(const still_choice_item *item, char **text) {
  char *subject, *line;
  if (!item->subject) return STILL_OK;
  STILL_TRY(still_copy_string(&subject, item->subject));
  for (char *c = subject; *c; c++)
    if (*c == '_') *c = ' ';
  still_status status = still_fill_in(
      &line, "The following are multiple choice questions (with answers) about {subject}.\n\n",
      (const still_field[]){{"subject", subject}, {NULL, NULL}});
  still_free(subject);
  if (!status) status = still_append_text(text, line);
  still_free(line);
  return status;
}

/* Examples with their answers, which the question follows: one text, encoded as one. */
static still_status tell_examples(const quiz *q, size_t index, char **text) {
  const still_choice_items *from = q->shown.count ? &q->shown : &q->items;
  size_t *chosen;
  STILL_TRY(STILL_ALLOC(&chosen, from->count, "examples"));
  const size_t count = choose_examples(q, index, chosen);
  const char *subject = q->items.items[index].subject;
  still_status status = put_subject(&q->items.items[index], text);
  if (q->options->examples && q->shown.count && !count && !status)
    status = still_fail(STILL_ERROR_ARGUMENT, "%s: no example of the subject '%s'",
                        q->options->shown, subject ? subject : "");
  for (size_t i = 0; i < count && !status; i++) {
    const still_choice_item *example = &from->items[chosen[i]];
    status = still_append_text(text, example->starts[example->answer]);
    if (!status) status = still_append_text(text, example->ends[example->answer]);
    if (!status) status = still_append_text(text, "\n\n");
  }
  still_free(chosen);
  return status;
}

static still_status make_sample(const quiz *q, const still_choice_item *item, const char *before,
                                size_t choice, still_sample *sample) {
  char *text = NULL;
  still_status status = still_append_text(&text, before);
  if (!status) status = still_append_text(&text, item->starts[choice]);
  if (!status) status = still_sample_put_text(sample, q->tokenizer, text);
  still_free(text);
  sample->prompt = sample->count;
  if (!status) status = still_sample_put_text(sample, q->tokenizer, item->ends[choice]);
  if (!status && sample->prompt == sample->count)
    status = still_fail(STILL_ERROR_FORMAT, "choice %zu has no tokens", choice);
  if (!status && sample->count > (size_t)q->context)
    status = still_fail(STILL_ERROR_ARGUMENT, "the question takes %zu tokens, the session %d",
                        sample->count, q->context);
  return status;
}

static void free_samples(still_sample *samples) {
  for (size_t i = 0; i < STILL_MOST_CHOICES; i++) still_sample_free(&samples[i]);
}

static still_status make_samples(const quiz *q, size_t index, still_sample *samples) {
  const still_choice_item *item = &q->items.items[index];
  char *before = NULL;
  still_status status = still_append_text(&before, "");
  if (!status) status = tell_examples(q, index, &before);
  for (size_t i = 0; i < item->count && !status; i++)
    status = make_sample(q, item, before, i, &samples[i]);
  still_free(before);
  return status;
}

/* ---- likelihoods */

typedef struct tally {
  const still_token *next;
  int vocabulary;
  double sum;
} tally;

static void add_likelihood(void *user, size_t index, const float *logits) {
  tally *t = user;
  t->sum += logits[t->next[index]] - still_log_sum_exp(logits, t->vocabulary);
}

/* log P(the sample's end | its prompt). next (NULL: none) is asked afterwards. */
static still_status likelihood(quiz *q, const still_sample *sample, const still_sample *next,
                               double *out) {
  const still_token *end = sample->ids + sample->prompt;
  const size_t count = sample->count - sample->prompt;
  size_t shared = 0;
  if (next)
    shared = still_common_tokens(sample->ids, next->ids,
                                 sample->prompt < next->prompt ? sample->prompt : next->prompt);
  STILL_TRY(still_evaluator_prompt(&q->evaluator, sample->ids, sample->prompt, shared));
  tally t = {end, q->evaluator.vocabulary, 0};
  add_likelihood(&t, 0, still_session_logits(q->evaluator.session));
  t.next = end + 1;
  if (count > 1)
    STILL_TRY(still_session_evaluate_all(q->evaluator.session, end, count - 1, add_likelihood, &t));
  *out = t.sum;
  return STILL_OK;
}

static size_t best_of(const double *values, size_t count) {
  size_t best = 0;
  for (size_t i = 1; i < count; i++)
    if (values[i] > values[best]) best = i;
  return best;
}

/* Whether both ways of scoring choose the answer. */
static void score(const still_choice_item *item, const double *sums, double *right) {
  double means[STILL_MOST_CHOICES];
  for (size_t i = 0; i < item->count; i++)
    means[i] = sums[i] / (double)(item->bytes[i] ? item->bytes[i] : 1);
  right[0] = best_of(sums, item->count) == item->answer;
  right[1] = best_of(means, item->count) == item->answer;
}

/* ---- results: two lines an item, acc and acc_norm */

static still_result result_of(const quiz *q, size_t index, int way) {
  return (still_result){
      .run = q->run->name, .task = q->names[way], .depth_index = -1, .index = (int)index};
}

static bool find_result(const quiz *q, size_t index, double *right) {
  for (int way = 0; way < 2; way++) {
    still_result r = result_of(q, index, way);
    if (!still_results_find(&q->results, &r)) return false;
    right[way] = r.right;
  }
  return true;
}

/* The first of two lines may be there already. */
static still_status put_result(quiz *q, size_t index, const double *right, const double *sums) {
  for (int way = 0; way < 2; way++) {
    still_result r = result_of(q, index, way);
    if (still_results_find(&q->results, &r)) continue;
    r.right = right[way];
    r.likelihoods = way ? NULL : sums;
    r.likelihood_count = q->items.items[index].count;
    STILL_TRY(still_results_put(&q->results, &r));
  }
  return STILL_OK;
}

/* ---- the whole */

/* ARGUMENT (too long) is left out where that is allowed. */
static still_status left_out(const quiz *q, size_t index, still_status status, bool *left) {
  *left = false;
  if (status) still_fail_in(status, "item %zu", index);
  if (status != STILL_ERROR_ARGUMENT || !q->options->skip_long) return status;
  still_log(STILL_LOG_WARNING, "left out: %s", still_last_error());
  *left = true;
  return STILL_OK;
}

static still_status ask(quiz *q, size_t index, still_choice_result *result) {
  const still_choice_item *item = &q->items.items[index];
  double sums[STILL_MOST_CHOICES], right[2];
  still_sample samples[STILL_MOST_CHOICES] = {0};
  bool left = false;
  still_status status = STILL_OK;
  if (!find_result(q, index, right)) {
    status = left_out(q, index, make_samples(q, index, samples), &left);
    for (size_t i = 0; i < item->count && !status && !left; i++)
      status = likelihood(q, &samples[i], i + 1 < item->count ? &samples[i + 1] : NULL, &sums[i]);
    free_samples(samples);
    if (status) return status;
    if (left) {
      result->skipped++;
      return STILL_OK;
    }
    score(item, sums, right);
    STILL_TRY(put_result(q, index, right, sums));
  }
  result->count++;
  result->right += right[0] > 0;
  result->right_norm += right[1] > 0;
  return STILL_OK;
}

static still_status ask_all(quiz *q, still_choice_result *result) {
  const still_choice_options *o = q->options;
  const size_t most =
      o->items && (size_t)o->items < q->items.count ? (size_t)o->items : q->items.count;
  const size_t shards = o->shards ? (size_t)o->shards : 1;
  memset(result, 0, sizeof *result);
  for (size_t i = (size_t)o->shard; i < most; i += shards) {
    STILL_TRY(ask(q, i, result));
    if (o->progress && o->progress(o->progress_user, i + 1, most))
      return still_fail(STILL_ERROR_CANCELLED, "choices: stopped after %zu of %zu items", i + 1,
                        most);
  }
  return STILL_OK;
}

/* "piqa acc" and "piqa acc_norm" of folder/piqa.jsonl. */
static still_status name_tasks(quiz *q, const char *path) {
  static const char *const ways[] = {"{name} acc", "{name} acc_norm"};
  const char *slash = strrchr(path, '/');
  char *name;
  STILL_TRY(still_copy_string(&name, slash ? slash + 1 : path));
  char *dot = strrchr(name, '.');
  if (dot && dot != name) *dot = 0;
  still_status status = STILL_OK;
  for (int way = 0; way < 2 && !status; way++)
    status = still_fill_in(&q->names[way], ways[way],
                           (const still_field[]){{"name", name}, {NULL, NULL}});
  still_free(name);
  return status;
}

static uint64_t hash_items(const still_choice_items *items) {
  uint64_t hash = items->count;
  for (size_t i = 0; i < items->count; i++) {
    hash = still_hash64(hash ^ items->items[i].answer);
    if (items->items[i].subject) hash = still_hash_text(hash, items->items[i].subject);
    for (size_t k = 0; k < items->items[i].count; k++)
      hash = still_hash_text(still_hash_text(hash, items->items[i].starts[k]),
                             items->items[i].ends[k]);
  }
  return hash;
}

static still_status open_results(quiz *q, const char *path) {
  const still_choice_options *o = q->options;
  char settings[160];
  snprintf(settings, sizeof settings,
           "choices, examples %d, seed %" PRIu64 ", items %016" PRIx64 ", shown %016" PRIx64,
           o->examples, o->seed, hash_items(&q->items), hash_items(&q->shown));
  const still_results_plan plan = {.path = o->results,
                                   .resume = o->resume,
                                   .command = o->command,
                                   .settings = settings,
                                   .runs = q->run,
                                   .run_count = 1};
  STILL_TRY(name_tasks(q, path));
  return still_results_open(&q->results, &plan);
}

static still_status open_quiz(quiz *q, const char *path) {
  const still_choice_options *o = q->options;
  still_model_info info;
  still_session_options session = q->run->session;
  if (!q->tokenizer)
    return still_fail(STILL_ERROR_ARGUMENT, "run '%.60s': the model has no vocabulary",
                      q->run->name);
  STILL_TRY(still_choice_items_read(&q->items, path, o->format));
  if (o->shown) STILL_TRY(still_choice_items_read(&q->shown, o->shown, o->format));
  STILL_TRY(open_results(q, path));
  still_model_get_info(q->run->model, &info);
  q->evaluator.vocabulary = info.vocabulary;
  if (!session.context) session.context = info.trained_context;
  q->context = session.context;
  return still_session_create(&q->evaluator.session, q->run->model, &session);
}

static still_status check_options(const still_choice_options *o) {
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(o, still_choice_options));
  if (o->items < 0 || o->examples < 0 || o->examples > 100)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "choices: items %d, examples %d, must be from 0, and 0 .. 100", o->items,
                      o->examples);
  if ((int)o->format < 0 || o->format > STILL_CHOICES_LETTERS)
    return still_fail(STILL_ERROR_ARGUMENT, "choices: format %d, must be 0 .. 2", (int)o->format);
  if (o->shards < 0 || o->shard < 0 || o->shard >= (o->shards ? o->shards : 1))
    return still_fail(STILL_ERROR_ARGUMENT, "choices: shard %d of %d, must be below that", o->shard,
                      o->shards);
  return STILL_OK;
}

still_status still_evaluate_choices(const still_evaluation_run *run, const char *path,
                                    const still_choice_options *options,
                                    still_choice_result *result) {
  STILL_TRY(check_options(options));
  quiz q = {.run = run, .options = options, .tokenizer = still_model_tokenizer(run->model)};
  still_status status = open_quiz(&q, path);
  if (!status) status = ask_all(&q, result);
  still_results_close(&q.results);
  still_evaluator_free(&q.evaluator);
  still_choice_items_free(&q.items);
  still_choice_items_free(&q.shown);
  for (int way = 0; way < 2; way++) still_free(q.names[way]);
  return status;
}
