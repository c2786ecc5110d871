/* SPDX-License-Identifier: MIT
 * The way back after a failed evaluation. */
#include "base/log.h"
#include "base/memory.h"
#include "model/session.h"

enum { SMALL = 16 }; /* tokens; evaluations of fewer share a snapshot */

/* Copies of all layers; arrays that are there already and large enough are used again. */
static still_status take_snapshots(still_session *session) {
  still_journal *journal = &session->journal;
  if (!journal->snapshots)
    STILL_TRY(STILL_ALLOC(&journal->snapshots, (size_t)session->layer_count, "snapshots"));
  if (!journal->snapshot_bytes)
    STILL_TRY(STILL_ALLOC(&journal->snapshot_bytes, (size_t)session->layer_count, "snapshots"));
  for (int i = 0; i < session->layer_count; i++) {
    still_backend *backend = still_session_layer_backend(session, i);
    still_layer_cache *cache = session->layers[i].cache;
    const size_t bytes = backend->ops->attention_snapshot_bytes(backend, cache);
    if (bytes > journal->snapshot_bytes[i]) {
      journal->snapshot_bytes[i] = 0;
      STILL_TRY(still_realloc(&journal->snapshots[i], bytes, 1, "a layer's snapshot"));
      journal->snapshot_bytes[i] = bytes;
    }
    STILL_TRY(backend->ops->attention_snapshot(backend, cache, journal->snapshots[i]));
  }
  return STILL_OK;
}

static bool is_small(const still_session *session, size_t count) {
  return count < SMALL && count <= session->forward.block;
}

still_status still_journal_begin(still_session *session, size_t count) {
  still_journal *journal = &session->journal;
  if (journal->valid && is_small(session, count) && journal->count < STILL_JOURNAL_ENTRIES)
    return STILL_OK;
  journal->valid = false;
  STILL_TRY(take_snapshots(session));
  journal->valid = true;
  journal->position = session->count;
  journal->count = 0;
  return STILL_OK;
}

void still_journal_succeeded(still_session *session, size_t count) {
  still_journal *journal = &session->journal;
  if (is_small(session, count))
    journal->entries[journal->count++] = count;
  else
    journal->valid = false;
}

static still_status recover(still_session *session) {
  still_journal *journal = &session->journal;
  for (int i = 0; i < session->layer_count; i++) {
    still_backend *backend = still_session_layer_backend(session, i);
    STILL_TRY(
        backend->ops->attention_restore(backend, session->layers[i].cache, journal->snapshots[i]));
  }
  int64_t position = journal->position;
  for (int i = 0; i < journal->count; i++) {
    STILL_TRY(still_forward_block(&session->forward, session->tokens + (position - session->first),
                                  journal->entries[i], position));
    position += (int64_t)journal->entries[i];
  }
  return STILL_OK;
}

still_status still_session_settle(still_session *session) {
  if (!session->unsettled) return STILL_OK;
  const still_taps taps = session->forward.taps;
  session->forward.taps = (still_taps){0}; /* what was recorded stays */
  const bool leaves = session->leaves_device || still_session_has_lost(session);
  still_status status = leaves ? still_session_leave_device(session) : recover(session);
  if (!leaves && still_session_has_lost(session)) status = still_session_leave_device(session);
  session->forward.taps = taps;
  if (status == STILL_ERROR_CANCELLED || status == STILL_ERROR_MEMORY) return status;
  session->unsettled = session->leaves_device = false;
  if (!status) return STILL_OK;
  still_log(STILL_LOG_ERROR, "the session could not be brought back and is empty now: %s",
            still_last_error());
  still_session_empty(session);
  return status;
}

/* That the caches lag behind is nothing that a const session shows. */
still_status still_session_settle_to_read(const still_session *session) {
  still_session *own = (still_session *)session;
  if (!session->unsettled) return STILL_OK;
  atomic_store(&own->cancelled, 0);
  still_session_lock(session);
  const still_status status = still_session_settle(own);
  still_session_unlock(session);
  return status;
}

void still_journal_forget(still_session *session) {
  session->journal.valid = false;
}

void still_journal_free(still_session *session) {
  still_journal *journal = &session->journal;
  for (int i = 0; journal->snapshots && i < session->layer_count; i++)
    still_free(journal->snapshots[i]);
  still_free(journal->snapshots);
  still_free(journal->snapshot_bytes);
}
