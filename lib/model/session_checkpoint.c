/* SPDX-License-Identifier: MIT
 * Checkpoints: copies of what later tokens overwrite. */
#include "base/memory.h"
#include "model/session.h"

#include <string.h>

struct still_checkpoint {
  uint64_t number; /* in its session; the session lists those that are valid */
  const still_session *session;
  int64_t count;
  int layer_count;
  void **layers;
  size_t bytes;
  float *logits; /* NULL: there were none */
  size_t vocabulary;
};

void still_checkpoint_destroy(still_checkpoint *checkpoint) {
  if (!checkpoint) return;
  for (int i = 0; checkpoint->layers && i < checkpoint->layer_count; i++)
    still_free(checkpoint->layers[i]);
  still_free(checkpoint->layers);
  still_free(checkpoint->logits);
  still_free(checkpoint);
}

static still_status copy_layers(const still_session *session, still_checkpoint *checkpoint) {
  STILL_TRY(STILL_ALLOC(&checkpoint->layers, (size_t)session->layer_count, "a checkpoint"));
  for (int i = 0; i < session->layer_count; i++) {
    still_backend *backend = still_session_layer_backend(session, i);
    const still_layer_cache *cache = session->layers[i].cache;
    const size_t bytes = backend->ops->attention_snapshot_bytes(backend, cache);
    STILL_TRY(still_alloc(&checkpoint->layers[i], bytes, 1, "a checkpoint"));
    STILL_TRY(backend->ops->attention_snapshot(backend, cache, checkpoint->layers[i]));
    checkpoint->bytes += bytes;
  }
  return STILL_OK;
}

static still_status copy_logits(const still_session *session, still_checkpoint *checkpoint) {
  if (!session->has_logits) return STILL_OK;
  checkpoint->vocabulary = (size_t)session->model->weights->config.vocabulary;
  const size_t bytes = checkpoint->vocabulary * sizeof(float);
  STILL_TRY(STILL_ALLOC(&checkpoint->logits, checkpoint->vocabulary, "a checkpoint"));
  memcpy(checkpoint->logits, session->logits, bytes);
  checkpoint->bytes += bytes;
  return STILL_OK;
}

/* The session's list of valid checkpoints is not part of what a const session shows. */
static still_status list_checkpoint(still_session *session, still_checkpoint *checkpoint) {
  if (session->checkpoint_count == session->checkpoint_room) {
    const size_t room = 2 * session->checkpoint_room + 16;
    STILL_TRY(STILL_REALLOC(&session->checkpoints, room, "the list of checkpoints"));
    session->checkpoint_room = room;
  }
  checkpoint->number = ++session->next_checkpoint;
  session->checkpoints[session->checkpoint_count++] = checkpoint->number;
  return STILL_OK;
}

still_status still_session_checkpoint(const still_session *session, still_checkpoint **out) {
  *out = NULL;
  STILL_TRY(still_session_settle_to_read(session));
  still_checkpoint *checkpoint;
  STILL_TRY(STILL_ALLOC(&checkpoint, 1, "a checkpoint"));
  checkpoint->session = session;
  checkpoint->count = session->count;
  checkpoint->layer_count = session->layer_count;
  checkpoint->bytes = sizeof *checkpoint;
  still_session_lock(session);
  still_status status = copy_layers(session, checkpoint);
  still_session_unlock(session);
  if (!status) status = copy_logits(session, checkpoint);
  if (!status) status = list_checkpoint((still_session *)session, checkpoint);
  if (status)
    still_checkpoint_destroy(checkpoint);
  else
    *out = checkpoint;
  return status;
}

size_t still_checkpoint_bytes(const still_checkpoint *checkpoint) {
  return checkpoint->bytes;
}

/* Its place in the list; the list's length when it is not there. */
static size_t find_checkpoint(const still_session *session, const still_checkpoint *checkpoint) {
  size_t i = 0;
  while (i < session->checkpoint_count && session->checkpoints[i] != checkpoint->number) i++;
  return checkpoint->session == session ? i : session->checkpoint_count;
}

static still_status restore_layers(still_session *session, const still_checkpoint *checkpoint) {
  for (int i = 0; i < session->layer_count; i++) {
    still_backend *backend = still_session_layer_backend(session, i);
    STILL_TRY(
        backend->ops->attention_restore(backend, session->layers[i].cache, checkpoint->layers[i]));
  }
  return STILL_OK;
}

still_status still_session_rollback(still_session *session, const still_checkpoint *checkpoint) {
  const size_t place = find_checkpoint(session, checkpoint);
  if (place == session->checkpoint_count)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "the checkpoint is of another session, or the session has since been reset, "
                      "loaded or rolled back to an earlier one");
  still_session_lock(session);
  still_journal_forget(session);
  const still_status status = restore_layers(session, checkpoint);
  still_session_unlock(session);
  STILL_TRY(status);
  session->unsettled = false;
  session->checkpoint_count = place + 1;
  session->count = checkpoint->count;
  if (session->first > session->count) session->first = session->count;
  session->has_logits = checkpoint->logits != NULL;
  if (checkpoint->logits)
    memcpy(session->logits, checkpoint->logits, checkpoint->vocabulary * sizeof(float));
  still_scores_truncate(session);
  return STILL_OK;
}
