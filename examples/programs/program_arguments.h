/* SPDX-License-Identifier: MIT
 * Command lines of the programs: a table of flags, its parser, its help. */
#ifndef PROGRAM_ARGUMENTS_H
#define PROGRAM_ARGUMENTS_H

#include <stdint.h>

/* Exit codes of every program. */
enum { PROGRAM_DONE = 0, PROGRAM_FAILED = 1, PROGRAM_USAGE = 2 };

typedef enum program_flag_kind {
  PROGRAM_HEADING, /* a line of the help, no flag */
  PROGRAM_SWITCH,  /* int *: counts how often it is given */
  PROGRAM_INTEGER, /* int * */
  PROGRAM_LONG,    /* int64_t * */
  PROGRAM_NUMBER,  /* float * */
  PROGRAM_CHOICE,  /* int *: index of the word */
  PROGRAM_TEXT     /* const char ** */
} program_flag_kind;

typedef struct program_flag {
  program_flag_kind kind;
  const char *names; /* "-c, --ctx-size"; the last gives the variable STILL_CTX_SIZE */
  const char *value; /* what the help calls the argument */
  const char *help;
  void *target;
  double lowest, highest; /* numbers: the range */
  const char *also;       /* a number outside the range that is allowed too, NULL = none */
  const char *also_means; /* what it stands for */
  const char *(*choice)(int index); /* words of a CHOICE, NULL after the last */
} program_flag;

#define FLAG_HEADING(text)                                                                         \
  { .kind = PROGRAM_HEADING, .names = (text) }
#define FLAG_SWITCH(flag, says, where)                                                             \
  { .kind = PROGRAM_SWITCH, .names = (flag), .help = (says), .target = (where) }
#define FLAG_TEXT(flag, what, says, where)                                                         \
  { .kind = PROGRAM_TEXT, .names = (flag), .value = (what), .help = (says), .target = (where) }
#define FLAG_CHOICE(flag, what, says, where, words)                                                \
  {                                                                                                \
    .kind = PROGRAM_CHOICE, .names = (flag), .value = (what), .help = (says), .target = (where),   \
    .choice = (words)                                                                              \
  }
/* type: INTEGER, LONG or NUMBER; also and means: a value outside the range that is allowed, or NULL. */
#define FLAG_RANGE(type, flag, what, says, where, low, high, other, means)                         \
  {                                                                                                \
    .kind = PROGRAM_##type, .names = (flag), .value = (what), .help = (says), .target = (where),   \
    .lowest = (low), .highest = (high), .also = (other), .also_means = (means)                     \
  }
#define FLAG_END                                                                                   \
  { .names = NULL }

/* Names the program in messages. */
void program_begin(const char *name);
const char *program_name(void);

/* Reads the environment, then the command line, into the targets of all tables (NULL after the last).
 * Anything wrong is said on stderr, with the flag and what it allows: PROGRAM_USAGE. */
int program_parse(const program_flag *const *tables, int argc, char **argv);

/* The flags with their ranges and words, on stdout; examples: whole lines. The man pages are made of this. */
void program_help(const program_flag *const *tables, const char *purpose, const char *usage,
                  const char *examples);

/* The exit status of a program that ends with code: a stdout that took not everything is a failure, too. */
int program_end(int code);

/* One line on stderr: "still-run: ...". */
void program_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
