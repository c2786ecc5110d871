/* SPDX-License-Identifier: MIT
 * Sessions: making one, evaluating tokens, what it costs. Storing is in session_state.c. */
#include "model/session.h"

#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

void still_session_lock(const still_session *session) {
  if (!session->owns_backend) pthread_mutex_lock(&((still_model *)session->model)->device_use);
}

void still_session_unlock(const still_session *session) {
  if (!session->owns_backend) pthread_mutex_unlock(&((still_model *)session->model)->device_use);
}

/* ---- making ------------------------------------------------------------------------------------- */

still_status still_session_reserve_tokens(still_session *session, int64_t tokens) {
  const size_t capacity = still_token_capacity(&session->options, tokens);
  if (capacity <= session->capacity) return STILL_OK;
  STILL_TRY(STILL_REALLOC(&session->tokens, capacity, "the list of tokens"));
  session->capacity = capacity;
  return STILL_OK;
}

void still_session_remember(still_session *session, const still_token *ids, size_t count) {
  const size_t most = session->options.history ? session->capacity / 2 : SIZE_MAX;
  size_t held = (size_t)(session->count - session->first);
  session->count += (int64_t)count;
  if (count > most) {
    ids += count - most;
    count = most;
    held = 0;
  }
  if (held + count > session->capacity) { /* half of the list is enough */
    const size_t stays = most - count;
    memmove(session->tokens, session->tokens + held - stays, stays * sizeof *ids);
    held = stays;
  }
  if (count) memcpy(session->tokens + held, ids, count * sizeof *ids);
  session->first = session->count - (int64_t)(held + count);
}

/* Between operations: the caller may want to know, or to stop. */
static still_status between(void *user, int layers, size_t n) {
  still_session *session = user;
  const uint64_t part =
      session->unsettled ? 0 : n * (uint64_t)layers / (uint64_t)session->layer_count;
  if (atomic_load(&session->cancelled))
    return still_fail(STILL_ERROR_CANCELLED, "the evaluation was cancelled");
  if (session->progress &&
      session->progress(session->progress_user, session->done + part, session->total))
    return still_fail(STILL_ERROR_CANCELLED, "the evaluation was stopped");
  return STILL_OK;
}

static still_status open_backend(still_session *session) {
  const still_model *model = session->model;
  session->backend = model->device->ops->is_lost(model->device) ? model->host : model->device;
  if (model->device != model->host) return STILL_OK;
  STILL_TRY(still_backend_cpu_create(&session->backend, session->options.threads));
  session->owns_backend = true;
  return STILL_OK;
}

/* Caches and work space on session->backend. */
static still_status open_forward(still_session *session, const still_placement *placed) {
  const still_model *model = session->model;
  STILL_TRY(still_session_open_caches(model, session->backend, session->layers));
  session->forward = (still_forward){.model = model,
                                     .placed = placed,
                                     .backend = session->backend,
                                     .host = session->owns_backend ? session->backend : model->host,
                                     .layers = session->layers,
                                     .block = (size_t)session->options.block,
                                     .record = still_session_tell,
                                     .between = between,
                                     .user = session};
  return still_forward_open(&session->forward);
}

static void close_forward(still_session *session) {
  if (session->forward.model) still_forward_close(&session->forward);
  session->forward.model = NULL;
  still_session_close_caches(session->model, session->backend, session->layers);
}

static bool is_on_device(const still_session *session) {
  return !session->owns_backend && session->backend == session->model->device;
}

/* The same on the CPU, for a session that was, or was to be, on a device. */
static still_status open_on_host(still_session *session) {
  still_model *model = (still_model *)session->model; /* what is placed there is its own */
  STILL_TRY(still_model_place_on_host(model));
  close_forward(session);
  session->backend->stop = NULL; /* the host has it, too */
  session->backend = model->host;
  return open_forward(session, &model->on_host);
}

static void set_limit(still_session *session) {
  for (int i = 0; i < session->layer_count; i++)
    if (still_layer_grows(&session->layers[i])) session->limit = session->options.context;
}

static still_status fill(still_session *session, const still_session_options *options) {
  const still_model *model = session->model;
  const size_t vocabulary = (size_t)model->weights->config.vocabulary;
  session->layer_count = model->weights->config.layers;
  STILL_TRY(STILL_ALLOC(&session->layers, (size_t)session->layer_count, "a session's layers"));
  STILL_TRY(STILL_ALLOC(&session->scores, 1, "a session's scores"));
  STILL_TRY(still_session_resolve(model, options, &session->options, session->layers));
  STILL_TRY(open_backend(session));
  set_limit(session);
  STILL_TRY(STILL_ALLOC(&session->logits, vocabulary, "logits"));
  STILL_TRY(STILL_ALLOC(&session->next_logits, vocabulary, "logits"));
  STILL_TRY(still_session_reserve_tokens(session, 0));
  still_session_lock(session);
  const bool lost = session->backend != model->device && !session->owns_backend;
  still_status status = lost ? open_on_host(session) : open_forward(session, &model->placed);
  if (status == STILL_ERROR_MEMORY && is_on_device(session)) {
    still_log(STILL_LOG_WARNING, "%s; the session runs on the CPU", still_last_error());
    status = open_on_host(session);
  }
  if (!status) status = still_journal_begin(session, 1);
  still_session_unlock(session);
  return status;
}

still_status still_session_create(still_session **out, const still_model *model,
                                  const still_session_options *options) {
  if (!out || !model)
    return still_fail(STILL_ERROR_ARGUMENT, "still_session_create: session or model is NULL");
  *out = NULL;
  still_session *session;
  STILL_TRY(STILL_ALLOC(&session, 1, "a session"));
  session->model = model;
  const still_status status = fill(session, options);
  if (status)
    still_session_destroy(session);
  else
    *out = session;
  return status;
}

void still_session_destroy(still_session *session) {
  if (!session) return;
  if (session->scores) still_scores_free(session);
  still_probe_free(session);
  if (session->backend) {
    still_session_lock(session);
    close_forward(session);
    still_session_unlock(session);
  }
  still_journal_free(session);
  for (int i = 0; session->layers && i < session->layer_count; i++)
    still_attention_plan_destroy(session->layers[i].plan);
  if (session->owns_backend) still_backend_destroy(session->backend);
  still_free(session->layers);
  still_free(session->tokens);
  still_free(session->logits);
  still_free(session->next_logits);
  still_free(session->checkpoints);
  still_free(session);
}

/* ---- evaluating --------------------------------------------------------------------------------- */

static still_status check_input(still_session *session, const still_token *ids, size_t count) {
  const still_model_config *config = &session->model->weights->config;
  if (!count || !ids) return still_fail(STILL_ERROR_ARGUMENT, "no tokens to evaluate");
  for (size_t i = 0; i < count; i++)
    if (ids[i] < 0 || ids[i] >= config->vocabulary)
      return still_fail(STILL_ERROR_ARGUMENT, "token %zu is %d, must be 0 .. %d", i, ids[i],
                        config->vocabulary - 1);
  if (session->limit && count > (uint64_t)(session->limit - session->count))
    return still_fail(STILL_ERROR_LIMIT,
                      "%zu tokens do not fit: the context of %lld tokens has room for %lld", count,
                      (long long)session->limit, (long long)(session->limit - session->count));
  if (count > INT32_MAX || session->count > INT64_MAX / 8)
    return still_fail(STILL_ERROR_ARGUMENT, "%zu tokens in one call, at most %d are allowed", count,
                      INT32_MAX);
  if (!session->warned && session->count + (int64_t)count > config->trained_context) {
    session->warned = true;
    still_log(STILL_LOG_WARNING,
              "position %lld is beyond the %d tokens that the model was trained for",
              (long long)(session->count + (int64_t)count), config->trained_context);
  }
  return STILL_OK;
}

/* What becomes of a block's logits: those of the last row are kept, or all are handed to `row`. */
typedef struct logits_wish {
  still_logits_callback *row; /* NULL: only the last of all */
  void *user;
  float *rows; /* (STILL_LOGIT_ROWS, vocabulary) */
} logits_wish;

static still_status hand_out_rows(still_session *session, const logits_wish *wish, size_t index,
                                  size_t n, int64_t first) {
  const size_t vocabulary = (size_t)session->model->weights->config.vocabulary;
  for (size_t row = 0; row < n; row += STILL_LOGIT_ROWS) {
    const size_t count = n - row < STILL_LOGIT_ROWS ? n - row : STILL_LOGIT_ROWS;
    STILL_TRY(still_forward_logits(&session->forward, row, count, first, wish->rows));
    for (size_t i = 0; i < count; i++)
      wish->row(wish->user, index + row + i, wish->rows + i * vocabulary);
    if (index + row + count == session->total)
      memcpy(session->next_logits, wish->rows + (count - 1) * vocabulary,
             vocabulary * sizeof(float));
  }
  return STILL_OK;
}

static still_status run_blocks(still_session *session, const still_token *ids, size_t count,
                               const logits_wish *wish) {
  const size_t block = session->forward.block;
  const int64_t first = session->count;
  for (size_t done = 0; done < count; done += block) {
    const size_t n = count - done < block ? count - done : block;
    const int64_t position = first + (int64_t)done;
    session->done = done;
    STILL_TRY(still_scores_reserve(session, n));
    STILL_TRY(still_forward_block(&session->forward, ids + done, n, position));
    if (session->scores->on) session->scores->tokens += (int64_t)n;
    if (wish->row)
      STILL_TRY(hand_out_rows(session, wish, done, n, position));
    else if (done + n == count)
      STILL_TRY(still_forward_logits(&session->forward, n - 1, 1, position, session->next_logits));
  }
  return STILL_OK;
}

static void reset_caches(still_session *session) {
  for (int i = 0; i < session->layer_count; i++) {
    still_backend *backend = still_session_layer_backend(session, i);
    backend->ops->attention_reset(backend, session->layers[i].cache);
  }
}

void still_session_empty(still_session *session) {
  reset_caches(session);
  session->count = session->first = 0;
  session->has_logits = false;
  session->unsettled = session->leaves_device = false;
  session->checkpoint_count = 0;
  still_scores_truncate(session);
  still_journal_forget(session);
}

/* ---- without the device ------------------------------------------------------------------------- */

/* Everything evaluated so far, once more. */
static still_status repeat(still_session *session) {
  const int64_t block = (int64_t)session->forward.block;
  for (int64_t done = 0; done < session->count; done += block) {
    const int64_t left = session->count - done;
    STILL_TRY(still_forward_block(&session->forward, session->tokens + done,
                                  (size_t)(left < block ? left : block), done));
  }
  return STILL_OK;
}

bool still_session_has_lost(const still_session *session) {
  return is_on_device(session) && session->backend->ops->is_lost(session->backend);
}

still_status still_session_leave_device(still_session *session) {
  if (session->first)
    return still_fail(STILL_ERROR_DEVICE,
                      "the first %lld tokens are not remembered, so the "
                      "session cannot go on on the CPU",
                      (long long)session->first);
  session->checkpoint_count = 0;
  still_journal_forget(session);
  if (is_on_device(session))
    STILL_TRY(open_on_host(session));
  else
    reset_caches(session); /* an earlier attempt was cut short */
  STILL_TRY(repeat(session));
  session->leaves_device = false;
  still_log(STILL_LOG_WARNING, "%s: failed; the session goes on on the CPU",
            session->model->device->name);
  return STILL_OK;
}

/* The caches, tokens and logits move on together, or not at all. */
static still_status evaluate(still_session *session, const still_token *ids, size_t count,
                             const logits_wish *wish) {
  STILL_TRY(check_input(session, ids, count));
  STILL_TRY(still_session_reserve_tokens(session, session->count + (int64_t)count));
  const int64_t recorded = session->scores->tokens;
  still_status status = still_journal_begin(session, count);
  if (status) {
    session->unsettled = session->leaves_device = still_session_has_lost(session);
    return status;
  }
  status = run_blocks(session, ids, count, wish);
  if (status) {
    session->scores->tokens = recorded;
    session->unsettled = true;
    session->leaves_device =
        still_session_has_lost(session) || (status == STILL_ERROR_MEMORY && is_on_device(session));
    return status;
  }
  still_session_remember(session, ids, count);
  float *old_logits = session->logits;
  session->logits = session->next_logits;
  session->next_logits = old_logits;
  session->has_logits = true;
  still_journal_succeeded(session, count);
  if (session->progress) session->progress(session->progress_user, count, count);
  return STILL_OK;
}

static int is_cancelled(void *user) {
  still_session *session = user;
  return atomic_load_explicit(&session->cancelled, memory_order_relaxed);
}

/* The backends ask within their operations; a shared one must not ask a session that is gone. */
static void may_stop(still_session *session, bool on) {
  still_backend *const backends[] = {session->forward.backend, session->forward.host};
  for (int i = 0; i < 2; i++) {
    backends[i]->stop = on ? is_cancelled : NULL;
    backends[i]->stop_user = session;
  }
}

static still_status evaluate_locked(still_session *session, const still_token *ids, size_t count,
                                    const logits_wish *wish) {
  atomic_store(&session->cancelled, 0);
  session->done = 0;
  session->total = count;
  still_session_lock(session);
  may_stop(session, true);
  still_status status = still_session_settle(session);
  if (!status) status = evaluate(session, ids, count, wish);
  may_stop(session, false);
  still_session_unlock(session);
  session->progress = NULL;
  return status;
}

still_status still_session_evaluate(still_session *session, const still_token *ids, size_t count,
                                    still_progress_callback *progress, void *progress_user) {
  session->progress = progress;
  session->progress_user = progress_user;
  return evaluate_locked(session, ids, count, &(logits_wish){0});
}

still_status still_session_evaluate_all(still_session *session, const still_token *ids,
                                        size_t count, still_logits_callback *row, void *row_user) {
  if (!row) return still_fail(STILL_ERROR_ARGUMENT, "still_session_evaluate_all: row is NULL");
  logits_wish wish = {.row = row, .user = row_user};
  STILL_TRY(STILL_ALLOC(&wish.rows,
                        STILL_LOGIT_ROWS * (size_t)session->model->weights->config.vocabulary,
                        "logits of several tokens"));
  const still_status status = evaluate_locked(session, ids, count, &wish);
  still_free(wish.rows);
  return status;
}

void still_session_cancel(still_session *session) {
  atomic_store(&session->cancelled, 1);
}

void still_session_reset(still_session *session) {
  still_session_lock(session);
  still_session_empty(session);
  still_session_unlock(session);
}

/* ---- telling ------------------------------------------------------------------------------------ */

const float *still_session_logits(const still_session *session) {
  return session->has_logits ? session->logits : NULL;
}

int64_t still_session_position(const still_session *session) {
  return session->count;
}

int64_t still_session_first_token(const still_session *session) {
  return session->first;
}

const still_token *still_session_tokens(const still_session *session) {
  return session->tokens;
}

size_t still_session_kept(const still_session *session, int layer, int head, int64_t *positions,
                          size_t capacity) {
  if (layer < 0 || layer >= session->layer_count) return 0;
  (void)still_session_settle_to_read(session);
  still_backend *backend = still_session_layer_backend(session, layer);
  const still_attention_cache *cache =
      backend->ops->attention_host(backend, session->layers[layer].cache);
  return cache ? still_attention_cache_kept(cache, head, positions, capacity) : 0;
}
