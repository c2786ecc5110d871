/* SPDX-License-Identifier: MIT
 * What a program shows while it works: progress, colours, log lines, time; and how it is interrupted. */
#ifndef PROGRAM_TERMINAL_H
#define PROGRAM_TERMINAL_H

#include <still/model.h>

/* verbosity: -1 quiet, 0 warnings, 1 choices made, 2 everything. Sends the library's log to stderr. */
void program_terminal_begin(int verbosity);
int program_quiet(void);

/* Seconds of a clock that never jumps. */
double program_seconds(void);

/* Progress of one long call on stderr, only where stderr is a terminal. Also stops the call once the
 * program was interrupted. */
typedef struct program_progress {
  const char *label; /* "loading" */
  const char *unit;  /* "MB", "tokens" */
  double unit_size;  /* of the callback's units in one of those */
  uint64_t base;     /* done by earlier calls */
  double start, shown;
} program_progress;

program_progress program_progress_begin(const char *label, const char *unit, double unit_size);
int program_progress_show(void *progress, uint64_t done, uint64_t total); /* the callback */
void program_progress_end(void);

/* Ctrl-C: the first one asks the running work to end, the next one ends the program. */
void program_catch_interrupts(void);
int program_interrupted(void);
/* While a session is named here, Ctrl-C also cancels what it evaluates. NULL: none. */
void program_interrupts_cancel(still_session *session);
void program_forget_interrupts(void);

/* An escape sequence where stderr shows colours (a terminal, no NO_COLOR), "" elsewhere. */
const char *program_colour(const char *sequence);

/* "13.6 MB" into one of a few static buffers. */
const char *program_bytes(uint64_t bytes);

/* The most memory this process has had resident, in bytes. */
uint64_t program_peak_resident(void);

#endif
