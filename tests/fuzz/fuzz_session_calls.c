/* SPDX-License-Identifier: MIT
 * Sessions: bytes choose options, calls, their order and their sizes. Beside the session a plain list of its tokens is
 * kept: after every call, failed ones included, the session must hold just these, and every token of a layer must be in
 * exactly one place. */
#include "fuzz_model.h"

#include "model/session.h"

#include <math.h>
#include <string.h>

enum { MOST_TOKENS = 512, MOST_CALLS = 48, SLOTS = 3 };

typedef struct shadow {
  still_token ids[MOST_TOKENS];
  size_t count;
} shadow;

typedef struct slot {
  still_checkpoint *checkpoint;
  size_t count;
  int number; /* in the order of making */
  int valid;
} slot;

typedef struct state {
  fuzz_bytes in;
  still_session *session;
  still_session_options options;
  shadow list, saved;
  int has_saved, recording, checkpoints;
  slot slots[SLOTS];
} state;

/* ---- options ------------------------------------------------------------------------------------ */

static int odd_number(fuzz_bytes *in) {
  static const int values[] = {0, 1, 2, 3, 4, 7, 8, 15, 16, 33, 64, 128, 511, -1, 65536, INT32_MAX};
  return values[fuzz_choose(in, 16)];
}

/* Mostly right, sometimes anything. */
static still_session_options choose_options(fuzz_bytes *in) {
  static const char *const kinds[] = {
      NULL, NULL, NULL, "0:full", "1:still", "0-1:swa", "0:full;1:lolcats", "2:full"};
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = (still_attention_kind)fuzz_choose(in, 8);
  options.chunk = 1 + (int)fuzz_choose(in, 16);
  options.budget = options.chunk + (int)fuzz_byte(in);
  options.context = 64 + (int)fuzz_byte(in);
  options.block = 1 + (int)fuzz_choose(in, 40);
  options.window = 1 + (int)fuzz_choose(in, 32);
  options.schedule = (still_schedule)fuzz_choose(in, 4);
  options.keep = (int)fuzz_choose(in, 8);
  options.metric = (still_metric)fuzz_choose(in, 7);
  options.routing = (still_routing)fuzz_choose(in, 3);
  options.sinks = (int)fuzz_choose(in, 4);
  options.cache_type = (still_dtype)fuzz_choose(in, 4);
  options.layer_kinds = kinds[fuzz_choose(in, 8)];
  options.threads = 1;
  int *const fields[] = {&options.chunk,  &options.budget, &options.context, &options.block,
                         &options.window, &options.keep,   &options.sinks};
  const unsigned odd = fuzz_choose(in, 32);
  if (odd < 7) *fields[odd] = odd_number(in);
  if (options.budget > 4096) options.budget = 4096; /* memory, not meaning */
  if (options.window > 4096) options.window = 4096;
  if (options.chunk > 4096) options.chunk = 4096;
  if (options.block > 4096) options.block = 4096;
  if (options.sinks > 4096) options.sinks = 4096;
  if (options.context > 4096) options.context = 4096;
  return options;
}

/* ---- what must always hold ---------------------------------------------------------------------- */

static void check_session(const state *s) {
  still_session_usage usage;
  const size_t count = s->list.count;
  FUZZ_CHECK(still_session_position(s->session) == (int64_t)count);
  FUZZ_CHECK(!count ||
             !memcmp(still_session_tokens(s->session), s->list.ids, count * sizeof *s->list.ids));
  FUZZ_CHECK((still_session_logits(s->session) != NULL) == (count > 0));
  still_session_get_usage(s->session, &usage);
  FUZZ_CHECK(usage.tokens == (int64_t)count);
  for (int layer = 0; layer < FUZZ_LAYERS; layer++) {
    const still_attention_cache *cache = s->session->backend->ops->attention_host(
        s->session->backend, s->session->layers[layer].cache);
    still_attention_usage now;
    still_attention_cache_usage(cache, &now);
    FUZZ_CHECK(now.tokens == (int64_t)count);
    FUZZ_CHECK(now.kept_tokens + now.near_tokens + now.linear_tokens + now.forgotten_tokens ==
               now.tokens);
    FUZZ_CHECK(!now.max_softmax_tokens || now.softmax_tokens <= now.max_softmax_tokens);
  }
}

/* ---- calls -------------------------------------------------------------------------------------- */

typedef struct stopper {
  still_session *session;
  unsigned calls, at;
  int by_cancel;
} stopper;

static int stop_at(void *user, uint64_t done, uint64_t total) {
  stopper *stop = user;
  FUZZ_CHECK(done <= total);
  if (stop->calls++ != stop->at) return 0;
  if (stop->by_cancel) still_session_cancel(stop->session);
  return !stop->by_cancel;
}

static void look(void *user, size_t index, const float *logits) {
  size_t *next = user;
  FUZZ_CHECK(index == (*next)++);
  for (int i = 0; i < FUZZ_VOCABULARY; i++) FUZZ_CHECK(isfinite(logits[i]));
}

static void append(state *s, const still_token *ids, size_t n) {
  memcpy(s->list.ids + s->list.count, ids, n * sizeof *ids);
  s->list.count += n;
}

static void evaluate(state *s, int all) {
  still_token ids[128];
  size_t n = fuzz_choose(&s->in, 128), seen = 0;
  if (n > MOST_TOKENS - s->list.count) n = MOST_TOKENS - s->list.count;
  const unsigned seed = fuzz_byte(&s->in), mode = fuzz_byte(&s->in);
  for (size_t i = 0; i < n; i++)
    ids[i] = (still_token)((seed >> 4) + i * (seed & 15)) % FUZZ_VOCABULARY;
  if (n && mode == 255) ids[n / 2] = FUZZ_VOCABULARY; /* no token */
  stopper stop = {s->session, 0, mode & 63, mode & 64};
  const int stops = !all && mode & 128;
  const still_status status =
      all ? still_session_evaluate_all(s->session, ids, n, look, &seen)
          : still_session_evaluate(s->session, ids, n, stops ? stop_at : NULL, &stop);
  if (!status) append(s, ids, n);
  FUZZ_CHECK(!n || !status || status == STILL_ERROR_LIMIT ||
             (status == STILL_ERROR_ARGUMENT && mode == 255) ||
             (status == STILL_ERROR_CANCELLED && stops && stop.calls > stop.at));
  FUZZ_CHECK(!status || !all || !seen);
}

static void checkpoint(state *s) {
  slot *at = &s->slots[fuzz_choose(&s->in, SLOTS)];
  still_checkpoint_destroy(at->checkpoint);
  *at = (slot){NULL, s->list.count, ++s->checkpoints, 1};
  FUZZ_CHECK(!still_session_checkpoint(s->session, &at->checkpoint));
}

static void forget_later(state *s, int number) {
  for (int i = 0; i < SLOTS; i++)
    if (s->slots[i].number > number) s->slots[i].valid = 0;
}

static void roll_back(state *s) {
  slot *at = &s->slots[fuzz_choose(&s->in, SLOTS)];
  if (!at->checkpoint) return;
  const still_status status = still_session_rollback(s->session, at->checkpoint);
  if (at->valid) FUZZ_CHECK(!status);
  if (status) return;
  s->list.count = at->count;
  forget_later(s, at->number);
}

static void forget_all(state *s) {
  for (int i = 0; i < SLOTS; i++) s->slots[i].valid = 0;
}

static void save(state *s) {
  FUZZ_CHECK(!still_session_save(s->session, fuzz_path("calls"), NULL, NULL));
  s->saved = s->list;
  s->has_saved = 1;
}

static void load(state *s) {
  if (!s->has_saved) {
    FUZZ_CHECK(still_session_load(s->session, fuzz_path("nothing"), NULL, NULL) ==
               STILL_ERROR_FILE);
    return;
  }
  FUZZ_CHECK(!still_session_load(s->session, fuzz_path("calls"), NULL, NULL));
  s->list = s->saved;
  forget_all(s);
}

static void read_out(state *s) {
  int64_t positions[8], first, tokens;
  const float *scores;
  const int layer = (int)fuzz_choose(&s->in, 4) - 1, head = (int)fuzz_choose(&s->in, 4) - 1;
  const size_t kept = still_session_kept(s->session, layer, head, positions, 8);
  for (size_t i = 0; i < kept && i < 8; i++)
    FUZZ_CHECK(positions[i] >= 0 && positions[i] < (int64_t)s->list.count);
  if (!still_session_scores(s->session, layer, &scores, &first, &tokens))
    FUZZ_CHECK(first >= 0 && first + tokens == (int64_t)s->list.count);
}

static void sample(state *s) {
  still_sampler_options options = STILL_SAMPLER_OPTIONS_INIT;
  still_sampler *sampler;
  still_token token;
  options.temperature = (float)fuzz_byte(&s->in) / 64 - 1;
  options.top_k = (int)fuzz_byte(&s->in) - 8;
  options.top_p = (float)fuzz_byte(&s->in) / 200;
  options.min_p = (float)fuzz_byte(&s->in) / 200;
  options.repeat_last = (int)fuzz_byte(&s->in);
  options.seed = fuzz_byte(&s->in);
  const float *logits = still_session_logits(s->session);
  if (!logits || still_sampler_create(&sampler, &options)) return;
  for (size_t i = 0; i < s->list.count; i++) still_sampler_accept(sampler, s->list.ids[i]);
  FUZZ_CHECK(!still_sampler_sample(sampler, logits, FUZZ_VOCABULARY, &token));
  FUZZ_CHECK(token >= 0 && token < FUZZ_VOCABULARY);
  still_sampler_destroy(sampler);
}

static void one_call(state *s) {
  switch (fuzz_choose(&s->in, 12)) {
  case 0:
  case 1:
  case 2: evaluate(s, 0); break;
  case 3: evaluate(s, 1); break;
  case 4: checkpoint(s); break;
  case 5: roll_back(s); break;
  case 6: save(s); break;
  case 7: load(s); break;
  case 8: read_out(s); break;
  case 9: sample(s); break;
  case 10:
    still_session_reset(s->session);
    s->list.count = 0;
    forget_all(s);
    break;
  default:
    s->recording = !s->recording;
    if (still_session_record_scores(s->session, s->recording)) s->recording = 0;
    break;
  }
  check_session(s);
}

/* ---- the end ------------------------------------------------------------------------------------ */

/* However it came about, the session answers like one that saw its tokens at once. Not where tokens are chosen by
 * scores: there a rounding may decide between equals. */
static void check_answer(const state *s) {
  if (!s->list.count || s->options.layer_kinds || s->options.cache_type != STILL_F32 ||
      s->options.attention > STILL_ATTENTION_SWA)
    return;
  still_session *control;
  FUZZ_CHECK(!still_session_create(&control, fuzz_model(), &s->options));
  FUZZ_CHECK(!still_session_evaluate(control, s->list.ids, s->list.count, NULL, NULL));
  const float *got = still_session_logits(s->session), *want = still_session_logits(control);
  for (int i = 0; i < FUZZ_VOCABULARY; i++) FUZZ_CHECK(fabsf(got[i] - want[i]) < 1e-3f);
  still_session_destroy(control);
}

void fuzz_one(const uint8_t *data, size_t bytes) {
  state s = {.in = {data, bytes, 0}};
  s.options = choose_options(&s.in);
  still_session_usage planned, now;
  const still_status estimated = still_session_estimate(fuzz_model(), &s.options, 0, &planned);
  const still_status status = still_session_create(&s.session, fuzz_model(), &s.options);
  FUZZ_CHECK(status == estimated && (!status || status == STILL_ERROR_ARGUMENT));
  if (status) return;
  still_session_get_usage(s.session, &now);
  FUZZ_CHECK(now.cache_bytes == planned.cache_bytes);
  for (int calls = 0; calls < MOST_CALLS && fuzz_more(&s.in); calls++) one_call(&s);
  check_answer(&s);
  still_session_destroy(s.session);
  for (int i = 0; i < SLOTS; i++) still_checkpoint_destroy(s.slots[i].checkpoint);
}
