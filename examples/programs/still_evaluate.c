/* SPDX-License-Identifier: MIT
 * still-evaluate: how often a model finds what stood in a long text, for several kinds of attention
 * side by side. */
#include "evaluate_mechanism.h"
#include "program_arguments.h"
#include "program_json.h" /* program_utf8_length */
#include "program_model.h"
#include "program_terminal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LIST = 64, MOST_FILES = 1024, DEFAULT_SAMPLES = 100 };

static struct {
  const char *runs, *tasks, *lengths, *haystack, *babi, *templates, *keys, *results, *text,
      *choices, *plot, *shard, *report, *questions, *shown;
  int samples, depths, exact, resume, skip_long, stride, rows, items, examples;
  int mechanism, choice_format, quiet, verbose, version, help, list_tasks;
  int64_t seed;
} arguments = {.runs = "full", .lengths = "1024", .samples = DEFAULT_SAMPLES, .seed = 7};

static const char *choice_format(int index) {
  static const char *const formats[] = {"file", "text", "letters"};
  return index < 3 ? formats[index] : NULL;
}

static const program_flag evaluate_flags[] = {
    FLAG_HEADING("what to compare"),
    FLAG_TEXT("--runs", "LIST", "KIND[:N][+OPTION=VALUE][@ADAPTER],... e.g. full,swa:256,still:256",
              &arguments.runs),
    FLAG_HEADING("what to ask"),
    FLAG_TEXT("--tasks", "LIST", "names with commas between them (--list-tasks), e.g. sniah1",
              &arguments.tasks),
    FLAG_TEXT("--lengths", "LIST",
              "tokens of a sample, e.g. 512,1024,4096; 0: bare facts (qa, babi)",
              &arguments.lengths),
    FLAG_RANGE(INTEGER, "-n, --samples", "N", "of each task and length", &arguments.samples, 1,
               1000000, NULL, NULL),
    FLAG_SWITCH("--exact",
                "answers token by token; default: RULER's and BABILong's rules on what is written",
                &arguments.exact),
    FLAG_RANGE(INTEGER, "--depths", "N", "needles at each of N depths", &arguments.depths, 2, 101,
               "0", "drawn at random"),
    FLAG_RANGE(LONG, "-s, --seed", "N", "of the samples", &arguments.seed, 0, 9e15, NULL, NULL),
    FLAG_TEXT("--haystack", "FILE",
              "text that prose tasks hide needles in; default: the model's own "
              "haystack.txt",
              &arguments.haystack),
    FLAG_TEXT("--questions", "FILE",
              "JSON lines for the task documents: question, context, answers, title (as SQuAD's)",
              &arguments.questions),
    FLAG_TEXT("--babi", "FOLDER", "bAbI's files, for the tasks babi1 .. babi5", &arguments.babi),
    FLAG_TEXT("--templates", "FILE",
              "wording; default: the model's own templates.json, else built in",
              &arguments.templates),
    FLAG_TEXT("--keys", "FILE", "key words; default: the model's own keys.json, else built in",
              &arguments.keys),
    FLAG_SWITCH("--skip-long", "leave out lengths that model or task do not allow",
                &arguments.skip_long),
    FLAG_HEADING("other questions, instead of tasks"),
    FLAG_TEXT("--text", "FILE",
              "perplexity on a text, in rows of the first of --lengths; with "
              "a run \"full\" also the distance of the others from it",
              &arguments.text),
    FLAG_RANGE(INTEGER, "--stride", "N", "tokens from one row to the next", &arguments.stride, 1,
               INT_MAX, "0", "rows side by side"),
    FLAG_RANGE(INTEGER, "--rows", "N", "most rows", &arguments.rows, 1, INT_MAX, "0", "all"),
    FLAG_SWITCH("--mechanism",
                "with --text: how heads choose in the text's first tokens (as many as the first of "
                "--lengths), and what their linear branch does; a run \"full\" is what they are "
                "compared with",
                &arguments.mechanism),
    FLAG_TEXT("--choices", "FILE", "multiple choice from JSON lines (PIQA, ARC, WinoGrande ...)",
              &arguments.choices),
    FLAG_RANGE(INTEGER, "--items", "N", "most questions", &arguments.items, 1, INT_MAX, "0", "all"),
    FLAG_CHOICE("--choice-format", "FORMAT",
                "file: as its lines suggest; text: choices are scored; letters: A, B ... as MMLU",
                &arguments.choice_format, choice_format),
    FLAG_TEXT("--shown", "FILE", "where the answered questions are from; default: the same file",
              &arguments.shown),
    FLAG_RANGE(INTEGER, "--examples", "N", "answered questions shown first", &arguments.examples, 0,
               100, NULL, NULL),
    FLAG_HEADING("several processes"),
    FLAG_TEXT("--shard", "I/N", "part I of N of the samples alone, each with results of its own",
              &arguments.shard),
    FLAG_TEXT("--report", "FILE,FILE...", "tables and --plot of these results; asks nothing",
              &arguments.report),
    FLAG_HEADING("what to show"),
    FLAG_TEXT("-o, --results", "FILE",
              "every sample as a line of JSON; --text adds to what is there", &arguments.results),
    FLAG_TEXT("--plot", "FILE.svg",
              "draw accuracy over length; with --depths, over depth and length", &arguments.plot),
    FLAG_SWITCH("--resume", "go on where that file ends: what it has is not asked again",
                &arguments.resume),
    FLAG_SWITCH("--list-tasks", "list the tasks and end", &arguments.list_tasks),
    FLAG_SWITCH("-q, --quiet", "nothing on stderr but errors", &arguments.quiet),
    FLAG_SWITCH("-v, --verbose", "more log lines; twice: all", &arguments.verbose),
    FLAG_SWITCH("--version", "print the version and end", &arguments.version),
    FLAG_SWITCH("-h, --help", "print this and end", &arguments.help),
    FLAG_END};

static const program_flag *const flags[] = {program_model_flags, evaluate_flags, NULL};

/* ---- arguments */

static char *copy_or_fail(const char *text) {
  char *copy = strdup(text);
  if (!copy) program_complain("no memory");
  return copy;
}

/* Cuts text at its commas. PROGRAM_USAGE, said on stderr: more than `most` items. */
static int split(const char *flag, char *text, const char **items, size_t most, size_t *count) {
  *count = 0;
  for (char *item = strtok(text, ","); item; item = strtok(NULL, ",")) {
    if (*count == most) {
      program_complain("%s: more than %zu items", flag, most);
      return PROGRAM_USAGE;
    }
    items[(*count)++] = item;
  }
  return PROGRAM_DONE;
}

static int parse_lengths(const char *const *items, size_t count, int *lengths) {
  for (size_t i = 0; i < count; i++) {
    char *end;
    const long value = strtol(items[i], &end, 10);
    if (*end || end == items[i] || value < 0 || value > INT_MAX) {
      program_complain("--lengths: '%s' is no number of tokens", items[i]);
      return PROGRAM_USAGE;
    }
    lengths[i] = (int)value;
  }
  return PROGRAM_DONE;
}

/* A file of this name in the model's folder. */
static const char *beside_model(const char *given, const char *name, char *buffer, size_t bytes) {
  const char *model = program_model_path();
  if (given || !model) return given;
  snprintf(buffer, bytes, "%s/%s", model, name);
  return access(buffer, R_OK) ? NULL : buffer;
}

/* The command line, for the head of the results; a byte that is no UTF-8 is told as "?". */
static const char *command_line(int argc, char **argv) {
  static char text[4096];
  size_t at = 0;
  for (int i = 0; i < argc && at < sizeof text; i++)
    at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? " " : "", argv[i]);
  for (size_t i = 0, length = strlen(text); i < length;) {
    const size_t bytes = program_utf8_length(text + i, length - i);
    if (!bytes) text[i] = '?';
    i += bytes ? bytes : 1;
  }
  return text;
}

/* ---- progress and table */

/* On a terminal one line that changes, elsewhere (a log) a line a minute. `user`: what is counted. */
static int show_progress(void *user, uint64_t done, uint64_t total) {
  static double start, shown;
  static uint64_t before; /* what the results file already had comes at once */
  const int terminal = isatty(STDERR_FILENO);
  const double time = program_seconds();
  if (!start || done < before || time - start < 1e-3) start = time, before = done;
  if (!shown) shown = time;
  if (!program_quiet() && time - shown > (terminal ? 0.2 : 60) && done > before) {
    const double rate = (time - start) / (double)(done - before);
    const long left = (long)(rate * (double)(total - done));
    fprintf(stderr, "%s%llu of %llu %s, %ld min %02ld s left%s", terminal ? "\r\033[K" : "",
            (unsigned long long)done, (unsigned long long)total, (const char *)user, left / 60,
            left % 60, terminal ? "" : "\n");
    shown = time;
  }
  return program_interrupted();
}

/* The different runs, tasks and lengths of a report, each once, in its order. */
typedef struct table_axes {
  const char *runs[MOST_LIST], *tasks[MOST_LIST];
  int lengths[MOST_LIST];
  size_t run_count, task_count, length_count;
} table_axes;

/* A table of more names than fit shows the first, and says so. */
static void add_name(const char **names, size_t *count, const char *name) {
  static int said;
  for (size_t i = 0; i < *count; i++)
    if (!strcmp(names[i], name)) return;
  if (*count < MOST_LIST)
    names[(*count)++] = name;
  else if (!said++)
    program_complain("the tables show the first %d names alone, '%s' is left out", MOST_LIST, name);
}

static table_axes find_axes(const still_evaluation_cell *cells, size_t count) {
  table_axes axes = {.run_count = 0};
  for (size_t i = 0; i < count; i++) {
    add_name(axes.runs, &axes.run_count, cells[i].run);
    add_name(axes.tasks, &axes.task_count, cells[i].task);
    const size_t known = axes.length_count; /* lengths come in order, all cells of each together */
    if ((!known || axes.lengths[known - 1] != cells[i].length) && known < MOST_LIST)
      axes.lengths[axes.length_count++] = cells[i].length;
  }
  return axes;
}

/* All depths of a run, task and length. */
static still_evaluation_cell sum_of(const still_evaluation_cell *cells, size_t count,
                                    const char *run, const char *task, int length) {
  still_evaluation_cell sum = {run, task, length, -1, 0, 0, 0, 1, 0};
  for (size_t i = 0; i < count; i++) {
    if (strcmp(cells[i].run, run) || strcmp(cells[i].task, task) || cells[i].length != length)
      continue;
    sum.count += cells[i].count;
    sum.right += cells[i].right;
    sum.seconds += cells[i].seconds;
  }
  still_wilson_interval(sum.right, sum.count, &sum.low, &sum.high);
  return sum;
}

static void print_row(const still_evaluation_cell *cells, size_t count, const table_axes *axes,
                      size_t run, size_t task) {
  printf("| %s |", axes->runs[run]);
  for (size_t i = 0; i < axes->length_count; i++) {
    const still_evaluation_cell sum =
        sum_of(cells, count, axes->runs[run], axes->tasks[task], axes->lengths[i]);
    if (sum.count)
      printf(" %.1f (%.0f-%.0f) |", 100 * sum.right / (double)sum.count, 100 * sum.low,
             100 * sum.high);
    else
      printf(" - |");
  }
  printf("\n");
}

/* How many samples a place of the tables has: "20", or "12 to 20" where they differ. */
static void print_counts(const still_evaluation_cell *cells, size_t count, const table_axes *axes) {
  int64_t fewest = INT64_MAX, most = 0;
  for (size_t r = 0; r < axes->run_count; r++)
    for (size_t t = 0; t < axes->task_count; t++)
      for (size_t l = 0; l < axes->length_count; l++) {
        const int64_t n =
            sum_of(cells, count, axes->runs[r], axes->tasks[t], axes->lengths[l]).count;
        if (n && n < fewest) fewest = n;
        if (n > most) most = n;
      }
  if (fewest < most) printf("%lld to ", (long long)fewest);
  printf("%lld", (long long)most);
}

static void print_tables(const still_evaluation_report *report) {
  size_t count;
  const still_evaluation_cell *cells = still_evaluation_report_cells(report, &count);
  const table_axes axes = find_axes(cells, count);
  printf("Right answers in percent (95 %% interval), n = ");
  print_counts(cells, count, &axes);
  printf("\n");
  for (size_t t = 0; t < axes.task_count; t++) {
    printf("\n| %s |", axes.tasks[t]);
    for (size_t l = 0; l < axes.length_count; l++) printf(" %d |", axes.lengths[l]);
    printf("\n|---|");
    for (size_t l = 0; l < axes.length_count; l++) printf("---|");
    printf("\n");
    for (size_t r = 0; r < axes.run_count; r++) print_row(cells, count, &axes, r, t);
  }
}

/* ---- language and multiple choice */

static int fail(still_status status) {
  program_progress_end();
  program_complain("%s", still_last_error());
  return status == STILL_ERROR_ARGUMENT ? PROGRAM_USAGE : PROGRAM_FAILED;
}

/* The whole file; NULL (said on stderr) where it cannot be read. */
static char *read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  char *text = NULL;
  long size = -1;
  if (file && !fseek(file, 0, SEEK_END)) size = ftell(file);
  if (size >= 0) text = malloc((size_t)size + 1);
  if (text) {
    rewind(file);
    *bytes = fread(text, 1, (size_t)size, file);
  } else {
    program_complain("%s: cannot be read", path);
  }
  if (file) fclose(file);
  return text;
}

static void print_language(const char *name, const still_language_result *r, int compared) {
  printf("| %s | %.3f | %.4f ± %.4f | %.4f |", name, r->perplexity, r->nats, r->nats_error,
         r->bits_per_byte);
  if (compared)
    printf(" %.4f | %.3f | %.2f |\n", r->divergence, r->divergence_99, 100 * r->agreement);
  else
    printf(" - | - | - |\n");
  fflush(stdout);
}

static int evaluate_text(const evaluate_runs *runs, const still_evaluation_options *common,
                         int length) {
  const still_evaluation_run *full = NULL;
  still_language_options options = STILL_LANGUAGE_OPTIONS_INIT;
  size_t bytes = 0;
  char *text = read_file(arguments.text, &bytes);
  if (!text) return PROGRAM_FAILED;
  options.length = length;
  options.stride = arguments.stride;
  options.rows = arguments.rows;
  options.results = common->results;
  options.resume = common->resume;
  options.command = common->command;
  options.progress = show_progress;
  options.progress_user = "tokens";
  for (size_t r = 0; r < runs->count; r++)
    if (!strcmp(runs->items[r].name, "full")) full = &runs->items[r];
  printf("| attention | perplexity | nats a token | bits a byte | KL mean | KL 99 %% | same top "
         "token %% |\n"
         "|---|---|---|---|---|---|---|\n");
  int code = PROGRAM_DONE;
  for (size_t r = 0; r < runs->count && !code; r++) {
    const still_evaluation_run *run = &runs->items[r];
    const still_evaluation_run *reference = run == full ? NULL : full;
    still_language_result result;
    const still_status status =
        still_evaluate_language(run, reference, text, bytes, &options, &result);
    program_progress_end();
    if (status)
      code = fail(status);
    else
      print_language(run->name, &result, reference != NULL);
  }
  free(text);
  return code;
}

static int evaluate_heads(const evaluate_runs *runs, int length, const char *command) {
  mechanism_question question = {.length = length,
                                 .results = arguments.results,
                                 .resume = arguments.resume,
                                 .command = command};
  char *text = read_file(arguments.text, &question.bytes);
  if (!text) return PROGRAM_FAILED;
  question.text = text;
  const int code = evaluate_mechanism(runs, &question);
  free(text);
  return code;
}

static void print_share(int64_t right, int64_t count) {
  double low, high;
  if (!count) {
    printf(" - |");
    return;
  }
  still_wilson_interval((double)right, count, &low, &high);
  printf(" %.1f (%.1f-%.1f) |", 100 * (double)right / (double)count, 100 * low, 100 * high);
}

/* All runs write into the same results: the first opens them as the user says, the others go on. */
static int evaluate_choices(const evaluate_runs *runs, const still_evaluation_options *common) {
  still_choice_options options = STILL_CHOICE_OPTIONS_INIT;
  options.format = (still_choice_format)arguments.choice_format;
  options.items = arguments.items;
  options.examples = arguments.examples;
  options.shown = arguments.shown;
  options.seed = common->seed;
  options.shard = common->shard;
  options.shards = common->shards;
  options.results = common->results;
  options.resume = common->resume;
  options.skip_long = common->skip_long;
  options.command = common->command;
  options.progress = show_progress;
  options.progress_user = "questions";
  printf("| attention | n | acc %% | acc_norm %% |\n|---|---|---|---|\n");
  for (size_t r = 0; r < runs->count; r++) {
    still_choice_result result;
    const still_status status =
        still_evaluate_choices(&runs->items[r], arguments.choices, &options, &result);
    program_progress_end();
    if (status) return fail(status);
    printf("| %s | %lld |", runs->items[r].name, (long long)result.count);
    print_share(result.right, result.count);
    print_share(result.right_norm, result.count);
    printf("\n");
    fflush(stdout);
    if (result.skipped) fprintf(stderr, "%lld items are left out\n", (long long)result.skipped);
    options.resume = 1;
  }
  return PROGRAM_DONE;
}

/* ---- main */

/* Tables on stdout, the picture where one is asked for. */
static int show_report(const still_evaluation_report *report) {
  size_t count;
  const still_evaluation_cell *cells = still_evaluation_report_cells(report, &count);
  const int depths = count && cells[0].depth >= 0;
  print_tables(report);
  return arguments.plot &&
                 still_evaluation_report_draw(
                     report, depths ? STILL_PICTURE_DEPTHS : STILL_PICTURE_LENGTHS, arguments.plot)
             ? fail(STILL_ERROR_FILE)
             : PROGRAM_DONE;
}

static int report_files(void) {
  const char *paths[MOST_FILES];
  still_evaluation_report *report;
  char *list = copy_or_fail(arguments.report);
  if (!list) return PROGRAM_FAILED;
  size_t count;
  int code = split("--report", list, paths, MOST_FILES, &count);
  const still_status status = code ? STILL_OK : still_evaluation_report_read(paths, count, &report);
  free(list);
  if (code) return code;
  if (status) return fail(status);
  code = show_report(report);
  still_evaluation_report_destroy(report);
  return code;
}

/* "2/8": the second of eight parts. */
static int parse_shard(still_evaluation_options *options) {
  int shard, shards, end = 0;
  if (!arguments.shard) return PROGRAM_DONE;
  if (sscanf(arguments.shard, "%9d/%9d%n", &shard, &shards, &end) < 2 || arguments.shard[end] ||
      shard < 1 || shard > shards) {
    program_complain("--shard: '%s' is not I/N with I from 1 to N", arguments.shard);
    return PROGRAM_USAGE;
  }
  options->shard = shard - 1;
  options->shards = shards;
  return PROGRAM_DONE;
}

static int evaluate(const evaluate_runs *runs, const still_evaluation_options *options) {
  still_evaluation_report *report;
  const double start = program_seconds();
  const still_status status = still_evaluate(runs->items, runs->count, options, &report);
  program_progress_end();
  if (status) return fail(status);
  const int code = show_report(report);
  if (!program_quiet()) fprintf(stderr, "%.1f s\n", program_seconds() - start);
  still_evaluation_report_destroy(report);
  return code;
}

static int prepare_and_evaluate(int argc, char **argv) {
  static char haystack[8192], templates[8192], keys[8192];
  const char *tasks[MOST_LIST], *length_texts[MOST_LIST];
  int lengths[MOST_LIST];
  char *task_list = copy_or_fail(arguments.tasks ? arguments.tasks : ""),
       *length_list = copy_or_fail(arguments.lengths);
  still_evaluation_options options = STILL_EVALUATION_OPTIONS_INIT;
  evaluate_runs runs = {NULL, 0, NULL, NULL, 0};
  int code = PROGRAM_FAILED;
  if (!task_list || !length_list) goto done;
  code = split("--tasks", task_list, tasks, MOST_LIST, &options.task_count);
  if (!code) code = split("--lengths", length_list, length_texts, MOST_LIST, &options.length_count);
  if (!code) code = parse_lengths(length_texts, options.length_count, lengths);
  if (!code) code = parse_shard(&options);
  if (code) goto done;
  options.tasks = tasks;
  options.lengths = lengths;
  options.samples = arguments.samples;
  options.seed = (uint64_t)arguments.seed;
  options.depths = arguments.depths;
  options.haystack = beside_model(arguments.haystack, "haystack.txt", haystack, sizeof haystack);
  options.questions = arguments.questions;
  options.babi = arguments.babi;
  options.scoring = arguments.exact ? STILL_SCORING_EXACT : STILL_SCORING_TASK;
  options.templates =
      beside_model(arguments.templates, "templates.json", templates, sizeof templates);
  options.keys = beside_model(arguments.keys, "keys.json", keys, sizeof keys);
  options.results = arguments.results;
  options.resume = arguments.resume;
  options.skip_long = arguments.skip_long;
  options.command = command_line(argc, argv);
  options.progress = show_progress;
  options.progress_user = "samples";
  code = evaluate_runs_open(&runs, arguments.runs);
  if (!code && arguments.text && arguments.mechanism)
    code = evaluate_heads(&runs, options.length_count ? lengths[0] : 0, options.command);
  else if (!code && arguments.text)
    code = evaluate_text(&runs, &options, options.length_count ? lengths[0] : 0);
  else if (!code && arguments.choices)
    code = evaluate_choices(&runs, &options);
  else if (!code)
    code = evaluate(&runs, &options);
done:
  evaluate_runs_close(&runs);
  free(task_list);
  free(length_list);
  return code;
}

/* Whether both name one file that is there. */
static int same_file(const char *a, const char *b) {
  struct stat x, y;
  return a && b && !stat(a, &x) && !stat(b, &y) && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
         x.st_ino == y.st_ino;
}

/* What is read must not be written. */
static int check_files(void) {
  const char *const outputs[] = {arguments.results, arguments.plot};
  const char *const inputs[] = {arguments.text,      arguments.choices,  arguments.shown,
                                arguments.questions, arguments.haystack, arguments.templates,
                                arguments.keys,      arguments.report,   program_choice.adapter};
  for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++)
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
      if (same_file(outputs[o], inputs[i])) {
        program_complain("%s: '%s' would be written over, but it is read", o ? "--plot" : "-o",
                         outputs[o]);
        return PROGRAM_USAGE;
      }
  return PROGRAM_DONE;
}

/* Flags that would be passed over. */
static int check_pairs(void) {
  const char *what =
      arguments.mechanism && !arguments.text   ? "--mechanism needs a text: --text FILE"
      : arguments.resume && !arguments.results ? "--resume needs the results to go on from: -o FILE"
      : arguments.shard && arguments.text      ? "--shard divides samples and questions, not --text"
      : arguments.plot && !arguments.tasks && !arguments.report
          ? "--plot needs --tasks, or --report with the results of --choices"
          : NULL;
  if (what) program_complain("%s", what);
  return what ? PROGRAM_USAGE : PROGRAM_DONE;
}

/* Flags of another question. */
static int check_belonging(void) {
  const struct {
    int given;
    const char *flag, *question, *asked;
  } flags_of[] = {{arguments.samples != DEFAULT_SAMPLES, "-n", "--tasks", arguments.tasks},
                  {arguments.exact, "--exact", "--tasks", arguments.tasks},
                  {arguments.depths, "--depths", "--tasks", arguments.tasks},
                  {arguments.haystack != NULL, "--haystack", "--tasks", arguments.tasks},
                  {arguments.questions != NULL, "--questions", "--tasks", arguments.tasks},
                  {arguments.babi != NULL, "--babi", "--tasks", arguments.tasks},
                  {arguments.templates != NULL, "--templates", "--tasks", arguments.tasks},
                  {arguments.keys != NULL, "--keys", "--tasks", arguments.tasks},
                  {arguments.skip_long, "--skip-long", "--tasks and --choices",
                   arguments.tasks ? arguments.tasks : arguments.choices},
                  {arguments.stride, "--stride", "--text", arguments.text},
                  {arguments.rows, "--rows", "--text", arguments.text},
                  {arguments.items, "--items", "--choices", arguments.choices},
                  {arguments.choice_format, "--choice-format", "--choices", arguments.choices},
                  {arguments.shown != NULL, "--shown", "--choices", arguments.choices},
                  {arguments.examples, "--examples", "--choices", arguments.choices}};
  for (size_t i = 0; i < sizeof flags_of / sizeof *flags_of; i++)
    if (flags_of[i].given && !flags_of[i].asked) {
      program_complain("%s belongs to %s", flags_of[i].flag, flags_of[i].question);
      return PROGRAM_USAGE;
    }
  return PROGRAM_DONE;
}

/* Exactly one of them. */
static int check_question(void) {
  const char *const given[] = {arguments.tasks, arguments.text, arguments.choices,
                               arguments.report};
  int count = 0;
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) count += given[i] != NULL;
  if (count == 1) return PROGRAM_DONE;
  program_complain(count ? "--tasks, --text, --choices and --report: one of them at a time"
                         : "nothing is asked: --tasks, --text, --choices or --report is missing, "
                           "e.g. still-evaluate --runs full,still:256 --tasks sniah1 -n 10");
  return PROGRAM_USAGE;
}

static int start(int argc, char **argv) {
  program_begin("still-evaluate");
  program_model_drop(&program_choice.attention); /* kinds stand in --runs */
  program_model_context_means("each sample's or row's own length; --choices: what the model was "
                              "trained for");
  const int failed = program_parse(flags, argc, argv);
  if (failed) return failed;
  if (arguments.help) {
    program_help(
        flags, "still-evaluate asks a model about long texts, with several kinds of attention.",
        "still-evaluate [-m MODEL] --runs full,still:256 --tasks sniah1 --lengths 1024",
        "  still-evaluate --runs full,swa:256 --tasks sniah1 --lengths 512 -n 10\n"
        "  still-evaluate -m model.gguf --runs full,still:512 --text book.txt --lengths 2048\n"
        "  still-evaluate --list-tasks\n");
    return PROGRAM_DONE;
  }
  if (arguments.version) {
    printf("still-evaluate %s\n", still_version());
    return PROGRAM_DONE;
  }
  if (arguments.list_tasks) {
    for (size_t i = 0; still_evaluation_task_name(i); i++) puts(still_evaluation_task_name(i));
    return PROGRAM_DONE;
  }
  if (check_pairs() || check_question() || check_belonging() || check_files()) return PROGRAM_USAGE;
  if (arguments.report) return report_files();
  if (program_model_check()) return PROGRAM_USAGE;
  program_terminal_begin(arguments.quiet ? -1 : arguments.verbose);
  program_catch_interrupts();
  return prepare_and_evaluate(argc, argv);
}

int main(int argc, char **argv) {
  return program_end(start(argc, argv));
}
