/* SPDX-License-Identifier: MIT
 * Work space of forward, lent from a pool: caches that never run at the same time (the layers of a
 * model) share one piece. */
#ifndef STILL_ATTENTION_WORK_H
#define STILL_ATTENTION_WORK_H

#include "base/status.h"

#include <still/attention.h>

#include <stddef.h>

typedef struct still_work still_work;

/* attention_forward.c: what one call needs, for all its threads. */
size_t still_forward_work_bytes(const still_attention_plan *plan);

/* A cache announces what it will need, so that forward finds it there; and that it is gone. */
still_status still_work_reserve(size_t bytes);
void still_work_unreserve(void);

/* At least `bytes` bytes. Allocates only when every fitting piece is in use by another thread:
 * MEMORY. */
still_status still_work_take(size_t bytes, still_work **work);
void still_work_give_back(still_work *work);
void *still_work_data(still_work *work);

#endif
