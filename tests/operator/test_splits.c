/* SPDX-License-Identifier: MIT
 * One input, any split, any number of threads, any interruption: the same answer. */
#include "base/random.h"
#include "operator/problem.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_VARIETIES = 32 };

/* Kinds and options that go through different code. */
static size_t varieties(still_attention_options *out) {
  size_t n = 0;
  for (int kind = 0; kind <= STILL_ATTENTION_T2R; kind++)
    out[n++] = small_options((still_attention_kind)kind);
  for (int type = STILL_F16; type <= STILL_BF16; type++) {
    out[n] = small_options(STILL_ATTENTION_STILL);
    out[n++].cache_type = (still_dtype)type;
    out[n] = small_options(STILL_ATTENTION_FULL);
    out[n++].cache_type = (still_dtype)type;
  }
  for (int metric = 1; metric <= STILL_METRIC_RANDOM; metric++) {
    out[n] = small_options(STILL_ATTENTION_STILL);
    out[n++].metric = (still_metric)metric;
  }
  out[n] = small_options(STILL_ATTENTION_STILL);
  out[n++].routing = STILL_ROUTING_PER_GROUP;
  out[n] = small_options(STILL_ATTENTION_STILL);
  out[n++].chunk = 70; /* longer than a block of queries */
  out[n] = small_options(STILL_ATTENTION_SWA);
  out[n++].sinks = 20;
  return n;
}

static void any_split_gives_the_same(void **state) {
  (void)state;
  static const size_t lengths[][6] = {{1}, {15}, {16}, {17}, {2, 3, 5, 7, 11, 13}, {97, 1, 1, 64}};
  still_attention_options all[MOST_VARIETIES];
  const size_t count = varieties(all);
  for (size_t v = 0; v < count; v++) {
    problem p = problem_create(&all[v], 260, 10 + v);
    answer want = run_pieces(&p, NULL, 0);
    for (size_t i = 0; i < CHECK_COUNT(lengths); i++) {
      size_t used = 0;
      while (used < 6 && lengths[i][used]) used++;
      answer got = run_pieces(&p, lengths[i], used);
      check_same_answer(&got, &want, false, 1e-5);
      assert_memory_equal(got.scores, want.scores, p.heads * p.n * sizeof *got.scores);
      answer_free(&got);
    }
    answer_free(&want);
    problem_free(&p);
  }
}

static void random_splits(void **state) {
  (void)state;
  still_random random;
  still_random_seed(&random, 1);
  for (int round = 0; round < 20; round++) {
    still_attention_options o = small_options(STILL_ATTENTION_STILL);
    o.chunk = 1 + (int)still_random_below(&random, 40);
    o.keep = (int)still_random_below(&random, (uint64_t)o.chunk + 1);
    problem p = problem_create(&o, 224, 50 + (uint64_t)round);
    size_t lengths[224];
    for (size_t i = 0; i < 224; i++) lengths[i] = 1 + still_random_below(&random, 60);
    answer want = run_pieces(&p, NULL, 0), got = run_pieces(&p, lengths, 224);
    check_same_answer(&got, &want, false, 1e-5);
    assert_memory_equal(got.scores, want.scores, p.heads * p.n * sizeof *got.scores);
    answer_free(&want);
    answer_free(&got);
    problem_free(&p);
  }
}

static void threads_do_not_change_a_bit(void **state) {
  (void)state;
  static const int threads[] = {2, 3, 5, 16};
  static const size_t lengths[] = {100, 1, 1, 5, 40, 1};
  still_attention_options all[MOST_VARIETIES];
  const size_t count = varieties(all);
  for (size_t v = 0; v < count; v++) {
    problem p = problem_create(&all[v], 200, 90 + v);
    answer want = run_pieces(&p, lengths, CHECK_COUNT(lengths));
    for (size_t t = 0; t < CHECK_COUNT(threads); t++) {
      p.options.threads = threads[t];
      answer got = run_pieces(&p, lengths, CHECK_COUNT(lengths));
      check_same_answer(&got, &want, true, 0);
      answer_free(&got);
    }
    answer_free(&want);
    problem_free(&p);
  }
}

/* Few heads on many threads, over several rounds of passes and broken chunks. */
static void passes_are_the_same_too(void **state) {
  (void)state;
  static const size_t lengths[] = {1000, 1, 700, 3, 129};
  static const int chunks[] = {1, 7, 64, 100, 600};
  for (size_t c = 0; c < CHECK_COUNT(chunks); c++)
    for (int routing = 0; routing < 2; routing++) {
      still_attention_options o = small_options(STILL_ATTENTION_STILL);
      o.chunk = chunks[c];
      o.keep = chunks[c] < 9 ? 1 : 9;
      o.budget = chunks[c] + 100;
      o.routing = (still_routing)routing;
      problem p = problem_create(&o, 2000, 150 + c);
      answer want = run_pieces(&p, lengths, CHECK_COUNT(lengths));
      p.options.threads = 7;
      answer got = run_pieces(&p, lengths, CHECK_COUNT(lengths));
      check_same_answer(&got, &want, true, 0);
      answer_free(&got);
      answer_free(&want);
      problem_free(&p);
    }
}

/* Two caches of one plan, and what each has done. */
typedef struct pair {
  problem p;
  still_attention_plan *plan;
  still_attention_cache *first, *second;
  answer want, got;
} pair;

static pair pair_create(const still_attention_options *o, size_t n, uint64_t seed) {
  pair x = {.p = problem_create(o, n, seed)};
  check_ok(still_attention_plan_create(&x.plan, &x.p.options, &x.p.weights));
  check_ok(still_attention_cache_create(&x.first, x.plan));
  check_ok(still_attention_cache_create(&x.second, x.plan));
  x.want = answer_create(&x.p);
  x.got = answer_create(&x.p);
  return x;
}

static void pair_free(pair *x) {
  still_attention_cache_destroy(x->first);
  still_attention_cache_destroy(x->second);
  still_attention_plan_destroy(x->plan);
  answer_free(&x->want);
  answer_free(&x->got);
  problem_free(&x->p);
}

static void go_on(pair *x, still_attention_cache *cache, size_t first, answer *a) {
  for (size_t t = first; t < x->p.n; t++) run_tokens(&x->p, x->plan, cache, t, 1, a);
  read_kept(cache, a);
}

static void a_saved_cache_goes_on_bit_for_bit(void **state) {
  (void)state;
  still_attention_options all[MOST_VARIETIES];
  const size_t count = varieties(all);
  for (size_t v = 0; v < count; v++) {
    const size_t c = (size_t)all[v].chunk,
                 stops[] = {1, c - 1, c, c + 1, 2 * c, 2 * c + 3, 3 * c + 1};
    for (size_t i = 0; i < CHECK_COUNT(stops); i++) {
      pair x = pair_create(&all[v], stops[i] + 3 * c, 200 + v);
      run_tokens(&x.p, x.plan, x.first, 0, stops[i], &x.want);
      const size_t bytes = still_attention_cache_save_bytes(x.first);
      char *saved = malloc(bytes + 1);
      saved[bytes] = 0x5a;
      check_ok(still_attention_cache_save(x.first, saved));
      assert_int_equal(saved[bytes], 0x5a);
      run_tokens(&x.p, x.plan, x.second, 0, x.p.n, &x.got); /* a cache that held something else */
      check_ok(still_attention_cache_load(x.second, saved, bytes));
      memcpy(x.got.y, x.want.y, x.p.heads * x.p.n * x.p.dim * sizeof *x.got.y);
      memcpy(x.got.scores, x.want.scores, x.p.heads * x.p.n * sizeof *x.got.scores);
      go_on(&x, x.first, stops[i], &x.want);
      go_on(&x, x.second, stops[i], &x.got);
      check_same_answer(&x.got, &x.want, true, 0);
      free(saved);
      pair_free(&x);
    }
  }
}

static void a_snapshot_rolls_back_bit_for_bit(void **state) {
  (void)state;
  still_attention_options all[MOST_VARIETIES];
  const size_t count = varieties(all);
  for (size_t v = 0; v < count; v++) {
    const size_t c = (size_t)all[v].chunk, stops[] = {0, 1, c - 1, c, c + 1, 2 * c + 3};
    for (size_t i = 0; i < CHECK_COUNT(stops); i++) {
      pair x = pair_create(&all[v], stops[i] + 3 * c, 300 + v);
      if (stops[i]) run_tokens(&x.p, x.plan, x.first, 0, stops[i], &x.want);
      void *snapshot = malloc(still_attention_cache_snapshot_bytes(x.first));
      check_ok(still_attention_cache_snapshot(x.first, snapshot));
      go_on(&x, x.first, stops[i], &x.want);
      check_ok(still_attention_cache_restore(x.first, snapshot));
      memcpy(x.got.y, x.want.y, x.p.heads * x.p.n * x.p.dim * sizeof *x.got.y);
      memcpy(x.got.scores, x.want.scores, x.p.heads * x.p.n * sizeof *x.got.scores);
      go_on(&x, x.first, stops[i], &x.got);
      check_same_answer(&x.got, &x.want, true, 0);
      free(snapshot);
      pair_free(&x);
    }
  }
}

static void damaged_saves_change_nothing(void **state) {
  (void)state;
  const still_attention_options o = small_options(STILL_ATTENTION_STILL);
  pair x = pair_create(&o, 120, 400);
  run_tokens(&x.p, x.plan, x.first, 0, 100, &x.want);
  const size_t bytes = still_attention_cache_save_bytes(x.first);
  char *saved = malloc(bytes), *before = malloc(bytes), *after = malloc(bytes);
  check_ok(still_attention_cache_save(x.first, saved));
  memcpy(before, saved, bytes);
  const size_t header = 72, near = 2 * 16 - 12; /* 100 tokens: 4 of chunk 6, 16 of chunk 5 */
  const size_t first_position = header + 2 * near * 2 * 16 * sizeof(float);
  const size_t offsets[] = {0, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 64, first_position + 7};
  for (size_t i = 0; i < CHECK_COUNT(offsets); i++) {
    memcpy(saved, before, bytes);
    saved[offsets[i]] ^= 0x41;
    check_fails(still_attention_cache_load(x.first, saved, bytes), STILL_ERROR_FORMAT,
                "saved cache");
  }
  for (size_t cut = 0; cut < bytes; cut += 997)
    check_fails(still_attention_cache_load(x.first, before, cut), STILL_ERROR_FORMAT,
                "saved cache");
  check_ok(still_attention_cache_save(x.first, after));
  assert_memory_equal(after, before, bytes);
  check_ok(still_attention_cache_load(x.first, before, bytes));
  free(saved);
  free(before);
  free(after);
  pair_free(&x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_split_gives_the_same),
      cmocka_unit_test(random_splits),
      cmocka_unit_test(threads_do_not_change_a_bit),
      cmocka_unit_test(passes_are_the_same_too),
      cmocka_unit_test(a_saved_cache_goes_on_bit_for_bit),
      cmocka_unit_test(a_snapshot_rolls_back_bit_for_bit),
      cmocka_unit_test(damaged_saves_change_nothing),
  };
  return cmocka_run_group_tests_name("splits", tests, NULL, check_nothing_allocated);
}
