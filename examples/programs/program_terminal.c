/* SPDX-License-Identifier: MIT
 * What a program shows while it works: progress, colours, log lines, time; and how it is interrupted. */
#include "program_terminal.h"
#include "program_arguments.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int verbosity_now;
static volatile sig_atomic_t interrupts;

static void log_line(void *user, still_log_level level, const char *message) {
  static const char *const words[] = {"error: ", "warning: ", "", "debug: "};
  (void)user;
  program_progress_end();
  program_complain("%s%s", words[level], message);
}

void program_terminal_begin(int verbosity) {
  static const still_log_level levels[] = {STILL_LOG_ERROR, STILL_LOG_WARNING, STILL_LOG_INFO,
                                           STILL_LOG_DEBUG};
  verbosity_now = verbosity < -1 ? -1 : verbosity > 2 ? 2 : verbosity;
  still_set_log(log_line, NULL, levels[verbosity_now + 1]);
}

int program_quiet(void) {
  return verbosity_now < 0;
}

double program_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int progress_is_shown(void) {
  return verbosity_now >= 0 && isatty(STDERR_FILENO);
}

program_progress program_progress_begin(const char *label, const char *unit, double unit_size) {
  double now = program_seconds();
  return (program_progress){label, unit, unit_size, 0, now, now};
}

int program_progress_show(void *user, uint64_t done, uint64_t total) {
  program_progress *progress = user;
  double now = program_seconds();
  if (progress_is_shown() && now - progress->shown > 0.1) {
    double amount = (double)(progress->base + done) / progress->unit_size;
    fprintf(stderr, "\r\033[K%s ", progress->label);
    if (total && !progress->base) fprintf(stderr, "%3.0f %%, ", 100 * (double)done / (double)total);
    fprintf(stderr, "%.0f %s, %.0f a second", amount, progress->unit,
            amount / (now - progress->start));
    progress->shown = now;
  }
  return interrupts > 0;
}

void program_progress_end(void) {
  if (progress_is_shown()) fputs("\r\033[K", stderr);
}

static still_session *volatile cancelled_session;

void program_interrupts_cancel(still_session *session) {
  cancelled_session = session;
  if (session && interrupts) still_session_cancel(session);
}

static void interrupt(int signal_number) {
  (void)signal_number;
  if (cancelled_session) still_session_cancel(cancelled_session);
  if (++interrupts > 1) _exit(PROGRAM_FAILED);
}

void program_catch_interrupts(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = interrupt; /* no SA_RESTART: a read from the terminal ends, too */
  sigaction(SIGINT, &action, NULL);
}

int program_interrupted(void) {
  return interrupts > 0;
}

void program_forget_interrupts(void) {
  interrupts = 0;
}

const char *program_colour(const char *sequence) {
  const char *off = getenv("NO_COLOR");
  return isatty(STDERR_FILENO) && !(off && *off) ? sequence : "";
}

const char *program_bytes(uint64_t bytes) {
  static char buffers[8][24];
  static int next;
  static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
  char *text = buffers[next++ % 8];
  double value = (double)bytes;
  int unit = 0;
  for (; value >= 1000 && unit < 4; unit++) value /= 1000;
  snprintf(text, sizeof buffers[0], unit && value < 100 ? "%.1f %s" : "%.0f %s", value,
           units[unit]);
  return text;
}

uint64_t program_peak_resident(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (uint64_t)usage.ru_maxrss * 1024;
}
