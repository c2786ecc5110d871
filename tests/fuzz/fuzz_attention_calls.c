/* SPDX-License-Identifier: MIT
 * The operator: bytes choose the plan, calls, their order and their sizes. Whatever happens, every token is in exactly
 * one place, memory is what was foretold, a snapshot and a saved cache bring the same bits back. */
#include "fuzz_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_BYTES = 64 << 20,
  MOST_HEADS = 4,
  MOST_DIM = 20,
  MOST_NEW = 80,
  MOST_TOKENS = 2048,
  MOST_CALLS = 64
};

typedef struct state {
  fuzz_bytes in;
  still_attention_options options;
  still_attention_plan *plan;
  still_attention_cache *cache;
  int64_t count;
  void *snapshot, *saved;
  size_t saved_bytes;
  int64_t snapshot_count, saved_count;
} state;

static float q[MOST_HEADS * MOST_NEW * MOST_DIM], k[MOST_HEADS * MOST_NEW * MOST_DIM],
    v[MOST_HEADS * MOST_NEW * MOST_DIM], gate[MOST_HEADS * MOST_NEW * MOST_DIM],
    y[MOST_HEADS * MOST_NEW * MOST_DIM], scores[MOST_HEADS * MOST_NEW];
static float maps[MOST_HEADS * MOST_DIM * MOST_DIM];

/* ---- the plan ----------------------------------------------------------------------------------- */

static still_attention_options choose_options(fuzz_bytes *in) {
  static const int odd[] = {0, -1, INT32_MIN, INT32_MAX};
  still_attention_options options = STILL_ATTENTION_OPTIONS_INIT;
  options.kind = (still_attention_kind)fuzz_choose(in, 8);
  options.kv_heads = 1 + (int)fuzz_choose(in, 2);
  options.heads = options.kv_heads * (1 + (int)fuzz_choose(in, 2));
  options.head_dim = 1 + (int)fuzz_choose(in, MOST_DIM);
  options.chunk = 1 + (int)fuzz_choose(in, 20);
  options.budget = (int)fuzz_byte(in);
  options.schedule = (still_schedule)fuzz_choose(in, 4);
  options.keep = (int)fuzz_choose(in, 8);
  options.keep_ratio = (float)fuzz_choose(in, 10) / 8;
  options.metric = (still_metric)fuzz_choose(in, 7);
  options.routing = (still_routing)fuzz_choose(in, 3);
  options.feature_map = (still_feature_map)fuzz_choose(in, 3);
  options.window = 1 + (int)fuzz_choose(in, 40);
  options.sinks = (int)fuzz_choose(in, 10);
  options.context = 1 + (int)fuzz_byte(in);
  options.cache_type = (still_dtype)fuzz_choose(in, 4);
  options.threads = 1 + (int)fuzz_choose(in, 5);
  int *const fields[] = {&options.heads, &options.kv_heads, &options.head_dim, &options.budget,
                         &options.keep,  &options.context,  &options.threads};
  const unsigned which = fuzz_choose(in, 40);
  if (which < 7) *fields[which] = odd[fuzz_choose(in, 4)];
  return options;
}

static still_status make_plan(state *s) {
  still_attention_weights weights = STILL_ATTENTION_WEIGHTS_INIT;
  s->options = choose_options(&s->in);
  if (fuzz_choose(&s->in, 3)) weights.feature_q = weights.feature_k = maps;
  return still_attention_plan_create(&s->plan, &s->options, &weights);
}

/* ---- what must always hold ---------------------------------------------------------------------- */

static void check_cache(const state *s) {
  still_attention_usage now;
  still_attention_cache_usage(s->cache, &now);
  FUZZ_CHECK(now.tokens == s->count);
  FUZZ_CHECK(now.kept_tokens + now.near_tokens + now.linear_tokens + now.forgotten_tokens ==
             now.tokens);
  FUZZ_CHECK(now.softmax_tokens == now.kept_tokens + now.near_tokens);
  FUZZ_CHECK(!now.max_softmax_tokens || now.softmax_tokens <= now.max_softmax_tokens);
  for (int head = 0; head < s->options.heads; head++) {
    int64_t positions[MOST_TOKENS], last = -1;
    const size_t kept = still_attention_cache_kept(s->cache, head, positions, MOST_TOKENS);
    FUZZ_CHECK(s->options.kind != STILL_ATTENTION_STILL || kept == (size_t)now.kept_tokens);
    for (size_t i = 0; i < kept && i < MOST_TOKENS; i++) {
      FUZZ_CHECK(positions[i] > last && positions[i] < s->count);
      last = positions[i];
    }
  }
}

/* ---- calls -------------------------------------------------------------------------------------- */

/* Values of a token: anything finite from a few bytes, equal ones now and then. */
static void fill(float *values, size_t count, unsigned seed, unsigned mode) {
  for (size_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    const float x = (float)(seed >> 8) / (1 << 24) - 0.5f;
    values[i] = mode == 0 ? 0 : mode == 1 ? 1 : mode == 2 ? 60 * x : 2 * x;
  }
}

static size_t forward(state *s, still_attention_cache *cache, unsigned seed, unsigned mode,
                      size_t n) {
  const size_t dim = (size_t)s->options.head_dim;
  still_attention_inputs inputs = STILL_ATTENTION_INPUTS_INIT;
  const size_t floats = (size_t)s->options.heads * n * dim;
  fill(q, floats, seed, mode & 3);
  fill(k, floats, seed + 1, mode >> 2 & 3);
  fill(v, floats, seed + 2, mode >> 4 & 3);
  for (size_t i = 0; i < floats; i++) gate[i] = 0.5f;
  inputs.q = (still_rows){q, n * dim, dim};
  inputs.k = (still_rows){k, n * dim, dim};
  inputs.v = (still_rows){v, n * dim, dim};
  inputs.gate = (still_rows){mode & 64 ? gate : NULL, n * dim, dim};
  inputs.q_raw = inputs.q;
  inputs.k_raw = inputs.k;
  inputs.scores = mode & 128 ? scores : NULL;
  FUZZ_CHECK(!still_attention_forward(s->plan, cache, n, &inputs, y, n * dim, dim));
  return floats;
}

static void go_on(state *s) {
  const size_t n = 1 + fuzz_choose(&s->in, MOST_NEW);
  if (s->count + (int64_t)n > MOST_TOKENS) return;
  const unsigned seed = fuzz_byte(&s->in), mode = fuzz_byte(&s->in);
  const size_t floats = forward(s, s->cache, seed, mode, n);
  for (size_t i = 0; i < floats; i++) FUZZ_CHECK(isfinite(y[i]));
  s->count += (int64_t)n;
}

static void take_snapshot(state *s) {
  free(s->snapshot);
  s->snapshot = malloc(still_attention_cache_snapshot_bytes(s->cache) + 1);
  FUZZ_CHECK(s->snapshot);
  still_attention_cache_snapshot(s->cache, s->snapshot);
  s->snapshot_count = s->count;
}

static void forget_snapshot(state *s) {
  free(s->snapshot);
  s->snapshot = NULL;
}

static void save(state *s) {
  free(s->saved);
  s->saved_bytes = still_attention_cache_save_bytes(s->cache);
  s->saved = malloc(s->saved_bytes + 1);
  FUZZ_CHECK(s->saved);
  still_attention_cache_save(s->cache, s->saved);
  s->saved_count = s->count;
}

/* Right bytes load; changed ones load or are refused, and then nothing has changed. */
static void load(state *s) {
  if (!s->saved) return;
  const unsigned damage = fuzz_byte(&s->in);
  const size_t at = (fuzz_byte(&s->in) | (size_t)fuzz_byte(&s->in) << 8) % s->saved_bytes;
  uint8_t *bytes = s->saved;
  if (damage) {
    bytes[at] ^= (uint8_t)damage;
    still_attention_cache *other; /* what a lie leaves in a cache is its own affair */
    FUZZ_CHECK(!still_attention_cache_create(&other, s->plan));
    if (!still_attention_cache_load(other, bytes, s->saved_bytes)) forward(s, other, 1, 255, 3);
    still_attention_cache_destroy(other);
    FUZZ_CHECK(still_attention_cache_load(s->cache, bytes, at));
    bytes[at] ^= (uint8_t)damage;
    return;
  }
  FUZZ_CHECK(!still_attention_cache_load(s->cache, bytes, s->saved_bytes));
  s->count = s->saved_count;
  forget_snapshot(s);
}

static void restore(state *s) {
  if (!s->snapshot || s->count < s->snapshot_count) return;
  FUZZ_CHECK(!still_attention_cache_restore(s->cache, s->snapshot));
  s->count = s->snapshot_count;
}

/* The same call from the same state gives the same bits: after a snapshot, and in a copy by way of save and load. */
static void compare(state *s) {
  const size_t n = 1 + fuzz_choose(&s->in, 40);
  const unsigned seed = fuzz_byte(&s->in), mode = fuzz_byte(&s->in);
  if (s->count + (int64_t)n > MOST_TOKENS) return;
  take_snapshot(s);
  save(s);
  const size_t floats = forward(s, s->cache, seed, mode, n);
  float *once = malloc(floats * sizeof *once);
  FUZZ_CHECK(once);
  memcpy(once, y, floats * sizeof *once);
  s->count += (int64_t)n;
  restore(s);
  forward(s, s->cache, seed, mode, n);
  FUZZ_CHECK(!memcmp(once, y, floats * sizeof *once));
  still_attention_cache *copy;
  FUZZ_CHECK(!still_attention_cache_create(&copy, s->plan));
  FUZZ_CHECK(!still_attention_cache_load(copy, s->saved, s->saved_bytes));
  forward(s, copy, seed, mode, n);
  FUZZ_CHECK(!memcmp(once, y, floats * sizeof *once));
  still_attention_cache_destroy(copy);
  free(once);
  s->count += (int64_t)n;
}

static void read_state(state *s) {
  float state_[2 * MOST_DIM * MOST_DIM], normalizer[2 * MOST_DIM];
  const int head = (int)fuzz_choose(&s->in, 6) - 1;
  if (still_attention_cache_state(s->cache, head, state_, NULL)) return;
  FUZZ_CHECK(head >= 0 && head < s->options.heads);
  if (s->options.kind != STILL_ATTENTION_LIGER_GLA)
    FUZZ_CHECK(!still_attention_cache_state(s->cache, head, NULL, normalizer));
}

static void one_call(state *s) {
  switch (fuzz_choose(&s->in, 10)) {
  case 0: take_snapshot(s); break;
  case 1: restore(s); break;
  case 2: save(s); break;
  case 3: load(s); break;
  case 4: compare(s); break;
  case 5: read_state(s); break;
  case 6:
    still_attention_cache_reset(s->cache);
    s->count = 0;
    forget_snapshot(s);
    break;
  default: go_on(s); break;
  }
  check_cache(s);
}

void fuzz_one(const uint8_t *data, size_t bytes) {
  state s = {.in = {data, bytes, 0}};
  fill(maps, sizeof maps / sizeof *maps, 7, 3);
  if (make_plan(&s)) return;
  s.options = *still_attention_plan_options(s.plan);
  still_attention_usage now;
  if (still_attention_cache_bytes(s.plan, 0) > MOST_BYTES) {
    still_attention_plan_destroy(s.plan);
    return;
  }
  FUZZ_CHECK(!still_attention_cache_create(&s.cache, s.plan));
  still_attention_cache_usage(s.cache, &now);
  FUZZ_CHECK(now.bytes == still_attention_cache_bytes(s.plan, 0));
  for (int calls = 0; calls < MOST_CALLS && fuzz_more(&s.in); calls++) one_call(&s);
  still_attention_cache_usage(s.cache, &now);
  free(s.snapshot);
  free(s.saved);
  still_attention_cache_destroy(s.cache);
  still_attention_plan_destroy(s.plan);
}
