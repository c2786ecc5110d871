/* SPDX-License-Identifier: MIT
 * Options: names, defaults, ranges, and the schedule that turns a budget into tokens kept per
 * chunk. */
#include "attention/attention_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  MOST_HEADS = 4096,
  MOST_DIM = 1024,
  MOST_CHUNK = 1 << 20,
  MOST_WINDOW = 1 << 20,
  MOST_BUDGET = 1 << 30
};

static const char *const kind_names[] = {[STILL_ATTENTION_FULL] = "full",
                                         [STILL_ATTENTION_SWA] = "swa",
                                         [STILL_ATTENTION_STILL] = "still",
                                         [STILL_ATTENTION_LOLCATS] = "lolcats",
                                         [STILL_ATTENTION_LIGER_GLA] = "liger-gla",
                                         [STILL_ATTENTION_HEDGEHOG] = "hedgehog",
                                         [STILL_ATTENTION_T2R] = "t2r"};
static const char *const metric_names[] = {[STILL_METRIC_SALIENCY] = "saliency",
                                           [STILL_METRIC_DIAGONAL] = "diagonal",
                                           [STILL_METRIC_QK] = "qk",
                                           [STILL_METRIC_KEYNORM] = "keynorm",
                                           [STILL_METRIC_UNIFORM] = "uniform",
                                           [STILL_METRIC_RANDOM] = "random"};
enum {
  KINDS = sizeof kind_names / sizeof *kind_names,
  METRICS = sizeof metric_names / sizeof *metric_names
};

static still_status parse_name(const char *what, const char *name, const char *const *names,
                               int count, int *index) {
  char known[256] = "";
  for (int i = 0; i < count; i++) {
    if (name && !strcmp(name, names[i])) {
      *index = i;
      return STILL_OK;
    }
    strcat(strcat(known, i ? ", " : ""), names[i]);
  }
  return still_fail(STILL_ERROR_ARGUMENT, "%s '%s': unknown; one of: %s", what,
                    name ? name : "(none)", known);
}

const char *still_attention_kind_name(still_attention_kind kind) {
  return (unsigned)kind < KINDS ? kind_names[kind] : NULL;
}

still_status still_attention_kind_parse(const char *name, still_attention_kind *kind) {
  int index;
  STILL_TRY(parse_name("attention kind", name, kind_names, KINDS, &index));
  *kind = (still_attention_kind)index;
  return STILL_OK;
}

const char *still_metric_name(still_metric metric) {
  return (unsigned)metric < METRICS ? metric_names[metric] : NULL;
}

still_status still_metric_parse(const char *name, still_metric *metric) {
  int index;
  STILL_TRY(parse_name("routing metric", name, metric_names, METRICS, &index));
  *metric = (still_metric)index;
  return STILL_OK;
}

static still_status check_range(const char *option, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT, "%s is %lld, must be %lld .. %lld", option,
                    (long long)value, (long long)least, (long long)most);
}

static still_status check_ratio(const still_attention_options *o) {
  if (o->keep_ratio >= 0 && o->keep_ratio <= 1) return STILL_OK; /* false for NaN */
  return still_fail(STILL_ERROR_ARGUMENT, "keep_ratio is %g, must be 0 .. 1",
                    (double)o->keep_ratio);
}

static still_status check_still(const still_attention_options *o) {
  STILL_TRY(check_range("chunk", o->chunk, 1, MOST_CHUNK));
  STILL_TRY(check_range("schedule", o->schedule, 0, STILL_SCHEDULE_RATIO));
  STILL_TRY(check_range("metric", o->metric, 0, METRICS - 1));
  STILL_TRY(check_range("routing", o->routing, 0, STILL_ROUTING_PER_GROUP));
  STILL_TRY(check_range("feature_map", o->feature_map, 0, STILL_FEATURE_HEDGEHOG));
  if (o->schedule == STILL_SCHEDULE_FIXED) STILL_TRY(check_range("keep", o->keep, 0, o->chunk));
  if (o->schedule == STILL_SCHEDULE_RATIO) return check_ratio(o);
  if (o->schedule == STILL_SCHEDULE_FIXED && o->budget == 0) return STILL_OK;
  return check_range("budget", o->budget, o->chunk, MOST_BUDGET);
}

still_status still_attention_options_resolve(const still_attention_options *given,
                                             still_attention_options *o) {
  if (!given) return still_fail(STILL_ERROR_ARGUMENT, "options: NULL, heads must be given");
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(given, still_attention_options));
  *o = *given;
  if (!o->kv_heads) o->kv_heads = o->heads;
  STILL_TRY(check_range("kind", o->kind, 0, KINDS - 1));
  STILL_TRY(check_range("heads", o->heads, 1, MOST_HEADS));
  STILL_TRY(check_range("kv_heads", o->kv_heads, 1, o->heads));
  if (o->heads % o->kv_heads)
    return still_fail(STILL_ERROR_ARGUMENT, "kv_heads is %d, must divide heads (%d)", o->kv_heads,
                      o->heads);
  STILL_TRY(check_range("head_dim", o->head_dim, 1, MOST_DIM));
  STILL_TRY(check_range("context", o->context, 1, INT32_MAX));
  STILL_TRY(check_range("cache_type", o->cache_type, 0, STILL_BF16));
  STILL_TRY(check_range("threads", o->threads, 0, INT32_MAX));
  switch (o->kind) {
  case STILL_ATTENTION_STILL: return check_still(o);
  case STILL_ATTENTION_SWA:
    STILL_TRY(check_range("sinks", o->sinks, 0, MOST_WINDOW)); /* fall through */
  case STILL_ATTENTION_LOLCATS:
  case STILL_ATTENTION_LIGER_GLA: return check_range("window", o->window, 1, MOST_WINDOW);
  default: return STILL_OK;
  }
}

int still_attention_keep_for_length(int budget, int chunk, int64_t tokens) {
  if (chunk < 1 || budget <= chunk || tokens < 1) return 0;
  const int64_t chunks = (tokens + chunk - 1) / chunk;
  return (int)((budget - chunk) / chunks);
}

still_status still_attention_options_schedule(const still_attention_options *o, int *keep,
                                              int64_t *most_kept) {
  const int64_t room = (int64_t)o->budget - o->chunk;
  switch (o->schedule) {
  case STILL_SCHEDULE_FIXED:
    *keep = o->keep;
    *most_kept = o->budget ? room : -1;
    return STILL_OK;
  case STILL_SCHEDULE_RATIO:
    *keep = (int)lroundf(o->keep_ratio * (float)o->chunk);
    if (*keep > o->chunk) *keep = o->chunk;
    *most_kept = -1;
    return STILL_OK;
  default: break;
  }
  *keep = still_attention_keep_for_length(o->budget, o->chunk, o->context);
  *most_kept = room;
  if (!*keep)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "budget is %d: too small to keep one token for each chunk of %d in a context "
                      "of %d; the smallest that works is %lld",
                      o->budget, o->chunk, o->context,
                      (long long)o->chunk + ((long long)o->context + o->chunk - 1) / o->chunk);
  if (*keep > o->chunk) *keep = o->chunk;
  return STILL_OK;
}
