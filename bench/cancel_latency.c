/* SPDX-License-Identifier: MIT
 * cancel_latency [-b BLOCK] [-r ROW] [-n WISHES] [-c CALL] MODEL: how long a call goes on after another thread has cancelled
 * it: load (weights read into memory), prefill, decode, and a step of each stage of training, transfer and low-rank, on a row
 * of ROW tokens (1024); CALL alone, where it is given. Wishes come at WISHES (20) moments spread over the call; the median and
 * the worst are shown beside the promise of 50 ms, calls that still wrote the adapter of a whole step apart from the others. */
#include <still/linearize.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WISHES = 1000, TOKENS = 512, MOST_ROW = 4096 };

static int wishes = 20, row_tokens = 1024;
static const char *only; /* NULL: all calls */

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* ---- the thread that cancels -------------------------------------------------------------------- */

typedef struct wish {
  still_session *session; /* NULL: only said is set */
  double after, when;
  atomic_int said;
  pthread_t thread;
} wish;

static void *cancel_later(void *user) {
  wish *w = user;
  const struct timespec wait = {(time_t)(w->after / 1e3),
                                (long)((long long)(w->after * 1e6) % 1000000000)};
  nanosleep(&wait, NULL);
  w->when = milliseconds();
  atomic_store(&w->said, 1);
  if (w->session) still_session_cancel(w->session);
  return NULL;
}

static int is_said(void *user, uint64_t done, uint64_t total) {
  wish *w = user;
  (void)done;
  (void)total;
  return atomic_load(&w->said);
}

/* ---- the calls ---------------------------------------------------------------------------------- */

typedef struct subject {
  const char *path;
  still_session *session;
  still_token ids[TOKENS];
  still_model *model;
  still_training_data *data;
  still_stage stage;
  char rows[64], adapter[64]; /* files of training */
  double whole;               /* milliseconds of the call when nobody cancels it */
} subject;

static still_status load(subject *s, wish *w) {
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  still_model *model;
  options.use_mmap = 0;
  options.progress = is_said;
  options.progress_user = w;
  const still_status status = still_model_open(&model, s->path, &options);
  if (!status) still_model_destroy(model);
  return status;
}

static still_status read_text(subject *s, wish *w) {
  (void)w;
  still_session_reset(s->session);
  return still_session_evaluate(s->session, s->ids, TOKENS, NULL, NULL);
}

static still_status answer(subject *s, wish *w) {
  still_status status = STILL_OK;
  for (int i = 0; !status && i < 64 && !atomic_load(&w->said); i++)
    status = still_session_evaluate(s->session, s->ids, 1, NULL, NULL);
  return status;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int measure(const char *what, subject *s, still_status (*call)(subject *, wish *),
                   int cancels) {
  double took[MOST_WISHES], writing = 0;
  wish none = {0};
  if (only && strcmp(only, what)) return 0;
  const double begin = milliseconds();
  if (call(s, &none)) return 1;
  s->whole = milliseconds() - begin;
  int count = 0;
  for (int i = 0; i < wishes; i++) {
    wish w = {.session = cancels ? s->session : NULL, .after = s->whole * (i + 0.5) / wishes};
    const double start = milliseconds();
    if (pthread_create(&w.thread, NULL, cancel_later, &w)) return 1;
    call(s, &w);
    const double end = milliseconds();
    pthread_join(w.thread, NULL);
    const double late = end - w.when;
    if (late < 0) s->whole = fmin(s->whole, end - start); /* the first call had new memory */
    if (!access(s->adapter, F_OK))
      writing = late > writing ? late : writing;
    else if (late > 0) /* else the call was faster */
      took[count++] = late;
  }
  if (!count) return 1;
  qsort(took, (size_t)count, sizeof *took, compare);
  printf(
      "%-8s %8.0f ms whole: cancelled within %6.2f ms (median), %6.2f ms (worst) of 50; n = %d\n",
      what, s->whole, took[count / 2], took[count - 1], count);
  if (writing > 0) printf("%-8s and the adapter written within %.2f ms (worst)\n", what, writing);
  fflush(stdout);
  return 0;
}

static int wants_stop(void *user) {
  return atomic_load(&((wish *)user)->said);
}

static still_status train(subject *s, wish *w) {
  still_training_options options = STILL_TRAINING_OPTIONS_INIT;
  options.stage = s->stage;
  options.steps = 1, options.batch = 1;
  options.output = s->adapter;
  options.stop = wants_stop, options.stop_user = w;
  unlink(s->adapter);
  const still_status status = still_train(s->model, s->data, &options, NULL, NULL, NULL);
  return status == STILL_ERROR_CANCELLED ? STILL_OK : status;
}

/* Twelve rows: one is for validation. */
static int write_rows(subject *s) {
  snprintf(s->rows, sizeof s->rows, "/tmp/cancel_latency.%d.jsonl", (int)getpid());
  snprintf(s->adapter, sizeof s->adapter, "/tmp/cancel_latency.%d.safetensors", (int)getpid());
  FILE *file = fopen(s->rows, "w");
  if (!file) return 1;
  for (int row = 0; row < 12; row++)
    for (int i = 0; i < row_tokens; i++)
      fprintf(file, "%s%d%s", i ? ", " : "{\"ids\": [", (int)s->ids[(row * 100 + i) % TOKENS],
              i < row_tokens - 1 ? "" : "]}\n");
  return fclose(file) != 0;
}

static int measure_training(subject *s) {
  const char *path = s->rows;
  still_training_data_options options = STILL_TRAINING_DATA_OPTIONS_INIT;
  options.length = row_tokens;
  int failed = write_rows(s) || still_training_data_open(&s->data, still_model_tokenizer(s->model),
                                                         &path, 1, &options);
  for (s->stage = STILL_STAGE_ATTENTION_TRANSFER; !failed && s->stage <= STILL_STAGE_LOW_RANK;
       s->stage++)
    failed = measure(s->stage == STILL_STAGE_LOW_RANK ? "low-rank" : "transfer", s, train, 0);
  still_training_data_destroy(s->data);
  unlink(s->rows), unlink(s->adapter);
  return failed;
}

/* PATH of the model, or NULL: what was said is no use. */
static const char *parse(int argc, char **argv, still_session_options *options) {
  for (int flag; (flag = getopt(argc, argv, "b:r:n:c:")) != -1;) {
    switch (flag) {
    case 'b': options->block = atoi(optarg); break;
    case 'r': row_tokens = atoi(optarg); break;
    case 'n': wishes = atoi(optarg); break;
    case 'c': only = optarg; break;
    default: return NULL;
    }
  }
  const int good = row_tokens > 0 && row_tokens <= MOST_ROW && wishes > 0 && wishes <= MOST_WISHES;
  return good && optind == argc - 1 ? argv[optind] : NULL;
}

int main(int argc, char **argv) {
  static subject s;
  still_model *model;
  still_model_info info;
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  options.context = 8192;
  s.path = parse(argc, argv, &options);
  if (!s.path) {
    fprintf(stderr, "usage: cancel_latency [-b BLOCK] [-r ROW] [-n WISHES] [-c CALL] MODEL\n"
                    "CALL: load prefill decode transfer low-rank\n");
    return 2;
  }
  if (still_model_open(&model, s.path, NULL) || still_session_create(&s.session, model, &options)) {
    fprintf(stderr, "%s\n", still_last_error());
    return 1;
  }
  still_model_get_info(model, &info);
  for (int i = 0; i < TOKENS; i++) s.ids[i] = (still_token)((long long)i * 7919 % info.vocabulary);
  printf("%s: %.1f M parameters, block of %d, kernels %s, %d threads\n", s.path,
         (double)info.parameters / 1e6, options.block, still_cpu_level(), still_default_threads());
  int failed = measure("load", &s, load, 0);
  failed = failed || measure("prefill", &s, read_text, 1) || measure("decode", &s, answer, 1);
  s.model = model;
  failed = failed || measure_training(&s);
  still_session_destroy(s.session);
  still_model_destroy(model);
  return failed;
}
