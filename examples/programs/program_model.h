/* SPDX-License-Identifier: MIT
 * The flags that choose a model and its attention, opening it, and what it will take. */
#ifndef PROGRAM_MODEL_H
#define PROGRAM_MODEL_H

#include "program_arguments.h"

#include <still/model.h>

/* What the flags say. -1 = not given: the library's default, or what the adapter says. */
typedef struct program_model_choice {
  const char *model, *device, *adapter, *layers;
  int threads, no_mmap, no_repack, context, block, device_layers;
  int attention, chunk, budget, schedule, keep, metric, routing, window, sinks, cache_type;
  int memory_budget; /* MiB */
  float keep_ratio;
  int64_t routing_seed;
} program_model_choice;

extern program_model_choice program_choice;
extern program_flag program_model_flags[];
/* Takes out the flag that sets this, for programs where it means nothing. */
void program_model_drop(const void *target);
/* What the help says of -c 0, where it is not what the model was trained for. */
void program_model_context_means(const char *text);

/* Flags that contradict each other: PROGRAM_USAGE, said on stderr. Call after program_parse. */
int program_model_check(void);
/* Flags of a kind of attention that no layer has: the same. Not for programs whose runs choose their own kinds. */
int program_check_kinds(void);

/* The path of the model: -m, else the embedded one (STILL_MODEL is -m's variable; beside the installed
 * program, or in the source tree). NULL when there is none, said on stderr. */
const char *program_model_path(void);

/* Opens it with progress; failures are said on stderr. */
int program_model_open(still_model **model);

/* What the flags say, but for --memory-budget, which needs the model. */
still_session_options program_session_options(void);
/* --memory-budget: what it allows this model's session, into options. Nothing without the flag. */
int program_fit_session(const still_model *model, still_session_options *options);

/* --list-devices. */
int program_list_devices(void);

/* Bytes this process can still take: free memory and the cgroup's limit. 0 = unknown. */
uint64_t program_available_memory(void);

/* Says the library's last error on stderr; PROGRAM_FAILED. */
int program_failure(const char *doing);
/* The same for options that the library may refuse: PROGRAM_USAGE where it is they that are wrong. */
int program_refusal(still_status status, const char *doing);

#endif
