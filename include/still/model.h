/* SPDX-License-Identifier: MIT
 *
 * Llama-family language models with any attention of still/attention.h.
 *
 *   still_tokenizer   text <-> token ids, chat templates
 *   still_model       weights and configuration; immutable, may be shared by threads and sessions
 *   still_session     one conversation: evaluate tokens, read logits, checkpoint, save
 *   still_sampler     picks the next token from logits
 *
 * The shortest program:
 *
 *     still_model *model = NULL;
 *     still_session *session = NULL;
 *     if (still_model_open(&model, "model.gguf", NULL)) fail(still_last_error());
 *     if (still_session_create(&session, model, NULL)) fail(still_last_error());
 *     still_session_evaluate_text(session, text, strlen(text), STILL_TOKENIZE_ADD_BOS, NULL, NULL);
 *     still_session_generate(session, NULL, 100, print, NULL, NULL);   // print(user, text, bytes)
 */
#ifndef STILL_MODEL_H
#define STILL_MODEL_H

#include <still/attention.h>
#include <still/still.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t still_token;

/* ---- tokenizer ---------------------------------------------------------------------------------- */

typedef struct still_tokenizer still_tokenizer;

/* Opens a tokenizer alone: a .gguf, a tokenizer.json, a SentencePiece tokenizer.model, a folder with one of
 * these, or a vocab.json / encoder.json with its merges (merges_path NULL: merges.txt or vocab.bpe beside
 * it). pattern names the pre-tokenizer of such a pair ("gpt2", "llama3", "smollm", "qwen2", "tekken"); NULL:
 * that of the model whose vocabulary has this size, else "gpt2". The other kinds of file say it
 * themselves. tokenizer_config.json, chat_template.jinja, generation_config.json and config.json beside a file
 * that is no .gguf are read, too. Errors: FILE, FORMAT, UNSUPPORTED (names what is unknown).
 * Thread-safety: immutable, may be shared. */
STILL_API still_status still_tokenizer_open(still_tokenizer **tokenizer, const char *path,
                                            const char *merges_path, const char *pattern);
STILL_API void still_tokenizer_destroy(still_tokenizer *tokenizer);

/* Number of ids; valid ids are 0 .. size-1. */
STILL_API int still_tokenizer_size(const still_tokenizer *tokenizer);

/* Ids with a meaning, -1 where the vocabulary has none. */
STILL_API still_token still_tokenizer_bos(const still_tokenizer *tokenizer);
STILL_API still_token still_tokenizer_eos(const still_tokenizer *tokenizer);
/* 1 if id ends an answer: end of sequence, of turn or of message. */
STILL_API int still_tokenizer_is_end(const still_tokenizer *tokenizer, still_token id);
/* 1 if id is a control token that has no text of its own. */
STILL_API int still_tokenizer_is_special(const still_tokenizer *tokenizer, still_token id);
/* The id of a token given as it stands in the vocabulary, e.g. "<|im_end|>"; -1 if there is none. */
STILL_API still_token still_tokenizer_find(const still_tokenizer *tokenizer, const char *text);

enum {
  STILL_TOKENIZE_ADD_BOS =
      1, /* put the begin-of-sequence token first where the model wants one, unless the text
                                      itself already begins with it */
  STILL_TOKENIZE_PARSE_SPECIAL =
      2, /* names of special tokens in the text become those tokens; without it they are
                                      plain text. Added tokens that are not special always match */
  STILL_TOKENIZE_CONTINUE =
      4 /* the text goes on from one that is already encoded: SentencePiece puts no
                                 space before it */
};

/* Encodes `bytes` bytes of text (any bytes; invalid UTF-8 is kept, byte by byte). Writes at most
 * `capacity` ids and sets *count to how many the text has; call again with a larger buffer when *count >
 * capacity. ids may be NULL when capacity is 0. Constant stack, time linear in the text. */
STILL_API still_status still_tokenize(const still_tokenizer *tokenizer, const char *text,
                                      size_t bytes, unsigned flags, still_token *ids,
                                      size_t capacity, size_t *count);

/* The bytes of one token: writes at most `capacity` bytes (no NUL), returns how many there are.
 * Special tokens give 0 bytes unless with_special is not 0. A piece may be part of a UTF-8 character. */
STILL_API size_t still_token_text(const still_tokenizer *tokenizer, still_token id,
                                  int with_special, char *buffer, size_t capacity);

/* Streaming decoder: turns tokens into text that never ends within a UTF-8 character. */
typedef struct still_decoder still_decoder;
STILL_API still_status still_decoder_create(still_decoder **decoder,
                                            const still_tokenizer *tokenizer);
STILL_API void still_decoder_destroy(still_decoder *decoder);
/* Adds a token; *text is what can be shown now (NUL-terminated, *bytes long, may be empty), owned by the
 * decoder and valid until the next call. The leading space that SentencePiece adds is taken off the
 * first token after create or flush. */
STILL_API still_status still_decoder_push(still_decoder *decoder, still_token id, const char **text,
                                          size_t *bytes);
/* The end: incomplete bytes come out as U+FFFD. Afterwards the decoder is as new. */
STILL_API still_status still_decoder_flush(still_decoder *decoder, const char **text,
                                           size_t *bytes);

/* ---- chat --------------------------------------------------------------------------------------- */

typedef struct still_message {
  const char *role; /* "system", "user", "assistant" */
  const char *content;
} still_message;

/* The family of the model's chat template: "llama2", "llama3", "mistral", "chatml"; NULL if the model has
 * none or one that is not recognised (then format_chat explains). */
STILL_API const char *still_tokenizer_chat_family(const still_tokenizer *tokenizer);

/* Formats messages from index `first` on (the ones before are already in the session) and encodes them,
 * with exactly one begin-of-sequence token when first is 0. An answer of the assistant that stands before
 * `first` is in the session with its end token, but without what the template puts after that. add_generation
 * appends what begins the assistant's answer. Texts of messages never become special tokens. A system
 * message goes into the next user message where the family has it there (llama2, mistral). Output as in
 * still_tokenize. Errors: UNSUPPORTED (no or unknown template, a role the family does not have). */
STILL_API still_status still_format_chat(const still_tokenizer *tokenizer,
                                         const still_message *messages, size_t count, size_t first,
                                         int add_generation, still_token *ids, size_t capacity,
                                         size_t *id_count);

/* ---- model -------------------------------------------------------------------------------------- */

typedef struct still_model still_model;

typedef struct still_model_options {
  size_t size;
  const char *
      device; /* "cpu" (default, also NULL), "vulkan", "vulkan:1" ... On a machine without a GPU or its
                         driver: a warning, and the CPU. DEVICE: there is none of that number */
  int device_layers; /* how many layers run on that device, the last ones; the others run on the CPU.
                         -1 (default): as many as fit; 0: none, the device is not opened; more than
                         the model has: all. MEMORY if the number given does not fit. Ignored on the CPU */
  const char *
      adapter; /* a STILL adapter file, PEFT LoRA folder or GGUF LoRA adapter beside the base model; NULL = none */
  int threads; /* 0 = still_default_threads() */
  int use_mmap; /* 1 (default): map weights; 0: read them into memory, so that a file that shrinks later
                               cannot hurt */
  still_progress_callback *progress; /* bytes; NULL = none */
  void *progress_user;
  int repack; /* 1 (default): a CPU whose kernels want quantised weights in an order of their own gets a copy in that
                 order, and the mapped file's pages are given back; 0: weights stay as the file has them,
                 slower, in pages that processes with the same model share. 0 also where use_mmap is */
} still_model_options;

#define STILL_MODEL_OPTIONS_INIT                                                                   \
  { sizeof(still_model_options), NULL, -1, NULL, 0, 1, NULL, NULL, 1 }

/* Opens a GGUF file (one, or the first of shards), or a Hugging Face folder (config.json, tokenizer.json
 * or tokenizer.model, *.safetensors or its sharded index). Everything is checked before anything is used.
 * Errors: FILE, FORMAT (missing tensor: its name and expected shape), UNSUPPORTED (unknown architecture
 * or tensor type: named, with the known ones), MEMORY, CANCELLED.
 * Thread-safety: a model is immutable; any number of sessions and threads may share it. */
STILL_API still_status still_model_open(still_model **model, const char *path,
                                        const still_model_options *options);
STILL_API void still_model_destroy(still_model *model);

typedef struct still_model_info {
  char architecture[32]; /* "llama" ... */
  char name[128];        /* what the file calls the model, "" if nothing */
  char weights[64];      /* types of the weights, e.g. "Q8_0, F32" */
  int layers, heads, kv_heads, head_dim, width, feed_forward, vocabulary;
  int trained_context; /* tokens the model was trained for */
  uint64_t parameters;
  uint64_t weight_bytes; /* as stored */
  int device_layers;     /* that run on a device other than the CPU */
  int has_adapter;       /* 1 if an adapter with feature maps is loaded */
  uint64_t hash; /* of the base model's tensors' names, types, shapes and samples of their bytes */
} still_model_info;

STILL_API void still_model_get_info(const still_model *model, still_model_info *info);
/* Owned by the model. NULL if the files hold no vocabulary. */
STILL_API const still_tokenizer *still_model_tokenizer(const still_model *model);

/* ---- session ------------------------------------------------------------------------------------ */

typedef struct still_session still_session;

typedef struct still_session_options {
  size_t size;
  still_attention_kind
      attention;           /* of all layers; default FULL. With an adapter and adapter_kinds, the
                                     adapter's kind per layer */
  int adapter_kinds;       /* 1 (default): an adapter's values take the place of the fields marked
                                     (a) that still have their default, its kinds that of `attention`
                                     where that is FULL; 0: never */
  int chunk;               /* (a) C, default 64 */
  int budget;              /* (a) m, default 512 */
  still_schedule schedule; /* (a) default BUDGET */
  int keep;                /* (a) */
  float keep_ratio;        /* (a) */
  still_metric metric;     /* (a) default SALIENCY */
  still_routing routing;   /* (a) default PER_HEAD */
  uint64_t routing_seed;
  int window; /* (a) default 512 */
  int sinks;  /* (a) default 0 */
  const char
      *layer_kinds; /* kinds of single layers over `attention`: "0-3,7:full;4:swa"; NULL = none */
  int context; /* FULL: the most tokens the session takes. STILL: N_max, what the budget is certified
                                for. 0 = what the adapter in use was trained for, where layers have a budget, or else
                                the model's trained context */
  still_dtype cache_type; /* default F32 */
  int block; /* tokens of a prefill block, 1 .. 65536; bounds the work space. 0 (default): 512, on a GPU up to 4096 as
                  far as their activations take an eighth of its free memory */
  int threads; /* 0 = the model's */
  unsigned
      own; /* STILL_OWN_...: fields marked (a) that are meant as they are although they have their default
                   value, so that an adapter does not take their place */
  int history; /* ids of tokens that the session remembers: 0 (default) all of them, 4 bytes each; N: the last N, and
                  at least the last 1024, in memory that does not grow */
} still_session_options;

enum {
  STILL_OWN_CHUNK = 1,
  STILL_OWN_BUDGET = 2,
  STILL_OWN_SCHEDULE = 4, /* keep and keep_ratio too */
  STILL_OWN_METRIC = 8,
  STILL_OWN_ROUTING = 16,
  STILL_OWN_WINDOW = 32, /* sinks too */
};

#define STILL_SESSION_OPTIONS_INIT                                                                 \
  {                                                                                                \
    sizeof(still_session_options), STILL_ATTENTION_FULL, 1, 64, 512, STILL_SCHEDULE_BUDGET, 0,     \
        0.125f, STILL_METRIC_SALIENCY, STILL_ROUTING_PER_HEAD, 0, 512, 0, NULL, 0, STILL_F32, 0,   \
        0, 0, 0                                                                                    \
  }

/* Memory of a session. Equal before (estimate) and after creation, to the byte, for caches. */
typedef struct still_session_usage {
  uint64_t cache_bytes;  /* attention caches of all layers */
  uint64_t work_bytes;   /* activations, logits and work spaces */
  uint64_t weight_bytes; /* of the model, mapped or read */
  int64_t tokens;        /* in the session */
  int64_t context;       /* the most it takes (FULL), or N_max */
  int64_t
      softmax_tokens; /* the most of all layers and heads: attended to exactly by the next token */
  int64_t linear_tokens;    /* summed up in the linear state */
  int64_t forgotten_tokens; /* neither */
  int64_t block;            /* tokens of a prefill block */
} still_session_usage;

STILL_API still_status still_session_create(still_session **session, const still_model *model,
                                            const still_session_options *options);
STILL_API void still_session_destroy(still_session *session);

/* What a session with these options will use once it holds `tokens` tokens (--dry-run). */
STILL_API still_status still_session_estimate(const still_model *model,
                                              const still_session_options *options, int64_t tokens,
                                              still_session_usage *usage);
STILL_API void still_session_get_usage(const still_session *session, still_session_usage *usage);

/* A budget in bytes instead of tokens: changes what decides a session's memory so that its caches and work space
 * (cache_bytes + work_bytes; the weights are not in it) take at most `bytes` however long the sequence becomes. That is
 * the largest budget where a layer is STILL with one, else the largest window where a layer is SWA, LOLCATS or
 * LIGER_GLA, else (FULL) the longest context, at most the one that is given or trained. Memory that grows with the
 * sequence is counted at `context` tokens. The other options count as they are.
 * Errors: ARGUMENT (the sentence says what the least takes, and the option), those of estimate. */
STILL_API still_status still_session_fit(const still_model *model, still_session_options *options,
                                         uint64_t bytes);

/* Evaluates count >= 1 tokens after those already there; logits of the last one are ready afterwards.
 * Long inputs go through in blocks; progress counts tokens, layer by layer, and is called between matrix products. A prompt beyond the trained context is
 * logged once as a warning. Errors: ARGUMENT (an id outside the vocabulary), LIMIT (FULL: the context
 * is full; says how much room is left, nothing is evaluated), NUMERIC (non-finite logits: position and
 * layer), CANCELLED, MEMORY, DEVICE. After all of them the session is as before the call. After DEVICE, or MEMORY of a
 * device, it goes on on the CPU (a warning says so; what it held is evaluated again there, its checkpoints are gone).
 * Thread-safety: one thread for each session. */
STILL_API still_status still_session_evaluate(still_session *session, const still_token *ids,
                                              size_t count, still_progress_callback *progress,
                                              void *progress_user);

/* Logits (vocabulary) after the last evaluated token, NULL if there is none. Owned by the session, valid
 * until the next call that changes it. */
STILL_API const float *still_session_logits(const still_session *session);

/* The same evaluation, but with the logits of every token: calls `row` for each of the count tokens, in
 * order, with the logits that follow it. For perplexity and tests. */
typedef void still_logits_callback(void *user, size_t index, const float *logits);
STILL_API still_status still_session_evaluate_all(still_session *session, const still_token *ids,
                                                  size_t count, still_logits_callback *row,
                                                  void *row_user);

/* Tokens in the session. */
STILL_API int64_t still_session_position(const still_session *session);

/* The tokens evaluated so far that are remembered (options.history), those of the positions from first_token()
 * to position() - 1; with the default all, and first_token() is 0. Owned by the session, valid until the next call that
 * changes it. */
STILL_API const still_token *still_session_tokens(const still_session *session);
STILL_API int64_t still_session_first_token(const still_session *session);

/* Makes the running evaluate of this session (on another thread) return CANCELLED. On the CPU it is asked for within
 * matrix products and attention, every few milliseconds whatever the model's size, on a GPU between layers. Going back to
 * where the session was is put off until it is used again: the next evaluate does it first, and can be cancelled, too; it
 * copies the state and reads what the last evaluations of fewer than 16 tokens read again, at most 64 of them. The only
 * call that may come from another thread, or from a signal handler. */
STILL_API void still_session_cancel(still_session *session);

/* Empties the session; memory is kept. */
STILL_API void still_session_reset(still_session *session);

/* Checkpoint: a copy of the small part of the state that later tokens overwrite. rollback brings the
 * session back to it, bit for bit; checkpoints made later than that one become invalid (ARGUMENT when
 * used). Free each with still_checkpoint_destroy. */
typedef struct still_checkpoint still_checkpoint;
STILL_API still_status still_session_checkpoint(const still_session *session,
                                                still_checkpoint **checkpoint);
STILL_API still_status still_session_rollback(still_session *session,
                                              const still_checkpoint *checkpoint);
STILL_API void still_checkpoint_destroy(still_checkpoint *checkpoint);
STILL_API size_t still_checkpoint_bytes(const still_checkpoint *checkpoint);

/* Save the whole session to a file (written beside it and renamed: all or nothing; versioned and
 * checksummed) and load it into a session of the same model and options. A load that fails leaves the
 * session as it was: FORMAT says what differs. The continuation is bit for bit the same.
 *
 * `progress` (NULL = none) is told bytes every few milliseconds: of the file while saving, of three passes over it while
 * loading. Not 0 stops: CANCELLED, with the old file or session as it was. What it cannot stop is the disk, when a saved
 * file is flushed at the end. */
STILL_API still_status still_session_save(const still_session *session, const char *path,
                                          still_progress_callback *progress, void *progress_user);
STILL_API still_status still_session_load(still_session *session, const char *path,
                                          still_progress_callback *progress, void *progress_user);

/* Scores and choices of one layer, for pictures: after evaluate, the routing scores of the last `count`
 * evaluated tokens were kept if this was switched on before it. */
STILL_API still_status still_session_record_scores(still_session *session, int on);
/* scores (heads, tokens) of a layer for all tokens since recording began; owned by the session. */
STILL_API still_status still_session_scores(const still_session *session, int layer,
                                            const float **scores, int64_t *first, int64_t *tokens);
/* Positions kept by a head of a layer, as still_attention_cache_kept. */
STILL_API size_t still_session_kept(const still_session *session, int layer, int head,
                                    int64_t *positions, size_t capacity);

/* What one layer did with some tokens, for measurements. All arrays are valid during the call only. */
typedef struct still_probe {
  int layer;
  int64_t first; /* position of the first of these tokens */
  size_t tokens;
  still_rows q, k;          /* (H, tokens, D), (G, tokens, D), after RoPE */
  const float *scores;      /* (H, tokens) routing scores; NULL where the layer does not route */
  const float *linear_mass; /* (H, tokens) as in still_attention_inputs */
  const float *linear_output;
} still_probe;
/* Not 0 stops the evaluation: CANCELLED. */
typedef int still_probe_callback(void *user, const still_probe *probe);

/* From now on every evaluation calls `probe` for each layer of each block of tokens, on the thread that evaluates;
 * NULL: nobody is called, and nothing is made for it. A sequence comes in the order of its tokens; after a rollback,
 * a reset, or an evaluation that failed, `first` goes back. The probe must not use the session. Errors: MEMORY,
 * UNSUPPORTED (a model that is not on the CPU). */
STILL_API still_status still_session_probe(still_session *session, still_probe_callback *probe,
                                           void *user);

/* ---- sampler ------------------------------------------------------------------------------------ */

typedef struct still_sampler still_sampler;

typedef struct still_sampler_options {
  size_t size;
  float temperature; /* <= 0: the most likely token; default 0.8. NaN is refused */
  int top_k;         /* <= 0: off; default 40 */
  float top_p;       /* >= 1: off; default 0.95; at least one candidate stays */
  float min_p;       /* <= 0: off; default 0.05: relative to the most likely token */
  float
      repeat_penalty; /* 1: off (default); > 1 lowers what occurred among the last repeat_last tokens */
  int repeat_last; /* default 64 */
  int64_t seed;    /* -1 (default): from the system; still_sampler_seed() tells which */
} still_sampler_options;

#define STILL_SAMPLER_OPTIONS_INIT                                                                 \
  { sizeof(still_sampler_options), 0.8f, 40, 0.95f, 0.05f, 1.0f, 64, -1 }

STILL_API still_status still_sampler_create(still_sampler **sampler,
                                            const still_sampler_options *options);
STILL_API void still_sampler_destroy(still_sampler *sampler);
/* Picks from logits (count >= 1), which are not changed. Equal seeds and logits give equal tokens on
 * every machine. Errors: NUMERIC (NaN, or all -infinity; says which index). Filters in this order: repeat
 * penalty, top-k, top-p, min-p, temperature. */
STILL_API still_status still_sampler_sample(still_sampler *sampler, const float *logits,
                                            size_t count, still_token *token);
/* Tells the sampler what was said (for the repeat penalty): sampled tokens are accepted by sample. */
STILL_API void still_sampler_accept(still_sampler *sampler, still_token token);
STILL_API uint64_t still_sampler_seed(const still_sampler *sampler);

/* ---- text in, text out --------------------------------------------------------------------------
 * still_tokenize, still_format_chat, still_sampler_sample, still_decoder_push and still_session_evaluate put together
 * as most programs need them. Each fails with UNSUPPORTED where the model's files hold no vocabulary. */

/* Encodes a text (flags: STILL_TOKENIZE_...) and evaluates its tokens; nothing for an empty text. Errors: those of
 * still_tokenize and still_session_evaluate. */
STILL_API still_status still_session_evaluate_text(still_session *session, const char *text,
                                                   size_t bytes, unsigned flags,
                                                   still_progress_callback *progress,
                                                   void *progress_user);

/* Evaluates the messages of a chat from index `first` on and what begins the assistant's answer; before them the
 * end token, where the answer that the session ends with was cut. Errors: those of still_format_chat and
 * still_session_evaluate. */
STILL_API still_status still_session_evaluate_chat(still_session *session,
                                                   const still_message *messages, size_t count,
                                                   size_t first, still_progress_callback *progress,
                                                   void *progress_user);

/* A piece of an answer, never empty and never ending within a UTF-8 character; NUL-terminated, valid until
 * the callback returns. Return 0 to go on, anything else to end the answer here. */
typedef int still_text_callback(void *user, const char *text, size_t bytes);

/* Answers: picks the next token, evaluates it and hands on its text, until the model ends its answer, `most` tokens
 * are said (negative: no limit) or the callback says stop; all of these are STILL_OK. What is said is in the
 * session, the token that ends an answer included, so that a chat goes on with still_session_evaluate_chat.
 *   sampler   NULL: the most likely token each time. Its repeat penalty knows only what it has picked or accepted
 *   callback  may be NULL: still_session_tokens has the tokens
 *   said      how many tokens, the ending one not counted; NULL = not wanted
 * Errors: ARGUMENT (nothing has been evaluated yet), and those of still_sampler_sample and
 * still_session_evaluate: LIMIT when the context is full. What was said before stays in the session. */
STILL_API still_status still_session_generate(still_session *session, still_sampler *sampler,
                                              int64_t most, still_text_callback *callback,
                                              void *user, int64_t *said);

#ifdef __cplusplus
}
#endif

#endif
