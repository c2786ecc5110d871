/* SPDX-License-Identifier: MIT */
#include "backend/vulkan/vulkan_check.h"

#include "backend/vulkan/vulkan_backend.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>

static unsigned pretended_wrong;

void still_vulkan_pretend_wrong(unsigned features) {
  pretended_wrong = features;
}

static void fill_normal(float *x, size_t count, uint64_t seed) {
  still_random random;
  still_random_seed(&random, seed);
  for (size_t i = 0; i < count; i++) x[i] = (float)still_random_normal(&random);
}

/* Largest difference over the largest value, by rows; infinity for values that are no numbers. */
static double error_of(const float *got, const float *want, size_t rows, size_t columns) {
  double worst = 0;
  for (size_t r = 0; r < rows; r++, got += columns, want += columns) {
    double largest = 1e-30, error = 0;
    for (size_t c = 0; c < columns; c++) {
      if (!isfinite(got[c])) return INFINITY;
      largest = fmax(largest, fabs((double)want[c]));
      error = fmax(error, fabs((double)got[c] - (double)want[c]));
    }
    worst = fmax(worst, error / largest);
  }
  return worst;
}

/* ---- attention ---------------------------------------------------------------------------------------------- */

enum { HEADS = 2 };

/* Two query heads of one key/value head and a few chunks, token-major. */
typedef struct problem {
  still_attention_plan *plan;
  size_t n, dim;
  float *q, *k, *v, *gate, *map, *want, *got;
} problem;

static void destroy_problem(problem *p) {
  still_attention_plan_destroy(p->plan);
  still_free(p->q); /* all arrays are one block */
}

static still_status create_problem(problem *p, const still_attention_plan *like,
                                   still_metric metric) {
  still_attention_options o = like->options;
  const bool still = o.kind == STILL_ATTENTION_STILL;
  p->dim = (size_t)o.head_dim;
  p->n = still ? 3 * (size_t)o.chunk + 5 : STILL_TILE + 9;
  const size_t row = HEADS * p->dim, map = HEADS * p->dim * p->dim;
  STILL_TRY(STILL_ALLOC(&p->q, p->n * (4 * row + 2 * p->dim) + map, "self-check"));
  p->k = p->q + p->n * row;
  p->v = p->k + p->n * p->dim;
  p->gate = p->v + p->n * p->dim;
  p->want = p->gate + p->n * row;
  p->got = p->want + p->n * row;
  p->map = p->got + p->n * row;
  fill_normal(p->q, p->n * (row + 2 * p->dim), 1);
  fill_normal(p->map, map, 2);
  for (size_t i = 0; i < p->n * row; i++) p->gate[i] = (float)(i % 7) / 7;
  for (size_t i = 0; i < map; i++) p->map[i] /= sqrtf((float)p->dim);
  o.heads = HEADS;
  o.kv_heads = 1;
  o.device = NULL;
  o.cache_type = STILL_F32;
  o.context = (int)p->n;
  o.threads = 1;
  o.metric = metric;
  o.schedule = STILL_SCHEDULE_FIXED;
  o.keep = o.chunk / 4;
  o.budget = 0;
  if (o.window > STILL_TILE / 2) o.window = STILL_TILE / 2; /* tokens have to leave it */
  still_attention_weights w = STILL_ATTENTION_WEIGHTS_INIT;
  w.feature_q = w.feature_k = p->map;
  const bool maps = o.kind != STILL_ATTENTION_FULL && o.kind != STILL_ATTENTION_SWA &&
                    o.kind != STILL_ATTENTION_LIGER_GLA;
  return still_attention_plan_create(&p->plan, &o, maps ? &w : NULL);
}

/* Outputs into p->want, or with `scores` these alone, (HEADS, n). */
static still_status run_on_cpu(problem *p, bool scores) {
  still_attention_cache *cache;
  STILL_TRY(still_attention_cache_create(&cache, p->plan));
  still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
  in.q = (still_rows){p->q, p->dim, HEADS * p->dim};
  in.k = (still_rows){p->k, p->dim, p->dim};
  in.v = (still_rows){p->v, p->dim, p->dim};
  in.gate = (still_rows){p->gate, p->dim, HEADS * p->dim};
  in.q_raw = in.q;
  in.k_raw = in.k;
  in.scores = scores ? p->want : NULL;
  float *y = scores ? p->got : p->want;
  const still_status status =
      still_attention_forward(p->plan, cache, p->n, &in, y, p->dim, HEADS * p->dim);
  still_attention_cache_destroy(cache);
  return status;
}

static still_status upload(still_vulkan *vulkan, still_vulkan_buffer *buffer, const float *data,
                           size_t count) {
  STILL_TRY(still_vulkan_buffer_create(vulkan, buffer, count * sizeof *data, STILL_VULKAN_DEVICE));
  return still_vulkan_write(vulkan, buffer, 0, data, count * sizeof *data);
}

typedef struct device_rows {
  still_vulkan_buffer q, k, v, gate, out;
  still_vulkan_attention *attention;
} device_rows;

/* The same into p->got. */
static still_status run_rows(still_vulkan *vulkan, problem *p, device_rows *d, bool scores) {
  const size_t row = HEADS * p->dim;
  STILL_TRY(still_vulkan_attention_create_unchecked(&d->attention, vulkan, p->plan));
  STILL_TRY(upload(vulkan, &d->q, p->q, p->n * row));
  STILL_TRY(upload(vulkan, &d->k, p->k, p->n * p->dim));
  STILL_TRY(upload(vulkan, &d->v, p->v, p->n * p->dim));
  STILL_TRY(upload(vulkan, &d->gate, p->gate, p->n * row));
  STILL_TRY(upload(vulkan, &d->out, p->want, p->n * row));
  const still_vulkan_rows rows = {&d->q, &d->k, &d->v, &d->gate, &d->out, &d->q, &d->k};
  STILL_TRY(still_vulkan_zero(vulkan, &d->out));
  if (scores) return still_vulkan_attention_forward(d->attention, &rows, p->n, p->got);
  STILL_TRY(still_vulkan_attention_forward(d->attention, &rows, p->n - 1, NULL));
  /* the last token by the decode shaders: its rows come first in arrays of their own */
  STILL_TRY(still_vulkan_read(vulkan, &d->out, 0, p->got, (p->n - 1) * row * sizeof(float)));
  STILL_TRY(still_vulkan_write(vulkan, &d->q, 0, p->q + (p->n - 1) * row, row * sizeof(float)));
  STILL_TRY(
      still_vulkan_write(vulkan, &d->k, 0, p->k + (p->n - 1) * p->dim, p->dim * sizeof(float)));
  STILL_TRY(
      still_vulkan_write(vulkan, &d->v, 0, p->v + (p->n - 1) * p->dim, p->dim * sizeof(float)));
  STILL_TRY(
      still_vulkan_write(vulkan, &d->gate, 0, p->gate + (p->n - 1) * row, row * sizeof(float)));
  STILL_TRY(still_vulkan_attention_forward(d->attention, &rows, 1, NULL));
  return still_vulkan_read(vulkan, &d->out, 0, p->got + (p->n - 1) * row, row * sizeof(float));
}

static still_status run_on_device(still_vulkan *vulkan, problem *p, bool scores) {
  device_rows d = {0};
  const still_status status = run_rows(vulkan, p, &d, scores);
  still_vulkan_attention_destroy(d.attention);
  still_vulkan_buffer *buffers[] = {&d.q, &d.k, &d.v, &d.gate, &d.out};
  for (int i = 0; i < 5; i++) still_vulkan_discard(vulkan, buffers[i]);
  return status;
}

/* Subgroup variants are part of whatever is checked. */
static unsigned subgroups_of(const still_vulkan *vulkan) {
  return vulkan->features & STILL_VULKAN_SUBGROUP;
}

static bool was_checked(const still_vulkan *vulkan, uint64_t key) {
  for (uint32_t i = 0; i < vulkan->checked_count; i++)
    if (vulkan->checked[i] == key) return true;
  return false;
}

static void note_checked(still_vulkan *vulkan, uint64_t key) {
  if (vulkan->checked_count < STILL_VULKAN_CHECKS) vulkan->checked[vulkan->checked_count++] = key;
}

/* The features that the shaders for this plan need, as the device stands. */
static unsigned features_of(const still_vulkan *vulkan, const still_attention_plan *plan) {
  if (plan->options.cache_type != STILL_F16) return STILL_VULKAN_F32;
  return still_vulkan_fits_coopmat(vulkan, &plan->options) ? STILL_VULKAN_COOPMAT
                                                           : STILL_VULKAN_F16;
}

static still_status compare_as(still_vulkan *vulkan, const still_attention_plan *plan,
                               still_metric metric, bool scores, double *error) {
  problem p = {0};
  still_status status = create_problem(&p, plan, metric);
  if (!status) status = run_on_cpu(&p, scores);
  if (!status) { /* the same plan with the cache in the type that is checked */
    p.plan->options.cache_type = plan->options.cache_type;
    status = run_on_device(vulkan, &p, scores);
  }
  if (!status)
    *error =
        scores ? error_of(p.got, p.want, HEADS, p.n) : error_of(p.got, p.want, p.n, HEADS * p.dim);
  destroy_problem(&p);
  return status;
}

/* Outputs with a choice that does not hang on rounding; and where there is a choice, what it is made by. */
static still_status compare(still_vulkan *vulkan, const still_attention_plan *plan, double *error) {
  double scores_error = 0;
  STILL_TRY(compare_as(vulkan, plan, STILL_METRIC_UNIFORM, false, error));
  if (plan->options.kind == STILL_ATTENTION_STILL && plan->options.metric != STILL_METRIC_UNIFORM)
    STILL_TRY(compare_as(vulkan, plan, plan->options.metric, true, &scores_error));
  *error = fmax(*error, scores_error);
  return STILL_OK;
}

static uint64_t check_key(const still_attention_plan *plan, unsigned feature) {
  const still_attention_options *o = &plan->options;
  const bool still = o->kind == STILL_ATTENTION_STILL;
  return 1 + still_hash64((uint64_t)o->kind ^ (still ? (uint64_t)o->metric << 16 : 0) ^
                          still_hash64((uint64_t)o->head_dim) ^
                          still_hash64(still_hash64(still ? (uint64_t)o->chunk : 0)) ^
                          (uint64_t)feature << 8);
}

/* Switches the least important of the variants that were in use off; false if only plain f32 was. */
static bool retreat(still_vulkan *vulkan, unsigned feature, const char *reason) {
  const unsigned off = feature == STILL_VULKAN_COOPMAT ? feature
                       : subgroups_of(vulkan)          ? STILL_VULKAN_SUBGROUP
                                                       : 0;
  if (off) still_vulkan_switch_off(vulkan, off, reason);
  return off;
}

still_status still_vulkan_check_attention(still_vulkan *vulkan, const still_attention_plan *plan) {
  for (;;) {
    const unsigned feature = features_of(vulkan, plan);
    const uint64_t key = check_key(plan, feature | subgroups_of(vulkan));
    if (was_checked(vulkan, key)) return STILL_OK;
    double error = INFINITY;
    STILL_TRY(compare(vulkan, plan, &error));
    if (pretended_wrong & (feature | subgroups_of(vulkan))) error = INFINITY;
    if (error <= (feature == STILL_VULKAN_F32 ? 1e-3 : 2e-2)) {
      note_checked(vulkan, key);
      return STILL_OK;
    }
    char reason[96];
    snprintf(reason, sizeof reason, "attention '%s' with heads of %d differs from the CPU's by %g",
             still_attention_kind_name(plan->options.kind), plan->options.head_dim, error);
    if (retreat(vulkan, feature, reason)) continue;
    if (feature == STILL_VULKAN_F16) still_vulkan_switch_off(vulkan, feature, reason);
    return still_fail(STILL_ERROR_UNSUPPORTED, "%s: %s", vulkan->name, reason);
  }
}

/* ---- the dense part ------------------------------------------------------------------------------------------- */

enum { DENSE_ROWS = 5, DENSE_HEADS = 2, DENSE_DIM = 36, DENSE = DENSE_HEADS * DENSE_DIM };

/* Every operation but products, one behind the other, on any backend: out (3, DENSE_ROWS, DENSE). */
typedef struct dense {
  still_weight *matrix, *vector, *frequencies;
  still_buffer *x, *y, *z;
} dense;

static still_status make_weight(still_backend *backend, const float *data, uint64_t rows,
                                uint64_t columns, still_weight **weight) {
  const still_tensor tensor = {.name = "self-check",
                               .type = STILL_TENSOR_F32,
                               .dimensions = rows ? 2 : 1,
                               .shape = {rows ? rows : columns, columns},
                               .data = data,
                               .bytes = (rows ? rows : 1) * columns * sizeof *data};
  if (backend->ops->weight_create != still_vulkan_weight_create)
    return backend->ops->weight_create(backend, &tensor, weight);
  return still_vulkan_weight_create_unchecked(backend, &tensor, weight);
}

static still_status run_dense(still_backend *backend, dense *d, const float *numbers, float *out) {
  const still_backend_ops *ops = backend->ops;
  const size_t n = DENSE_ROWS, floats = n * DENSE;
  static const int32_t ids[DENSE_ROWS] = {3, 0, 4, 4, 1};
  STILL_TRY(make_weight(backend, numbers, DENSE_ROWS, DENSE, &d->matrix));
  STILL_TRY(make_weight(backend, numbers + floats, 0, DENSE, &d->vector));
  STILL_TRY(make_weight(backend, numbers + floats + DENSE, 0, DENSE_DIM / 2, &d->frequencies));
  STILL_TRY(ops->buffer_create(backend, floats, &d->x));
  STILL_TRY(ops->buffer_create(backend, floats, &d->y));
  STILL_TRY(ops->buffer_create(backend, floats, &d->z));
  STILL_TRY(ops->embed(backend, d->x, d->matrix, ids, n));
  STILL_TRY(ops->rms_norm(backend, d->y, d->x, d->vector, 1e-5f, n, DENSE));
  STILL_TRY(ops->add_vector(backend, d->y, d->vector, n, DENSE));
  STILL_TRY(ops->swiglu(backend, d->z, d->y, d->x, floats));
  STILL_TRY(ops->add(backend, d->y, d->x, floats));
  STILL_TRY(ops->scale(backend, d->y, 0.25f, floats));
  STILL_TRY(ops->copy_rows(backend, d->x, d->z, 1, n - 1, DENSE));
  STILL_TRY(ops->sigmoid(backend, d->x, (n - 1) * DENSE));
  STILL_TRY(ops->rotary(backend, d->y, d->frequencies, 1.25f, 7, n, DENSE_HEADS, DENSE_DIM,
                        DENSE_DIM / 2));
  STILL_TRY(ops->buffer_read(backend, d->x, 0, out, floats));
  STILL_TRY(ops->buffer_read(backend, d->y, 0, out + floats, floats));
  return ops->buffer_read(backend, d->z, 0, out + 2 * floats, floats);
}

static still_status dense_results(still_backend *backend, const float *numbers, float *out) {
  dense d = {0};
  const still_status status = run_dense(backend, &d, numbers, out);
  const still_backend_ops *ops = backend->ops;
  ops->buffer_destroy(backend, d.z);
  ops->buffer_destroy(backend, d.y);
  ops->buffer_destroy(backend, d.x);
  ops->weight_destroy(backend, d.frequencies);
  ops->weight_destroy(backend, d.vector);
  ops->weight_destroy(backend, d.matrix);
  return status;
}

typedef struct dense_problem {
  float numbers[(DENSE_ROWS + 2) * DENSE], want[3 * DENSE_ROWS * DENSE],
      got[3 * DENSE_ROWS * DENSE];
} dense_problem;

static still_status compare_dense(still_backend *backend, dense_problem *p, double *error) {
  still_backend *cpu;
  fill_normal(p->numbers, (DENSE_ROWS + 2) * DENSE, 5);
  STILL_TRY(still_backend_cpu_create(&cpu, 1));
  still_status status = dense_results(cpu, p->numbers, p->want);
  still_backend_destroy(cpu);
  if (!status) status = dense_results(backend, p->numbers, p->got);
  if (!status) *error = error_of(p->got, p->want, 3 * DENSE_ROWS, DENSE);
  return status;
}

static still_status check_dense(still_backend *backend, dense_problem *p) {
  still_vulkan *vulkan = still_vulkan_of(backend)->vulkan;
  for (;;) {
    const uint64_t key = 1 + still_hash64(0x64656e7365u + subgroups_of(vulkan));
    if (was_checked(vulkan, key)) return STILL_OK;
    double error = INFINITY;
    STILL_TRY(compare_dense(backend, p, &error));
    if (pretended_wrong & subgroups_of(vulkan)) error = INFINITY;
    if (error <= 1e-4) {
      note_checked(vulkan, key);
      return STILL_OK;
    }
    char reason[96];
    snprintf(reason, sizeof reason, "dense operations differ from the CPU's by %g", error);
    if (!retreat(vulkan, STILL_VULKAN_F32, reason))
      return still_fail(STILL_ERROR_DEVICE, "%s: %s", vulkan->name, reason);
  }
}

still_status still_vulkan_check_dense(still_backend *backend) {
  dense_problem *p;
  STILL_TRY(STILL_ALLOC(&p, 1, "self-check"));
  const still_status status = check_dense(backend, p);
  still_free(p);
  return status;
}

/* ---- products ------------------------------------------------------------------------------------------------- */

enum { ROWS = 132, COLUMNS = 128, INPUTS = 72 }; /* a subgroup's 64 x 64 by matrices, and edges */

/* Through the backend's own table, twice: what is there is to be replaced, then added to. */
static still_status multiply(still_backend *backend, const still_tensor *tensor, const float *in,
                             size_t n, float *got) {
  still_weight *weight = NULL;
  still_buffer *x = NULL, *y = NULL;
  still_status status = still_vulkan_weight_create_unchecked(backend, tensor, &weight);
  if (!status) status = backend->ops->buffer_create(backend, n * COLUMNS, &x);
  if (!status) status = backend->ops->buffer_create(backend, n * ROWS, &y);
  if (!status) status = backend->ops->buffer_write(backend, x, 0, in, n * COLUMNS);
  if (!status) status = backend->ops->matmul(backend, y, weight, x, n, 0);
  if (!status) status = backend->ops->matmul(backend, y, weight, x, n, 1);
  if (!status) status = backend->ops->buffer_read(backend, y, 0, got, n * ROWS);
  backend->ops->buffer_destroy(backend, y);
  backend->ops->buffer_destroy(backend, x);
  still_vulkan_weight_destroy(backend, weight);
  return status;
}

typedef struct product {
  float weights[ROWS * COLUMNS], in[INPUTS * COLUMNS], want[INPUTS * ROWS], got[INPUTS * ROWS];
  uint8_t stored[ROWS * COLUMNS * sizeof(float)];
} product;

static still_status compare_products(still_backend *backend, product *p, still_tensor_type type,
                                     double errors[3]) {
  fill_normal(p->weights, ROWS * COLUMNS, 3);
  fill_normal(p->in, INPUTS * COLUMNS, 4);
  still_tensor tensor = {.name = "self-check",
                         .type = type,
                         .dimensions = 2,
                         .shape = {ROWS, COLUMNS},
                         .data = p->stored};
  uint64_t items;
  STILL_TRY(still_tensor_bytes(tensor.name, type, 2, tensor.shape, &items, &tensor.bytes));
  still_type_from_f32(type)(p->stored, p->weights, ROWS * COLUMNS);
  STILL_TRY(still_tensor_to_f32(&tensor, 0, ROWS * COLUMNS, p->weights));
  for (size_t i = 0; i < INPUTS; i++)
    for (size_t r = 0; r < ROWS; r++) {
      double sum = 0;
      for (size_t c = 0; c < COLUMNS; c++)
        sum += (double)p->in[i * COLUMNS + c] * (double)p->weights[r * COLUMNS + c];
      p->want[i * ROWS + r] = (float)(2 * sum);
    }
  static const size_t counts[] = {1, STILL_MATVEC_ROWS + 3, INPUTS}; /* vectors, tiles, matrices */
  for (int i = 0; i < 3; i++) {
    STILL_TRY(multiply(backend, &tensor, p->in, counts[i], p->got));
    errors[i] = error_of(p->got, p->want, counts[i], ROWS);
  }
  return STILL_OK;
}

still_status still_vulkan_check_weights(still_backend *backend, still_tensor_type type) {
  still_vulkan *vulkan = still_vulkan_of(backend)->vulkan;
  const uint64_t key = 1 + still_hash64(0x77656967687473u + (uint64_t)type);
  if (was_checked(vulkan, key)) return STILL_OK;
  product *p;
  double errors[3];
  STILL_TRY(STILL_ALLOC(&p, 1, "self-check"));
  still_status status = compare_products(backend, p, type, errors);
  if (!status && vulkan->features & STILL_VULKAN_COOPMAT && errors[2] > 5e-3) {
    still_vulkan_switch_off(vulkan, STILL_VULKAN_COOPMAT, "products differ from the CPU's");
    status = compare_products(backend, p, type, errors);
  }
  still_free(p);
  STILL_TRY(status);
  const double bound = vulkan->features & STILL_VULKAN_COOPMAT ? 5e-3 : 1e-3;
  if (!(errors[0] <= 1e-3 && errors[1] <= 1e-3 && errors[2] <= bound))
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "%s: products with weights of type %s differ from the CPU's by %g, %g, %g",
                      vulkan->name, still_type_traits_get(type)->name, errors[0], errors[1],
                      errors[2]);
  note_checked(vulkan, key);
  return STILL_OK;
}
