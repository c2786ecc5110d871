/* SPDX-License-Identifier: MIT
 * A list of idle pieces behind one lock. */
#include "attention/attention_work.h"

#include "base/memory.h"

#include <pthread.h>

struct still_work {
  still_work *next;
  void *data;
  size_t bytes;
};

static struct {
  pthread_mutex_t lock;
  still_work *idle;
  size_t users;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void destroy(still_work *work) {
  still_free(work->data);
  still_free(work);
}

static still_status create(size_t bytes, still_work **work) {
  STILL_TRY(STILL_ALLOC(work, 1, "attention work space"));
  const still_status status = still_alloc(&(*work)->data, bytes, 1, "attention work space");
  (*work)->bytes = bytes;
  if (status) destroy(*work);
  return status;
}

/* Unlinks the smallest idle piece that fits; NULL if there is none. The lock is held. */
static still_work *unlink_fitting(size_t bytes) {
  still_work **best = NULL;
  for (still_work **at = &pool.idle; *at; at = &(*at)->next)
    if ((*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes)) best = at;
  if (!best) return NULL;
  still_work *work = *best;
  *best = work->next;
  return work;
}

still_status still_work_take(size_t bytes, still_work **work) {
  pthread_mutex_lock(&pool.lock);
  *work = unlink_fitting(bytes);
  pthread_mutex_unlock(&pool.lock);
  return *work ? STILL_OK : create(bytes, work);
}

void still_work_give_back(still_work *work) {
  pthread_mutex_lock(&pool.lock);
  work->next = pool.idle;
  pool.idle = work;
  pthread_mutex_unlock(&pool.lock);
}

void *still_work_data(still_work *work) {
  return work->data;
}

still_status still_work_reserve(size_t bytes) {
  still_work *work;
  STILL_TRY(still_work_take(bytes, &work));
  still_work_give_back(work);
  pthread_mutex_lock(&pool.lock);
  pool.users++;
  pthread_mutex_unlock(&pool.lock);
  return STILL_OK;
}

void still_work_unreserve(void) {
  pthread_mutex_lock(&pool.lock);
  still_work *work = --pool.users ? NULL : pool.idle;
  if (work) pool.idle = NULL;
  pthread_mutex_unlock(&pool.lock);
  while (work) {
    still_work *next = work->next;
    destroy(work);
    work = next;
  }
}
