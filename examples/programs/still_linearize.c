/* SPDX-License-Identifier: MIT
 * still-linearize: turn a pretrained model into a STILL model, beside the untouched base model. */
#include "program_arguments.h"
#include "program_terminal.h"

#include <still/linearize.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FILES = 64, MOST_BUDGETS = 16, MOST_LAYERS = 1024, PATH_BYTES = 4096 };

static still_training_options choice = STILL_TRAINING_OPTIONS_INIT;
static still_training_data_options data_choice = STILL_TRAINING_DATA_OPTIONS_INIT;
static const char *model_path, *data_paths, *budget_list;
static int kind = STILL_ATTENTION_STILL, metric, routing, feature_map, no_gate,
           schedule_word_index = -1;
static int keep = -1, half, help, version, quiet, verbose;
static float keep_ratio = -1, seconds, transfer_seconds, full_share = 0.25f;
static int64_t transfer_steps, seed = 1;

static const char *kind_word(int index) {
  return still_attention_kind_name((still_attention_kind)index);
}
static const char *metric_word(int index) {
  return still_metric_name((still_metric)index);
}
static const char *routing_word(int index) {
  static const char *const words[] = {"head", "group", NULL};
  return words[index];
}
static const char *map_word(int index) {
  static const char *const words[] = {"norm-preserved", "hedgehog", NULL};
  return words[index];
}
static const char *schedule_word(int index) {
  static const char *const words[] = {"constant", "plateau", "cosine", "linear", NULL};
  return words[index];
}

static const program_flag file_flags[] = {
    FLAG_HEADING("files"),
    FLAG_TEXT("-m, --model", "PATH", "the base model: GGUF file or Hugging Face folder",
              &model_path),
    FLAG_TEXT("-d, --data", "FILES", "training texts, .txt or .jsonl, separated by commas",
              &data_paths),
    FLAG_TEXT("-o, --output", "PATH",
              "the adapter to write (select-layers: a copy with full layers; run: that of its "
              "first stage goes to PATH.transfer)",
              &choice.output),
    FLAG_TEXT("--adapter", "PATH", "start from this adapter; what it was made with stands",
              &choice.adapter),
    FLAG_TEXT("--state", "PATH", "save what is needed to go on here", &choice.state),
    FLAG_SWITCH("--resume", "go on from --state, if it exists", &choice.resume),
    FLAG_TEXT("--metrics", "PATH", "CSV of every step", &choice.metrics),
    FLAG_TEXT("--curve", "PATH", "SVG of the losses", &choice.curve),
    FLAG_SWITCH("--f16", "write the adapter's tensors as 16-bit floats", &half),
    FLAG_END,
};

static const program_flag attention_flags[] = {
    FLAG_HEADING("the new attention"),
    FLAG_CHOICE("--attn", "KIND", "kind of every layer", &kind, kind_word),
    FLAG_TEXT("--layers", "LIST", "kinds of single layers: 0-3,7:full", &choice.layer_kinds),
    FLAG_RANGE(INTEGER, "--chunk", "N", "chunk and local window C", &choice.attention.chunk, 1,
               65536, NULL, NULL),
    FLAG_RANGE(INTEGER, "--budget", "N", "softmax budget m in tokens", &choice.attention.budget, 2,
               INT_MAX, NULL, NULL),
    FLAG_TEXT("--budgets", "LIST",
              "each row trains with one of these at random, as budget or window: 128,256,512",
              &budget_list),
    FLAG_RANGE(INTEGER, "-c, --ctx-size", "N", "context that the budget is spread over",
               &choice.attention.context, 1, INT_MAX, "0", "each row's own length"),
    FLAG_RANGE(INTEGER, "--keep", "N", "tokens kept of a chunk, instead of a budget", &keep, 0,
               65536, "-1", "by the budget"),
    FLAG_RANGE(NUMBER, "--keep-ratio", "X", "share of a chunk kept, instead of a budget",
               &keep_ratio, 0, 1, "-1", "by the budget"),
    FLAG_CHOICE("--metric", "NAME", "how tokens are scored", &metric, metric_word),
    FLAG_CHOICE("--routing", "PER", "one choice of tokens per query head or per group", &routing,
                routing_word),
    FLAG_CHOICE("--feature-map", "NAME", "of the linear branch", &feature_map, map_word),
    FLAG_SWITCH("--no-gate", "no gate on the linear branch", &no_gate),
    FLAG_RANGE(INTEGER, "--window", "N", "window of swa, lolcats, liger-gla",
               &choice.attention.window, 1, INT_MAX, NULL, NULL),
    FLAG_RANGE(INTEGER, "--sinks", "N", "first tokens that swa keeps", &choice.attention.sinks, 0,
               INT_MAX, NULL, NULL),
    FLAG_END,
};

static const program_flag training_flags[] = {
    FLAG_HEADING("training"),
    FLAG_RANGE(INTEGER, "--length", "N", "most tokens of a row", &data_choice.length, 16, 1 << 20,
               NULL, NULL),
    FLAG_RANGE(INTEGER, "--batch", "N", "rows of full length in a step", &choice.batch, 1, 65536,
               NULL, NULL),
    FLAG_RANGE(LONG, "--steps", "N", "optimizer steps", &choice.steps, 1, 1e12, "0",
               "until --seconds are over"),
    FLAG_RANGE(NUMBER, "--seconds", "S", "stop and save after this time", &seconds, 0, 1e9, NULL,
               NULL),
    FLAG_RANGE(LONG, "--transfer-steps", "N", "run: steps of the first stage", &transfer_steps, 1,
               1e12, "0", "until --transfer-seconds are over"),
    FLAG_RANGE(NUMBER, "--transfer-seconds", "S", "run: time of the first stage", &transfer_seconds,
               0, 1e9, NULL, NULL),
    FLAG_RANGE(NUMBER, "--lr", "X", "learning rate", &choice.rate, 1e-9, 10, "0",
               "0.01 for attention transfer, 0.0001 for low-rank"),
    FLAG_RANGE(NUMBER, "--map-lr", "X", "rate of maps and gates with --train-maps",
               &choice.map_rate, 1e-9, 10, "0", "that of --lr"),
    FLAG_CHOICE("--lr-schedule", "NAME", "how the rate falls", &schedule_word_index, schedule_word),
    FLAG_RANGE(INTEGER, "--warmup", "N", "steps until the full rate", &choice.warmup, 0, INT_MAX,
               NULL, NULL),
    FLAG_RANGE(NUMBER, "--clip", "X", "largest norm of the gradient", &choice.clip, 1e-6, 1e6, "0",
               "1 for low-rank, none for attention transfer"),
    FLAG_RANGE(NUMBER, "--weight-decay", "X", "AdamW's", &choice.weight_decay, 0, 10, NULL, NULL),
    FLAG_RANGE(INTEGER, "--rank", "N", "of the LoRA pairs", &choice.lora_rank, 1, 1024, NULL, NULL),
    FLAG_RANGE(NUMBER, "--alpha", "X", "LoRA's scale is alpha / rank", &choice.lora_alpha, 1e-3,
               1e4, NULL, NULL),
    FLAG_SWITCH("--train-maps", "low-rank: train feature maps and gates on", &choice.train_maps),
    FLAG_RANGE(INTEGER, "--validate-every", "N", "steps", &choice.validate_every, 1, INT_MAX, NULL,
               NULL),
    FLAG_RANGE(NUMBER, "--validation", "X", "share of the rows kept for validation",
               &data_choice.validation, 1e-6, 0.9, NULL, NULL),
    FLAG_RANGE(INTEGER, "--validation-rows", "N", "at most so many",
               &data_choice.most_validation_rows, 1, INT_MAX, NULL, NULL),
    FLAG_RANGE(INTEGER, "--save-every", "N", "steps between saves of the state", &choice.save_every,
               1, INT_MAX, NULL, NULL),
    FLAG_RANGE(INTEGER, "--micro", "N", "tokens worked on at once: bounds the memory",
               &choice.micro_tokens, 16, 1 << 24, "0", "8192"),
    FLAG_RANGE(NUMBER, "--full-share", "X", "select-layers: share of layers that stay full",
               &full_share, 0, 1, NULL, NULL),
    FLAG_RANGE(LONG, "-s, --seed", "N", "of order, split and start", &seed, 0, 9e15, NULL, NULL),
    FLAG_RANGE(INTEGER, "-t, --threads", "N", "threads; 0: the physical cores", &choice.threads, 0,
               512, NULL, NULL),
    FLAG_SWITCH("-q, --quiet", "no progress", &quiet),
    FLAG_SWITCH("-v, --verbose", "more messages", &verbose),
    FLAG_SWITCH("--version", "print the version and end", &version),
    FLAG_SWITCH("-h, --help", "print this and end", &help),
    FLAG_END,
};

static const program_flag *const flags[] = {file_flags, attention_flags, training_flags, NULL};

static int failure(void) {
  program_complain("%s", still_last_error());
  return PROGRAM_FAILED;
}

/* ---- progress ---- */

static double shown;

static void show_line(const still_training_report *r) {
  char left[32] = "";
  if (!isnan(r->seconds_left)) snprintf(left, sizeof left, ", %.0f s left", r->seconds_left);
  fprintf(stderr, "step %lld", (long long)r->step);
  if (r->steps) fprintf(stderr, "/%lld", (long long)r->steps);
  fprintf(stderr, "  loss %.5f", r->loss);
  if (!isnan(r->validation)) fprintf(stderr, "  validation %.5f", r->validation);
  fprintf(stderr, "  rate %.2e  %.0f tokens/s  %.2f M tokens%s", r->rate, r->tokens_per_second,
          (double)r->tokens / 1e6, left);
}

static int show_progress(void *user, const still_training_report *r) {
  (void)user;
  const int terminal = isatty(STDERR_FILENO);
  const double now = program_seconds();
  if (!quiet && (!isnan(r->validation) || now - shown > (terminal ? 0.2 : 30))) {
    shown = now;
    if (terminal) fputs("\r\033[K", stderr);
    show_line(r);
    if (!terminal || !isnan(r->validation)) fputc('\n', stderr);
  }
  return program_interrupted();
}

static int stops(void *user) {
  (void)user;
  return program_interrupted();
}

/* ---- what the flags say ---- */

/* Cuts a list at its commas, in place. */
static size_t cut_list(char *list, char **parts, size_t most) {
  size_t count = 0;
  char *rest = NULL;
  for (char *part = strtok_r(list, ",", &rest); part && count < most;
       part = strtok_r(NULL, ",", &rest))
    parts[count++] = part;
  return count;
}

static int read_budgets(void) {
  static int budgets[MOST_BUDGETS];
  char *parts[MOST_BUDGETS];
  if (!budget_list) return PROGRAM_DONE;
  char *copy = strdup(budget_list);
  choice.budget_count = cut_list(copy, parts, MOST_BUDGETS);
  for (size_t i = 0; i < choice.budget_count; i++) {
    char *end;
    const long value = strtol(parts[i], &end, 10);
    if (*end || value < 2 || value > INT_MAX) {
      program_complain("--budgets: '%s' is no number of tokens from 2 up", parts[i]);
      free(copy);
      return PROGRAM_USAGE;
    }
    budgets[i] = (int)value;
  }
  choice.budgets = budgets;
  free(copy);
  return PROGRAM_DONE;
}

/* What the command cannot do without. */
static int check_options(const char *command) {
  const char *missing = !model_path                                               ? "-m, --model"
                        : !data_paths                                             ? "-d, --data"
                        : !choice.output && strcmp(command, "select-layers") != 0 ? "-o, --output"
                        : choice.resume && !choice.state ? "--state (for --resume)"
                                                         : NULL;
  if (missing) {
    program_complain("%s is missing", missing);
    return PROGRAM_USAGE;
  }
  return PROGRAM_DONE;
}

static int settle_options(const char *command) {
  choice.attention.kind = (still_attention_kind)kind;
  choice.attention.metric = (still_metric)metric;
  choice.attention.routing = (still_routing)routing;
  choice.attention.feature_map = (still_feature_map)feature_map;
  choice.gate = !no_gate;
  choice.seconds = (double)seconds;
  choice.adapter_type = half ? STILL_F16 : STILL_F32;
  choice.seed = data_choice.seed = (uint64_t)seed;
  if (schedule_word_index >= 0) choice.schedule = (still_rate_schedule)schedule_word_index;
  if (keep >= 0) choice.attention.schedule = STILL_SCHEDULE_FIXED, choice.attention.keep = keep;
  if (keep_ratio >= 0)
    choice.attention.schedule = STILL_SCHEDULE_RATIO, choice.attention.keep_ratio = keep_ratio;
  if (keep >= 0 && keep_ratio >= 0) {
    program_complain("--keep and --keep-ratio contradict each other");
    return PROGRAM_USAGE;
  }
  const int missing = check_options(command);
  return missing ? missing : read_budgets();
}

/* ---- the commands ---- */

typedef struct opened {
  still_model *model;
  still_training_data *data;
} opened;

static int open_files(opened *o) {
  char *parts[MOST_FILES], *copy = strdup(data_paths);
  const size_t count = cut_list(copy, parts, MOST_FILES);
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  still_training_data_info info;
  int code = PROGRAM_FAILED;
  options.threads = choice.threads;
  if (still_model_open(&o->model, model_path, &options)) goto done;
  if (!still_model_tokenizer(o->model)) {
    program_complain("%s holds no vocabulary", model_path);
    free(copy);
    return PROGRAM_FAILED;
  }
  if (still_training_data_open(&o->data, still_model_tokenizer(o->model),
                               (const char *const *)parts, count, &data_choice))
    goto done;
  still_training_data_get_info(o->data, &info);
  if (!quiet)
    fprintf(stderr,
            "%zu rows to train on, %zu to validate with, %.2f M tokens, %.2f M of them weighted\n",
            info.training_rows, info.validation_rows, (double)info.tokens / 1e6,
            (double)info.weighted_tokens / 1e6);
  code = PROGRAM_DONE;
done:
  free(copy);
  return code ? failure() : PROGRAM_DONE;
}

static void print_layers(const still_training_result *result) {
  printf("relative squared error of the heads, by layer\n  layer   before    after   ratio\n");
  for (int i = 0; i < result->layers; i++) {
    const still_layer_error *e = &result->layer_errors[i];
    printf("  %5d  %.5f  %.5f  %6.1f\n", i, e->before, e->after,
           e->after > 0 ? e->before / e->after : 0);
  }
}

/* Of a run that was stopped not all are known. */
static void print_loss(const char *before, double loss, const char *when) {
  if (!isnan(loss)) printf("%s%.5f %s", before, loss, when);
}

static int train(const opened *o, still_stage stage) {
  static still_layer_error errors[MOST_LAYERS];
  const int transfer = stage == STILL_STAGE_ATTENTION_TRANSFER;
  still_training_result result = {.layer_errors = transfer ? errors : NULL};
  choice.stage = stage;
  choice.stop = stops;
  const still_status status = still_train(o->model, o->data, &choice, show_progress, NULL, &result);
  if (status && status != STILL_ERROR_CANCELLED) return failure();
  if (transfer && !status) print_layers(&result);
  printf("%s: %lld steps, %.2f M tokens, %.0f s", transfer ? "attention transfer" : "low-rank",
         (long long)result.steps, (double)result.tokens / 1e6, result.seconds);
  print_loss("; validation loss ", result.validation_before, "before");
  print_loss(", ", result.validation_best, "best");
  print_loss(", ", result.validation_last, "last");
  if (choice.output && result.steps) printf("; adapter: %s", choice.output);
  putchar('\n');
  fflush(stdout);
  return status ? failure() : PROGRAM_DONE;
}

/* The first stage's file beside the second's; NULL stays NULL. */
static const char *beside(char *path, const char *second) {
  if (!second) return NULL;
  snprintf(path, PATH_BYTES, "%s.transfer", second);
  return path;
}

static int has_maps(void) {
  return kind != STILL_ATTENTION_LIGER_GLA && kind != STILL_ATTENTION_SWA &&
         kind != STILL_ATTENTION_FULL;
}

/* Both stages: every file of the first has the second's name with .transfer behind it. */
static int train_both(const opened *o) {
  static char output[PATH_BYTES], state[PATH_BYTES], metrics[PATH_BYTES], curve[PATH_BYTES];
  const still_training_options second = choice;
  if (!has_maps()) return train(o, STILL_STAGE_LOW_RANK);
  choice.stage = STILL_STAGE_LOW_RANK; /* it can be wrong now rather than after the first */
  if (still_training_check(o->model, o->data, &choice)) return failure();
  choice.output = beside(output, second.output), choice.state = beside(state, second.state);
  choice.metrics = beside(metrics, second.metrics), choice.curve = beside(curve, second.curve);
  choice.steps = transfer_steps, choice.seconds = (double)transfer_seconds;
  choice.rate = choice.map_rate = choice.clip = 0;
  choice.schedule = STILL_RATE_PLATEAU;
  const int code = train(o, STILL_STAGE_ATTENTION_TRANSFER);
  if (code) return code;
  choice = second;
  choice.adapter = output;
  return train(o, STILL_STAGE_LOW_RANK);
}

static int by_score(const void *a, const void *b) {
  const double *x = *(const double *const *)a, *y = *(const double *const *)b;
  return *x < *y ? 1 : *x > *y ? -1 : x < y ? -1 : 1;
}

static int select_layers(const opened *o) {
  double scores[MOST_LAYERS], divergence;
  const double *order[MOST_LAYERS];
  int chosen[MOST_LAYERS];
  still_model_info info;
  still_model_get_info(o->model, &info);
  if (!choice.adapter) {
    program_complain("select-layers needs --adapter, the fully linearized student");
    return PROGRAM_USAGE;
  }
  if (still_select_layers(o->model, o->data, choice.adapter, choice.threads, scores, &divergence,
                          NULL, NULL))
    return failure();
  for (int i = 0; i < info.layers; i++) order[i] = &scores[i];
  qsort(order, (size_t)info.layers, sizeof *order, by_score);
  const int count = (int)lrintf(full_share * (float)info.layers);
  printf("divergence from the base model %.5f nats a token; it falls by\n", divergence);
  for (int i = 0; i < info.layers; i++) {
    const int layer = (int)(order[i] - scores);
    printf("  %.5f  with layer %d full%s\n", *order[i], layer, i < count ? "  <- stays full" : "");
    if (i < count) chosen[i] = layer;
  }
  if (!choice.output) return PROGRAM_DONE;
  return still_adapter_with_full_layers(o->model, choice.adapter, choice.output, chosen,
                                        (size_t)count)
             ? failure()
             : PROGRAM_DONE;
}

static int run_command(const char *command) {
  opened o = {0};
  int code = open_files(&o);
  program_catch_interrupts();
  if (!code) {
    if (!strcmp(command, "attention-transfer"))
      code = train(&o, STILL_STAGE_ATTENTION_TRANSFER);
    else if (!strcmp(command, "low-rank"))
      code = train(&o, STILL_STAGE_LOW_RANK);
    else if (!strcmp(command, "run"))
      code = train_both(&o);
    else
      code = select_layers(&o);
  }
  still_training_data_destroy(o.data);
  still_model_destroy(o.model);
  return code;
}

static int is_command(const char *word) {
  static const char *const commands[] = {"attention-transfer", "low-rank", "run", "select-layers"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (!strcmp(word, commands[i])) return 1;
  return 0;
}

static int without_command(void) {
  program_complain("a command must come first: attention-transfer, low-rank, run or select-layers");
  return PROGRAM_USAGE;
}

static int start(int argc, char **argv) {
  program_begin("still-linearize");
  const int named = argc > 1 && is_command(argv[1]);
  if (!named && argc > 1 && argv[1][0] != '-') return without_command();
  const int code = program_parse(flags, argc - named, argv + named);
  if (code) return code;
  if (help) {
    program_help(
        flags, "still-linearize turns a pretrained model into a STILL model.",
        "still-linearize COMMAND -m MODEL -d DATA -o ADAPTER [flags]\n"
        "  attention-transfer   feature maps and gates learn what softmax attention gives\n"
        "  low-rank             LoRA pairs learn the next token with the new attention in place\n"
        "  run                  both in turn\n"
        "  select-layers        which layers should stay full (by KL divergence)",
        "  still-linearize run -m model.gguf -d texts.jsonl -o adapter.safetensors "
        "--transfer-steps 300 --steps 600\n"
        "  still-linearize select-layers -m model.gguf -d texts.jsonl --adapter "
        "adapter.safetensors\n");
    return PROGRAM_DONE;
  }
  if (version) {
    printf("still-linearize %s\n", still_version());
    return PROGRAM_DONE;
  }
  if (!named) return without_command();
  const int settled = settle_options(argv[1]);
  if (settled) return settled;
  program_terminal_begin(quiet ? -1 : 1 + verbose);
  return run_command(argv[1]);
}

int main(int argc, char **argv) {
  return program_end(start(argc, argv));
}
