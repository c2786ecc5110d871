/* SPDX-License-Identifier: MIT
 * From bytes to the budget, window or context that they allow. */
#include "base/memory.h"
#include "model/session.h"

#include <string.h>

/* The option that decides, and the range to look in. */
typedef struct knob {
  const char *name;
  int *value;
  unsigned own; /* what marks it as the caller's */
  int most;
} knob;

enum { MOST_WINDOW = 1 << 20, MOST_BUDGET = 1 << 30 };

static bool has_kind(const still_attention_kind *kinds, int layers, still_attention_kind kind) {
  for (int i = 0; i < layers; i++)
    if (kinds[i] == kind) return true;
  return false;
}

static knob choose_knob(const still_attention_kind *kinds, int layers, int trained_context,
                        still_session_options *options) {
  if (has_kind(kinds, layers, STILL_ATTENTION_STILL) && options->schedule != STILL_SCHEDULE_RATIO)
    return (knob){"budget", &options->budget, STILL_OWN_BUDGET, MOST_BUDGET};
  if (has_kind(kinds, layers, STILL_ATTENTION_SWA) ||
      has_kind(kinds, layers, STILL_ATTENTION_LOLCATS) ||
      has_kind(kinds, layers, STILL_ATTENTION_LIGER_GLA))
    return (knob){"window", &options->window, STILL_OWN_WINDOW, MOST_WINDOW};
  return (knob){"context", &options->context, 0,
                options->context ? options->context : trained_context};
}

/* Bytes of a session of these options once its context is full. */
static still_status cost(const still_model *model, const still_session_options *options,
                         uint64_t *bytes, int *context) {
  still_session_usage usage;
  STILL_TRY(still_session_estimate(model, options, 0, &usage));
  STILL_TRY(still_session_estimate(model, options, usage.context, &usage));
  *bytes = usage.cache_bytes + usage.work_bytes;
  *context = (int)usage.context;
  return STILL_OK;
}

/* The least value that the attention accepts, between 1 and k->most, which it does accept. */
static still_status find_least(const still_model *model, still_session_options *options,
                               const knob *k, uint64_t *bytes) {
  int low = 0, high = k->most, context;
  while (high - low > 1) {
    *k->value = low + (high - low) / 2;
    const still_status status = cost(model, options, bytes, &context);
    if (status && status != STILL_ERROR_ARGUMENT) return status;
    if (status)
      low = *k->value;
    else
      high = *k->value;
  }
  *k->value = high;
  return cost(model, options, bytes, &context);
}

static still_status search(const still_model *model, still_session_options *options, knob k,
                           uint64_t bytes) {
  uint64_t takes = 0;
  int context = 0;
  *k.value = k.most;
  STILL_TRY(cost(model, options, &takes, &context));
  if (k.value == &options->budget && k.most > context)
    k.most = context + options->chunk; /* then every token is kept */
  STILL_TRY(find_least(model, options, &k, &takes));
  if (takes > bytes)
    return still_fail(
        STILL_ERROR_ARGUMENT,
        "%llu bytes are too few for a session: it takes %llu with the smallest %s, %d",
        (unsigned long long)bytes, (unsigned long long)takes, k.name, *k.value);
  int low = *k.value, high = k.most + 1;
  while (high - low > 1) {
    *k.value = low + (high - low) / 2;
    STILL_TRY(cost(model, options, &takes, &context));
    if (takes <= bytes)
      low = *k.value;
    else
      high = *k.value;
  }
  *k.value = low;
  return STILL_OK;
}

still_status still_session_fit(const still_model *model, still_session_options *options,
                               uint64_t bytes) {
  if (!model || !options)
    return still_fail(STILL_ERROR_ARGUMENT, "still_session_fit: model or options is NULL");
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(options, still_session_options));
  const still_model_config *config = &model->weights->config;
  still_attention_kind *kinds;
  STILL_TRY(STILL_ALLOC(&kinds, (size_t)config->layers, "kinds of layers"));
  still_status status = still_session_kinds(model, options, kinds);
  still_session_options fitted = *options;
  const knob k = choose_knob(kinds, config->layers, config->trained_context, &fitted);
  still_free(kinds);
  fitted.own |= k.own;
  if (!fitted.block) fitted.block = STILL_LEAST_BLOCK; /* the memory is for what is attended to */
  if (!status) status = search(model, &fitted, k, bytes);
  if (!status) *options = fitted;
  return status;
}
