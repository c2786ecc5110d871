/* SPDX-License-Identifier: MIT
 * The progress of the long call that runs on this thread. What works within it, however deep, says how far it is and
 * learns whether to stop. */
#ifndef STILL_BASE_PROGRESS_H
#define STILL_BASE_PROGRESS_H

#include "base/status.h"

#include <stdbool.h>

typedef struct still_progress {
  still_progress_callback *callback; /* NULL: nobody asks */
  void *user;
  const char *what;     /* "loading" */
  uint64_t done, total; /* total 0: not known yet */
  struct still_progress *outer;
} still_progress;

/* Between these two `progress` is this thread's. */
void still_progress_begin(still_progress *progress);
void still_progress_end(still_progress *progress);

/* `units` more are done, 0 for a mere breath: to be called often enough, every few milliseconds of work. CANCELLED where the
 * callback says stop. */
still_status still_progress_add(uint64_t units);

/* For loops over threads: the progress of the call on this thread (NULL: none), and whether its callback says stop. Only
 * where that callback may be asked on any thread. */
still_progress *still_progress_here(void);
bool still_progress_stops(const still_progress *progress);

#endif
