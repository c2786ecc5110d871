/* SPDX-License-Identifier: MIT */
#include "evaluate_runs.h"
#include "program_model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int complain(const char *run, const char *what, const char *allowed) {
  program_complain("--runs: '%s': %s; %s", run, what, allowed);
  return PROGRAM_USAGE;
}

static int parse_number(const char *run, const char *text, int lowest, int *out) {
  char *end;
  const long value = strtol(text, &end, 10);
  if (end == text || *end || value < lowest || value > INT_MAX)
    return complain(run, "a number is out of range",
                    lowest ? "allowed are 1 .. 2147483647" : "allowed are 0 .. 2147483647");
  *out = (int)value;
  return PROGRAM_DONE;
}

static int parse_metric(const char *run, const char *value, still_session_options *session) {
  if (still_metric_parse(value, &session->metric))
    return complain(run, "metric", still_last_error());
  session->own |= STILL_OWN_METRIC;
  return PROGRAM_DONE;
}

static int parse_routing(const char *run, const char *value, still_session_options *session) {
  const int group = !strcmp(value, "group");
  if (!group && strcmp(value, "head"))
    return complain(run, "routing is unknown", "known are head and group");
  session->routing = group ? STILL_ROUTING_PER_GROUP : STILL_ROUTING_PER_HEAD;
  session->own |= STILL_OWN_ROUTING;
  return PROGRAM_DONE;
}

static int parse_option(const char *run, char *option, still_session_options *session) {
  char *value = strchr(option, '=');
  if (value) {
    *value++ = 0;
    if (!strcmp(option, "metric")) return parse_metric(run, value, session);
    if (!strcmp(option, "routing")) return parse_routing(run, value, session);
    if (!strcmp(option, "chunk")) {
      session->own |= STILL_OWN_CHUNK;
      return parse_number(run, value, 1, &session->chunk);
    }
    if (!strcmp(option, "sinks")) {
      session->own |= STILL_OWN_WINDOW;
      return parse_number(run, value, 0, &session->sinks);
    }
    if (!strcmp(option, "context")) return parse_number(run, value, 0, &session->context);
  }
  return complain(run, "an option is unknown",
                  "known are +metric=, +routing=, +chunk=, +sinks=, +context=");
}

static int parse_size(const char *run, const char *kind, const char *value,
                      still_session_options *session) {
  const int still = !strcmp(kind, "still") || !strcmp(kind, "adapter");
  session->own |= still ? STILL_OWN_BUDGET : STILL_OWN_WINDOW;
  return parse_number(run, value, 1, still ? &session->budget : &session->window);
}

static int parse_kind(const char *run, char *kind, still_session_options *session) {
  char *value = strchr(kind, ':');
  if (value) *value++ = 0;
  session->adapter_kinds = 1;
  if (!strcmp(kind, "adapter")) {
    session->attention = STILL_ATTENTION_FULL; /* stands for "as the adapter says" */
  } else {
    if (still_attention_kind_parse(kind, &session->attention))
      return complain(run, still_last_error(), "or adapter");
    if (session->attention == STILL_ATTENTION_FULL) session->adapter_kinds = 0;
  }
  return value ? parse_size(run, kind, value, session) : PROGRAM_DONE;
}

/* Opens the model with this adapter (NULL: none), once. */
static still_model *model_with(evaluate_runs *runs, const char *adapter) {
  for (size_t i = 0; i < runs->model_count; i++)
    if (adapter ? runs->adapters[i] && !strcmp(runs->adapters[i], adapter) : !runs->adapters[i])
      return runs->models[i];
  still_model **models = realloc(runs->models, (runs->model_count + 1) * sizeof *models);
  if (models) runs->models = models;
  char **adapters = realloc(runs->adapters, (runs->model_count + 1) * sizeof *adapters);
  if (adapters) runs->adapters = adapters;
  char *copy = adapter ? strdup(adapter) : NULL;
  if (!models || !adapters || (adapter && !copy)) {
    program_complain("no memory");
    return NULL;
  }
  still_model *model = NULL;
  program_choice.adapter = adapter;
  if (program_model_open(&model)) {
    free(copy);
    return NULL;
  }
  runs->models[runs->model_count] = model;
  runs->adapters[runs->model_count++] = copy;
  return model;
}

/* text is the run's short form, which is taken apart. */
static int parse_run(evaluate_runs *runs, still_evaluation_run *run, char *text) {
  static const char *common_adapter;
  static int known;
  if (!known) common_adapter = program_choice.adapter, known = 1;
  char *adapter = strchr(text, '@');
  if (adapter) *adapter++ = 0;
  char *option = strchr(text, '+');
  if (option) *option++ = 0;
  run->session = program_session_options();
  int code = parse_kind(run->name, text, &run->session);
  while (!code && option) {
    char *next = strchr(option, '+');
    if (next) *next++ = 0;
    code = parse_option(run->name, option, &run->session);
    option = next;
  }
  if (code) return code;
  /* Full attention and the window are the base model's, unless an adapter stands beside them. */
  const still_attention_kind kind = run->session.attention;
  const int plain =
      (kind == STILL_ATTENTION_FULL && !run->session.adapter_kinds) || kind == STILL_ATTENTION_SWA;
  if (kind == STILL_ATTENTION_FULL && !plain && !adapter && !common_adapter)
    return complain(run->name, "no adapter is given", "give --adapter FILE or adapter@FILE");
  run->model = model_with(runs, adapter ? adapter : plain ? NULL : common_adapter);
  if (!run->model) return PROGRAM_FAILED;
  const int sized = run->session.own & (STILL_OWN_BUDGET | STILL_OWN_WINDOW);
  return sized ? PROGRAM_DONE : program_fit_session(run->model, &run->session);
}

static int check_name(const evaluate_runs *runs, const char *name) {
  for (size_t i = 0; i < runs->count; i++)
    if (!strcmp(runs->items[i].name, name))
      return complain(name, "the run is given twice", "their results could not be told apart");
  return PROGRAM_DONE;
}

static int add_run(evaluate_runs *runs, const char *text, size_t length) {
  still_evaluation_run *items = realloc(runs->items, (runs->count + 1) * sizeof *items);
  if (items) runs->items = items;
  char *name = strndup(text, length), *parts = strndup(text, length);
  int code = PROGRAM_FAILED;
  if (items && name && parts && !(code = check_name(runs, name))) {
    runs->items[runs->count++] = (still_evaluation_run){.name = name};
    code = parse_run(runs, &runs->items[runs->count - 1], parts);
    name = NULL;
  }
  free(name);
  free(parts);
  return code;
}

int evaluate_runs_open(evaluate_runs *runs, const char *text) {
  int code = PROGRAM_DONE;
  memset(runs, 0, sizeof *runs);
  while (!code && *text) {
    const size_t length = strcspn(text, ",");
    if (length) code = add_run(runs, text, length);
    text += length + (text[length] == ',');
  }
  if (code || runs->count) return code;
  program_complain("--runs: no run is given, e.g. --runs full,still:256");
  return PROGRAM_USAGE;
}

void evaluate_runs_close(evaluate_runs *runs) {
  for (size_t i = 0; i < runs->count; i++) free((char *)runs->items[i].name);
  for (size_t i = 0; i < runs->model_count; i++) {
    still_model_destroy(runs->models[i]);
    free(runs->adapters[i]);
  }
  free(runs->items);
  free(runs->models);
  free(runs->adapters);
}
