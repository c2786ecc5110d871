/* SPDX-License-Identifier: MIT
 *
 * bench_vulkan_stages [-dev vulkan:N] [--heads H] [--kv-heads G] [--dim D] [--quick]
 *
 * Times of attention and of a model's matrix products on a GPU, by the device's own clock: whole calls (medians), then each
 * shader with its rate, against limits measured in the same run (copy, multiply-add, cooperative matrices). Lines begin with
 * a word that says what they hold; "result NAME VALUE" lines are for scripts. Inputs lie on the device; C = 64, m = 896 (1088 where marked).
 */
#include "backend/vulkan/vulkan_backend.h"
#include "base/memory.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double WARM_SECONDS = 0.3;
enum { MOST_TOKENS = 65536, MADE_TOKENS = 2048, REPEATS = 5, STEPS = 64 };

typedef struct bench {
  still_vulkan *vulkan;
  const char *device;
  int heads, kv_heads, dim;
  size_t most_tokens;
  still_vulkan_buffer q, k, v, gate, out;
  double copy_bytes, fma_flops, coopmat_flops; /* per second */
} bench;

static void check(still_status status, const char *what) {
  if (!status) return;
  fprintf(stderr, "%s: %s\n", what, still_last_error());
  exit(1);
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  return values[count / 2];
}

/* ---- limits ------------------------------------------------------------------------------------------------- */

static double time_of(bench *b, const still_vulkan_dispatch *dispatch) {
  double times[REPEATS];
  for (int i = 0; i < REPEATS; i++) {
    check(still_vulkan_finish(b->vulkan), "finish");
    still_vulkan_timer_clear(b->vulkan);
    check(still_vulkan_run(b->vulkan, dispatch), "run");
    check(still_vulkan_finish(b->vulkan), "finish");
    times[i] = still_vulkan_timer_span(b->vulkan);
  }
  return median(times, REPEATS);
}

static const still_vulkan_pipeline *pipeline(bench *b, still_shader shader) {
  const uint32_t constants[STILL_VULKAN_CONSTANTS] = {0};
  const still_vulkan_pipeline *made;
  check(still_vulkan_pipeline_get(b->vulkan, shader, constants, &made), "pipeline");
  return made;
}

static void measure_limits(bench *b) {
  dense_push push = {.n = (uint32_t)(b->q.bytes / 16), .factor = 0.5f};
  still_vulkan_dispatch dispatch = {.pipeline = pipeline(b, STILL_SHADER_probe_copy_f32),
                                    .buffers = {&b->q, &b->out},
                                    .writes = 2,
                                    .push = &push,
                                    .push_bytes = sizeof push,
                                    .groups = {32768, push.n / STILL_GROUP / 32768 + 1, 1},
                                    .work = 1e9};
  b->copy_bytes = 2 * (double)b->q.bytes / time_of(b, &dispatch);
  push.n = 2048;
  const uint32_t groups =
      b->vulkan->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ? 16 : 8192;
  dispatch = (still_vulkan_dispatch){.pipeline = pipeline(b, STILL_SHADER_probe_fma_f32),
                                     .buffers = {&b->out},
                                     .writes = 1,
                                     .push = &push,
                                     .push_bytes = sizeof push,
                                     .groups = {groups, 1, 1}};
  b->fma_flops = 2.0 * 64 * push.n * STILL_GROUP * groups / time_of(b, &dispatch);
  if (b->vulkan->features & STILL_VULKAN_COOPMAT) {
    push.n = 4096;
    dispatch.pipeline = pipeline(b, STILL_SHADER_probe_coopmat_f16);
    dispatch.buffers[0] = &b->q;
    dispatch.buffers[1] = &b->out;
    dispatch.writes = 2;
    b->coopmat_flops = 8.0 * 8192 * push.n * (STILL_GROUP / 32) * groups / time_of(b, &dispatch);
  }
  printf("limit copy %.4g GB/s, multiply-add %.4g TFLOP/s, cooperative matrices %.4g TFLOP/s\n",
         b->copy_bytes / 1e9, b->fma_flops / 1e12, b->coopmat_flops / 1e12);
}

/* ---- inputs ------------------------------------------------------------------------------------------------- */

/* MADE_TOKENS random rows, again and again. */
static void fill(bench *b, still_vulkan_buffer *buffer, int heads, uint64_t seed, bool gate) {
  const size_t count = (size_t)MADE_TOKENS * (size_t)heads * (size_t)b->dim;
  const size_t bytes = b->most_tokens * (size_t)heads * (size_t)b->dim * sizeof(float);
  float *rows;
  still_random random;
  check(STILL_ALLOC(&rows, count, "inputs"), "inputs");
  still_random_seed(&random, seed);
  for (size_t i = 0; i < count; i++) {
    float sum = -2; /* four uniform numbers make something near enough to normal */
    for (int j = 0; j < 4; j++) sum += still_random_float(&random);
    rows[i] = gate ? 0.5f + 0.2f * sum : 1.7f * sum;
  }
  check(still_vulkan_buffer_create(b->vulkan, buffer, bytes, STILL_VULKAN_DEVICE), "inputs");
  for (size_t at = 0; at < bytes; at += count * sizeof *rows) {
    const size_t left = bytes - at, piece = count * sizeof *rows;
    check(still_vulkan_write(b->vulkan, buffer, at, rows, left < piece ? left : piece), "inputs");
  }
  check(still_vulkan_finish(b->vulkan), "inputs");
  still_free(rows);
}

static void make_inputs(bench *b) {
  fill(b, &b->q, b->heads, 1, false);
  fill(b, &b->k, b->kv_heads, 2, false);
  fill(b, &b->v, b->kv_heads, 3, false);
  fill(b, &b->gate, b->heads, 4, true);
  const size_t bytes = b->most_tokens * (size_t)b->heads * (size_t)b->dim * sizeof(float);
  check(still_vulkan_buffer_create(b->vulkan, &b->out, bytes, STILL_VULKAN_DEVICE), "outputs");
}

static void free_inputs(bench *b) {
  still_vulkan_buffer *all[] = {&b->q, &b->k, &b->v, &b->gate, &b->out};
  for (int i = 0; i < 5; i++) still_vulkan_discard(b->vulkan, all[i]);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

typedef struct layer {
  still_attention_plan *plan;
  still_vulkan_attention *attention;
} layer;

static layer make_layer(bench *b, still_attention_kind kind, still_dtype type, int budget,
                        size_t tokens) {
  layer l;
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.kind = kind;
  o.heads = b->heads;
  o.kv_heads = b->kv_heads;
  o.head_dim = b->dim;
  o.budget = budget;
  o.context = (int)tokens;
  o.cache_type = type;
  const size_t size = (size_t)b->heads * (size_t)b->dim * (size_t)b->dim;
  float *map;
  check(STILL_ALLOC(&map, size, "feature map"), "feature map");
  for (size_t i = 0; i < size; i++)
    map[i] = i / (size_t)b->dim % (size_t)b->dim == i % (size_t)b->dim;
  still_attention_weights w = STILL_ATTENTION_WEIGHTS_INIT;
  w.feature_q = w.feature_k = map;
  check(still_attention_plan_create(&l.plan, &o, kind == STILL_ATTENTION_STILL ? &w : NULL),
        "plan");
  still_free(map);
  check(still_vulkan_attention_create(&l.attention, b->vulkan, l.plan), "cache");
  return l;
}

static void free_layer(layer *l) {
  still_vulkan_attention_destroy(l->attention);
  still_attention_plan_destroy(l->plan);
}

static void forward(bench *b, layer *l, size_t n) {
  const still_vulkan_rows rows = {
      .q = &b->q, .k = &b->k, .v = &b->v, .gate = &b->gate, .out = &b->out};
  check(still_vulkan_attention_forward(l->attention, &rows, n, NULL), "forward");
}

/* Useful operations of STILL (what its definition needs; tiles do more): features, local logits and values, kept, linear. */
static double useful_flops(const bench *b, const layer *l, size_t n) {
  const double dim = b->dim, chunk = l->plan->options.chunk;
  double sum = 0;
  for (size_t c = 0; c * (size_t)chunk < n; c++) {
    const double visible = (double)still_kept_after(l->plan, c ? (int64_t)c - 1 : 0);
    sum +=
        chunk * (4 * dim * dim + 4 * dim * (1.5 * chunk + 0.5) + 4 * dim * visible + 8 * dim * dim);
  }
  return sum * b->heads;
}

static double time_once(bench *b, layer *l, size_t n) {
  check(still_vulkan_attention_reset(l->attention), "reset");
  check(still_vulkan_finish(b->vulkan), "finish");
  still_vulkan_timer_clear(b->vulkan);
  forward(b, l, n);
  check(still_vulkan_finish(b->vulkan), "finish");
  return still_vulkan_timer_span(b->vulkan);
}

static double time_prefill(bench *b, layer *l, size_t n) {
  double times[REPEATS], warm = 0;
  /* Warm-ups teach the block size and bring an idle device's clock up. */
  for (int i = 0; i < 2 || (warm < WARM_SECONDS && i < 200); i++) warm += time_once(b, l, n);
  for (int i = 0; i < REPEATS; i++) times[i] = time_once(b, l, n);
  return median(times, REPEATS);
}

static void print_stages(bench *b, layer *l, size_t n) {
  check(still_vulkan_attention_reset(l->attention), "reset");
  check(still_vulkan_finish(b->vulkan), "finish");
  still_vulkan_timer_clear(b->vulkan);
  b->vulkan->timer.profiling = true;
  forward(b, l, n);
  check(still_vulkan_finish(b->vulkan), "finish");
  b->vulkan->timer.profiling = false;
  double total = 0, routing = 0;
  const still_vulkan_timer *timer = &b->vulkan->timer;
  for (uint32_t i = 0; i < timer->count; i++) {
    total += timer->times[i].seconds;
    if (!strncmp(timer->times[i].shader, "saliency", 8) ||
        !strncmp(timer->times[i].shader, "route", 5))
      routing += timer->times[i].seconds;
  }
  for (uint32_t i = 0; i < timer->count; i++)
    printf("  stage %-28s %9.3f ms %5.1f %% %9.2f TFLOP/s %5u runs\n", timer->times[i].shader,
           1e3 * timer->times[i].seconds, 100 * timer->times[i].seconds / total,
           timer->times[i].work / timer->times[i].seconds / 1e12, (unsigned)timer->times[i].runs);
  printf("  saliency and routing: %.3f of %.3f ms\n", routing / total, 1e3 * total);
}

static double bench_prefill(bench *b, const char *name, still_attention_kind kind, still_dtype type,
                            int budget, size_t n, bool stages) {
  layer l = make_layer(b, kind, type, budget, n);
  const double seconds = time_prefill(b, &l, n);
  printf("prefill %s, %zu tokens: %.3f ms", name, n, 1e3 * seconds);
  if (kind == STILL_ATTENTION_STILL) {
    const double rate = useful_flops(b, &l, n) / seconds;
    const double roof = b->coopmat_flops > 0 && type == STILL_F16 ? b->coopmat_flops : b->fma_flops;
    printf(", %.2f useful TFLOP/s, %.3f of the peak", rate / 1e12, rate / roof);
  }
  printf("\nresult %s_%zu_ms %.4f\n", name, n, 1e3 * seconds);
  if (stages) print_stages(b, &l, n);
  free_layer(&l);
  fflush(stdout);
  return seconds;
}

/* Steps of one token behind n others, several in a submission: the time of one. The plan's context ends soon after them, so
 * that the budget is nearly used up whatever n is. */
static void bench_decode(bench *b, const char *name, still_attention_kind kind, still_dtype type,
                         int budget, size_t n) {
  layer l = make_layer(b, kind, type, budget, n + 8 * STEPS);
  forward(b, &l, n);
  double times[REPEATS];
  for (int i = -1; i < REPEATS; i++) {
    check(still_vulkan_finish(b->vulkan), "finish");
    still_vulkan_timer_clear(b->vulkan);
    for (int step = 0; step < STEPS; step++) forward(b, &l, 1);
    check(still_vulkan_finish(b->vulkan), "finish");
    if (i >= 0) times[i] = still_vulkan_timer_span(b->vulkan) / STEPS;
  }
  still_attention_usage usage;
  still_vulkan_attention_usage(l.attention, &usage);
  printf("decode %s behind %zu tokens: %.2f us a step, %.1f MB of cache\n", name, n,
         1e6 * median(times, REPEATS), (double)usage.bytes / 1e6);
  printf("result decode_%s_%zu_us %.3f\nresult cache_%s_%zu_bytes %llu\n", name, n,
         1e6 * median(times, REPEATS), name, n, (unsigned long long)usage.bytes);
  free_layer(&l);
  fflush(stdout);
}

/* ---- products --------------------------------------------------------------------------------------------------- */

/* Seconds of one run of the shader whose name begins so. */
static double stage_seconds(const bench *b, const char *begin) {
  const still_vulkan_timer *timer = &b->vulkan->timer;
  for (uint32_t i = 0; i < timer->count; i++)
    if (!strncmp(timer->times[i].shader, begin, strlen(begin)))
      return timer->times[i].seconds / (double)timer->times[i].runs;
  return 0;
}

/* A matrix of any numbers. */
static still_weight *make_matrix(still_backend *backend, still_tensor_type type, size_t rows,
                                 size_t columns) {
  still_tensor tensor = {
      .name = "product", .type = type, .dimensions = 2, .shape = {rows, columns}};
  uint64_t items;
  float *row;
  char *stored;
  check(still_tensor_bytes(tensor.name, type, 2, tensor.shape, &items, &tensor.bytes), "matrix");
  check(still_alloc((void **)&stored, 1, tensor.bytes, "matrix"), "matrix");
  check(STILL_ALLOC(&row, columns, "matrix"), "matrix");
  for (size_t r = 0; r < rows; r++) {
    for (size_t c = 0; c < columns; c++) row[c] = (float)((r * 37 + c * 11) % 129) / 64 - 1;
    still_type_from_f32(type)(stored + r * (tensor.bytes / rows), row, columns);
  }
  tensor.data = stored;
  still_weight *weight;
  check(backend->ops->weight_create(backend, &tensor, &weight), "matrix");
  still_free(row);
  still_free(stored);
  return weight;
}

/* One product of fresh activations, by shader in the timer. */
static void multiply_once(bench *b, still_backend *backend, still_buffer *y, still_weight *weight,
                          still_buffer *x, size_t n, size_t columns) {
  check(backend->ops->scale(backend, x, 1, n * columns), "activations");
  check(backend->ops->finish(backend), "finish");
  still_vulkan_timer_clear(b->vulkan);
  b->vulkan->timer.profiling = true;
  check(backend->ops->matmul(backend, y, weight, x, n, 0), "product");
  check(backend->ops->finish(backend), "finish");
  b->vulkan->timer.profiling = false;
}

/* n rows of activations by a matrix, as a model's backend does it. */
static void bench_product(bench *b, still_backend *backend, still_tensor_type type, size_t n,
                          size_t rows, size_t columns) {
  still_weight *weight = make_matrix(backend, type, rows, columns);
  still_buffer *x, *y;
  check(backend->ops->buffer_create(backend, n * columns, &x), "activations");
  check(backend->ops->buffer_create(backend, n * rows, &y), "products");
  float *numbers;
  check(STILL_ALLOC(&numbers, n * columns, "activations"), "activations");
  for (size_t i = 0; i < n * columns; i++) numbers[i] = (float)((i * 37 + i / 1021) % 129) / 64 - 1;
  check(backend->ops->buffer_write(backend, x, 0, numbers, n * columns), "activations");
  still_free(numbers);
  double times[REPEATS], warm = 0;
  for (int i = 0; i < 2 || (warm < WARM_SECONDS && i < 200); i++) {
    multiply_once(b, backend, y, weight, x, n, columns);
    warm += stage_seconds(b, "matmul");
  }
  for (int i = 0; i < REPEATS; i++) {
    multiply_once(b, backend, y, weight, x, n, columns);
    times[i] = stage_seconds(b, "matmul");
  }
  const bool tensor = b->coopmat_flops > 0 && type != STILL_TENSOR_F32;
  const double seconds = median(times, REPEATS), work = 2.0 * (double)(n * rows * columns);
  const char *name = still_type_traits_get(type)->name;
  printf("product %s, %zu x %zu x %zu: %.3f ms, %.2f TFLOP/s, %.3f of the peak; activations to f16 "
         "%.3f ms\n",
         name, n, rows, columns, 1e3 * seconds, work / seconds / 1e12,
         work / seconds / (tensor ? b->coopmat_flops : b->fma_flops),
         1e3 * stage_seconds(b, "halve"));
  printf("result product_%s_%zux%zux%zu_ms %.4f\n", name, n, rows, columns, 1e3 * seconds);
  fflush(stdout);
  backend->ops->buffer_destroy(backend, y);
  backend->ops->buffer_destroy(backend, x);
  backend->ops->weight_destroy(backend, weight);
}

static void bench_products(bench *b, bool quick) {
  still_backend *backend;
  check(still_backend_vulkan_create(&backend, b->vulkan->name, 1), "backend");
  const size_t n = quick ? 64 : 4096, width = quick ? 64 : 2048, feed = 4 * width;
  bench_product(b, backend, STILL_TENSOR_F16, n, feed, width);
  bench_product(b, backend, STILL_TENSOR_F16, n, width, feed);
  bench_product(b, backend, STILL_TENSOR_F16, n, width, width);
  bench_product(b, backend, STILL_TENSOR_F16, n, width / 4, width);
  bench_product(b, backend, STILL_TENSOR_F16, n / 8, feed, width);
  bench_product(b, backend, STILL_TENSOR_BF16, n, feed, width);
  bench_product(b, backend, STILL_TENSOR_Q8_0, n, feed, width);
  bench_product(b, backend, STILL_TENSOR_F32, n, width, width);
  still_backend_destroy(backend);
}

static void run(bench *b, bool quick) {
  const bool f16 = b->vulkan->features & STILL_VULKAN_F16;
  const size_t short_ = quick ? 512 : 16384, middle = quick ? 768 : 32768;
  const size_t long_ = quick ? 1024 : MOST_TOKENS;
  const still_attention_kind still = STILL_ATTENTION_STILL;
  measure_limits(b);
  bench_products(b, quick);
  if (f16) {
    bench_prefill(b, "still", still, STILL_F16, 896, short_, true);
    bench_prefill(b, "still", still, STILL_F16, 896, middle, false);
    bench_prefill(b, "still_m1088", still, STILL_F16, 1088, short_, false);
    bench_prefill(b, "still_m1088", still, STILL_F16, 1088, long_, true);
    bench_prefill(b, "full", STILL_ATTENTION_FULL, STILL_F16, 0, short_ / 2, true);
    bench_decode(b, "still", still, STILL_F16, 1088, short_ / 4);
    bench_decode(b, "still", still, STILL_F16, 1088, long_ - 8 * STEPS * !quick);
    bench_decode(b, "full", STILL_ATTENTION_FULL, STILL_F16, 0, long_ - 8 * STEPS * !quick);
  }
  bench_prefill(b, "still_f32", still, STILL_F32, 896, short_, true);
  bench_prefill(b, "still_f32_m1088", still, STILL_F32, 1088, long_, false);
  bench_prefill(b, "full_f32", STILL_ATTENTION_FULL, STILL_F32, 0, short_ / 2, false);
  bench_decode(b, "still_f32", still, STILL_F32, 1088, short_ / 4);
}

int main(int argc, char **argv) {
  bench b = {.device = "vulkan", .heads = 32, .kv_heads = 8, .dim = 128};
  bool quick = false;
  for (int i = 1; i < argc; i++) {
    const bool more = i + 1 < argc;
    if (!strcmp(argv[i], "-dev") && more)
      b.device = argv[++i];
    else if (!strcmp(argv[i], "--heads") && more)
      b.heads = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--kv-heads") && more)
      b.kv_heads = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--dim") && more)
      b.dim = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--quick"))
      quick = true;
    else {
      fprintf(stderr, "usage: bench_vulkan_stages [-dev vulkan:N] [--heads H] [--kv-heads G] "
                      "[--dim D] [--quick]\n");
      return 2;
    }
  }
  b.most_tokens = quick ? 4096 : MOST_TOKENS;
  if (still_vulkan_open(&b.vulkan, b.device)) {
    printf("skipped: %s\n", still_last_error());
    return 77;
  }
  printf("device %s: %s\n", b.vulkan->name, b.vulkan->properties.deviceName);
  make_inputs(&b);
  run(&b, quick);
  printf("result longest_submission_ms %.1f\n", 1e3 * b.vulkan->commands.longest_seconds);
  free_inputs(&b);
  still_vulkan_close(b.vulkan);
  return 0;
}
