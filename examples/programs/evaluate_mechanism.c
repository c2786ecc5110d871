/* SPDX-License-Identifier: MIT */
#include "evaluate_mechanism.h"
#include "program_json.h" /* program_utf8_length */
#include "program_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_WORDS = 20 };

/* ---- tables */

static void print_number(double value, double factor, int digits) {
  if (isnan(value))
    printf(" - |");
  else
    printf(" %.*f |", digits, factor * value);
}

/* The values of some heads, as far as they are defined. */
typedef struct spread {
  double sum, low, high;
  int count;
} spread;

static void spread_add(spread *s, double value) {
  if (isnan(value)) return;
  s->sum += value;
  s->low = s->count ? fmin(s->low, value) : value;
  s->high = s->count ? fmax(s->high, value) : value;
  s->count++;
}

static double spread_mean(const spread *s) {
  return s->count ? s->sum / s->count : NAN;
}

static void print_spread(const spread *s, double factor, int digits) {
  if (!s->count)
    printf(" - |");
  else
    printf(" %.*f (%.*f to %.*f) |", digits, factor * spread_mean(s), digits, factor * s->low,
           digits, factor * s->high);
}

static void print_summary(const char *name, const still_mechanism_head *heads, size_t count) {
  spread overlap = {0}, chunks = {0}, chance = {0}, score = {0}, self = {0}, mass = {0},
         output = {0};
  for (size_t i = 0; i < count; i++) {
    spread_add(&overlap, heads[i].overlap);
    spread_add(&chunks, heads[i].overlap_in_chunks);
    spread_add(&chance, heads[i].chance);
    spread_add(&score, heads[i].score_correlation);
    spread_add(&self, heads[i].self_correlation);
    spread_add(&mass, heads[i].linear_mass);
    spread_add(&output, heads[i].linear_output);
  }
  printf("| %s |", name);
  print_spread(&overlap, 100, 1);
  print_spread(&chunks, 100, 1);
  print_number(spread_mean(&chance), 100, 1);
  print_spread(&score, 1, 2);
  print_spread(&self, 1, 2);
  print_spread(&mass, 100, 1);
  print_spread(&output, 100, 1);
  printf("\n");
}

/* Overlap, layers down and heads across; the share of linear mass beside it. */
static void print_heads(const still_mechanism_head *heads, size_t count) {
  size_t width = 0;
  while (width < count && heads[width].layer == heads[0].layer) width++;
  printf("\n| overlap %%, layer |");
  for (size_t h = 0; h < width; h++) printf(" head %zu |", h);
  printf(" mean | linear mass %% |\n|---|---|---|");
  for (size_t h = 0; h < width; h++) printf("---|");
  printf("\n");
  for (size_t first = 0; first < count; first += width) {
    spread overlap = {0}, mass = {0};
    printf("| %d |", heads[first].layer);
    for (size_t h = first; h < first + width; h++) {
      print_number(heads[h].overlap, 100, 1);
      spread_add(&overlap, heads[h].overlap);
      spread_add(&mass, heads[h].linear_mass);
    }
    print_number(spread_mean(&overlap), 100, 1);
    print_number(spread_mean(&mass), 100, 1);
    printf("\n");
  }
}

/* A word as it reads in a sentence: quoted, and its line ends and bars spelled out. */
static void print_word(const still_tokenizer *tokenizer, still_token id) {
  char text[64];
  const size_t length = still_token_text(tokenizer, id, 1, text, sizeof text);
  printf(" \"");
  for (size_t i = 0; i < length && i < sizeof text;) {
    const size_t bytes = program_utf8_length(text + i, length - i);
    if (text[i] == '\n')
      printf("\\n");
    else if (text[i] == '|')
      printf("\\|");
    else if (bytes)
      printf("%.*s", (int)bytes, text + i);
    else
      printf("\\x%02x", (unsigned char)text[i]);
    i += bytes ? bytes : 1;
  }
  printf("\"");
}

static void print_words(const still_tokenizer *tokenizer, const still_mechanism_word *words,
                        size_t count) {
  printf("\nkept most often (of the times a head could):");
  for (size_t i = 0; i < count && i < MOST_WORDS; i++) {
    print_word(tokenizer, words[i].id);
    printf(" %" PRId64 " (%.0f %%)%s", words[i].kept,
           100 * (double)words[i].kept / (double)words[i].seen,
           i + 1 < count && i + 1 < MOST_WORDS ? "," : "");
  }
  printf("%s\n", count ? "" : " nothing is kept");
}

/* ---- the whole */

static int evaluate_run(const still_evaluation_run *run, const still_evaluation_run *reference,
                        const mechanism_question *question,
                        const still_mechanism_options *options) {
  still_mechanism *mechanism;
  size_t head_count, word_count;
  const still_status status = still_evaluate_mechanism(run, reference, question->text,
                                                       question->bytes, options, &mechanism);
  if (status) {
    program_complain("%s", still_last_error());
    return status == STILL_ERROR_ARGUMENT ? PROGRAM_USAGE : PROGRAM_FAILED;
  }
  const still_mechanism_head *heads = still_mechanism_heads(mechanism, &head_count);
  const still_mechanism_word *words = still_mechanism_words(mechanism, &word_count);
  printf("\n| attention | overlap %% | within chunks %% | by chance %% | score correlation | self "
         "correlation | linear mass %% | linear output %% |\n|---|---|---|---|---|---|---|---|\n");
  print_summary(run->name, heads, head_count);
  print_heads(heads, head_count);
  print_words(still_model_tokenizer(run->model), words, word_count);
  fflush(stdout);
  still_mechanism_destroy(mechanism);
  return PROGRAM_DONE;
}

/* All runs write into the same results: the first opens them as the user says, the others go on. */
int evaluate_mechanism(const evaluate_runs *runs, const mechanism_question *question) {
  const still_evaluation_run *full = NULL;
  still_mechanism_options options = STILL_MECHANISM_OPTIONS_INIT;
  options.length = question->length;
  options.results = question->results;
  options.resume = question->resume;
  options.command = question->command;
  for (size_t r = 0; r < runs->count; r++)
    if (!strcmp(runs->items[r].name, "full")) full = &runs->items[r];
  int code = PROGRAM_DONE;
  printf("%d tokens; means over the heads (least to most)\n", question->length);
  for (size_t r = 0; r < runs->count && !code; r++) {
    if (&runs->items[r] == full && runs->count > 1) continue;
    code = evaluate_run(&runs->items[r], &runs->items[r] == full ? NULL : full, question, &options);
    options.resume = 1;
  }
  return code;
}
