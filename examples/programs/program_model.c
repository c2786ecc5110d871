/* SPDX-License-Identifier: MIT
 * The flags that choose a model and its attention, opening it, and what it will take. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "program_model.h"
#include "program_terminal.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *attention_word(int index) {
  return still_attention_kind_name((still_attention_kind)index);
}

static const char *metric_word(int index) {
  return still_metric_name((still_metric)index);
}

static const char *schedule_word(int index) {
  static const char *const words[] = {"budget", "fixed", "ratio", NULL};
  return words[index];
}

static const char *routing_word(int index) {
  static const char *const words[] = {"head", "group", NULL};
  return words[index];
}

static const char *cache_type_word(int index) {
  static const char *const words[] = {"f32", "f16", "bf16", NULL};
  return words[index];
}

program_model_choice program_choice = {.device_layers = -1,
                                       .attention = -1,
                                       .chunk = -1,
                                       .budget = -1,
                                       .schedule = -1,
                                       .keep = -1,
                                       .keep_ratio = -1,
                                       .metric = -1,
                                       .routing = -1,
                                       .window = -1,
                                       .sinks = -1,
                                       .memory_budget = -1};

program_flag program_model_flags[] = {
    FLAG_HEADING("model"),
    FLAG_TEXT("-m, --model", "PATH", "GGUF file or Hugging Face folder; default: needle, embedded",
              &program_choice.model),
    FLAG_TEXT("--adapter", "PATH", "STILL adapter file, PEFT folder or GGUF with LoRA pairs",
              &program_choice.adapter),
    FLAG_TEXT("-dev, --device", "NAME", "cpu, vulkan:0 ... (still-run --list-devices)",
              &program_choice.device),
    FLAG_RANGE(INTEGER, "-ngl, --gpu-layers", "N", "layers on the device, the rest on the CPU",
               &program_choice.device_layers, 0, 65536, "-1", "as many as fit, the default"),
    FLAG_RANGE(INTEGER, "-t, --threads", "N", "threads; 0: the physical cores that it may use",
               &program_choice.threads, 0, 512, NULL, NULL),
    FLAG_RANGE(INTEGER, "-c, --ctx-size", "N", "tokens to plan for", &program_choice.context, 16,
               INT_MAX, "0", "what the model was trained for"),
    FLAG_RANGE(INTEGER, "-b, --batch-size", "N", "tokens of a prefill block", &program_choice.block,
               1, 65536, "0", "512, on a GPU up to 4096"),
    FLAG_SWITCH("--no-mmap", "read the weights into memory instead of mapping the file",
                &program_choice.no_mmap),
    FLAG_SWITCH("--no-repack",
                "leave quantised weights as they lie in the file, which processes share",
                &program_choice.no_repack),
    FLAG_HEADING("attention"),
    FLAG_CHOICE("--attn", "KIND", "of all layers, default full, or what the adapter says",
                &program_choice.attention, attention_word),
    FLAG_RANGE(INTEGER, "--budget", "N", "still: tokens attended to exactly (m), default 512",
               &program_choice.budget, 1, INT_MAX, NULL, NULL),
    FLAG_RANGE(INTEGER, "--memory-budget", "MIB",
               "the largest --budget, --window or -c whose session (cache and work space, without "
               "weights) takes at most this",
               &program_choice.memory_budget, 1, 1 << 24, NULL, NULL),
    FLAG_RANGE(INTEGER, "--chunk", "N", "still: tokens of a chunk (C), default 64",
               &program_choice.chunk, 1, 65536, NULL, NULL),
    FLAG_CHOICE("--schedule", "HOW", "still: what sets the tokens kept of a chunk, default budget",
                &program_choice.schedule, schedule_word),
    FLAG_RANGE(INTEGER, "--keep", "N", "still: that number itself (schedule fixed)",
               &program_choice.keep, 0, 65536, NULL, NULL),
    FLAG_RANGE(NUMBER, "--keep-ratio", "X", "still: as a part of the chunk (schedule ratio)",
               &program_choice.keep_ratio, 0, 1, NULL, NULL),
    FLAG_CHOICE("--metric", "NAME", "still: what makes a token worth keeping, default saliency",
                &program_choice.metric, metric_word),
    FLAG_CHOICE("--routing", "HOW",
                "still: one selection for each query head, or group, default head",
                &program_choice.routing, routing_word),
    FLAG_RANGE(LONG, "--routing-seed", "N", "still: of the metric random",
               &program_choice.routing_seed, 0, 9e15, NULL, NULL),
    FLAG_RANGE(INTEGER, "--window", "N",
               "swa, lolcats, liger-gla: tokens of the window, default 512", &program_choice.window,
               1, INT_MAX, NULL, NULL),
    FLAG_RANGE(INTEGER, "--sinks", "N", "swa: first tokens that stay visible, default 0",
               &program_choice.sinks, 0, 65536, NULL, NULL),
    FLAG_TEXT("--layers", "KINDS", "kinds of single layers, e.g. \"0-3,7:full;4:swa\"",
              &program_choice.layers),
    FLAG_CHOICE("--cache-type", "TYPE", "of keys and values in the cache",
                &program_choice.cache_type, cache_type_word),
    FLAG_END};

void program_model_drop(const void *target) {
  program_flag *flag = program_model_flags;
  while (flag->names && flag->target != target) flag++;
  for (; flag->names; flag++) flag[0] = flag[1];
}

void program_model_context_means(const char *text) {
  for (program_flag *flag = program_model_flags; flag->names; flag++)
    if (flag->target == &program_choice.context) flag->also_means = text;
}

/* More threads than CPUs only wait for each other: the number is lowered, and that is said. */
static void limit_threads(void) {
  program_model_choice *choice = &program_choice;
  cpu_set_t set;
  int cpus = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
  if (cpus > 0 && choice->threads > cpus) {
    program_complain("-t %d: this process may use %d CPUs; using %d", choice->threads, cpus, cpus);
    choice->threads = cpus;
  }
}

int program_model_check(void) {
  program_model_choice *choice = &program_choice;
  if (choice->keep >= 0 && choice->schedule < 0) choice->schedule = STILL_SCHEDULE_FIXED;
  if (choice->keep_ratio >= 0 && choice->schedule < 0) choice->schedule = STILL_SCHEDULE_RATIO;
  if (choice->keep >= 0 && choice->schedule != STILL_SCHEDULE_FIXED) {
    program_complain("--keep belongs to --schedule fixed, not to %s",
                     schedule_word(choice->schedule));
    return PROGRAM_USAGE;
  }
  if (choice->keep_ratio >= 0 && choice->schedule != STILL_SCHEDULE_RATIO) {
    program_complain("--keep-ratio belongs to --schedule ratio, not to %s",
                     schedule_word(choice->schedule));
    return PROGRAM_USAGE;
  }
  int chunk = choice->chunk < 0 ? 64 : choice->chunk;
  if (choice->keep > chunk) {
    program_complain("--keep %d: allowed are 0 .. %d (--chunk)", choice->keep, chunk);
    return PROGRAM_USAGE;
  }
  if (choice->memory_budget >= 0 && choice->budget >= 0) {
    program_complain("--memory-budget and --budget contradict each other");
    return PROGRAM_USAGE;
  }
  limit_threads();
  return PROGRAM_DONE;
}

/* Whether a layer may be of this kind, by the flags. What an adapter says is not known yet. */
static int may_be(still_attention_kind kind) {
  const program_model_choice *choice = &program_choice;
  const int given = choice->attention < 0 ? STILL_ATTENTION_FULL : choice->attention;
  if (given == (int)kind || (choice->adapter && choice->attention < 0)) return 1;
  return choice->layers && strstr(choice->layers, still_attention_kind_name(kind));
}

/* A flag that nothing would look at is a mistake: --budget without --attn still, for instance. */
int program_check_kinds(void) {
  const program_model_choice *c = &program_choice;
  const int still = may_be(STILL_ATTENTION_STILL), swa = may_be(STILL_ATTENTION_SWA);
  const int window = swa || may_be(STILL_ATTENTION_LOLCATS) || may_be(STILL_ATTENTION_LIGER_GLA);
  const struct {
    const char *flag;
    int given, used;
    const char *kinds;
  } flags[] = {{"--budget", c->budget, still, "still"},
               {"--chunk", c->chunk, still, "still"},
               {"--keep", c->keep, still, "still"},
               {"--keep-ratio", c->keep_ratio >= 0 ? 0 : -1, still, "still"},
               {"--schedule", c->schedule, still, "still"}, /* --keep sets it, too */
               {"--metric", c->metric, still, "still"},
               {"--routing", c->routing, still, "still"},
               {"--window", c->window, window, "swa, lolcats and liger-gla"},
               {"--sinks", c->sinks, swa, "swa"}};
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
    if (flags[i].given < 0 || flags[i].used) continue;
    program_complain(
        "%s belongs to --attn %s, not to %s", flags[i].flag, flags[i].kinds,
        still_attention_kind_name((still_attention_kind)(c->attention < 0 ? 0 : c->attention)));
    return PROGRAM_USAGE;
  }
  return PROGRAM_DONE;
}

/* Folder/name if it holds a model, in buffer. */
static const char *try_model(char *buffer, size_t capacity, const char *folder, const char *name) {
  snprintf(buffer, capacity, "%s/%s", folder, name);
  return access(buffer, R_OK) ? NULL : buffer;
}

/* The folder this program lies in. */
static int own_folder(char *buffer, size_t capacity) {
  ssize_t length = readlink("/proc/self/exe", buffer, capacity - 1);
  if (length <= 0) return 0;
  buffer[length] = 0;
  char *slash = strrchr(buffer, '/');
  if (slash) *slash = 0;
  return 1;
}

const char *program_model_path(void) {
  static char path[8192];
  char folder[4096];
  const char *found = program_choice.model;
  if (!found && own_folder(folder, sizeof folder))
    found = try_model(path, sizeof path, folder, "../share/still/models/needle");
  if (!found) found = try_model(path, sizeof path, PROGRAM_DATA_FOLDER, "models/needle");
  if (!found) found = try_model(path, sizeof path, PROGRAM_SOURCE_FOLDER, "examples/models/needle");
  if (!found)
    program_complain("no model: give one with -m PATH (the embedded one is not beside the program, "
                     "in %s or in %s)",
                     PROGRAM_DATA_FOLDER, PROGRAM_SOURCE_FOLDER);
  return found;
}

int program_failure(const char *doing) {
  program_progress_end();
  program_complain("%s%s%s", doing ? doing : "", doing ? ": " : "", still_last_error());
  return PROGRAM_FAILED;
}

int program_refusal(still_status status, const char *doing) {
  program_failure(doing);
  return status == STILL_ERROR_ARGUMENT ? PROGRAM_USAGE : PROGRAM_FAILED;
}

int program_model_open(still_model **model) {
  const program_model_choice *choice = &program_choice;
  const char *path = program_model_path();
  if (!path) return PROGRAM_FAILED;
  program_progress progress = program_progress_begin("loading", "MB", 1e6);
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.device = choice->device;
  options.device_layers = choice->device_layers;
  options.adapter = choice->adapter;
  options.threads = choice->threads;
  options.use_mmap = !choice->no_mmap;
  options.repack = !choice->no_repack;
  options.progress = program_progress_show;
  options.progress_user = &progress;
  still_status status = still_model_open(model, path, &options);
  program_progress_end();
  return status ? program_failure(NULL) : PROGRAM_DONE;
}

/* A flag that was given is meant, even where it says the default: an adapter's own value must not win. */
static void take(int *field, int given, unsigned *own, unsigned bit) {
  if (given < 0) return;
  *field = given;
  *own |= bit;
}

still_session_options program_session_options(void) {
  const program_model_choice *choice = &program_choice;
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  if (choice->attention >= 0) options.attention = (still_attention_kind)choice->attention;
  options.adapter_kinds = choice->attention != STILL_ATTENTION_FULL; /* full by name is full */
  take(&options.chunk, choice->chunk, &options.own, STILL_OWN_CHUNK);
  take(&options.budget, choice->budget, &options.own, STILL_OWN_BUDGET);
  take((int *)&options.schedule, choice->schedule, &options.own, STILL_OWN_SCHEDULE);
  take(&options.keep, choice->keep, &options.own, STILL_OWN_SCHEDULE);
  if (choice->keep_ratio >= 0) options.keep_ratio = choice->keep_ratio;
  take((int *)&options.metric, choice->metric, &options.own, STILL_OWN_METRIC);
  take((int *)&options.routing, choice->routing, &options.own, STILL_OWN_ROUTING);
  take(&options.window, choice->window, &options.own, STILL_OWN_WINDOW);
  take(&options.sinks, choice->sinks, &options.own, STILL_OWN_WINDOW);
  options.routing_seed = (uint64_t)choice->routing_seed;
  options.layer_kinds = choice->layers;
  options.context = choice->context;
  options.cache_type = (still_dtype)choice->cache_type;
  options.block = choice->block;
  options.threads = choice->threads;
  return options;
}

int program_fit_session(const still_model *model, still_session_options *options) {
  if (program_choice.memory_budget < 0) return PROGRAM_DONE;
  const still_session_options before = *options;
  still_status status =
      still_session_fit(model, options, (uint64_t)program_choice.memory_budget << 20);
  if (status) return program_refusal(status, "--memory-budget");
  if (!program_quiet())
    program_complain("--memory-budget %d: %s %d", program_choice.memory_budget,
                     options->budget != before.budget   ? "--budget"
                     : options->window != before.window ? "--window"
                                                        : "-c",
                     options->budget != before.budget   ? options->budget
                     : options->window != before.window ? options->window
                                                        : options->context);
  return PROGRAM_DONE;
}

int program_list_devices(void) {
  still_device_info devices[16];
  size_t count = 0;
  if (still_list_devices(devices, 16, &count)) return program_failure("devices");
  for (size_t i = 0; i < count && i < 16; i++) {
    printf("%-10s %s", devices[i].name, devices[i].description);
    if (devices[i].memory_bytes) printf(", %s", program_bytes(devices[i].memory_bytes));
    if (devices[i].kind == STILL_DEVICE_SOFTWARE_GPU) printf(" (runs on the CPU)");
    putchar('\n');
  }
  return PROGRAM_DONE;
}

/* The number in a file, behind `label` if that is not NULL. 0 = none. */
static uint64_t number_in_file(const char *path, const char *label) {
  char line[256];
  unsigned long long value = 0;
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  size_t skip = label ? strlen(label) : 0;
  while (fgets(line, sizeof line, file))
    if ((!label || !strncmp(line, label, skip)) && sscanf(line + skip, "%llu", &value) == 1) break;
  fclose(file);
  return value;
}

uint64_t program_available_memory(void) {
  uint64_t available = number_in_file("/proc/meminfo", "MemAvailable:") * 1024;
  uint64_t limit = number_in_file("/sys/fs/cgroup/memory.max", NULL);
  uint64_t used = number_in_file("/sys/fs/cgroup/memory.current", NULL);
  uint64_t room = limit > used ? limit - used : 0;
  return limit && room < available ? room : available;
}
