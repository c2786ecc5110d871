/* SPDX-License-Identifier: MIT
 * The operator on vulkan:0 against the CPU's: any split of the input, cache types, routing by group, growing caches, saved
 * and restored caches, memory. */
#include "gpu/gpu_fixtures.h"

#include "base/memory.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <still/attention.h>
#include <string.h>

enum { H = 4, G = 2, D = 16, N = 150 };

typedef struct rows_of {
  float q[H * N * D], k[G * N * D], v[G * N * D], gate[H * N * D], aq[H * D * D], ak[H * D * D];
} rows_of;

static rows_of *make_rows(void) {
  rows_of *r = malloc(sizeof *r);
  assert_non_null(r);
  check_normal(r->q, H * N * D, 1);
  check_normal(r->k, G * N * D, 2);
  check_normal(r->v, G * N * D, 3);
  check_normal(r->gate, H * N * D, 4);
  for (size_t i = 0; i < H * N * D; i++) r->gate[i] = 1 / (1 + expf(-r->gate[i]));
  check_normal(r->aq, H * D * D, 5);
  check_normal(r->ak, H * D * D, 6);
  return r;
}

static still_attention_options options_for(still_attention_kind kind) {
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.kind = kind;
  o.heads = H;
  o.kv_heads = G;
  o.head_dim = D;
  o.chunk = 16;
  o.budget = 16 + 24;
  o.context = N;
  o.window = 20;
  o.sinks = kind == STILL_ATTENTION_SWA ? 3 : 0;
  return o;
}

typedef struct machine {
  still_attention_plan *plan;
  still_attention_cache *cache;
} machine;

static machine make_machine(still_attention_options o, const rows_of *r, const char *device) {
  machine m;
  still_attention_weights w = STILL_ATTENTION_WEIGHTS_INIT;
  w.feature_q = r->aq;
  w.feature_k = r->ak;
  o.device = device;
  const bool maps = o.kind != STILL_ATTENTION_FULL && o.kind != STILL_ATTENTION_SWA &&
                    o.kind != STILL_ATTENTION_LIGER_GLA;
  if (o.kind == STILL_ATTENTION_T2R) w.bias_k = r->gate; /* (H, D) of numbers */
  check_ok(still_attention_plan_create(&m.plan, &o, maps ? &w : NULL));
  check_ok(still_attention_cache_create(&m.cache, m.plan));
  return m;
}

static void destroy_machine(machine *m) {
  still_attention_cache_destroy(m->cache);
  still_attention_plan_destroy(m->plan);
}

static void feed(machine *m, const rows_of *r, size_t first, size_t n, float *y) {
  still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
  in.q = (still_rows){r->q + first * D, N * D, D};
  in.k = (still_rows){r->k + first * D, N * D, D};
  in.v = (still_rows){r->v + first * D, N * D, D};
  in.gate = (still_rows){r->gate + first * D, N * D, D};
  in.q_raw = (still_rows){r->gate + first * D, N * D, D};
  in.k_raw = in.v;
  check_ok(still_attention_forward(m->plan, m->cache, n, &in, y + first * D, N * D, D));
}

/* Feeds all tokens in pieces of these sizes, the last one again and again; 0 ends the list. */
static void feed_split(machine *m, const rows_of *r, const size_t *sizes, float *y) {
  for (size_t done = 0; done < N;) {
    const size_t n = *sizes < N - done ? *sizes : N - done;
    if (sizes[1]) sizes++;
    feed(m, r, done, n, y);
    done += n;
  }
}

static void compare(const char *what, still_attention_options o, const size_t *sizes,
                    double bound) {
  rows_of *r = make_rows();
  float *want = malloc(sizeof(float) * H * N * D), *got = malloc(sizeof(float) * H * N * D);
  assert_true(want && got);
  machine cpu = make_machine(o, r, "cpu"), gpu = make_machine(o, r, gpu_device());
  feed(&cpu, r, 0, N, want);
  feed_split(&gpu, r, sizes, got);
  check_rows_close(what, got, want, H * N, D, bound);
  int64_t cpu_kept[N], gpu_kept[N];
  for (int h = 0; h < H; h++) {
    const size_t count = still_attention_cache_kept(cpu.cache, h, cpu_kept, N);
    assert_int_equal(still_attention_cache_kept(gpu.cache, h, gpu_kept, N), count);
    assert_memory_equal(gpu_kept, cpu_kept, count * sizeof *gpu_kept);
  }
  still_attention_usage usage;
  still_attention_cache_usage(gpu.cache, &usage);
  assert_int_equal(usage.tokens, N);
  assert_int_equal(usage.bytes, still_attention_cache_bytes(gpu.plan, N));
  destroy_machine(&cpu);
  destroy_machine(&gpu);
  free(want);
  free(got);
  free(r);
}

static void any_split_gives_the_same(void **state) {
  (void)state;
  static const size_t splits[][8] = {{1, 0}, {33, 16, 1, 1, 1, 50, 1, 0}};
  static const still_attention_kind kinds[] = {STILL_ATTENTION_STILL, STILL_ATTENTION_FULL,
                                               STILL_ATTENTION_SWA};
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
    for (size_t i = 0; i < CHECK_COUNT(splits); i++)
      compare(still_attention_kind_name(kinds[k]), options_for(kinds[k]), splits[i], 2e-5);
}

static void linear_kinds_agree(void **state) {
  (void)state;
  static const size_t sizes[] = {13, 1, 50, 1, 1, 40, 0};
  static const still_attention_kind kinds[] = {STILL_ATTENTION_LOLCATS, STILL_ATTENTION_LIGER_GLA,
                                               STILL_ATTENTION_HEDGEHOG, STILL_ATTENTION_T2R};
  for (size_t k = 0; k < CHECK_COUNT(kinds); k++)
    compare(still_attention_kind_name(kinds[k]), options_for(kinds[k]), sizes, 2e-5);
}

static const size_t mixed[] = {40, 1, 1, 30, 1, 0};

static void options_agree(void **state) {
  (void)state;
  still_attention_options o = options_for(STILL_ATTENTION_STILL);
  o.routing = STILL_ROUTING_PER_GROUP;
  compare("per group", o, mixed, 2e-5);
  o = options_for(STILL_ATTENTION_STILL);
  o.metric = STILL_METRIC_UNIFORM;
  compare("uniform", o, mixed, 2e-5);
  o.metric = STILL_METRIC_KEYNORM;
  compare("keynorm", o, mixed, 2e-5);
  o = options_for(STILL_ATTENTION_STILL);
  o.feature_map = STILL_FEATURE_HEDGEHOG;
  compare("hedgehog", o, mixed, 2e-5);
  o = options_for(STILL_ATTENTION_STILL);
  o.schedule = STILL_SCHEDULE_RATIO;
  o.context = 40; /* the cache has to grow */
  compare("growing", o, mixed, 2e-5);
  o = options_for(STILL_ATTENTION_FULL);
  o.context = 32;
  compare("growing full", o, mixed, 2e-5);
}

static void f16_caches_agree(void **state) {
  (void)state;
  still_attention_options o = options_for(STILL_ATTENTION_STILL);
  o.cache_type = STILL_F16;
  still_attention_plan *plan = NULL;
  o.device = gpu_device();
  if (still_attention_plan_create(&plan, &o, NULL) == STILL_ERROR_UNSUPPORTED) skip();
  still_attention_plan_destroy(plan);
  o.metric = STILL_METRIC_UNIFORM; /* the same choice whatever the rounding */
  compare("f16", o, mixed, 5e-3);
  o = options_for(STILL_ATTENTION_FULL);
  o.cache_type = STILL_F16;
  compare("f16 full", o, mixed, 5e-3);
}

static void snapshots_and_saved_caches_continue_alike(void **state) {
  (void)state;
  rows_of *r = make_rows();
  float *want = malloc(sizeof(float) * H * N * D), *got = malloc(sizeof(float) * H * N * D);
  assert_true(want && got);
  machine a = make_machine(options_for(STILL_ATTENTION_STILL), r, gpu_device());
  machine b = make_machine(options_for(STILL_ATTENTION_STILL), r, gpu_device());
  feed(&a, r, 0, 70, want);
  void *snapshot = malloc(still_attention_cache_snapshot_bytes(a.cache));
  const size_t bytes = still_attention_cache_save_bytes(a.cache);
  char *saved = malloc(bytes);
  assert_true(snapshot && saved);
  check_ok(still_attention_cache_snapshot(a.cache, snapshot));
  check_ok(still_attention_cache_save(a.cache, saved));
  feed(&a, r, 70, N - 70, want);
  check_ok(still_attention_cache_restore(a.cache, snapshot));
  feed(&a, r, 70, N - 70, got);
  assert_memory_equal(got + 70 * D, want + 70 * D, (N - 70) * D * sizeof *got);
  check_fails(still_attention_cache_load(b.cache, saved, bytes - 1), STILL_ERROR_FORMAT, "bytes");
  saved[0] ^= 1;
  check_fails(still_attention_cache_load(b.cache, saved, bytes), STILL_ERROR_FORMAT, "saved cache");
  saved[0] ^= 1;
  check_ok(still_attention_cache_load(b.cache, saved, bytes));
  feed(&b, r, 70, N - 70, got);
  assert_memory_equal(got + 70 * D, want + 70 * D, (N - 70) * D * sizeof *got);
  destroy_machine(&a);
  destroy_machine(&b);
  free(snapshot);
  free(saved);
  free(want);
  free(got);
  free(r);
}

static void what_has_no_shader_is_refused(void **state) {
  (void)state;
  still_attention_plan *plan;
  still_attention_options o = options_for(STILL_ATTENTION_STILL);
  o.device = gpu_device();
  o.metric = STILL_METRIC_RANDOM;
  check_fails(still_attention_plan_create(&plan, &o, NULL), STILL_ERROR_UNSUPPORTED, "random");
  o = options_for(STILL_ATTENTION_FULL);
  o.device = gpu_device();
  o.head_dim = 18;
  check_fails(still_attention_plan_create(&plan, &o, NULL), STILL_ERROR_UNSUPPORTED,
              "multiple of 4");
  o.head_dim = 16;
  o.device = "vulkan:77";
  check_fails(still_attention_plan_create(&plan, &o, NULL), STILL_ERROR_DEVICE, "vulkan:77");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_split_gives_the_same),
      cmocka_unit_test(linear_kinds_agree),
      cmocka_unit_test(options_agree),
      cmocka_unit_test(f16_caches_agree),
      cmocka_unit_test(snapshots_and_saved_caches_continue_alike),
      cmocka_unit_test(what_has_no_shader_is_refused),
  };
  return gpu_run_tests(tests, CHECK_COUNT(tests));
}
