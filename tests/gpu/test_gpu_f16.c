/* SPDX-License-Identifier: MIT
 * The f16 variants, by cooperative matrices where the device has them, at the shapes they are written for: heads of 64 and
 * 128 channels, chunks of 64, against the CPU in float. Bounds: 5e-3 of the row's largest value; the same routing. */
#include "gpu/gpu_fixtures.h"

#include "backend/vulkan/vulkan_backend.h"
#include "backend/vulkan/vulkan_check.h"
#include "backend/vulkan/vulkan_device.h"
#include "shaders/shader_interface.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <still/attention.h>

enum { MOST_HEADS = 128, N = 330 };

typedef struct arrays {
  float *q, *k, *v, *gate, *aq, *ak;
} arrays;

static float *normal(size_t count, uint64_t seed) {
  float *x = malloc(count * sizeof *x);
  assert_non_null(x);
  check_normal(x, count, seed);
  return x;
}

static arrays make_arrays(size_t heads, size_t dim) {
  const size_t kv_heads = heads / 2;
  arrays a = {normal(heads * N * dim, 11),    normal(kv_heads * N * dim, 12),
              normal(kv_heads * N * dim, 13), normal(heads * N * dim, 14),
              normal(heads * dim * dim, 15),  normal(heads * dim * dim, 16)};
  for (size_t i = 0; i < heads * N * dim; i++) a.gate[i] = 1 / (1 + expf(-a.gate[i]));
  return a;
}

static void free_arrays(arrays *a) {
  free(a->q);
  free(a->k);
  free(a->v);
  free(a->gate);
  free(a->aq);
  free(a->ak);
}

/* y of all tokens, fed as n0 and the rest, and the kept positions of every head. */
static void run(const still_attention_options *o, const arrays *a, bool gated, size_t n0, float *y,
                int64_t kept[MOST_HEADS][N], size_t counts[MOST_HEADS]) {
  const size_t dim = (size_t)o->head_dim, row = N * dim;
  still_attention_weights w = STILL_ATTENTION_WEIGHTS_INIT;
  w.feature_q = a->aq;
  w.feature_k = a->ak;
  still_attention_plan *plan;
  still_attention_cache *cache;
  check_ok(still_attention_plan_create(&plan, o, o->kind == STILL_ATTENTION_STILL ? &w : NULL));
  check_ok(still_attention_cache_create(&cache, plan));
  for (size_t first = 0, n = n0; first < N; first += n, n = N - first) {
    still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
    in.q = (still_rows){a->q + first * dim, row, dim};
    in.k = (still_rows){a->k + first * dim, row, dim};
    in.v = (still_rows){a->v + first * dim, row, dim};
    if (gated) in.gate = (still_rows){a->gate + first * dim, row, dim};
    check_ok(still_attention_forward(plan, cache, n, &in, y + first * dim, row, dim));
  }
  for (int h = 0; h < o->heads; h++) counts[h] = still_attention_cache_kept(cache, h, kept[h], N);
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
}

static still_attention_options options_of(still_attention_kind kind, int heads, int dim) {
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.kind = kind;
  o.heads = heads;
  o.kv_heads = heads / 2;
  o.head_dim = dim;
  o.budget = 64 + 60;
  o.context = N;
  o.window = 70;
  return o;
}

static void compare_arrays(const char *what, still_attention_options o, const arrays *a, bool gated,
                           size_t n0) {
  static int64_t want_kept[MOST_HEADS][N], got_kept[MOST_HEADS][N];
  size_t want_counts[MOST_HEADS], got_counts[MOST_HEADS];
  const size_t dim = (size_t)o.head_dim, rows = (size_t)o.heads * N;
  float *want = malloc(rows * dim * sizeof *want), *got = malloc(rows * dim * sizeof *got);
  assert_true(want && got);
  run(&o, a, gated, N, want, want_kept, want_counts);
  o.device = gpu_device();
  o.cache_type = STILL_F16;
  run(&o, a, gated, n0, got, got_kept, got_counts);
  check_rows_close(what, got, want, rows, dim, 5e-3);
  for (int h = 0; h < o.heads; h++) {
    assert_int_equal(got_counts[h], want_counts[h]);
    assert_memory_equal(got_kept[h], want_kept[h], want_counts[h] * sizeof **want_kept);
  }
  free(want);
  free(got);
}

static void compare_as(const char *what, still_attention_options o, bool gated, size_t n0) {
  arrays a = make_arrays((size_t)o.heads, (size_t)o.head_dim);
  compare_arrays(what, o, &a, gated, n0);
  free_arrays(&a);
}

static void compare(const char *what, still_attention_kind kind, int heads, int dim, size_t n0) {
  still_attention_options o = options_of(kind, heads, dim);
  if (heads > 2) o.metric = STILL_METRIC_UNIFORM; /* among many scores some are as good as equal */
  compare_as(what, o, true, n0);
}

static void heads_of_64(void **state) {
  (void)state;
  compare("still, 64", STILL_ATTENTION_STILL, 2, 64, N);
  compare("still, 64, split", STILL_ATTENTION_STILL, 2, 64, 100);
  compare("still, 64, split at a chunk", STILL_ATTENTION_STILL, 2, 64, 192);
  compare("full, 64", STILL_ATTENTION_FULL, 2, 64, N);
  still_attention_options o = options_of(STILL_ATTENTION_SWA, 2, 64);
  compare_as("swa, 64", o, true, N);
  o.window = 144;
  o.sinks = 3;
  compare_as("swa, 64, a longer window and sinks, split", o, true, 128);
}

/* Logits of 2^29 and more, of which each query's own is the largest: a weight of 1 and zeros. */
static void large_logits(void **state) {
  (void)state;
  enum { HEADS = 2, D = 64 };
  const still_attention_kind kinds[] = {STILL_ATTENTION_FULL, STILL_ATTENTION_SWA};
  arrays a = make_arrays(HEADS, D);
  for (size_t i = 0; i < N * D; i++) { /* one key/value head */
    a.k[i] = a.k[i] > 0 ? 8192.0f : -4096.0f;
    for (size_t h = 0; h < HEADS; h++) a.q[h * N * D + i] = a.k[i];
  }
  for (size_t i = 0; i < CHECK_COUNT(kinds); i++)
    compare_arrays("large logits", options_of(kinds[i], HEADS, D), &a, false, N);
  free_arrays(&a);
}

static void options_of_64(void **state) {
  (void)state;
  const still_attention_options usual = options_of(STILL_ATTENTION_STILL, 4, 64);
  still_attention_options o = usual;
  compare_as("no gate", usual, false, N);
  o.routing = STILL_ROUTING_PER_GROUP;
  compare_as("one choice for each group", o, true, N);
  o = usual;
  o.feature_map = STILL_FEATURE_HEDGEHOG;
  compare_as("features without norms", o, true, N);
  o = usual;
  o.metric = STILL_METRIC_DIAGONAL;
  compare_as("routed by the diagonal", o, true, N);
  o.metric = STILL_METRIC_KEYNORM;
  compare_as("routed by the norm of keys", o, true, N);
}

#ifndef EMULATED
static void heads_of_128(void **state) {
  (void)state;
  compare("still, 128", STILL_ATTENTION_STILL, 2, 128, N);
  compare("still, 128, segments of two chunks", STILL_ATTENTION_STILL, 64, 128, N);
  compare("swa, 128", STILL_ATTENTION_SWA, 2, 128, 200);
}
#else
#include "emulated_code.h" /* made by meson.build */

/* The device says that it has cooperative matrices until it is closed. */
static void matrices_are_pretended(void **state) {
  (void)state;
#define SHADER(name)                                                                               \
  still_vulkan_pretend_code(STILL_SHADER_##name, emulated_##name, sizeof emulated_##name);
#include "emulated_list.h"
#undef SHADER
  still_vulkan *vulkan;
  check_ok(still_vulkan_open(&vulkan, gpu_device()));
  vulkan->features |= STILL_VULKAN_COOPMAT;
  still_vulkan_close(vulkan);
}

/* The self-check's products: whole tiles and edges, replaced and added to. */
static void products(void **state) {
  (void)state;
  const still_tensor_type types[] = {STILL_TENSOR_F16, STILL_TENSOR_BF16, STILL_TENSOR_Q8_0};
  still_backend *backend;
  check_ok(still_backend_vulkan_create(&backend, gpu_device(), 1));
  for (size_t i = 0; i < CHECK_COUNT(types); i++) {
    check_ok(still_vulkan_check_weights(backend, types[i]));
    assert_true(gpu_features() & STILL_VULKAN_COOPMAT);
  }
  still_backend_destroy(backend);
}

static void heads_of_128(void **state) {
  (void)state;
  compare("still, 128", STILL_ATTENTION_STILL, 2, 128, N);
  compare("full, 128", STILL_ATTENTION_FULL, 2, 128, N);
}

static void long_segments(void **state) {
  (void)state;
  compare("still, 64, segments of two chunks", STILL_ATTENTION_STILL, 128, 64, N);
}

/* No self-check has switched them off. */
static void matrices_were_used(void **state) {
  (void)state;
  assert_true(gpu_features() & STILL_VULKAN_COOPMAT);
}
#endif

/* shaders/tiles.comp by itself, which runs on every device: element e of invocation i of a 16 x 16 tile is in row i / 4 or the
 * one 8 below and in column 2 (i mod 4) or the one at distance 1, 8 or 9; tiles of values are transposed. */
static void tiles_hold_the_rows(void **state) {
  (void)state;
  enum { HEADS = 2, ROWS = 80, USED = 37, D = 64, BLOCKS = 8 };
  static uint16_t rows[HEADS][ROWS][D], got[2][HEADS][BLOCKS][D / 16][32][8];
  for (int i = 0; i < HEADS * ROWS * D; i++) (&rows[0][0][0])[i] = (uint16_t)(i % 0x7000 + 1);
  still_vulkan *vulkan;
  check_ok(still_vulkan_open(&vulkan, gpu_device()));
  still_vulkan_buffer in = {0}, out[2] = {{0}, {0}};
  check_ok(still_vulkan_buffer_create(vulkan, &in, sizeof rows, STILL_VULKAN_DEVICE));
  check_ok(still_vulkan_write(vulkan, &in, 0, rows, sizeof rows));
  for (int i = 0; i < 2; i++)
    check_ok(still_vulkan_buffer_create(vulkan, &out[i], sizeof got[i], STILL_VULKAN_DEVICE));
  const attention_push push = {.kv_heads = HEADS, .rows = ROWS, .start = 0, .count = USED};
  const uint32_t constants[STILL_VULKAN_CONSTANTS] = {D, 0};
  still_vulkan_dispatch dispatch = {.buffers = {&in, &in, &out[0], &out[1]},
                                    .writes = 1 << 2 | 1 << 3,
                                    .push = &push,
                                    .push_bytes = sizeof push,
                                    .groups = {3, HEADS, 1}};
  check_ok(
      still_vulkan_pipeline_get(vulkan, STILL_SHADER_tiles_f16, constants, &dispatch.pipeline));
  check_ok(still_vulkan_run(vulkan, &dispatch));
  for (int i = 0; i < 2; i++)
    check_ok(still_vulkan_read(vulkan, &out[i], 0, got[i], sizeof got[i]));
  for (int h = 0; h < HEADS; h++)
    for (int at = 0; at < 4 * D * 16; at++) { /* the four blocks that 37 rows need */
      const int e = at % 8, i = at / 8 % 32, tile = at / 256 % (D / 16), b = at / 256 / (D / 16);
      const int major = i / 4 + 8 * (e / 4), minor = 2 * (i % 4) + e % 2 + 8 * (e / 2 % 2);
      const int dim_k = 4 * (i % 4) + e % 4, dim_v = major % 8 / 2 * 4 + major / 8 * 2 + major % 2;
      const int row_k = 16 * b + major, row_v = 16 * b + minor;
      assert_int_equal(got[0][h][b][tile][i][e],
                       row_k < USED ? rows[h][row_k][16 * tile + dim_k] : 0);
      assert_int_equal(got[1][h][b][tile][i][e],
                       row_v < USED ? rows[h][row_v][16 * tile + dim_v] : 0);
    }
  still_vulkan_discard(vulkan, &in);
  for (int i = 0; i < 2; i++) still_vulkan_discard(vulkan, &out[i]);
  check_ok(still_vulkan_finish(vulkan));
  still_vulkan_close(vulkan);
}

/* Scores that are no numbers (inputs that overflow f16) take no more room than others. */
static void route_keeps_to_its_room(void **state) {
  (void)state;
  enum { C = 64, D = 64, KEEP = 16 };
  static float scores[C], mask[C];
  static uint32_t positions[C];
  for (int i = 0; i < C; i++) scores[i] = i % 3 ? NAN : 1;
  still_vulkan *vulkan;
  check_ok(still_vulkan_open(&vulkan, gpu_device()));
  still_vulkan_buffer buffers[5] = {{0}}; /* scores, keys and values, kept ones, positions, mask */
  const size_t bytes[5] = {sizeof scores, C * D * 2, C * D * 2, sizeof positions, sizeof mask};
  for (int i = 0; i < 5; i++) {
    check_ok(still_vulkan_buffer_create(vulkan, &buffers[i], bytes[i], STILL_VULKAN_DEVICE));
    check_ok(still_vulkan_zero(vulkan, &buffers[i]));
  }
  check_ok(still_vulkan_write(vulkan, &buffers[0], 0, scores, sizeof scores));
  const attention_push push = {.heads = 1,
                               .kv_heads = 1,
                               .route_heads = 1,
                               .count = C,
                               .rows = C,
                               .chunk = C,
                               .keep = KEEP,
                               .cap = KEEP,
                               .kept_rows = KEEP,
                               .route_count = 1};
  const uint32_t constants[STILL_VULKAN_CONSTANTS] = {D, C};
  still_vulkan_dispatch dispatch = {.buffers = {&buffers[0], &buffers[1], &buffers[1], &buffers[2],
                                                &buffers[2], &buffers[3], &buffers[4]},
                                    .writes = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6,
                                    .push = &push,
                                    .push_bytes = sizeof push,
                                    .groups = {1, 1, 1}};
  check_ok(
      still_vulkan_pipeline_get(vulkan, STILL_SHADER_route_f16, constants, &dispatch.pipeline));
  check_ok(still_vulkan_run(vulkan, &dispatch));
  check_ok(still_vulkan_read(vulkan, &buffers[3], 0, positions, sizeof positions));
  check_ok(still_vulkan_read(vulkan, &buffers[4], 0, mask, sizeof mask));
  int kept = 0;
  for (int i = 0; i < C; i++) {
    kept += mask[i] == 0;
    assert_int_equal(positions[i], i < KEEP ? 3 * i : 0); /* the numbers come first */
  }
  assert_int_equal(kept, KEEP);
  for (int i = 0; i < 5; i++) still_vulkan_discard(vulkan, &buffers[i]);
  check_ok(still_vulkan_finish(vulkan));
  still_vulkan_close(vulkan);
}

int main(void) {
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  still_attention_plan *plan;
  o.heads = 1;
  o.head_dim = 64;
  o.device = gpu_device();
  o.cache_type = STILL_F16;
  if (still_attention_plan_create(&plan, &o, NULL)) {
    printf("skipped: %s\n", still_last_error());
    return 77;
  }
  still_attention_plan_destroy(plan);
#ifdef EMULATED
  const struct CMUnitTest tests[] = {cmocka_unit_test(matrices_are_pretended),
                                     cmocka_unit_test(products),
                                     cmocka_unit_test(heads_of_64),
                                     cmocka_unit_test(large_logits),
                                     cmocka_unit_test(options_of_64),
                                     cmocka_unit_test(heads_of_128),
                                     cmocka_unit_test(long_segments),
                                     cmocka_unit_test(tiles_hold_the_rows),
                                     cmocka_unit_test(route_keeps_to_its_room),
                                     cmocka_unit_test(matrices_were_used)};
#else
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(heads_of_64),         cmocka_unit_test(large_logits),
      cmocka_unit_test(options_of_64),       cmocka_unit_test(heads_of_128),
      cmocka_unit_test(tiles_hold_the_rows), cmocka_unit_test(route_keeps_to_its_room)};
#endif
  return gpu_run_tests(tests, CHECK_COUNT(tests));
}
