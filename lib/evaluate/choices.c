/* SPDX-License-Identifier: MIT
 * Multiple choice: the likelihood of each choice after the question. */
#include "base/memory.h"
#include "evaluate/choice_items.h"
#include "evaluate/distribution.h"
#include "evaluate/evaluator.h"

#include <still/evaluate.h>
#include <string.h>

typedef struct quiz {
  const still_choice_options *options;
  const still_tokenizer *tokenizer;
  still_choice_items items;
  still_evaluator evaluator;
  int context; /* the most tokens that the session takes */
} quiz;

/* ---- prompts */

/* Other items with their answers, then the question with choice `choice` (an example shows its own
 * answer). */
static still_status put_item(const quiz *q, const still_choice_item *item, size_t choice,
                             bool example, still_sample *sample) {
  STILL_TRY(still_sample_put_text(sample, q->tokenizer, item->starts[choice]));
  sample->prompt = sample->count;
  STILL_TRY(still_sample_put_text(sample, q->tokenizer, item->ends[choice]));
  return example ? still_sample_put_text(sample, q->tokenizer, "\n\n") : STILL_OK;
}

static still_status make_sample(const quiz *q, size_t index, size_t choice, still_sample *sample) {
  still_random random;
  const size_t others = q->items.count - 1;
  still_random_seed(&random, still_hash64(q->options->seed ^ still_hash64(index)));
  for (int i = 0; i < q->options->examples && others; i++) {
    size_t other = (size_t)still_random_below(&random, others);
    if (other >= index) other++;
    const still_choice_item *item = &q->items.items[other];
    STILL_TRY(put_item(q, item, item->answer, true, sample));
  }
  return put_item(q, &q->items.items[index], choice, false, sample);
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
  if (!count) return still_fail(STILL_ERROR_ARGUMENT, "a choice has no tokens");
  if (sample->count > (size_t)q->context)
    return still_fail(STILL_ERROR_ARGUMENT, "a question takes %zu tokens, the session %d",
                      sample->count, q->context);
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

static still_status ask(quiz *q, size_t index, still_choice_result *result) {
  const still_choice_item *item = &q->items.items[index];
  double sums[STILL_MOST_CHOICES], means[STILL_MOST_CHOICES];
  still_sample samples[STILL_MOST_CHOICES] = {0};
  still_status status = STILL_OK;
  for (size_t i = 0; i < item->count && !status; i++)
    status = make_sample(q, index, i, &samples[i]);
  for (size_t i = 0; i < item->count && !status; i++) {
    status = likelihood(q, &samples[i], i + 1 < item->count ? &samples[i + 1] : NULL, &sums[i]);
    means[i] = sums[i] / (double)(item->bytes[i] ? item->bytes[i] : 1);
  }
  for (size_t i = 0; i < item->count; i++) still_sample_free(&samples[i]);
  if (status) return still_fail_in(status, "item %zu", index);
  result->count++;
  result->right += best_of(sums, item->count) == item->answer;
  result->right_norm += best_of(means, item->count) == item->answer;
  return STILL_OK;
}

/* ---- the whole */

static still_status ask_all(quiz *q, still_choice_result *result) {
  const still_choice_options *o = q->options;
  const size_t most =
      o->items && (size_t)o->items < q->items.count ? (size_t)o->items : q->items.count;
  memset(result, 0, sizeof *result);
  for (size_t i = 0; i < most; i++) {
    STILL_TRY(ask(q, i, result));
    if (o->progress && o->progress(o->progress_user, i + 1, most))
      return still_fail(STILL_ERROR_CANCELLED, "choices: stopped after %zu of %zu items", i + 1,
                        most);
  }
  return STILL_OK;
}

static still_status open_quiz(quiz *q, const still_evaluation_run *run, const char *path) {
  still_model_info info;
  still_session_options session = run->session;
  if (!q->tokenizer)
    return still_fail(STILL_ERROR_ARGUMENT, "run '%.60s': the model has no vocabulary", run->name);
  STILL_TRY(still_choice_items_read(&q->items, path));
  still_model_get_info(run->model, &info);
  q->evaluator.vocabulary = info.vocabulary;
  if (!session.context) session.context = info.trained_context;
  q->context = session.context;
  return still_session_create(&q->evaluator.session, run->model, &session);
}

still_status still_evaluate_choices(const still_evaluation_run *run, const char *path,
                                    const still_choice_options *options,
                                    still_choice_result *result) {
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(options, still_choice_options));
  if (options->items < 0 || options->examples < 0 || options->examples > 100)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "choices: items %d, examples %d, must be from 0, and 0 .. 100",
                      options->items, options->examples);
  quiz q = {.options = options, .tokenizer = still_model_tokenizer(run->model)};
  still_status status = open_quiz(&q, run, path);
  if (!status) status = ask_all(&q, result);
  still_evaluator_free(&q.evaluator);
  still_choice_items_free(&q.items);
  return status;
}
