/* SPDX-License-Identifier: MIT
 * From logits to the next token. */
#include "base/memory.h"
#include "base/random.h"

#include <still/model.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
  float logit;
  still_token token;
} candidate;

struct still_sampler {
  still_sampler_options options;
  uint64_t seed;
  still_random random;
  still_token *recent; /* ring of the last repeat_last tokens */
  size_t recent_count;
  candidate *candidates;
  double *weights;
  size_t capacity;
};

enum { MOST_RECENT = 1 << 20 };

static still_status check_options(const still_sampler_options *options) {
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(options, still_sampler_options));
  const struct {
    const char *name;
    float value;
  } numbers[] = {{"temperature", options->temperature},
                 {"top_p", options->top_p},
                 {"min_p", options->min_p},
                 {"repeat_penalty", options->repeat_penalty}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    if (isnan(numbers[i].value))
      return still_fail(STILL_ERROR_ARGUMENT, "%s is not a number", numbers[i].name);
  if (!(options->repeat_penalty > 0) || isinf(options->repeat_penalty))
    return still_fail(STILL_ERROR_ARGUMENT, "repeat_penalty is %g, must be above 0",
                      (double)options->repeat_penalty);
  if (isinf(options->temperature) && options->temperature > 0)
    return still_fail(STILL_ERROR_ARGUMENT, "temperature is infinite, must be a finite number");
  if (options->repeat_last < 0 || options->repeat_last > MOST_RECENT)
    return still_fail(STILL_ERROR_ARGUMENT, "repeat_last is %d, must be 0 .. %d",
                      options->repeat_last, MOST_RECENT);
  if (options->seed < -1)
    return still_fail(STILL_ERROR_ARGUMENT, "seed is %lld, must be -1 or more",
                      (long long)options->seed);
  return STILL_OK;
}

still_status still_sampler_create(still_sampler **out, const still_sampler_options *given) {
  const still_sampler_options defaults = STILL_SAMPLER_OPTIONS_INIT;
  const still_sampler_options *options = given ? given : &defaults;
  *out = NULL;
  STILL_TRY(check_options(options));
  uint64_t seed = (uint64_t)options->seed;
  if (options->seed == -1) {
    STILL_TRY(still_random_system(&seed));
    seed &= INT64_MAX; /* so that it can be given as an option */
  }
  still_sampler *sampler;
  STILL_TRY(STILL_ALLOC(&sampler, 1, "a sampler"));
  sampler->options = *options;
  sampler->seed = seed;
  still_random_seed(&sampler->random, seed);
  const still_status status =
      STILL_ALLOC(&sampler->recent, (size_t)options->repeat_last, "recent tokens");
  if (status)
    still_free(sampler);
  else
    *out = sampler;
  return status;
}

void still_sampler_destroy(still_sampler *sampler) {
  if (!sampler) return;
  still_free(sampler->recent);
  still_free(sampler->candidates);
  still_free(sampler->weights);
  still_free(sampler);
}

uint64_t still_sampler_seed(const still_sampler *sampler) {
  return sampler->seed;
}

void still_sampler_accept(still_sampler *sampler, still_token token) {
  const size_t room = (size_t)sampler->options.repeat_last;
  if (room) sampler->recent[sampler->recent_count++ % room] = token;
}

/* ---- candidates --------------------------------------------------------------------------------- */

static still_status reserve(still_sampler *sampler, size_t count) {
  if (count <= sampler->capacity) return STILL_OK;
  sampler->capacity = 0;
  STILL_TRY(STILL_REALLOC(&sampler->candidates, count, "candidates"));
  STILL_TRY(STILL_REALLOC(&sampler->weights, count, "weights of candidates"));
  sampler->capacity = count;
  return STILL_OK;
}

static still_status check_logits(const float *logits, size_t count) {
  bool any = false;
  for (size_t i = 0; i < count; i++) {
    if (isnan(logits[i]) || logits[i] == INFINITY)
      return still_fail(STILL_ERROR_NUMERIC, "logit %zu of %zu is %g", i, count, (double)logits[i]);
    any = any || logits[i] != -INFINITY;
  }
  if (any) return STILL_OK;
  return still_fail(STILL_ERROR_NUMERIC, "all %zu logits are -infinity, from index 0 on", count);
}

/* Positive logits are divided, negative ones multiplied: both make the token less likely. Once for each token, which
 * shows by its logit being no longer the given one. */
static void penalise(const still_sampler *sampler, const float *logits, size_t count) {
  const size_t room = (size_t)sampler->options.repeat_last;
  const size_t known = sampler->recent_count < room ? sampler->recent_count : room;
  const float penalty = sampler->options.repeat_penalty;
  for (size_t i = 0; i < known; i++) {
    const still_token token = sampler->recent[i];
    if (token < 0 || (size_t)token >= count) continue;
    float *logit = &sampler->candidates[token].logit;
    if (*logit == logits[token]) *logit = *logit > 0 ? *logit / penalty : *logit * penalty;
  }
}

/* The likelier first; equal ones by id, so that every machine agrees. */
static int by_logit(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
  return (a->token > b->token) - (a->token < b->token);
}

/* Moves the `wanted` likeliest to the front, in no order (Hoare's selection). */
static void select_top(candidate *list, size_t count, size_t wanted) {
  size_t low = 0, high = count;
  while (high - low > 1) {
    const candidate pivot = list[low + (high - low) / 2];
    size_t i = low, j = high - 1;
    for (;;) {
      while (by_logit(&list[i], &pivot) < 0) i++;
      while (by_logit(&list[j], &pivot) > 0) j--;
      if (i >= j) break;
      const candidate swap = list[i];
      list[i++] = list[j];
      list[j--] = swap;
    }
    /* list[low .. i-1] come before or equal the pivot, list[i ..] after or equal */
    const size_t border = i > low ? i : low + 1;
    if (border == wanted) return;
    if (border < wanted)
      low = border;
    else
      high = border;
  }
}

/* ---- filters ------------------------------------------------------------------------------------ */

/* weights[i] = exp(logit - largest); returns their sum. */
static double weigh(still_sampler *sampler, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++)
    sum += sampler->weights[i] =
        exp((double)sampler->candidates[i].logit - (double)sampler->candidates[0].logit);
  return sum;
}

/* The shortest front whose probability reaches top_p. */
static size_t cut_top_p(still_sampler *sampler, size_t count) {
  const double wanted = sampler->options.top_p * weigh(sampler, count);
  double sum = 0;
  size_t kept = 0;
  while (kept < count && (!kept || sum < wanted)) sum += sampler->weights[kept++];
  return kept;
}

static size_t cut_min_p(still_sampler *sampler, size_t count) {
  weigh(sampler, count);
  size_t kept = 1;
  while (kept < count && sampler->weights[kept] >= sampler->options.min_p) kept++;
  return kept;
}

static still_token draw(still_sampler *sampler, size_t count) {
  const double temperature = sampler->options.temperature;
  const double largest = sampler->candidates[0].logit;
  double sum = 0;
  for (size_t i = 0; i < count; i++)
    sum += sampler->weights[i] =
        exp(((double)sampler->candidates[i].logit - largest) / temperature);
  double left = still_random_double(&sampler->random) * sum;
  size_t chosen = 0;
  while (chosen + 1 < count && (left -= sampler->weights[chosen]) >= 0) chosen++;
  return sampler->candidates[chosen].token;
}

static still_token most_likely(const candidate *candidates, size_t count) {
  size_t best = 0;
  for (size_t i = 1; i < count; i++)
    if (candidates[i].logit > candidates[best].logit) best = i;
  return candidates[best].token;
}

static still_token choose(still_sampler *sampler, size_t count) {
  const still_sampler_options *options = &sampler->options;
  if (!(options->temperature > 0)) return most_likely(sampler->candidates, count);
  size_t kept = count;
  if (options->top_k > 0 && (size_t)options->top_k < count) {
    kept = (size_t)options->top_k;
    select_top(sampler->candidates, count, kept);
  }
  qsort(sampler->candidates, kept, sizeof *sampler->candidates, by_logit);
  if (options->top_p < 1) kept = cut_top_p(sampler, kept);
  if (options->min_p > 0) kept = cut_min_p(sampler, kept);
  return draw(sampler, kept);
}

still_status still_sampler_sample(still_sampler *sampler, const float *logits, size_t count,
                                  still_token *token) {
  if (!logits || !count || count > INT32_MAX)
    return still_fail(STILL_ERROR_ARGUMENT, "%zu logits, must be 1 .. %d", logits ? count : 0,
                      INT32_MAX);
  STILL_TRY(check_logits(logits, count));
  STILL_TRY(reserve(sampler, count));
  for (size_t i = 0; i < count; i++)
    sampler->candidates[i] = (candidate){logits[i], (still_token)i};
  penalise(sampler, logits, count);
  *token = choose(sampler, count);
  still_sampler_accept(sampler, *token);
  return STILL_OK;
}
