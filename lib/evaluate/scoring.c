/* SPDX-License-Identifier: MIT */
#include "evaluate/scoring.h"

#include <string.h>
#include <strings.h>

const char *still_find_folded(const char *text, const char *part) {
  const size_t length = strlen(part);
  for (; *text; text++)
    if (!strncasecmp(text, part, length)) return text;
  return length ? NULL : text;
}

static size_t count_held(const char *text, const char *const *parts, size_t count) {
  size_t held = 0;
  for (size_t i = 0; i < count; i++) held += still_find_folded(text, parts[i]) != NULL;
  return held;
}

/* ---- BABILong: the answer is what stands before any of these */

static const char *const ends[] = {".", "<context>", "<example>"};
enum { ENDS = sizeof ends / sizeof *ends, LONGEST_ANSWER = 1024 };

static double score_label(const still_expectation *e, const char *text) {
  char first[LONGEST_ANSWER];
  size_t length = strlen(text);
  for (int i = 0; i < ENDS; i++) {
    const char *end = still_find_folded(text, ends[i]);
    if (end && (size_t)(end - text) < length) length = (size_t)(end - text);
  }
  if (length >= sizeof first) length = sizeof first - 1;
  memcpy(first, text, length);
  first[length] = 0;
  return count_held(first, e->answers, e->answer_count) &&
         !count_held(first, e->others, e->other_count);
}

double still_score(const still_expectation *e, const char *text) {
  if (e->rule == STILL_RULE_LABEL) return score_label(e, text);
  const size_t held = count_held(text, e->answers, e->answer_count);
  if (e->rule == STILL_RULE_ANY) return held > 0;
  return e->answer_count ? (double)held / (double)e->answer_count : 0;
}

bool still_score_is_final(const still_expectation *e, const char *text) {
  if (e->rule == STILL_RULE_LABEL) return count_held(text, ends, ENDS) > 0;
  return still_score(e, text) >= 1;
}
