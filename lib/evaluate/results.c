/* SPDX-License-Identifier: MIT */
#include "evaluate/results.h"

#include "base/files.h"
#include "base/memory.h"
#include "base/random.h"
#include "model/model_state.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
  NAME_BYTES = 512,
  KEY_BYTES = 2 * NAME_BYTES + 64,
  OPTION_BYTES = 2048,
  IDENTITY_BYTES = 2176
};

static size_t sample_key(const still_result *r, char *key) {
  const int length = snprintf(key, KEY_BYTES, "%s\t%s\t%d\t%d\t%d", r->run, r->task, r->length,
                              r->depth_index, r->index);
  return length < KEY_BYTES ? (size_t)length : KEY_BYTES - 1;
}

bool still_results_find(const still_results *results, still_result *r) {
  char key[KEY_BYTES];
  const size_t number = still_name_table_find(&results->samples, key, sample_key(r, key));
  if (number == SIZE_MAX) return false;
  r->right = results->records[number].right;
  r->depth = results->records[number].depth;
  return true;
}

/* ---- runs: what must be alike for results of one name to belong together */

/* The parts of a session's options that change what it computes. */
static void describe_options(const still_session_options *o, char *text, size_t bytes) {
  snprintf(text, bytes,
           "attention %d, adapter kinds %d, chunk %d, budget %d, schedule %d %d %g, metric %d, "
           "routing %d %" PRIu64 ", window %d, sinks %d, layers %s, context %d, cache %d, own %u",
           (int)o->attention, o->adapter_kinds, o->chunk, o->budget, (int)o->schedule, o->keep,
           (double)o->keep_ratio, (int)o->metric, (int)o->routing, o->routing_seed, o->window,
           o->sinks, o->layer_kinds ? o->layer_kinds : "-", o->context, (int)o->cache_type, o->own);
}

static void identify(char *text, const char *hash, const char *adapter, const char *options) {
  snprintf(text, IDENTITY_BYTES, "model %s, adapter %s, %s", hash, adapter, options);
}

static void identify_run(const still_evaluation_run *run, char *hash, char *adapter,
                         char *options) {
  still_model_info info;
  still_model_get_info(run->model, &info);
  snprintf(hash, 17, "%016" PRIx64, info.hash);
  snprintf(adapter, 17, "%016" PRIx64, run->model->adapter_hash);
  describe_options(&run->session, options, OPTION_BYTES);
}

static still_status number_of(still_name_table *names, const char *name, size_t *number) {
  *number = still_name_table_find(names, name, strlen(name));
  if (*number != SIZE_MAX) return STILL_OK;
  if (strlen(name) > NAME_BYTES)
    return still_fail(STILL_ERROR_ARGUMENT, "'%.40s...' has %zu bytes, a name has at most %d", name,
                      strlen(name), NAME_BYTES);
  *number = names->count;
  return still_name_table_add(names, name, strlen(name), "name");
}

static still_status know_run(still_results *results, const char *name, const char *identity) {
  size_t number;
  STILL_TRY(number_of(&results->runs, name, &number));
  if (number >= results->identity_room) {
    const size_t room = 2 * number + 16;
    STILL_TRY(STILL_REALLOC(&results->identities, room, "results"));
    results->identity_room = room;
  }
  char **known = &results->identities[number];
  if (!*known) return still_copy_string(known, identity);
  if (!strcmp(*known, identity)) return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT, "run '%.60s' is of '%s', not of '%s'", name, identity,
                    *known);
}

/* ---- reading */

static still_status add_record(still_results *results, const still_result *r) {
  char key[KEY_BYTES];
  still_record record = {
      .length = r->length, .depth_index = r->depth_index, .depth = r->depth, .right = r->right};
  STILL_TRY(number_of(&results->runs, r->run, &record.run));
  STILL_TRY(number_of(&results->tasks, r->task, &record.task));
  const size_t bytes = sample_key(r, key), number = results->samples.count;
  if (still_name_table_find(&results->samples, key, bytes) != SIZE_MAX) return STILL_OK;
  if (number == results->record_room) {
    const size_t room = 2 * number + 256;
    STILL_TRY(STILL_REALLOC(&results->records, room, "results"));
    results->record_room = room;
  }
  STILL_TRY(still_name_table_add(&results->samples, key, bytes, "sample"));
  results->records[number] = record;
  return STILL_OK;
}

static still_status get_int(const still_json *line, const char *name, int lowest, int highest,
                            int *out) {
  double value;
  STILL_TRY(still_json_get_f64(line, name, &value));
  if (value < lowest || value > highest || value != (int)value)
    return still_fail(STILL_ERROR_FORMAT, "'%s' is %g, must be an integer from %d to %d", name,
                      value, lowest, highest);
  *out = (int)value;
  return STILL_OK;
}

static still_status get_share(const still_json *line, const char *name, double *out) {
  STILL_TRY(still_json_get_f64(line, name, out));
  if (*out >= 0 && *out <= 1) return STILL_OK;
  return still_fail(STILL_ERROR_FORMAT, "'%s' is %g, must be 0 .. 1", name, *out);
}

static still_status read_sample(still_results *results, const still_json *line) {
  still_result r = {0};
  STILL_TRY(still_json_get_string(line, "run", &r.run));
  STILL_TRY(still_json_get_string(line, "task", &r.task));
  STILL_TRY(get_int(line, "length", 0, INT32_MAX, &r.length));
  STILL_TRY(get_int(line, "depth_index", -1, 100, &r.depth_index));
  STILL_TRY(get_int(line, "index", 0, INT32_MAX, &r.index));
  STILL_TRY(get_share(line, "depth", &r.depth));
  STILL_TRY(get_share(line, "right", &r.right));
  return add_record(results, &r);
}

static still_status read_run(still_results *results, const still_json *told) {
  const char *name, *hash, *adapter, *options;
  char identity[IDENTITY_BYTES];
  STILL_TRY(still_json_get_string(told, "run", &name));
  STILL_TRY(still_json_get_string(told, "hash", &hash));
  STILL_TRY(still_json_get_string(told, "adapter", &adapter));
  STILL_TRY(still_json_get_string(told, "options", &options));
  identify(identity, hash, adapter, options);
  return know_run(results, name, identity);
}

static still_status read_head(still_results *results, const still_json *line) {
  const char *told;
  const still_json *list;
  STILL_TRY(still_json_get_string(line, "settings", &told));
  STILL_TRY(still_json_get(line, "runs", STILL_JSON_ARRAY, &list));
  if (!results->settings) STILL_TRY(still_copy_string(&results->settings, told));
  if (strcmp(told, results->settings))
    return still_fail(STILL_ERROR_ARGUMENT, "these results are of '%.300s', not of '%.300s'", told,
                      results->settings);
  for (const still_json *run = still_json_first(list); run; run = still_json_next(run))
    STILL_TRY(read_run(results, run));
  return STILL_OK;
}

static still_status read_line(void *user, const still_json *line) {
  still_results *results = user;
  if (still_json_find(line, "still_evaluation")) return read_head(results, line);
  static const char *const others[] = {"language", "language_row", "mechanism"}; /* of no task */
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (still_json_find(line, others[i])) return STILL_OK;
  if (!results->settings)
    return still_fail(STILL_ERROR_FORMAT, "a head with 'still_evaluation' must come first");
  return read_sample(results, line);
}

static still_status parse_line(const char *text, size_t bytes,
                               still_status (*each)(void *user, const still_json *line),
                               void *user) {
  still_json *line;
  STILL_TRY(still_json_parse(&line, "results", text, bytes, bytes));
  const still_status status = each(user, line);
  still_json_free(line);
  return status;
}

/* What is left of a line that was being written; the first is a head. */
static bool begins_line(const char *text, size_t bytes, bool head) {
  const char *start = head ? "{\"still_evaluation\"" : "{";
  const size_t length = strlen(start);
  return !memcmp(text, start, bytes < length ? bytes : length);
}

/* *complete: bytes of whole lines; another may have been begun behind them. */
static still_status read_lines(const char *path, size_t *complete,
                               still_status (*each)(void *user, const still_json *line),
                               void *user) {
  char *text;
  size_t bytes, number = 1;
  still_status status = STILL_OK;
  *complete = 0;
  STILL_TRY(still_read_text(path, STILL_JSON_FILE_LIMIT, &text, &bytes));
  for (const char *end; !status && (end = memchr(text + *complete, '\n', bytes - *complete));
       number++) {
    const size_t length = (size_t)(end - text) - *complete;
    status = parse_line(text + *complete, length, each, user);
    if (status) still_fail_in(status, "%s, line %zu", path, number);
    *complete += length + 1;
  }
  if (!status && !begins_line(text + *complete, bytes - *complete, number == 1))
    status = still_fail(STILL_ERROR_FORMAT, "%s, line %zu: no results", path, number);
  still_free(text);
  return status;
}

still_status still_results_read(still_results *results, const char *path) {
  size_t complete;
  return read_lines(path, &complete, read_line, results);
}

/* ---- lines of no task: those under heads like the plan's */

typedef struct visit {
  const still_results_plan *plan;
  bool like; /* the last head was */
} visit;

static bool is_like_run(const still_json *told, const still_evaluation_run *run) {
  char hash[17], adapter[17], options[OPTION_BYTES];
  identify_run(run, hash, adapter, options);
  const char *const keys[] = {"run", "hash", "adapter", "options"};
  const char *const wanted[] = {run->name, hash, adapter, options};
  for (int i = 0; i < 4; i++) {
    const char *text = NULL;
    if (still_json_to_string(still_json_find(told, keys[i]), keys[i], &text) ||
        strcmp(text, wanted[i]))
      return false;
  }
  return true;
}

static bool is_like_head(const still_json *line, const still_results_plan *plan) {
  const still_json *run = still_json_first(still_json_find(line, "runs"));
  const char *settings = NULL;
  if (still_json_to_string(still_json_find(line, "settings"), "settings", &settings) ||
      strcmp(settings, plan->settings))
    return false;
  for (size_t i = 0; i < plan->run_count; i++, run = still_json_next(run))
    if (!run || !is_like_run(run, &plan->runs[i])) return false;
  return !run;
}

static still_status visit_line(void *user, const still_json *line) {
  visit *v = user;
  if (!still_json_find(line, "still_evaluation"))
    return v->like ? v->plan->line(v->plan->user, line) : STILL_OK;
  v->like = is_like_head(line, v->plan);
  return STILL_OK;
}

/* ---- writing */

static still_status write_failed(const still_results *results) {
  return still_fail(STILL_ERROR_FILE, "%s: %s", results->path, strerror(errno));
}

/* before, then "name": "text". */
static still_status put_text(FILE *stream, const char *before, const char *name, const char *text) {
  char *quoted;
  STILL_TRY(still_json_quote(&quoted, text ? text : ""));
  fprintf(stream, "%s\"%s\": %s", before, name, quoted);
  still_free(quoted);
  return STILL_OK;
}

static still_status put_run(FILE *stream, const char *before, const still_evaluation_run *run) {
  char hash[17], adapter[17], options[OPTION_BYTES];
  still_model_info info;
  still_model_get_info(run->model, &info);
  identify_run(run, hash, adapter, options);
  STILL_TRY(put_text(stream, before, "run", run->name));
  STILL_TRY(put_text(stream, ", ", "model", info.name));
  fprintf(stream, ", \"hash\": \"%s\", \"adapter\": \"%s\"", hash, adapter);
  STILL_TRY(put_text(stream, ", ", "options", options));
  fprintf(stream, ", \"device_layers\": %d}", info.device_layers);
  return STILL_OK;
}

static still_status put_head(still_results *results, const still_results_plan *plan) {
  FILE *stream = results->stream;
  fprintf(stream, "{\"still_evaluation\": 1, \"version\": \"%s\"", still_version());
  STILL_TRY(put_text(stream, ", ", "command", plan->command));
  STILL_TRY(put_text(stream, ", ", "settings", plan->settings));
  fprintf(stream, ", \"runs\": [");
  for (size_t i = 0; i < plan->run_count; i++)
    STILL_TRY(put_run(stream, i ? ", {" : "{", &plan->runs[i]));
  fprintf(stream, "]}\n");
  return fflush(stream) ? write_failed(results) : STILL_OK;
}

still_status still_results_put(still_results *results, const still_result *r) {
  FILE *stream = results->stream;
  if (!stream) return STILL_OK;
  STILL_TRY(put_text(stream, "{", "run", r->run));
  STILL_TRY(put_text(stream, ", ", "task", r->task));
  fprintf(stream,
          ", \"length\": %d, \"depth_index\": %d, \"index\": %d, \"depth\": %.6f, \"right\": %g, "
          "\"seconds\": %.4f",
          r->length, r->depth_index, r->index, r->depth, r->right, r->seconds);
  if (r->output) STILL_TRY(put_text(stream, ", ", "output", r->output));
  for (size_t i = 0; r->likelihoods && i < r->likelihood_count; i++)
    fprintf(stream, "%s%.9g", i ? ", " : ", \"likelihoods\": [", r->likelihoods[i]);
  fputs(r->likelihoods ? "]}\n" : "}\n", stream);
  return fflush(stream) ? write_failed(results) : STILL_OK;
}

still_status still_results_put_row(still_results *results, const char *run,
                                   const still_language_row *row) {
  FILE *stream = results->stream;
  if (!stream) return STILL_OK;
  STILL_TRY(put_text(stream, "{", "run", run));
  fprintf(stream,
          ", \"language_row\": %zu, \"tokens\": %zu, \"bytes\": %" PRIu64
          ", \"nats\": %.17g, \"agreed\": %zu",
          row->index, row->tokens, row->bytes, row->nats, row->agreed);
  for (size_t i = 0; row->divergences && i < row->tokens; i++)
    fprintf(stream, "%s%.9g", i ? ", " : ", \"divergences\": [", row->divergences[i]);
  fputs(row->divergences ? "]}\n" : "}\n", stream);
  return fflush(stream) ? write_failed(results) : STILL_OK;
}

still_status still_results_put_language(still_results *results, const char *run,
                                        const still_language_result *r) {
  FILE *stream = results->stream;
  if (!stream) return STILL_OK;
  STILL_TRY(put_text(stream, "{", "run", run));
  fprintf(stream,
          ", \"language\": {\"tokens\": %" PRId64 ", \"rows\": %" PRId64
          ", \"nats\": %.9g, \"nats_error\": %.9g, \"perplexity\": %.9g, \"bits_per_byte\": %.9g, "
          "\"divergence\": %.9g, \"divergence_99\": %.9g, \"agreement\": %.9g}}\n",
          r->tokens, r->rows, r->nats, r->nats_error, r->perplexity, r->bits_per_byte,
          r->divergence, r->divergence_99, r->agreement);
  return fflush(stream) ? write_failed(results) : STILL_OK;
}

/* What the plan says, for the heads of the file to be compared with. */
static still_status expect(still_results *results, const still_results_plan *plan) {
  STILL_TRY(still_copy_string(&results->path, plan->path));
  STILL_TRY(still_copy_string(&results->settings, plan->settings));
  for (size_t i = 0; i < plan->run_count; i++) {
    char hash[17], adapter[17], options[OPTION_BYTES], identity[IDENTITY_BYTES];
    identify_run(&plan->runs[i], hash, adapter, options);
    identify(identity, hash, adapter, options);
    STILL_TRY(know_run(results, plan->runs[i].name, identity));
  }
  return STILL_OK;
}

static still_status open_file(still_results *results, const still_results_plan *plan) {
  const bool goes_on = plan->resume && still_file_bytes(plan->path); /* a device or pipe: none */
  size_t complete = 0;
  visit known = {.plan = plan};
  STILL_TRY(expect(results, plan));
  if (goes_on)
    STILL_TRY(plan->line ? read_lines(plan->path, &complete, visit_line, &known)
                         : read_lines(plan->path, &complete, read_line, results));
  if (goes_on && truncate(plan->path, (off_t)complete)) return write_failed(results);
  results->stream = fopen(plan->path, goes_on || plan->append ? "a" : "w");
  if (!results->stream) return write_failed(results);
  return known.like || (plan->finished && *plan->finished) ? STILL_OK : put_head(results, plan);
}

uint64_t still_results_text_hash(const still_token *ids, size_t count) {
  uint64_t hash = count;
  for (size_t i = 0; i < count; i++) hash = still_hash64(hash ^ (uint64_t)ids[i]);
  return hash;
}

still_status still_results_open(still_results *results, const still_results_plan *plan) {
  memset(results, 0, sizeof *results);
  if (!plan->path) return STILL_OK;
  const still_status status = open_file(results, plan);
  if (status) still_results_close(results);
  return status;
}

void still_results_close(still_results *results) {
  if (results->stream) fclose(results->stream);
  for (size_t i = 0; i < results->identity_room; i++) still_free(results->identities[i]);
  still_free(results->identities);
  still_free(results->path);
  still_free(results->settings);
  still_free(results->records);
  still_name_table_free(&results->runs);
  still_name_table_free(&results->tasks);
  still_name_table_free(&results->samples);
  memset(results, 0, sizeof *results);
}
