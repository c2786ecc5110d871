/* SPDX-License-Identifier: MIT
 * Command lines of the programs: a table of flags, its parser, its help. */
#include "program_arguments.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *the_name = "still";

void program_begin(const char *name) {
  the_name = name;
}

const char *program_name(void) {
  return the_name;
}

void program_complain(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fprintf(stderr, "%s: ", the_name);
  vfprintf(stderr, format, list);
  fputc('\n', stderr);
  va_end(list);
}

int program_end(int code) {
  if (!fflush(stdout) && !ferror(stdout)) return code;
  program_complain("stdout cannot be written");
  return code ? code : PROGRAM_FAILED;
}

/* "-c, --ctx-size": is word (of that length) one of the names? */
static int is_named(const program_flag *flag, const char *word, size_t length) {
  for (const char *name = flag->names; *name;) {
    size_t n = strcspn(name, ", ");
    if (n == length && !strncmp(name, word, n)) return 1;
    name += n + strspn(name + n, ", ");
  }
  return 0;
}

static const program_flag *find_flag(const program_flag *const *tables, const char *word,
                                     size_t length) {
  for (; *tables; tables++)
    for (const program_flag *flag = *tables; flag->names; flag++)
      if (flag->kind != PROGRAM_HEADING && is_named(flag, word, length)) return flag;
  return NULL;
}

static int print_integer(FILE *stream, double value) {
  return fprintf(stream, "%.0f", value);
}

/* "16 .. 2147483647, or 0 (...)"; "full, swa, ..." */
static void print_allowed(FILE *stream, const program_flag *flag) {
  if (flag->kind == PROGRAM_CHOICE) {
    for (int i = 0; flag->choice(i); i++) fprintf(stream, "%s%s", i ? ", " : "", flag->choice(i));
  } else if (flag->kind == PROGRAM_NUMBER) {
    fprintf(stream, "%g .. %g", flag->lowest, flag->highest);
  } else {
    print_integer(stream, flag->lowest);
    fputs(" .. ", stream);
    print_integer(stream, flag->highest);
  }
  if (flag->also) fprintf(stream, ", or %s (%s)", flag->also, flag->also_means);
}

static int refuse(const program_flag *flag, const char *where, const char *text) {
  fprintf(stderr, "%s: %s '%s': allowed are ", the_name, where, text);
  print_allowed(stderr, flag);
  fputc('\n', stderr);
  return PROGRAM_USAGE;
}

static int set_integer(const program_flag *flag, const char *where, const char *text) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  int inside = (double)value >= flag->lowest && (double)value <= flag->highest;
  if (end == text || *end || errno || (!inside && !(flag->also && !strcmp(text, flag->also))))
    return refuse(flag, where, text);
  if (flag->kind == PROGRAM_LONG)
    *(int64_t *)flag->target = value;
  else
    *(int *)flag->target = (int)value;
  return PROGRAM_DONE;
}

static int set_number(const program_flag *flag, const char *where, const char *text) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end ||
      !(value >= flag->lowest && value <= flag->highest)) /* NaN fails, too */
    return refuse(flag, where, text);
  *(float *)flag->target = (float)value;
  return PROGRAM_DONE;
}

static int set_choice(const program_flag *flag, const char *where, const char *text) {
  for (int i = 0; flag->choice(i); i++) {
    if (!strcmp(text, flag->choice(i))) {
      *(int *)flag->target = i;
      return PROGRAM_DONE;
    }
  }
  return refuse(flag, where, text);
}

/* where names the flag or variable as the user wrote it. */
static int set_flag(const program_flag *flag, const char *where, const char *text) {
  switch (flag->kind) {
  case PROGRAM_INTEGER:
  case PROGRAM_LONG: return set_integer(flag, where, text);
  case PROGRAM_NUMBER: return set_number(flag, where, text);
  case PROGRAM_CHOICE: return set_choice(flag, where, text);
  case PROGRAM_TEXT: *(const char **)flag->target = text; return PROGRAM_DONE;
  default: return PROGRAM_DONE;
  }
}

/* "STILL_CTX_SIZE" from "-c, --ctx-size". */
static void variable_name(const program_flag *flag, char *name, size_t capacity) {
  const char *last = strrchr(flag->names, ' ');
  last = last ? last + 1 : flag->names;
  size_t at = (size_t)snprintf(name, capacity, "STILL_");
  for (last += strspn(last, "-"); *last && at + 1 < capacity; last++)
    name[at++] = *last == '-' ? '_' : (char)toupper((unsigned char)*last);
  name[at] = 0;
}

/* A switch is on for "1", off for "0" and "". */
static int set_switch(const program_flag *flag, const char *where, const char *text) {
  if (strcmp(text, "") && strcmp(text, "0") && strcmp(text, "1")) {
    program_complain("%s '%s': allowed are 0, 1", where, text);
    return PROGRAM_USAGE;
  }
  *(int *)flag->target = !strcmp(text, "1");
  return PROGRAM_DONE;
}

static int parse_environment(const program_flag *flags) {
  for (; flags->names; flags++) {
    char name[64];
    variable_name(flags, name, sizeof name);
    const char *text = flags->kind == PROGRAM_HEADING ? NULL : getenv(name);
    if (!text || (flags->kind != PROGRAM_SWITCH && !*text)) continue;
    int code =
        flags->kind == PROGRAM_SWITCH ? set_switch(flags, name, text) : set_flag(flags, name, text);
    if (code) return code;
  }
  return PROGRAM_DONE;
}

/* One flag at argv[*at]; moves *at behind it. */
static int parse_word(const program_flag *const *tables, int argc, char **argv, int *at) {
  const char *word = argv[(*at)++];
  const char *equals = !strncmp(word, "--", 2) ? strchr(word, '=') : NULL;
  size_t length = equals ? (size_t)(equals - word) : strlen(word);
  const program_flag *flag = find_flag(tables, word, length);
  if (!flag) {
    program_complain(*word == '-' ? "unknown flag '%s'; %s -h lists what there is"
                                  : "unknown argument '%s': no flag before it takes one (a model "
                                    "follows -m); %s -h lists what there is",
                     word, the_name);
    return PROGRAM_USAGE;
  }
  if (flag->kind == PROGRAM_SWITCH) {
    if (equals) return set_switch(flag, flag->names, equals + 1);
    ++*(int *)flag->target;
    return PROGRAM_DONE;
  }
  if (!equals && *at >= argc) {
    program_complain("%s: %s is missing", word, flag->value);
    return PROGRAM_USAGE;
  }
  if (!equals) return set_flag(flag, word, argv[(*at)++]);
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)length, word);
  return set_flag(flag, name, equals + 1);
}

int program_parse(const program_flag *const *tables, int argc, char **argv) {
  int code = PROGRAM_DONE;
  for (const program_flag *const *table = tables; !code && *table; table++)
    code = parse_environment(*table);
  for (int at = 1; !code && at < argc;) code = parse_word(tables, argc, argv, &at);
  return code;
}

/* The value a target holds now, if it is one that could be given. */
static void print_default(const program_flag *flag) {
  if (flag->kind == PROGRAM_CHOICE && *(int *)flag->target >= 0)
    printf("; default %s", flag->choice(*(int *)flag->target));
  else if (flag->kind == PROGRAM_NUMBER && *(float *)flag->target >= flag->lowest)
    printf("; default %g", (double)*(float *)flag->target);
  else if (flag->kind == PROGRAM_INTEGER && (*(int *)flag->target >= flag->lowest || flag->also))
    printf("; default %d", *(int *)flag->target);
}

static void print_flag(const program_flag *flag) {
  char left[64];
  snprintf(left, sizeof left, "%s %s", flag->names, flag->value ? flag->value : "");
  printf("  %-28s %s", left, flag->help);
  if (flag->kind != PROGRAM_SWITCH && flag->kind != PROGRAM_TEXT) {
    fputs(" [", stdout);
    print_allowed(stdout, flag);
    print_default(flag);
    fputs("]", stdout);
  }
  fputc('\n', stdout);
}

void program_help(const program_flag *const *tables, const char *purpose, const char *usage,
                  const char *examples) {
  printf("%s\n\nusage: %s\n", purpose, usage);
  for (; *tables; tables++) {
    for (const program_flag *flag = *tables; flag->names; flag++) {
      if (flag->kind == PROGRAM_HEADING)
        printf("\n%s\n", flag->names);
      else
        print_flag(flag);
    }
  }
  printf("\nexamples\n%s", examples);
  printf("\nEvery flag --some-name can also be given as the variable STILL_SOME_NAME; the command "
         "line wins.\nexit status: 0 done, 1 failed, 2 a flag is wrong\n");
}
