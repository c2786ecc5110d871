/* SPDX-License-Identifier: MIT
 *
 * Evaluation: how often a model with some attention finds what stood in a long text.
 *
 *     still_evaluation_run runs[2] = {{"full", model, STILL_SESSION_OPTIONS_INIT},
 *                                     {"still:256", model, STILL_SESSION_OPTIONS_INIT}};
 *     runs[1].session.attention = STILL_ATTENTION_STILL;
 *     runs[1].session.budget = 256;
 *     still_evaluation_options options = STILL_EVALUATION_OPTIONS_INIT;
 *     options.tasks = (const char *[]){"sniah1"}, options.task_count = 1;
 *     options.lengths = (int[]){1024, 4096}, options.length_count = 2;
 *     still_evaluation_report *report = NULL;
 *     still_evaluate(runs, 2, &options, &report);
 *
 * Every run sees the same samples. A sample depends on the seed, the task, its length and its
 * number alone, so a result does not depend on what else was asked for, and an evaluation that was
 * stopped goes on where it was.
 */
#ifndef STILL_EVALUATE_H
#define STILL_EVALUATE_H

#include <still/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Wilson's score interval (95 %) of the share right / count; 0 .. 1 for count 0. */
STILL_API void still_wilson_interval(double right, int64_t count, double *low, double *high);

/* ---- what is compared ----------------------------------------------------------------------- */

typedef struct still_evaluation_run {
  const char *name; /* in reports and results; no two alike */
  const still_model *model;
  still_session_options
      session; /* context 0: each sample's own length, so that N_max is what is needed */
} still_evaluation_run;

/* ---- tasks ---------------------------------------------------------------------------------- */

/* Retrieval in the style of RULER (Hsieh et al. 2024), with its parameters: sentences with something
 * to remember ("needles") in a haystack of noise (five sentences, repeated), prose (a text file) or
 * other needles, then a question. RULER's names are understood, too.
 *
 *   sniah1           niah_single_1     one needle in noise, the value a number of 7 digits
 *   sniah2           niah_single_2     one needle in prose, a number
 *   sniah3           niah_single_3     one needle in prose, a UUID
 *   multikey         niah_multikey_1   4 needles in prose, asked for one of them
 *   multikey_noise                     4 needles in noise, asked for one of them
 *   multikey_dense   niah_multikey_2   as many needles as there is room for and nothing else, asked
 *                                      for one of them
 *   multikey_uuid    niah_multikey_3   the same with UUIDs as keys and values
 *   multivalue       niah_multivalue   4 values of one key in prose, asked for all, in the text's
 *                                      order
 *   multiquery       niah_multiquery   4 needles in prose, asked for all
 *   tracking         vt                a variable's value passed on through 4 others, in noise; asked
 *                                      for the 5 names, after an answered example
 *   common_words     cwe               a numbered list in which 10 words stand 30 times and the others
 *                                      3 times (below 4096 tokens 6 times and once); asked for the
 *                                      10, after an answered example
 *   frequent_words   fwe               coded words of 6 letters, the k-th most frequent n / (zeta(2)
 *                                      k^2) times, of length / 50 different ones; asked for the
 *                                      second to the fourth, the first being dots
 *   documents        qa                a question of the user's (`questions`) with its paragraphs
 *                                      among those of other questions, as many as there is room for
 *                                      (RULER: the same number in all samples of a length): first
 *                                      the others of its own article (the same "title"), then any,
 *                                      all in random order
 *
 * and reasoning in the style of BABILong (Kuratov et al. 2024): facts spread over prose, the
 * question about the last state of things.
 *
 *   qa1 .. qa5       where is a person, where is a thing, where was it before, directions, who gave
 *                    what to whom: stories of our own wording
 *   babi1 .. babi5   the same with facts, questions and answers of bAbI's own files
 *
 * As BABILong's generator does it, sentences of fewer than 10 tokens are left out of the prose (of
 * the model's tokens here, GPT-2's there), each fact stands at a place drawn from all those between
 * sentences, and one sentence is cut to make the length exact (the first one at its beginning here,
 * the last one at its end there). A length is that of the whole sample with what is kept free for
 * the answer; BABILong counts facts and prose, and so leaves room for its instructions.
 */
STILL_API const char *still_evaluation_task_name(size_t index); /* NULL after the last */

typedef enum still_scoring {
  /* The benchmark's own: the model writes up to so many tokens as RULER and BABILong allow, which
   * are kept free in the length, and what it wrote is looked through. RULER: the share of the
   * answers that occur in it (documents: 1 if one of them does). BABILong: 1 if what stands before
   * the first full stop holds the answer and no other label of the task, those in the question aside.
   * Capitals and small letters (ASCII) are the same. */
  STILL_SCORING_TASK = 0,
  /* Stricter and quicker: 1 if each token of the answer is the most likely one after those before
   * it, which is so exactly when greedy decoding gives it. The length has the answer's own
   * tokens. */
  STILL_SCORING_EXACT = 1
} still_scoring;

typedef struct still_evaluation_options {
  size_t size;
  const char *const *tasks;
  size_t task_count;
  /* Tokens of a sample, with those for the answer. Samples have exactly that many where the haystack
   * is noise or prose; elsewhere as many needles, words or documents as fit. 0: the facts of qa1 ..
   * qa5 and babi1 .. babi5 alone (BABILong's 0K). */
  const int *lengths;
  size_t length_count;
  still_scoring scoring; /* default TASK */
  int samples;           /* of each task and length, 1 .. 10^6, default 100 */
  uint64_t seed;         /* default 7 */
  /* Part `shard` (0 .. shards-1) of the samples alone: those whose number leaves that remainder.
   * Processes that share the work write a file of results each, and
   * still_evaluation_report_read() puts them together. shards 0 (default) and 1: all. */
  int shard, shards;
  /* 0 (default): needles stand at places drawn at random; 2 .. 101: at each of so many, from the
   * beginning to the end, `samples` times (one-needle tasks alone). */
  int depths;
  /* Files. NULL means: without prose, without bAbI, and the built-in wording and key words. */
  const char *haystack; /* text, UTF-8 */
  const char *babi;     /* folder with bAbI's qa1_..._test.txt and so on */
  const char
      *questions; /* JSON lines for `documents`: {"question", "context": a paragraph or a list
                            of them, "answers": a text, a list or {"text": a list}, "title": of the
                            article (may be missing)}, as SQuAD's; paragraphs of other questions
                            are the haystack */
  const char *templates; /* JSON with the wording, as templates.json of the model needle */
  const char *keys;      /* JSON list of words for keys, or an object with the list "evaluation" */
  const char *results;   /* to be written: JSON lines, a head with command, settings and each run's
                            options and hashes of model and adapter, then each sample; NULL: none */
  /* 1: samples that `results` already has are not asked again; it must be of the same settings,
   * models and options. 0 (default): an existing file is replaced. */
  int resume;
  /* 1: a length beyond a model's trained context, too short for a task or a sample of it, or too
   * long for a run's budget or context is left out with a warning; 0 (default): an error that names it. */
  int skip_long;
  const char *command;               /* for the head of results, NULL = none */
  still_progress_callback *progress; /* samples done and to do, asked within samples, too; not 0
                                        stops: CANCELLED */
  void *progress_user;
} still_evaluation_options;

#define STILL_EVALUATION_OPTIONS_INIT                                                              \
  {                                                                                                \
    sizeof(still_evaluation_options), NULL, 0, NULL, 0, STILL_SCORING_TASK, 100, 7, 0, 0, 0, NULL, \
        NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL                                       \
  }

/* ---- results -------------------------------------------------------------------------------- */

/* What a run reached in a task at a length (and depth). */
typedef struct still_evaluation_cell {
  const char *run, *task; /* owned by the report */
  int length;
  double depth; /* 0 .. 1 of the grid; -1 without one */
  int64_t count;
  double right;     /* the sum of their scores */
  double low, high; /* of right / count, 95 %: Wilson's interval, which is too wide rather than too
                       narrow where scores are parts of 1 */
  double seconds;   /* that these samples took, without those found in results */
} still_evaluation_cell;

typedef struct still_evaluation_report still_evaluation_report;

/* Evaluates all tasks at all lengths by all runs, decoding greedily. Errors:
 * ARGUMENT (a task or range that is unknown, a run named twice, a length too short: says how many
 * tokens the task needs), FILE, FORMAT (haystack, templates, keys, results: with the line),
 * CANCELLED (what was done is in results), and those of sessions. */
STILL_API still_status still_evaluate(const still_evaluation_run *runs, size_t run_count,
                                      const still_evaluation_options *options,
                                      still_evaluation_report **report);
/* The report of what files of results hold (see `results` above), each sample counted once. Files
 * belong together when settings, models and options of the runs they share are the same. Errors:
 * ARGUMENT (files that do not belong together, with the line), FILE, FORMAT (with the line). */
STILL_API still_status still_evaluation_report_read(const char *const *paths, size_t path_count,
                                                    still_evaluation_report **report);
STILL_API void still_evaluation_report_destroy(still_evaluation_report *report);
/* In the order lengths, runs, tasks, depths. */
STILL_API const still_evaluation_cell *
still_evaluation_report_cells(const still_evaluation_report *report, size_t *count);

typedef enum still_evaluation_picture {
  STILL_PICTURE_LENGTHS = 0, /* accuracy over length, a panel for each task, a line for each run */
  STILL_PICTURE_DEPTHS = 1 /* a heat map of depth and length for each run and task; needs depths */
} still_evaluation_picture;

/* Writes an SVG that needs nothing else. ARGUMENT, FILE. */
STILL_API still_status still_evaluation_report_draw(const still_evaluation_report *report,
                                                    still_evaluation_picture picture,
                                                    const char *path);

/* ---- language ------------------------------------------------------------------------------- */

typedef struct still_language_options {
  size_t size;
  /* Tokens of a row, each after a begin-of-sequence token where the model wants one; 0 (default):
   * the whole text in one row. */
  int length;
  /* How far the next row begins after a row, 1 .. length; 0 (default): length. What two rows have
   * in common is scored once, in the first. */
  int stride;
  int rows; /* most rows; 0 (default): all that are complete */
  /* JSON lines to be added to: a head as in still_evaluation_options, then {"run", "language_row",
   * ...} for each row as it is done and {"run", "language": {...}} with the numbers of the result;
   * NULL (default): none. */
  const char *results;
  /* 1: rows that `results` already has, of the same text, rows, runs and options, are not evaluated
   * again, and what is complete is not written again. A text in one row has nothing to go on from. */
  int resume;
  const char *command;               /* for the head, NULL = none */
  still_progress_callback *progress; /* tokens; not 0 stops: CANCELLED */
  void *progress_user;
} still_language_options;

#define STILL_LANGUAGE_OPTIONS_INIT                                                                \
  { sizeof(still_language_options), 0, 0, 0, NULL, 0, NULL, NULL, NULL }

typedef struct still_language_result {
  int64_t tokens, rows; /* scored */
  double nats;          /* a token, in the mean */
  double nats_error;    /* its standard error, the rows taken as independent; 0 for one row */
  double perplexity;    /* exp(nats) */
  double bits_per_byte;
  /* Against the reference; 0 without one. */
  double divergence; /* mean over tokens of KL(reference || run) of the next token's distribution,
                        in nats */
  double divergence_99; /* the 99th percentile */
  double agreement;     /* share of tokens at which both have the same most likely next token */
} still_language_result;

/* How well a run predicts a text (any bytes), and how far its predictions are from those of a
 * reference (NULL: none; a model of the same vocabulary). Errors: ARGUMENT (a text of fewer tokens
 * than a row), CANCELLED, NUMERIC, and those of sessions. */
STILL_API still_status still_evaluate_language(const still_evaluation_run *run,
                                               const still_evaluation_run *reference,
                                               const char *text, size_t bytes,
                                               const still_language_options *options,
                                               still_language_result *result);

/* ---- multiple choice ------------------------------------------------------------------------ */

typedef enum still_choice_format {
  STILL_CHOICES_AS_FILE = 0, /* LETTERS where a line has a "subject" (MMLU), else TEXT */
  STILL_CHOICES_TEXT = 1,    /* the likelihood of each choice's text after the question */
  STILL_CHOICES_LETTERS = 2  /* the choices stand in the prompt with letters: that of the letter */
} still_choice_format;

typedef struct still_choice_options {
  size_t size;
  still_choice_format format;
  int items; /* most items, the first of the file; 0 (default): all */
  /* Items that are shown, answered, before each question; default 0. They are drawn by the seed from
   * `shown` (JSON lines as well; NULL, the default: the file itself), different ones, of the item's
   * own subject and never the item itself. A file `shown` without that subject: ARGUMENT. */
  int examples;
  const char *shown;
  uint64_t seed;     /* default 7 */
  int shard, shards; /* as in still_evaluation_options */
  /* To be written, as in still_evaluation_options: two lines for an item, the tasks "FILE acc" (with
   * the likelihoods of the choices) and "FILE acc_norm". */
  const char *results;
  int resume;
  int skip_long; /* 1: items with more tokens than the session takes are left out with a warning; 0
                    (default): an error that names the first */
  const char *command;
  still_progress_callback *progress; /* items; not 0 stops: CANCELLED */
  void *progress_user;
} still_choice_options;

#define STILL_CHOICE_OPTIONS_INIT                                                                  \
  {                                                                                                \
    sizeof(still_choice_options), STILL_CHOICES_AS_FILE, 0, 0, NULL, 7, 0, 0, NULL, 0, 0, NULL,    \
        NULL, NULL                                                                                 \
  }

typedef struct still_choice_result {
  int64_t count;
  int64_t right;      /* items whose answer has the largest log-likelihood */
  int64_t right_norm; /* the same with the log-likelihood divided by the choice's bytes */
  int64_t skipped;    /* items left out */
} still_choice_result;

/* A file of JSON lines {"question", "choices": [...], "answer": index or letter}, scored as
 * lm-evaluation-harness does, in the prompts of its tasks: the likelihood of each choice after
 * "Question: ...\nAnswer:". A question with one "_" (no index, as in CO_{2}) is a sentence with a gap (WinoGrande): scored is
 * the rest of the sentence after each choice in the gap. What the choices of a question begin with
 * alike is evaluated once. Other names are understood, too: goal/sol1/sol2/label (PIQA),
 * activity_label/ctx_a/ctx_b (or ctx)/endings/label (HellaSwag: no "Question:", its marks in brackets
 * taken out), question.stem and choices.text with choices.label and answerKey (ARC),
 * sentence/option1/option2 (WinoGrande; the sentence must have one "_"), subject (MMLU: letters).
 * Errors: FORMAT (file and line, or a choice without tokens), ARGUMENT (an item that is too long),
 * CANCELLED and those of sessions. */
STILL_API still_status still_evaluate_choices(const still_evaluation_run *run, const char *path,
                                              const still_choice_options *options,
                                              still_choice_result *result);

/* ---- mechanism ------------------------------------------------------------------------------ */

/* Why a model finds what it finds: whether the tokens that heads keep by a local score are those
 * that full attention would come back to, and whether the linear branch is used.
 *
 *     still_mechanism *record;
 *     still_mechanism_create(&record, session, 0);   (and evaluate a text)
 *     still_mechanism_measure(record, NULL);
 *     still_mechanism_draw(record, "page.html");
 *
 * Terms: the last C tokens are a token's window (C: the layer's chunk). A token is routed when its
 * chunk j has left the window, at the beginning of chunk j+2; from then on it is remote. The
 * attention that it receives is the mean, over all queries for which it is remote, of the weight
 * that full softmax attention gives it. */
typedef struct still_mechanism still_mechanism;

/* Records a session from now on: its queries and keys (4 (H + G) D bytes a token and layer), scores
 * and shares, of the first `most` tokens (0: all). Errors: ARGUMENT (the session is not empty, or
 * forgets tokens: its option history), UNSUPPORTED (not on the CPU), MEMORY. */
STILL_API still_status still_mechanism_create(still_mechanism **mechanism, still_session *session,
                                              int64_t most);
/* Ends recording; before the session is destroyed. */
STILL_API void still_mechanism_destroy(still_mechanism *mechanism);

/* Measures what was recorded; may be called again after more tokens. What full attention would do is
 * taken from the queries and keys of `reference`: a record of the same tokens by the same model
 * with other attention, such as full; NULL: of this one. Work grows with the tokens' square.
 * Errors: ARGUMENT (no tokens, a reference of other tokens or shapes), MEMORY. */
STILL_API still_status still_mechanism_measure(still_mechanism *mechanism,
                                               const still_mechanism *reference);

/* NaN: not defined there (no token kept, nothing routed, all values equal). */
typedef struct still_mechanism_head {
  int layer, head;
  int64_t routed, kept; /* tokens */
  /* Share of the kept tokens that are among as many routed ones that receive most attention (the
   * paper's table 12), and what a choice by chance would reach: kept / routed. */
  double overlap, chance;
  double overlap_in_chunks; /* the same, the best being taken within each chunk */
  double score_correlation; /* Spearman: routing score and received attention of routed tokens */
  /* Spearman, over all tokens after the first window: a token's attention to itself within its
   * window and among all tokens before it. */
  double self_correlation;
  /* Means over all tokens from chunk 2 on, as in still_attention_inputs. */
  double linear_mass, linear_output;
} still_mechanism_head;

/* A token of the vocabulary, how often heads keep it, and how often they could: its occurrences
 * among routed tokens, for each head that routes. */
typedef struct still_mechanism_word {
  still_token id;
  int64_t kept, seen;
} still_mechanism_word;

/* One head's tokens; arrays of `count`. */
typedef struct still_mechanism_tokens {
  int64_t count;
  const float *scores;       /* routing scores; without routing, the attention to itself within the
                                window */
  const float *attention;    /* received; 0 for tokens that are not remote to any query */
  const unsigned char *kept; /* 1: for good */
} still_mechanism_tokens;

/* All NULL or 0 before measure; owned by the mechanism until it is measured again. Heads: of layer
 * 0 first. Words: those that are kept most often first. */
STILL_API const still_mechanism_head *still_mechanism_heads(const still_mechanism *mechanism,
                                                            size_t *count);
STILL_API const still_mechanism_word *still_mechanism_words(const still_mechanism *mechanism,
                                                            size_t *count);
STILL_API still_mechanism_tokens still_mechanism_tokens_of(const still_mechanism *mechanism,
                                                           int layer, int head);

/* Writes an HTML page that needs nothing else: the text twice, side by side, shaded by the routing
 * score and by the attention received, kept tokens marked, layer and head to be chosen. ARGUMENT
 * (not measured yet), FILE, MEMORY. */
STILL_API still_status still_mechanism_draw(const still_mechanism *mechanism, const char *path);

typedef struct still_mechanism_options {
  size_t size;
  int length; /* the text's first tokens, a begin-of-sequence token included; 0 (default): all */
  /* JSON lines: a head as in still_evaluation_options, then {"run", "mechanism": {...}} with every
   * head and word; NULL (default): none. */
  const char *results;
  /* 1: what `results` already has of the same run, reference, text and length is read instead of
   * measured, the rest added; 0 (default): the file begins anew. */
  int resume;
  const char *command; /* for the head, NULL = none */
} still_mechanism_options;

#define STILL_MECHANISM_OPTIONS_INIT                                                               \
  { sizeof(still_mechanism_options), 0, NULL, 0, NULL }

/* All of it for a text: the run's session beside one of the reference (NULL: none), measured. What
 * was read from results has heads and words alone: no tokens of heads, no page. Errors: those of
 * sessions and of the above, FILE, FORMAT (results: file and line). */
STILL_API still_status still_evaluate_mechanism(const still_evaluation_run *run,
                                                const still_evaluation_run *reference,
                                                const char *text, size_t bytes,
                                                const still_mechanism_options *options,
                                                still_mechanism **mechanism);

#ifdef __cplusplus
}
#endif

#endif
