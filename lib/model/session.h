/* SPDX-License-Identifier: MIT
 * What a session consists of, for the files that make, run and store one. */
#ifndef STILL_MODEL_SESSION_H
#define STILL_MODEL_SESSION_H

#include "model/forward.h"

#include <stdatomic.h>

/* Tokens of a prefill block by default: on the CPU, and on a GPU with memory for them. */
enum { STILL_LEAST_BLOCK = 512, STILL_MOST_BLOCK = 4096 };

/* The way back after a failure: copies of the part of the caches that later tokens overwrite. A large evaluation
 * begins with new copies; single tokens are not worth that, so up to STILL_JOURNAL_ENTRIES of them share one,
 * and what they evaluated since is evaluated again, cut as it was then: the same bits. That can take longer than what
 * failed did, so it is not done before the caches are needed again (still_session_settle). */
enum { STILL_JOURNAL_ENTRIES = 64 };
typedef struct still_journal {
  bool valid;
  int64_t position; /* of the copies */
  void **snapshots; /* one for each layer */
  size_t *snapshot_bytes;
  size_t entries[STILL_JOURNAL_ENTRIES]; /* tokens of each evaluation since */
  int count;
} still_journal;

/* Routing scores of all layers since recording began. */
typedef struct still_score_record {
  bool on;
  int64_t first, tokens;
  size_t capacity;     /* tokens that every layer has room for */
  float **by_layer;    /* (H, capacity_of[layer]) */
  size_t *capacity_of; /* larger than capacity where making room failed half-way */
  float *compact;      /* (H, tokens) for the caller */
} still_score_record;

/* Who is told what layers do, and with which arrays. */
typedef struct still_probing {
  still_probe_callback *call; /* NULL: nobody */
  void *user;
  float *q, *k; /* (block, H D), (block, G D) */
} still_probing;

struct still_session {
  const still_model *model;
  still_session_options
      options; /* resolved: no zeroes that stand for a default; layer_kinds is NULL */
  int layer_count;
  still_session_layer *layers;
  still_backend *
      backend; /* the model's device; on the CPU one of its own, so that sessions run side by side */
  bool owns_backend;
  still_forward forward;

  still_token *tokens; /* of the positions first .. count-1 */
  int64_t count, first;
  size_t capacity;             /* of tokens */
  int64_t limit;               /* tokens that fit; 0 = no limit */
  float *logits, *next_logits; /* (vocabulary): swapped when an evaluation has succeeded */
  bool has_logits;

  still_journal journal;
  uint64_t *checkpoints; /* numbers of those that can still be gone back to, ascending */
  size_t checkpoint_count, checkpoint_room;
  uint64_t next_checkpoint;
  still_score_record
      *scores; /* apart, since reading them out changes nothing that a const session shows */
  still_probing probing;

  atomic_int cancelled;
  bool warned;        /* beyond the trained context */
  bool unsettled;     /* an evaluation failed, and the caches still hold part of it */
  bool leaves_device; /* and are to be made anew on the CPU: the device is lost or has no memory */
  /* Of the evaluation that runs now. */
  still_progress_callback *progress;
  void *progress_user;
  uint64_t done, total;
};

/* The backend for this session alone until unlock. */
void still_session_lock(const still_session *session);
void still_session_unlock(const still_session *session);

/* session_options.c */

/* Checks options and fills in defaults and what the adapter says; one plan for each layer into layers
 * (layer_count of them, zeroed). */
still_status still_session_resolve(const still_model *model, const still_session_options *given,
                                   still_session_options *resolved, still_session_layer *layers);
/* Whether a layer's cache grows with the sequence. */
bool still_layer_grows(const still_session_layer *layer);
/* Kinds of single layers, "0-3,7:full;4:swa", written over kinds. ARGUMENT names what is wrong. */
still_status still_parse_layer_kinds(const char *text, still_attention_kind *kinds, int layers);

/* Kinds of all layers, by the caller's options or the adapter. */
still_status still_session_kinds(const still_model *model, const still_session_options *options,
                                 still_attention_kind *kinds);

/* session_usage.c: tokens that the list has room for once the session holds `tokens`. */
size_t still_token_capacity(const still_session_options *options, int64_t tokens);
/* The fewest ids that a bounded list remembers: what the journal may evaluate again. */
enum { STILL_LEAST_HISTORY = 1024 };

/* session.c: no tokens, no checkpoints; memory is kept. */
void still_session_empty(still_session *session);
/* Room for the ids of a sequence of `tokens` tokens, and adding some behind those that are there. */
still_status still_session_reserve_tokens(still_session *session, int64_t tokens);
void still_session_remember(still_session *session, const still_token *ids, size_t count);

/* session_file.c: load from memory (for fuzzing). Its last 8 bytes must hold the still_hash_bytes of the others. */
still_status still_session_load_bytes(still_session *session, const void *data, size_t bytes);

/* session_layers.c */

/* Caches for all layers; on failure none are left. */
still_status still_session_open_caches(const still_model *model, still_backend *backend,
                                       still_session_layer *layers);
void still_session_close_caches(const still_model *model, still_backend *backend,
                                still_session_layer *layers);
/* The backend that a layer's cache is on. */
still_backend *still_session_layer_backend(const still_session *session, int layer);

/* Whether the session is on a device that is gone. */
bool still_session_has_lost(const still_session *session);
/* Makes the session anew on the CPU from its tokens; its checkpoints are gone. DEVICE if it does not remember them all. */
still_status still_session_leave_device(still_session *session);

/* session_journal.c */
/* To be called before the caches are read or changed, with the session locked: brings them back to where the tokens are
 * after a failed evaluation. CANCELLED and MEMORY: the next call tries again. Anything else (a lost device): the session
 * is empty now. */
still_status still_session_settle(still_session *session);
/* The same for calls other than evaluations, with the session not locked. */
still_status still_session_settle_to_read(const still_session *session);
/* Before `count` tokens are evaluated: sees to it that recover can go back to now. */
still_status still_journal_begin(still_session *session, size_t count);
void still_journal_succeeded(still_session *session, size_t count);
void still_journal_forget(still_session *session);
void still_journal_free(still_session *session);

/* session_scores.c */
still_status still_scores_reserve(still_session *session, size_t tokens);
void still_scores_add(still_session *session, int layer, size_t n);
/* After the session has become shorter or another one. */
void still_scores_truncate(still_session *session);
void still_scores_free(still_session *session);

/* session_probe.c */
/* After a layer's attention over n tokens from position `first` on: to the record of scores and the probe. */
still_status still_session_tell(void *session, int layer, size_t n, int64_t first);
/* The forward's taps as record and probe want them now. */
still_status still_taps_open(still_session *session);
void still_probe_free(still_session *session);

#endif
