/* SPDX-License-Identifier: MIT
 * What the cache says about itself: every token in exactly one place, memory as announced, and a
 * plain list as the model of what a sequence of operations leaves behind. */
#include "attention/attention_plan.h"
#include "base/random.h"
#include "operator/problem.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct box {
  problem p;
  still_attention_plan *plan;
  still_attention_cache *cache;
  answer a;
} box;

static box box_create(const still_attention_options *o, size_t n, uint64_t seed) {
  box b = {.p = problem_create(o, n, seed)};
  check_ok(still_attention_plan_create(&b.plan, &b.p.options, &b.p.weights));
  check_ok(still_attention_cache_create(&b.cache, b.plan));
  b.a = answer_create(&b.p);
  return b;
}

static void box_free(box *b) {
  still_attention_cache_destroy(b->cache);
  still_attention_plan_destroy(b->plan);
  answer_free(&b->a);
  problem_free(&b->p);
}

/* Each key's features sum to 2 (two softmaxes), so z tells how many tokens the state has absorbed.
 */
static double tokens_in_state(const box *b, int head) {
  const size_t features = 2 * b->p.dim;
  float *z = malloc(features * sizeof *z);
  double sum = 0;
  check_ok(still_attention_cache_state(b->cache, head, NULL, z));
  for (size_t f = 0; f < features; f++) sum += (double)z[f];
  free(z);
  return sum / 2;
}

/* Kept, near and linear tokens are a partition of all: kept positions are distinct and older than
 * the near window, and the state's mass is that of all the rest. */
static void check_partition(const box *b) {
  still_attention_usage usage;
  still_attention_cache_usage(b->cache, &usage);
  assert_int_equal(usage.kept_tokens + usage.near_tokens + usage.linear_tokens +
                       usage.forgotten_tokens,
                   usage.tokens);
  assert_int_equal(usage.softmax_tokens, usage.kept_tokens + usage.near_tokens);
  int64_t *kept = malloc((size_t)(usage.tokens + 1) * sizeof *kept);
  for (int h = 0; h < b->p.options.heads; h++) {
    const size_t count = still_attention_cache_kept(b->cache, h, kept, (size_t)usage.tokens);
    assert_int_equal(count, usage.kept_tokens);
    for (size_t i = 0; i < count; i++) {
      assert_true(kept[i] > (i ? kept[i - 1] : -1));
      assert_true(kept[i] < usage.tokens - usage.near_tokens);
    }
    if (usage.linear_tokens)
      assert_true(fabs(tokens_in_state(b, h) - (double)usage.linear_tokens) <
                  1e-4 * (double)usage.linear_tokens);
  }
  free(kept);
}

static void every_token_is_in_one_place(void **state) {
  (void)state;
  static const still_attention_kind kinds[] = {STILL_ATTENTION_STILL, STILL_ATTENTION_LOLCATS,
                                               STILL_ATTENTION_HEDGEHOG};
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++) {
    const still_attention_options o = small_options(kinds[k]);
    /* a prompt shorter than the window, decoding, then prefill in two parts (faults 80 a and b) */
    static const size_t pieces[] = {10, 1, 1, 1, 27, 100, 100, 1, 190, 10};
    box b = box_create(&o, 441, 1 + k);
    for (size_t i = 0, done = 0; i < CHECK_COUNT(pieces); done += pieces[i++]) {
      run_tokens(&b.p, b.plan, b.cache, done, pieces[i], &b.a);
      check_partition(&b);
    }
    box_free(&b);
  }
}

static void budget_is_never_exceeded(void **state) {
  (void)state;
  for (int schedule = STILL_SCHEDULE_BUDGET; schedule <= STILL_SCHEDULE_FIXED; schedule++) {
    still_attention_options o = small_options(STILL_ATTENTION_STILL);
    o.schedule = (still_schedule)schedule;
    o.context = 64;
    o.keep = 7;
    o.budget = 16 + 10;
    box b = box_create(&o, 700, 5);
    for (size_t t = 0; t < b.p.n; t++) {
      still_attention_usage usage;
      run_tokens(&b.p, b.plan, b.cache, t, 1, &b.a);
      still_attention_cache_usage(b.cache, &usage);
      assert_true(usage.kept_tokens <= o.budget - o.chunk);
      assert_true(usage.softmax_tokens <= usage.max_softmax_tokens);
      assert_int_equal(usage.budget_tokens, o.budget);
      assert_int_equal(usage.max_softmax_tokens, o.budget + o.chunk);
    }
    box_free(&b);
  }
}

/* The budget is whole from the first token on; past the context it stays as it is. */
static void memory_is_flat(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_STILL);
  o.schedule = STILL_SCHEDULE_BUDGET;
  o.context = 512;
  o.budget = 16 + 64;
  box b = box_create(&o, 4096, 6);
  still_attention_usage at_first, usage;
  still_attention_cache_usage(b.cache, &at_first);
  still_reset_peak_bytes();
  const uint64_t held = still_allocated_bytes();
  for (size_t done = 0; done < b.p.n; done += 512) {
    run_tokens(&b.p, b.plan, b.cache, done, 512, &b.a);
    still_attention_cache_usage(b.cache, &usage);
    assert_int_equal(usage.bytes, at_first.bytes);
    assert_int_equal(usage.bytes, still_attention_cache_bytes(b.plan, (int64_t)done + 512));
  }
  assert_int_equal(still_peak_bytes(), held);
  box_free(&b);
}

static void bytes_are_what_is_allocated(void **state) {
  (void)state;
  for (int kind = 0; kind <= STILL_ATTENTION_T2R; kind++)
    for (int type = 0; type <= STILL_BF16; type++) {
      still_attention_options o = small_options((still_attention_kind)kind);
      o.cache_type = (still_dtype)type;
      o.sinks = 5;
      o.head_dim = 64;
      o.context = 1000;
      problem p = problem_create(&o, 1, 7);
      still_attention_plan *plan;
      still_attention_cache *cache;
      still_attention_usage usage;
      check_ok(still_attention_plan_create(&plan, &o, &p.weights));
      const uint64_t before = still_allocated_bytes();
      check_ok(still_attention_cache_create(&cache, plan));
      const uint64_t cost = still_allocated_bytes() - before;
      still_attention_cache_usage(cache, &usage);
      assert_int_equal(usage.bytes, still_attention_cache_bytes(plan, 0));
      const uint64_t told = usage.bytes + usage.work_bytes;
      assert_true(cost >= told);
      assert_true(cost - told < 64 * 40); /* the allocator's headers */
      still_attention_cache_destroy(cache);
      still_attention_plan_destroy(plan);
      problem_free(&p);
    }
}

static void growing_kinds_grow_as_announced(void **state) {
  (void)state;
  for (int ratio = 0; ratio < 2; ratio++) {
    still_attention_options o = small_options(ratio ? STILL_ATTENTION_STILL : STILL_ATTENTION_FULL);
    o.schedule = STILL_SCHEDULE_RATIO;
    box b = box_create(&o, 900, 8);
    still_attention_usage usage;
    uint64_t first = 0;
    for (size_t done = 0; done < 900; done += 9) {
      run_tokens(&b.p, b.plan, b.cache, done, 9, &b.a);
      still_attention_cache_usage(b.cache, &usage);
      assert_int_equal(usage.bytes, still_attention_cache_bytes(b.plan, usage.tokens));
      assert_int_equal(usage.max_softmax_tokens, 0);
      if (!first) first = usage.bytes;
    }
    assert_true(usage.bytes > first);
    box_free(&b);
  }
}

/* lambda = C keeps all; fewer tokens than the near window: full attention to the last bit of
 * arithmetic. */
static void what_fits_is_not_evicted(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_STILL);
  o.keep = 0;
  box b = box_create(&o, 32, 9);
  run_tokens(&b.p, b.plan, b.cache, 0, 32, &b.a);
  problem full = b.p;
  full.options = small_options(STILL_ATTENTION_FULL);
  full.weights = (still_attention_weights)STILL_ATTENTION_WEIGHTS_INIT;
  answer want = run_pieces(&full, NULL, 0);
  check_rows_close("short", b.a.y, want.y, b.p.heads * b.p.n, b.p.dim, 2e-6);
  still_attention_usage usage;
  still_attention_cache_usage(b.cache, &usage);
  assert_int_equal(usage.near_tokens, 32);
  answer_free(&want);
  box_free(&b);
}

static void ties_and_nan_scores_keep_the_first(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_STILL);
  o.metric = STILL_METRIC_KEYNORM;
  box b = box_create(&o, 64, 10);
  for (size_t i = 0; i < b.p.kv_heads * b.p.n * b.p.dim; i++) b.p.k[i] = 1; /* all equal */
  b.p.k[0] = NAN; /* token 0 of kv head 0: last of its chunk */
  run_tokens(&b.p, b.plan, b.cache, 0, 64, &b.a);
  read_kept(b.cache, &b.a);
  static const int64_t with_nan[] = {1, 2, 3, 16, 17, 18}, equal[] = {0, 1, 2, 16, 17, 18};
  assert_memory_equal(b.a.kept, with_nan, sizeof with_nan);
  assert_memory_equal(b.a.kept + 3 * b.p.n, equal, sizeof equal);
  box_free(&b);
}

/* Random forwards, snapshots, roll-backs, saves, loads and resets; the model is the list of token
 * numbers that the cache should have seen, replayed into a fresh cache at every step that can be
 * looked at. */
typedef struct list_model {
  size_t tokens, snapshot_tokens, saved_tokens;
  void *snapshot, *saved;
  size_t saved_bytes;
} list_model;

static void operate(box *b, list_model *m, uint64_t what, uint64_t amount) {
  switch (what) {
  case 0:
    still_attention_cache_reset(b->cache);
    m->tokens = 0;
    free(m->snapshot);
    m->snapshot = NULL;
    return;
  case 1:
    free(m->snapshot);
    m->snapshot = malloc(still_attention_cache_snapshot_bytes(b->cache));
    check_ok(still_attention_cache_snapshot(b->cache, m->snapshot));
    m->snapshot_tokens = m->tokens;
    return;
  case 2:
    if (!m->snapshot) return;
    check_ok(still_attention_cache_restore(b->cache, m->snapshot));
    m->tokens = m->snapshot_tokens;
    return;
  case 3:
    free(m->saved);
    m->saved_bytes = still_attention_cache_save_bytes(b->cache);
    m->saved = malloc(m->saved_bytes);
    check_ok(still_attention_cache_save(b->cache, m->saved));
    m->saved_tokens = m->tokens;
    return;
  case 4:
    if (!m->saved) return;
    check_ok(still_attention_cache_load(b->cache, m->saved, m->saved_bytes));
    m->tokens = m->saved_tokens;
    free(m->snapshot); /* of a cache that is gone */
    m->snapshot = NULL;
    return;
  default:
    if (m->tokens + amount > b->p.n) return;
    run_tokens(&b->p, b->plan, b->cache, m->tokens, amount, &b->a);
    m->tokens += amount;
  }
}

static void check_against_list(const box *b, const list_model *m, const answer *truth) {
  still_attention_usage usage;
  still_attention_cache_usage(b->cache, &usage);
  assert_int_equal(usage.tokens, m->tokens);
  const still_census census = still_attention_census(b->plan, (int64_t)m->tokens);
  int64_t kept[512];
  for (size_t h = 0; b->plan->routes && h < b->p.heads; h++) {
    const size_t count = still_attention_cache_kept(b->cache, (int)h, kept, 512);
    assert_int_equal(count,
                     census.kept); /* routing never looks ahead: a prefix of the whole run's */
    if (count) assert_memory_equal(kept, truth->kept + h * truth->n, count * sizeof *kept);
  }
  if (m->tokens < 1) return;
  for (size_t h = 0; h < b->p.heads; h++) {
    const size_t row = (h * b->p.n + m->tokens - 1) * b->p.dim;
    check_rows_close("last token", b->a.y + row, truth->y + row, 1, b->p.dim, 2e-5);
  }
}

static void random_operations_against_a_list(void **state) {
  (void)state;
  still_random random;
  still_random_seed(&random, 11);
  static const still_attention_kind kinds[] = {STILL_ATTENTION_STILL, STILL_ATTENTION_SWA,
                                               STILL_ATTENTION_FULL, STILL_ATTENTION_LOLCATS,
                                               STILL_ATTENTION_LIGER_GLA};
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++) {
    still_attention_options o = small_options(kinds[k]);
    o.sinks = 4;
    o.budget = 16 + 25;
    box b = box_create(&o, 400, 20 + k);
    answer truth = run_pieces(&b.p, NULL, 0);
    list_model m = {0};
    for (int step = 0; step < 400; step++) {
      /* mostly forward, rarely a reset */
      const uint64_t what =
          still_random_below(&random, 60) ? 1 + still_random_below(&random, 20) : 0;
      operate(&b, &m, what, 1 + still_random_below(&random, 45));
      if (what > 4) check_against_list(&b, &m, &truth);
    }
    free(m.snapshot);
    free(m.saved);
    answer_free(&truth);
    box_free(&b);
  }
}

static void unused_slots_are_never_used(void **state) {
  (void)state;
  /* what an earlier sequence of NaN has left in rings and lists must not leak into the next one */
  for (int kind = 0; kind <= STILL_ATTENTION_T2R; kind++)
    for (int type = 0; type <= STILL_BF16; type++) {
      still_attention_options o = small_options((still_attention_kind)kind);
      o.cache_type = (still_dtype)type;
      o.sinks = 3;
      box b = box_create(&o, 150, 30);
      float *k = b.p.k, *v = b.p.v;
      const size_t floats = b.p.kv_heads * b.p.n * b.p.dim;
      b.p.k = malloc(floats * sizeof *k);
      b.p.v = malloc(floats * sizeof *v);
      for (size_t i = 0; i < floats; i++) b.p.k[i] = b.p.v[i] = NAN;
      run_tokens(&b.p, b.plan, b.cache, 0, 150, &b.a);
      free(b.p.k);
      free(b.p.v);
      b.p.k = k;
      b.p.v = v;
      still_attention_cache_reset(b.cache);
      answer want = run_pieces(&b.p, NULL, 0);
      run_tokens(&b.p, b.plan, b.cache, 0, 150, &b.a);
      assert_memory_equal(b.a.y, want.y, b.p.heads * b.p.n * b.p.dim * sizeof *want.y);
      answer_free(&want);
      box_free(&b);
    }
}

static void no_nan_before_its_token(void **state) {
  (void)state;
  enum { N = 150, BAD = 75 };
  for (int kind = 0; kind <= STILL_ATTENTION_T2R; kind++)
    for (int threads = 1; threads < 8; threads += 6) {
      still_attention_options o = small_options((still_attention_kind)kind);
      o.threads = threads;
      problem p = problem_create(&o, N, 60);
      answer want = run_pieces(&p, NULL, 0);
      for (size_t h = 0; h < p.kv_heads; h++)
        for (size_t d = 0; d < p.dim; d++) {
          p.v[(h * N + BAD) * p.dim + d] = INFINITY;
          p.k[(h * N + BAD) * p.dim + d] = NAN;
        }
      answer got = run_pieces(&p, NULL, 0);
      for (size_t h = 0; h < p.heads; h++) {
        const size_t row = h * N * p.dim;
        check_rows_close("before", got.y + row, want.y + row, BAD, p.dim, 1e-5);
        assert_true(isnan(got.y[row + BAD * p.dim]));
      }
      answer_free(&got);
      answer_free(&want);
      problem_free(&p);
    }
}

/* Positive features that never shrink, a million tokens: the state stays finite and right to
 * float32's digits. */
static void a_million_tokens(void **state) {
  (void)state;
  still_attention_options o = small_options(STILL_ATTENTION_STILL);
  o.heads = o.kv_heads = 1;
  o.head_dim = 4;
  o.chunk = 64;
  o.keep = 1;
  o.budget = 64 + 100;
  box b = box_create(&o, 8192, 40);
  for (size_t i = 0; i < b.p.n * b.p.dim; i++) b.p.v[i] = 1;
  for (int round = 0; round < 128; round++) run_tokens(&b.p, b.plan, b.cache, 0, b.p.n, &b.a);
  check_partition(&b);
  for (size_t i = 0; i < b.p.n * b.p.dim; i++) { /* every value is 1, the gate at most 1 */
    assert_true(isfinite(b.a.y[i]));
    assert_true(b.a.y[i] <= 1.001f && b.a.y[i] >= 0);
  }
  box_free(&b);
}

typedef struct runner {
  problem p;
  answer want, got;
  pthread_t thread;
} runner;

static void *run_alone(void *user) {
  runner *r = user;
  static const size_t lengths[] = {30, 1, 7};
  r->got = run_pieces(&r->p, lengths, CHECK_COUNT(lengths));
  return NULL;
}

/* They share work space only while it is idle. */
static void caches_run_side_by_side(void **state) {
  (void)state;
  runner r[8];
  for (size_t i = 0; i < CHECK_COUNT(r); i++) {
    const still_attention_options o = small_options((still_attention_kind)(i % 7));
    r[i].p = problem_create(&o, 300, 70 + i);
    run_alone(&r[i]);
    r[i].want = r[i].got;
  }
  for (size_t i = 0; i < CHECK_COUNT(r); i++)
    assert_int_equal(pthread_create(&r[i].thread, NULL, run_alone, &r[i]), 0);
  for (size_t i = 0; i < CHECK_COUNT(r); i++) {
    assert_int_equal(pthread_join(r[i].thread, NULL), 0);
    check_same_answer(&r[i].got, &r[i].want, true, 0);
    answer_free(&r[i].got);
    answer_free(&r[i].want);
    problem_free(&r[i].p);
  }
}

static still_status make_and_run(void *user) {
  const problem *p = user;
  still_attention_plan *plan = NULL;
  still_attention_cache *cache = NULL;
  float y[4 * 100 * 16];
  const still_attention_inputs in = problem_inputs(p, 0);
  still_status status = still_attention_plan_create(&plan, &p->options, &p->weights);
  if (!status) status = still_attention_cache_create(&cache, plan);
  if (!status) status = still_attention_forward(plan, cache, 100, &in, y, 100 * 16, 16);
  if (!status) status = still_attention_forward(plan, cache, 100, &in, y, 100 * 16, 16);
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  return status;
}

static void failing_allocations_leak_nothing(void **state) {
  (void)state;
  for (int kind = 0; kind <= STILL_ATTENTION_T2R; kind++) {
    still_attention_options o = small_options((still_attention_kind)kind);
    o.sinks = 3;
    problem p = problem_create(&o, 100, 50);
    assert_true(check_failing_allocations(make_and_run, &p, false) > 3);
    problem_free(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_token_is_in_one_place),
      cmocka_unit_test(budget_is_never_exceeded),
      cmocka_unit_test(memory_is_flat),
      cmocka_unit_test(bytes_are_what_is_allocated),
      cmocka_unit_test(growing_kinds_grow_as_announced),
      cmocka_unit_test(what_fits_is_not_evicted),
      cmocka_unit_test(ties_and_nan_scores_keep_the_first),
      cmocka_unit_test(random_operations_against_a_list),
      cmocka_unit_test(unused_slots_are_never_used),
      cmocka_unit_test(no_nan_before_its_token),
      cmocka_unit_test(a_million_tokens),
      cmocka_unit_test(caches_run_side_by_side),
      cmocka_unit_test(failing_allocations_leak_nothing),
  };
  return cmocka_run_group_tests_name("cache", tests, NULL, check_nothing_allocated);
}
