/* SPDX-License-Identifier: MIT */
#include "evaluate/results.h"

#include "base/files.h"
#include "base/memory.h"
#include "formats/json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { KEY_BYTES = 512 };

static size_t sample_key(const still_result *r, char *key) {
  const int length = snprintf(key, KEY_BYTES, "%s\t%s\t%d\t%d\t%d", r->run, r->task, r->length,
                              r->depth_index, r->index);
  return length < KEY_BYTES ? (size_t)length : KEY_BYTES - 1;
}

bool still_results_find(const still_results *results, still_result *r) {
  char key[KEY_BYTES];
  const size_t number = still_name_table_find(&results->done, key, sample_key(r, key));
  if (number == SIZE_MAX) return false;
  r->right = results->right[number];
  r->depth = results->depth[number];
  return true;
}

/* ---- reading */

static still_status add_done(still_results *results, const still_result *r) {
  char key[KEY_BYTES];
  const size_t number = results->done.count;
  if (number == results->room) {
    const size_t room = 2 * number + 256;
    STILL_TRY(STILL_REALLOC(&results->right, room, "results"));
    STILL_TRY(STILL_REALLOC(&results->depth, room, "results"));
    results->room = room;
  }
  STILL_TRY(still_name_table_add(&results->done, key, sample_key(r, key), "sample"));
  results->right[number] = r->right;
  results->depth[number] = r->depth;
  return STILL_OK;
}

static still_status get_int(const still_json *line, const char *name, int lowest, int *out) {
  double value;
  STILL_TRY(still_json_get_f64(line, name, &value));
  if (value < lowest || value > INT32_MAX || value != (int)value)
    return still_fail(STILL_ERROR_FORMAT, "'%s' is %g, must be an integer from %d", name, value,
                      lowest);
  *out = (int)value;
  return STILL_OK;
}

static still_status read_sample(still_results *results, const still_json *line) {
  still_result r = {0};
  STILL_TRY(still_json_get_string(line, "run", &r.run));
  STILL_TRY(still_json_get_string(line, "task", &r.task));
  STILL_TRY(get_int(line, "length", 0, &r.length));
  STILL_TRY(get_int(line, "depth_index", -1, &r.depth_index));
  STILL_TRY(get_int(line, "index", 0, &r.index));
  STILL_TRY(still_json_get_f64(line, "depth", &r.depth));
  STILL_TRY(still_json_get_f64(line, "right", &r.right));
  return add_done(results, &r);
}

static void hash_text(const still_model *model, char *text) {
  still_model_info info;
  still_model_get_info(model, &info);
  snprintf(text, 17, "%016" PRIx64, info.hash);
}

static still_status check_run(const still_json *told, const still_evaluation_run *runs,
                              size_t run_count) {
  const char *name, *hash;
  char own[17];
  STILL_TRY(still_json_get_string(told, "run", &name));
  STILL_TRY(still_json_get_string(told, "hash", &hash));
  for (size_t i = 0; i < run_count; i++) {
    if (strcmp(runs[i].name, name)) continue;
    hash_text(runs[i].model, own);
    if (strcmp(hash, own))
      return still_fail(STILL_ERROR_ARGUMENT, "run '%.60s' was of a model with hash %.16s, now %s",
                        name, hash, own);
  }
  return STILL_OK;
}

static still_status check_head(const still_json *line, const char *settings,
                               const still_evaluation_run *runs, size_t run_count) {
  const char *told;
  const still_json *list;
  STILL_TRY(still_json_get_string(line, "settings", &told));
  STILL_TRY(still_json_get(line, "runs", STILL_JSON_ARRAY, &list));
  if (strcmp(told, settings))
    return still_fail(STILL_ERROR_ARGUMENT, "these results are of '%.200s', now it is '%.200s'",
                      told, settings);
  for (const still_json *run = still_json_first(list); run; run = still_json_next(run))
    STILL_TRY(check_run(run, runs, run_count));
  return STILL_OK;
}

static still_status read_line(still_results *results, const char *text, size_t bytes,
                              const char *settings, const still_evaluation_run *runs,
                              size_t run_count) {
  still_json *line;
  STILL_TRY(still_json_parse(&line, "results", text, bytes, bytes));
  const still_status status = still_json_find(line, "still_evaluation")
                                  ? check_head(line, settings, runs, run_count)
                                  : read_sample(results, line);
  still_json_free(line);
  return status;
}

/* *complete: bytes of whole lines. */
static still_status read_lines(still_results *results, const char *path, const char *settings,
                               const still_evaluation_run *runs, size_t run_count,
                               size_t *complete) {
  char *text;
  size_t bytes, number = 1;
  still_status status = STILL_OK;
  *complete = 0;
  STILL_TRY(still_read_text(path, STILL_JSON_FILE_LIMIT, &text, &bytes));
  for (const char *end; !status && (end = memchr(text + *complete, '\n', bytes - *complete));
       number++) {
    const size_t length = (size_t)(end - text) - *complete;
    status = read_line(results, text + *complete, length, settings, runs, run_count);
    if (status) still_fail_in(status, "%s, line %zu", path, number);
    *complete += length + 1;
  }
  still_free(text);
  return status;
}

/* ---- writing */

static still_status write_failed(const still_results *results) {
  return still_fail(STILL_ERROR_FILE, "%s: %s", results->path, strerror(errno));
}

static still_status put_text(FILE *stream, const char *name, const char *text) {
  char *quoted;
  STILL_TRY(still_json_quote(&quoted, text ? text : ""));
  fprintf(stream, "\"%s\": %s", name, quoted);
  still_free(quoted);
  return STILL_OK;
}

static still_status put_head(still_results *results, const still_evaluation_options *options,
                             const still_evaluation_run *runs, size_t run_count,
                             const char *settings) {
  FILE *stream = results->stream;
  still_model_info info;
  char hash[17];
  fprintf(stream, "{\"still_evaluation\": 1, \"version\": \"%s\", ", still_version());
  STILL_TRY(put_text(stream, "command", options->command));
  STILL_TRY((fputs(", ", stream), put_text(stream, "settings", settings)));
  fprintf(stream, ", \"runs\": [");
  for (size_t i = 0; i < run_count; i++) {
    still_model_get_info(runs[i].model, &info);
    hash_text(runs[i].model, hash);
    STILL_TRY((fputs(i ? ", {" : "{", stream), put_text(stream, "run", runs[i].name)));
    STILL_TRY((fputs(", ", stream), put_text(stream, "model", info.name)));
    fprintf(stream, ", \"hash\": \"%s\"}", hash);
  }
  fprintf(stream, "]}\n");
  return fflush(stream) ? write_failed(results) : STILL_OK;
}

still_status still_results_put(still_results *results, const still_result *r) {
  FILE *stream = results->stream;
  if (!stream) return STILL_OK;
  fputc('{', stream);
  STILL_TRY(put_text(stream, "run", r->run));
  STILL_TRY((fputs(", ", stream), put_text(stream, "task", r->task)));
  fprintf(stream,
          ", \"length\": %d, \"depth_index\": %d, \"index\": %d, \"depth\": %.6f, \"right\": %g, "
          "\"seconds\": %.4f}\n",
          r->length, r->depth_index, r->index, r->depth, r->right, r->seconds);
  return fflush(stream) ? write_failed(results) : STILL_OK;
}

still_status still_results_open(still_results *results, const still_evaluation_options *options,
                                const still_evaluation_run *runs, size_t run_count,
                                const char *settings) {
  size_t complete = 0;
  memset(results, 0, sizeof *results);
  if (!options->results) return STILL_OK;
  const bool goes_on = options->resume && still_path_exists(options->results);
  still_status status = still_copy_string(&results->path, options->results);
  if (!status && goes_on)
    status = read_lines(results, options->results, settings, runs, run_count, &complete);
  if (!status && goes_on && truncate(options->results, (off_t)complete))
    status = write_failed(results);
  if (!status && !(results->stream = fopen(options->results, goes_on ? "a" : "w")))
    status = write_failed(results);
  if (!status) status = put_head(results, options, runs, run_count, settings);
  if (status) still_results_close(results);
  return status;
}

void still_results_close(still_results *results) {
  if (results->stream) fclose(results->stream);
  still_free(results->path);
  still_free(results->right);
  still_free(results->depth);
  still_name_table_free(&results->done);
  memset(results, 0, sizeof *results);
}
