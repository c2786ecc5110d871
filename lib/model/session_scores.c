/* SPDX-License-Identifier: MIT
 * Routing scores of every layer, kept for pictures. */
#include "base/memory.h"
#include "model/session.h"

#include <string.h>

static size_t heads_of(const still_session *session) {
  return (size_t)session->model->weights->config.heads;
}

/* Room for one more block in every layer; rows move apart when the capacity grows. */
still_status still_scores_reserve(still_session *session, size_t tokens) {
  still_score_record *record = session->scores;
  if (!record->on) return STILL_OK;
  const size_t needed = (size_t)record->tokens + tokens, heads = heads_of(session);
  if (needed <= record->capacity) return STILL_OK;
  const size_t capacity = needed > 2 * record->capacity ? needed : 2 * record->capacity;
  for (int i = 0; i < session->layer_count; i++) {
    float *wider;
    STILL_TRY(still_alloc((void **)&wider, capacity, heads * sizeof *wider, "routing scores"));
    for (size_t h = 0; record->by_layer[i] && h < heads; h++)
      memcpy(wider + h * capacity, record->by_layer[i] + h * record->capacity_of[i],
             (size_t)record->tokens * sizeof *wider);
    still_free(record->by_layer[i]);
    record->by_layer[i] = wider;
    record->capacity_of[i] = capacity;
  }
  record->capacity = capacity;
  return STILL_OK;
}

void still_scores_add(still_session *session, int layer, size_t n) {
  still_score_record *record = session->scores;
  const size_t heads = heads_of(session);
  for (size_t h = 0; h < heads; h++)
    memcpy(record->by_layer[layer] + h * record->capacity_of[layer] + record->tokens,
           session->forward.taps.scores + h * n, n * sizeof(float));
}

void still_scores_truncate(still_session *session) {
  still_score_record *record = session->scores;
  if (record->first > session->count) record->first = session->count;
  if (record->tokens > session->count - record->first)
    record->tokens = session->count - record->first;
  /* a loaded session may be longer: what was recorded belongs to another text */
  if (record->first + record->tokens < session->count) {
    record->first = session->count;
    record->tokens = 0;
  }
}

static void clear(still_session *session) {
  still_score_record *record = session->scores;
  for (int i = 0; record->by_layer && i < session->layer_count; i++)
    still_free(record->by_layer[i]);
  still_free(record->by_layer);
  still_free(record->capacity_of);
  still_free(record->compact);
  *record = (still_score_record){0};
}

void still_scores_free(still_session *session) {
  if (session->scores) clear(session);
  still_free(session->scores);
}

static still_status begin(still_session *session) {
  still_score_record *record = session->scores;
  const size_t layers = (size_t)session->layer_count;
  STILL_TRY(STILL_ALLOC(&record->by_layer, layers, "routing scores"));
  STILL_TRY(STILL_ALLOC(&record->capacity_of, layers, "routing scores"));
  record->first = session->count;
  record->on = true;
  return still_taps_open(session);
}

still_status still_session_record_scores(still_session *session, int on) {
  clear(session);
  if (!on) return still_taps_open(session);
  const still_status status = begin(session);
  if (status) clear(session);
  return status;
}

still_status still_session_scores(const still_session *session, int layer, const float **scores,
                                  int64_t *first, int64_t *tokens) {
  still_score_record *record = session->scores;
  if (layer < 0 || layer >= session->layer_count)
    return still_fail(STILL_ERROR_ARGUMENT, "layer is %d, must be 0 .. %d", layer,
                      session->layer_count - 1);
  if (!record->on)
    return still_fail(STILL_ERROR_ARGUMENT, "still_session_record_scores was not switched on");
  const size_t heads = heads_of(session), count = (size_t)record->tokens;
  STILL_TRY(STILL_REALLOC(&record->compact, heads * count, "routing scores"));
  for (size_t h = 0; count && h < heads; h++)
    memcpy(record->compact + h * count, record->by_layer[layer] + h * record->capacity_of[layer],
           count * sizeof(float));
  *scores = record->compact;
  *first = record->first;
  *tokens = record->tokens;
  return STILL_OK;
}
