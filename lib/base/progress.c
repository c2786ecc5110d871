/* SPDX-License-Identifier: MIT */
#include "base/progress.h"

#include <stddef.h>

static _Thread_local still_progress *current;

void still_progress_begin(still_progress *progress) {
  progress->outer = current;
  current = progress;
}

void still_progress_end(still_progress *progress) {
  current = progress->outer;
}

still_status still_progress_add(uint64_t units) {
  still_progress *p = current;
  if (!p) return STILL_OK;
  p->done += units;
  if (!p->callback || !p->callback(p->user, p->done, p->total)) return STILL_OK;
  return still_fail(STILL_ERROR_CANCELLED, "%s was stopped", p->what);
}

still_progress *still_progress_here(void) {
  return current;
}

bool still_progress_stops(const still_progress *p) {
  return p && p->callback && p->callback(p->user, p->done, p->total);
}
