/* SPDX-License-Identifier: MIT
 *
 * Linearizing: turn a pretrained model into one with STILL attention (or a neighbour), in two
 * stages.
 *
 *   1. attention transfer   base weights frozen; on the base model's own hidden states, every
 *                           layer's feature maps and gates learn to give what its softmax
 *                           attention gives
 *   2. low-rank             the new attention in place; LoRA pairs on q, k, v, o and the gate
 *                           learn next-token prediction
 *
 * What is learned goes into an adapter file beside the untouched base model
 * (still_model_options.adapter).
 *
 *     still_training_data *data = NULL;
 *     still_training_data_open(&data, still_model_tokenizer(model), paths, 1, NULL);
 *     still_training_options options = STILL_TRAINING_OPTIONS_INIT;
 *     options.output = "adapter.safetensors";
 *     options.steps = 300;
 *     still_train(model, data, &options, NULL, NULL, NULL);
 *
 * Training is float32, on the CPU. For equal seeds, options and data it gives equal results, bit
 * for bit; a run that is stopped and resumed gives what one without a break gives (but for
 * schedules that follow the clock).
 */
#ifndef STILL_LINEARIZE_H
#define STILL_LINEARIZE_H

#include <still/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- data ----------------------------------------------------------------------------------- */

/* Rows of tokens with a loss weight for each token. Files whose name ends in .jsonl hold one object
 * a line, of any of these forms; every other file is plain text.
 *   {"text": "..."}                                   weight 1
 *   {"instruction": "...", "input": "...", "output": "..."}
 *                                                     the Alpaca prompt; weight 1 on the response
 *   {"segments": [{"text": "...", "weight": 0.5}]}    a row of its own; names of special tokens
 *                                                     become those tokens
 *   {"ids": [1, 2], "weights": [0, 1]}                a row of its own; weights may be left out
 * Plain text, "text" and instructions are packed one after the other into rows of `length` tokens;
 * the other forms make rows of their own length, cut at `length`. Rows of text begin with the
 * begin-of-sequence token if the model has one. */
typedef struct still_training_data still_training_data;

typedef struct still_training_data_options {
  size_t size;
  int length;               /* most tokens of a row, 16 .. 2^20; default 1024 */
  float validation;         /* share of rows kept for validation, 0 < .. < 1; default 0.02 */
  int most_validation_rows; /* default 32 */
  uint64_t seed;            /* of the split and the order */
} still_training_data_options;

#define STILL_TRAINING_DATA_OPTIONS_INIT                                                           \
  { sizeof(still_training_data_options), 1024, 0.02f, 32, 1 }

/* Reads all of it. Errors: FILE, FORMAT (file and line), ARGUMENT (too little: says how many tokens
 * there are and how many are needed). The tokenizer must outlive it. Thread-safety: immutable, may
 * be shared. */
STILL_API still_status still_training_data_open(still_training_data **data,
                                                const still_tokenizer *tokenizer,
                                                const char *const *paths, size_t count,
                                                const still_training_data_options *options);
STILL_API void still_training_data_destroy(still_training_data *data);

typedef struct still_training_data_info {
  size_t training_rows, validation_rows;
  uint64_t tokens;          /* of all rows */
  uint64_t weighted_tokens; /* of these, with a weight above 0 */
  size_t longest;           /* tokens of the longest row */
} still_training_data_info;

STILL_API void still_training_data_get_info(const still_training_data *data,
                                            still_training_data_info *info);

/* ---- training ------------------------------------------------------------------------------- */

typedef enum still_stage {
  STILL_STAGE_ATTENTION_TRANSFER = 1,
  STILL_STAGE_LOW_RANK = 2
} still_stage;

typedef enum still_rate_schedule {
  STILL_RATE_CONSTANT = 0,
  STILL_RATE_PLATEAU = 1, /* divided by 10 when the validation loss has stopped falling */
  STILL_RATE_COSINE = 2,  /* half a cosine from the rate to 0 over the steps */
  STILL_RATE_LINEAR = 3   /* straight to 0 */
} still_rate_schedule;

typedef struct still_training_options {
  size_t size;
  still_stage stage;   /* default ATTENTION_TRANSFER */
  const char *adapter; /* start from this adapter file; NULL = a fresh one */
  const char
      *output; /* the adapter to write: required, all or nothing, the best of all validations */
  const char *state;   /* a file for resuming, written at saves; NULL = none */
  int resume;          /* 1: go on from `state` if that file exists */
  const char *metrics; /* a CSV of every step, NULL = none */
  const char *curve;   /* an SVG of the losses, written at the end; needs metrics. NULL = none */

  /* What the student is. With `adapter` its kinds, chunk, feature_map, metric, routing, window and sinks
   * are taken from there; one that was changed here from its default to something else is an ARGUMENT error. */
  still_attention_options
      attention; /* kind, chunk, budget, schedule, keep, keep_ratio, metric, routing, feature_map,
                    window, sinks, context. context 0 (default here): lambda follows from each row's
                    own length and the budget, as for evaluation at a known length */
  const char *layer_kinds; /* kinds of single layers, "0-3,7:full"; NULL = all attention.kind */
  int gate; /* 1 (default): STILL layers get a gate; those with maps from `adapter` stay as they are */
  const int
      *budgets; /* each row takes one of these at random: as the budget of its STILL layers, as
                         the window of its other ones; NULL = attention.budget and attention.window */
  size_t budget_count;

  /* How it learns. 0 = the paper's for the stage: rate 1e-2 with plateau, no clipping; rate 1e-4,
   * clipping at 1. */
  int64_t
      steps; /* optimizer steps; 0: until `seconds` are over, the schedule following the clock */
  double seconds; /* stop cleanly after this time, 0 = no limit */
  int batch;      /* tokens of a step = batch * the data's length; default 8 */
  float rate;
  float map_rate;               /* stage 2 with train_maps: rate of maps and gates; 0 = rate */
  still_rate_schedule schedule; /* default PLATEAU */
  int warmup;                   /* steps; default 0 */
  float weight_decay;           /* default 0 */
  float beta1, beta2;           /* defaults 0.9, 0.999 */
  float clip;       /* largest norm of all gradients; 0 = the stage's, negative = none */
  int lora_rank;    /* default 8 */
  float lora_alpha; /* default 16 */
  int train_maps;   /* 1: stage 2 trains feature maps and gates on; default 0 */

  int validate_every; /* steps; default 50 */
  int patience;       /* validations without progress before PLATEAU lowers the rate; default 2 */
  int save_every;     /* steps between saves of the state; default 200 */
  int micro_tokens;   /* tokens worked on at once, bounds the memory; 0 = 8192, at least one row */
  int threads;        /* 0 = still_default_threads() */
  still_dtype adapter_type; /* of the output's tensors; default F32 */
  uint64_t seed;

  /* Optional: asked again and again, on any of the call's threads; where it says something else than
   * 0 training ends within milliseconds (so it must go on saying that), but for the files' writing: the
   * step that was begun is dropped, state and adapter are written as after the last whole one (none
   * before the first), the call returns CANCELLED. A model of 1 billion parameters takes 40 to 70 ms on
   * two cores, most of it to give 6 GB of memory back (bench/cancel_latency); once a step has changed
   * parameters it is ended and saved. */
  int (*stop)(void *user);
  void *stop_user;
} still_training_options;

#define STILL_TRAINING_OPTIONS_INIT                                                                \
  {                                                                                                \
    sizeof(still_training_options), STILL_STAGE_ATTENTION_TRANSFER, NULL, NULL, NULL, 0, NULL,     \
        NULL,                                                                                      \
        {sizeof(still_attention_options),                                                          \
         STILL_ATTENTION_STILL,                                                                    \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         64,                                                                                       \
         256,                                                                                      \
         STILL_SCHEDULE_BUDGET,                                                                    \
         0,                                                                                        \
         0.125f,                                                                                   \
         STILL_METRIC_SALIENCY,                                                                    \
         STILL_ROUTING_PER_HEAD,                                                                   \
         STILL_FEATURE_NORM_PRESERVED,                                                             \
         0,                                                                                        \
         64,                                                                                       \
         0,                                                                                        \
         0,                                                                                        \
         STILL_F32,                                                                                \
         0,                                                                                        \
         NULL},                                                                                    \
        NULL, 1, NULL, 0, 0, 0, 8, 0, 0, STILL_RATE_PLATEAU, 0, 0, 0.9f, 0.999f, 0, 8, 16, 0, 50,  \
        2, 200, 0, 0, STILL_F32, 1, NULL, NULL                                                     \
  }

/* After every step. */
typedef struct still_training_report {
  still_stage stage;
  int64_t step, steps; /* steps 0: unknown */
  uint64_t tokens;     /* seen so far */
  double
      loss; /* of this step: weighted cross-entropy a token, or mean squared error of the heads */
  double validation; /* NaN where this step had none */
  double rate, gradient_norm;
  double seconds; /* since the start, earlier parts of a resumed run included */
  double tokens_per_second;
  double seconds_left; /* estimate, NaN = unknown */
} still_training_report;

/* Return 0 to go on; anything else stops after this step: state and adapter are written, the call
 * returns CANCELLED. */
typedef int still_training_callback(void *user, const still_training_report *report);

/* Squared error of a layer's heads relative to the power of their softmax outputs, on the
 * validation rows. */
typedef struct still_layer_error {
  double before, after;
} still_layer_error;

typedef struct still_training_result {
  int64_t steps;
  uint64_t tokens;
  double seconds;
  double validation_before, validation_best,
      validation_last; /* NAN: stopped before there was one */
  int layers;
  still_layer_error *layer_errors; /* (layers) stage 1; given by the caller, NULL = not wanted */
  int timed_out;                   /* 1: `seconds` were over before `steps` */
} still_training_result;

/* All that still_train checks before it begins, and nothing else: options, data, that the outputs can
 * be written, that the state, where it is there and wanted, is whole and fits. For a second stage
 * before the first is trained. Errors: those of still_train. */
STILL_API still_status still_training_check(const still_model *model,
                                            const still_training_data *data,
                                            const still_training_options *options);

/* Trains one stage. Everything is checked first, that the outputs can be written included.
 * Errors: ARGUMENT, FILE, FORMAT (adapter or state of another model: both hashes), UNSUPPORTED,
 * MEMORY, NUMERIC (the first value that is not finite: step and tensor; the last good state stays),
 * CANCELLED (the callback or options.stop said so). result may be NULL. Thread-safety: the model may be shared;
 * one training at a time (it sets the number of threads of matrix products for the process). */
STILL_API still_status still_train(const still_model *model, const still_training_data *data,
                                   const still_training_options *options,
                                   still_training_callback *callback, void *user,
                                   still_training_result *result);

/* ---- which layers should stay full ---------------------------------------------------------- */

/* For a fully linearized student (adapter file): scores[i] = how much the Kullback-Leibler
 * divergence of its next-token distributions from the base model's falls, in nats a token over the
 * validation rows, when layer i alone is put back to full attention. *divergence (optional) is the
 * student's own. scores (layers). progress counts layers. */
STILL_API still_status still_select_layers(const still_model *model,
                                           const still_training_data *data, const char *adapter,
                                           int threads, double *scores, double *divergence,
                                           still_progress_callback *progress, void *user);

/* Writes a copy of an adapter in which `count` layers are full attention again. */
STILL_API still_status still_adapter_with_full_layers(const still_model *model, const char *adapter,
                                                      const char *output, const int *layers,
                                                      size_t count);

#ifdef __cplusplus
}
#endif

#endif
