/* SPDX-License-Identifier: MIT */
#include "evaluate/babi.h"

#include "base/files.h"
#include "base/memory.h"
#include "base/random.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static still_status find_file(const char *folder, int number, char **path) {
  char begin[16];
  DIR *files = opendir(folder);
  *path = NULL;
  if (!files) return still_fail(STILL_ERROR_FILE, "%s: %s", folder, strerror(errno));
  snprintf(begin, sizeof begin, "qa%d_", number);
  still_status status = STILL_OK;
  for (struct dirent *file; !status && !*path && (file = readdir(files));) {
    const char *tail = strstr(file->d_name, "_test.txt");
    if (!strncmp(file->d_name, begin, strlen(begin)) && tail && !tail[9])
      status = still_join_path(path, folder, file->d_name);
  }
  closedir(files);
  if (status || *path) return status;
  return still_fail(STILL_ERROR_FILE, "%s: holds no %s..._test.txt", folder, begin);
}

static still_status add_fact(still_babi *b, char *fact) {
  if (b->fact_count == b->fact_room) {
    const size_t room = 2 * b->fact_room + 256;
    STILL_TRY(STILL_REALLOC(&b->facts, room, "facts"));
    b->fact_room = room;
  }
  b->facts[b->fact_count++] = fact;
  return STILL_OK;
}

static still_status add_question(still_babi *b, still_babi_question question) {
  if (b->question_count == b->question_room) {
    const size_t room = 2 * b->question_room + 256;
    STILL_TRY(STILL_REALLOC(&b->questions, room, "questions"));
    b->question_room = room;
  }
  b->questions[b->question_count++] = question;
  return STILL_OK;
}

static char *without_spaces(char *text) {
  size_t length = strlen(text);
  while (length && strchr(" \r", text[length - 1])) text[--length] = 0;
  return text;
}

/* One line, its end replaced by a NUL. *first: the story's first fact. */
static still_status read_line(still_babi *b, char *line, size_t *first) {
  char *text, *answer = strchr(line, '\t'), *support;
  const unsigned long number = strtoul(line, &text, 10);
  if (text == line || *text != ' ')
    return still_fail(STILL_ERROR_FORMAT, "a number and a space must come first");
  if (number == 1) *first = b->fact_count;
  text++;
  if (!answer) return add_fact(b, without_spaces(text));
  *answer++ = 0;
  if ((support = strchr(answer, '\t'))) *support = 0;
  if (!*without_spaces(answer) || b->fact_count == *first)
    return still_fail(STILL_ERROR_FORMAT, "a question without %s", *answer ? "facts" : "an answer");
  return add_question(b,
                      (still_babi_question){without_spaces(text), answer, *first, b->fact_count});
}

static still_status find_labels(still_babi *b) {
  const char **labels;
  size_t count = 0;
  STILL_TRY(STILL_ALLOC(&labels, b->question_count, "labels"));
  for (size_t i = 0; i < b->question_count; i++) {
    size_t k = 0;
    while (k < count && strcmp(labels[k], b->questions[i].answer)) k++;
    if (k == count) labels[count++] = b->questions[i].answer;
  }
  b->labels = (still_words){labels, count};
  return STILL_OK;
}

static still_status read_lines(still_babi *b, const char *path) {
  size_t bytes, first = 0, number = 1;
  STILL_TRY(still_read_text(path, 64 * 1024 * 1024, &b->text, &bytes));
  for (char *line = b->text, *end; line && *line; line = end, number++) {
    if ((end = strchr(line, '\n'))) *end++ = 0;
    if (!*line) continue;
    const still_status status = read_line(b, line, &first);
    if (status) return still_fail_in(status, "%s, line %zu", path, number);
  }
  if (!b->question_count) return still_fail(STILL_ERROR_FORMAT, "%s: holds no question", path);
  return find_labels(b);
}

still_status still_babi_open(still_babi *b, const char *folder, int number) {
  char *path;
  memset(b, 0, sizeof *b);
  STILL_TRY(find_file(folder, number, &path));
  const still_status status = read_lines(b, path);
  still_free(path);
  if (status) still_babi_free(b);
  return status;
}

uint64_t still_babi_hash(const still_babi *b, uint64_t before) {
  uint64_t hash = before;
  for (size_t i = 0; i < b->fact_count; i++) hash = still_hash_text(hash, b->facts[i]);
  for (size_t i = 0; i < b->question_count; i++)
    hash = still_hash_text(still_hash_text(hash, b->questions[i].question), b->questions[i].answer);
  return hash;
}

void still_babi_free(still_babi *b) {
  still_free(b->text);
  still_free(b->facts);
  still_free(b->questions);
  still_free((void *)b->labels.items);
  memset(b, 0, sizeof *b);
}
