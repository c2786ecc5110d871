/* SPDX-License-Identifier: MIT
 * What the parts of still-run share: its flags and one run of a model. */
#ifndef RUN_H
#define RUN_H

#include <still/evaluate.h>

typedef struct run_arguments {
  const char *prompt, *file, *system, *stop, *saliency, *state_save, *state_load;
  int predict, conversation, no_conversation, single_turn, parse_special;
  int json, perf, dry_run, quiet, verbose, version, help, list_devices;
  float temperature, top_p, min_p, repeat_penalty;
  int top_k, repeat_last;
  int64_t seed;
} run_arguments;

extern run_arguments arguments;

/* A text that grows. */
typedef struct run_text {
  char *data; /* NUL-terminated, NULL while nothing was appended */
  size_t bytes, capacity;
} run_text;

typedef struct run_state {
  still_model *model;
  still_session *session;
  still_sampler *sampler;
  still_decoder *decoder;
  const still_tokenizer *tokenizer;
  size_t vocabulary; /* number of logits */
  still_token *ids;  /* room for encoding */
  size_t id_capacity;
  run_text answer;
  size_t shown; /* bytes of the answer that are on stdout */
  int64_t prompt_tokens, answer_tokens;
  double load_seconds, prompt_seconds, answer_seconds;
  const char *end;            /* why the answer ended */
  still_mechanism *mechanism; /* the record of --saliency, or NULL */
} run_state;

/* Appends; PROGRAM_FAILED (said on stderr) when memory is out. */
int run_append(run_text *text, const char *data, size_t bytes);

/* What the flags make of this model's session. */
int run_session_options(const run_state *run, still_session_options *options);

/* Room for count ids in run->ids. */
int run_reserve(run_state *run, size_t count);
/* Encodes text into run->ids, *count ids; flags as in still_tokenize. */
int run_encode(run_state *run, const char *text, size_t bytes, unsigned flags, size_t *count);
/* Evaluates the first count of run->ids, with progress. */
int run_evaluate(run_state *run, size_t count);
/* Samples until the model ends, the limit, the stop text, a full context or Ctrl-C. */
int run_answer(run_state *run);

/* What was read, answered, kept, summed up and forgotten, on stderr or as a JSON object on stdout. */
void run_summary(const run_state *run);
void run_json(const run_state *run);
/* What it would take with that many tokens (0: a full context), and whether that fits. */
int run_dry(const run_state *run, int64_t tokens);

enum { SALIENCY_TOKENS = 16384 }; /* of a page */
/* Records what the layers do from now on. */
int run_saliency_begin(run_state *run);
/* An HTML page with every token coloured by its routing score. */
int run_saliency(const run_state *run, const char *path);

#endif
