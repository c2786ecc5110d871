/* SPDX-License-Identifier: MIT
 * The dense part of a model: one shader run for each operation, or one for each part of a large matrix. */
#include "backend/vulkan/vulkan_backend.h"
#include "base/memory.h"

#include <math.h>

/* Groups of the shaders that stride over their items. */
enum { MOST_GROUPS = 4096 };

typedef struct run_of {
  still_vulkan *vulkan;
  still_shader shader;
  uint32_t constant; /* specialisation constant 0 */
  const still_vulkan_buffer *buffers[3];
  unsigned writes;
  dense_push push;
  uint32_t groups[2];
  double work, gain;
} run_of;

static still_status run(const run_of *r) {
  const uint32_t constants[STILL_VULKAN_CONSTANTS] = {r->constant};
  still_vulkan_dispatch dispatch = {.writes = r->writes,
                                    .push = &r->push,
                                    .push_bytes = sizeof r->push,
                                    .groups = {r->groups[0], r->groups[1] ? r->groups[1] : 1, 1},
                                    .work = r->work,
                                    .gain = r->gain};
  /* Buffers of the table's const arguments are only read; their last use is noted all the same. */
  for (int i = 0; i < 3; i++) dispatch.buffers[i] = (still_vulkan_buffer *)r->buffers[i];
  STILL_TRY(still_vulkan_pipeline_get(r->vulkan, r->shader, constants, &dispatch.pipeline));
  return still_vulkan_run(r->vulkan, &dispatch);
}

static still_status run_locked(const run_of *r) {
  still_status status;
  STILL_VULKAN_LOCKED(r->vulkan, status, run(r));
  return status;
}

static uint32_t groups_for(size_t items) {
  const size_t groups = (items + STILL_GROUP - 1) / STILL_GROUP;
  return groups < MOST_GROUPS ? (uint32_t)groups : MOST_GROUPS;
}

/* ---- products --------------------------------------------------------------------------------------------- */

/* The variant table lists the types in this order. */
static still_shader typed(still_shader f32, still_tensor_type type) {
  return (still_shader)(f32 + (type == STILL_TENSOR_F32    ? 0
                               : type == STILL_TENSOR_F16  ? 1
                               : type == STILL_TENSOR_BF16 ? 2
                                                           : 3));
}

static still_status embed_parts(still_backend_vulkan *backend, still_buffer *out,
                                const still_weight *weight, const int32_t *ids, size_t n) {
  STILL_TRY(still_vulkan_work_reserve(backend->vulkan, &backend->ids, n * sizeof *ids));
  STILL_TRY(still_vulkan_write(backend->vulkan, &backend->ids, 0, ids, n * sizeof *ids));
  for (uint32_t i = 0; i < weight->part_count; i++) {
    const still_weight_part *part = &weight->parts[i];
    STILL_TRY(run(&(run_of){.vulkan = backend->vulkan,
                            .shader = typed(STILL_SHADER_embed_f32, weight->type),
                            .buffers = {&part->data, &backend->ids, &out->data},
                            .writes = 1 << 2,
                            .push = {.n = (uint32_t)n,
                                     .rows = part->rows,
                                     .row0 = part->first,
                                     .columns = weight->columns},
                            .groups = {groups_for(n * weight->columns / 4)},
                            .work = 4.0 * (double)n * weight->columns}));
  }
  return STILL_OK;
}

static still_status embed(still_backend *backend, still_buffer *out, const still_weight *weight,
                          const int32_t *ids, size_t n) {
  still_backend_vulkan *vulkan = still_vulkan_of(backend);
  still_status status;
  STILL_VULKAN_LOCKED(vulkan->vulkan, status, embed_parts(vulkan, out, weight, ids, n));
  return status;
}

/* How n rows of activations are multiplied: by vectors, by tiles, or by cooperative matrices, which read the activations
 * as f16 and need enough rows to be worth it. */
typedef struct product_shape {
  still_shader shader;
  uint32_t tile_rows, tile_weights; /* of a workgroup */
  double gain;                      /* over plain shaders */
} product_shape;
enum { COOPMAT_ROWS = 32 };

static product_shape shape_of(const still_vulkan *vulkan, const still_weight *weight, size_t n) {
  if (n <= STILL_MATVEC_ROWS)
    return (product_shape){typed(STILL_SHADER_matvec_f32, weight->type), STILL_MATVEC_ROWS, 4, 1};
  const bool coopmat = vulkan->features & STILL_VULKAN_COOPMAT && n >= COOPMAT_ROWS &&
                       weight->columns % STILL_MATMUL_SLICE == 0;
  if (!coopmat || weight->type == STILL_TENSOR_F32)
    return (product_shape){typed(STILL_SHADER_matmul_f32, weight->type), STILL_TILE, 128, 1};
  /* this table has no f32 */
  return (product_shape){typed((still_shader)(STILL_SHADER_matmul_coopmat_f16 - 1), weight->type),
                         STILL_MATMUL_TILE_N, STILL_MATMUL_TILE_W, STILL_VULKAN_COOPMAT_GAIN};
}

/* Rows of activations that one run takes: all, but for slow devices no more than about 50 ms of them. */
static uint32_t product_rows(const still_vulkan *vulkan, const product_shape *shape,
                             const still_weight_part *part, uint32_t columns, size_t n) {
  const double fit =
      shape->gain * still_vulkan_work_of(vulkan, 0.05) / (2.0 * part->rows * columns);
  if (fit >= (double)n) return (uint32_t)n;
  return fit < STILL_TILE ? STILL_TILE : (uint32_t)fit / STILL_TILE * STILL_TILE;
}

static still_status product_part(still_vulkan *vulkan, still_vulkan_buffer *out,
                                 const still_weight *weight, const still_weight_part *part,
                                 const still_vulkan_buffer *in, size_t n, bool accumulate) {
  const bool few = n <= STILL_MATVEC_ROWS;
  const product_shape shape = shape_of(vulkan, weight, n);
  const uint32_t most = few ? (uint32_t)n : product_rows(vulkan, &shape, part, weight->columns, n);
  for (size_t done = 0; done < n; done += most) {
    const uint32_t rows = n - done < most ? (uint32_t)(n - done) : most;
    STILL_TRY(run(&(run_of){.vulkan = vulkan,
                            .shader = shape.shader,
                            .constant = few ? rows : 0,
                            .buffers = {&part->data, in, out},
                            .writes = 1 << 2,
                            .push = {.n = rows,
                                     .rows = part->rows,
                                     .columns = weight->columns,
                                     .row0 = part->first,
                                     .all_rows = weight->rows,
                                     .first = (uint32_t)done,
                                     .accumulate = accumulate},
                            .groups = {(part->rows + shape.tile_weights - 1) / shape.tile_weights,
                                       (rows + shape.tile_rows - 1) / shape.tile_rows},
                            .work = 2.0 * rows * part->rows * weight->columns,
                            .gain = shape.gain}));
    STILL_TRY(still_vulkan_checkpoint(vulkan));
  }
  return STILL_OK;
}

/* The first n rows of `in` as f16, with room for whole tiles behind them. */
static still_status halve(still_backend_vulkan *b, const still_vulkan_buffer *in, size_t n,
                          uint32_t columns) {
  const size_t items = n * columns / 4;
  const uint64_t bytes = 2ull * (n + STILL_MATMUL_TILE_N) * columns;
  if (b->halved == in->handle && b->halved_at == in->changed && b->halved_items >= items &&
      b->halves.bytes >= bytes && b->halved_dropped == b->vulkan->commands.dropped)
    return STILL_OK;
  b->halved = VK_NULL_HANDLE;
  STILL_TRY(still_vulkan_work_reserve(b->vulkan, &b->halves, bytes));
  STILL_TRY(run(&(run_of){.vulkan = b->vulkan,
                          .shader = STILL_SHADER_halve_f32,
                          .buffers = {&b->halves, in},
                          .writes = 1,
                          .push = {.n = (uint32_t)items},
                          .groups = {groups_for(items)},
                          .work = 24.0 * (double)items}));
  b->halved = in->handle;
  b->halved_at = in->changed;
  b->halved_dropped = b->vulkan->commands.dropped;
  b->halved_items = items;
  return STILL_OK;
}

static still_status product(still_backend_vulkan *b, still_buffer *out, const still_weight *weight,
                            const still_buffer *in, size_t n, bool accumulate) {
  const still_vulkan_buffer *factor = &in->data;
  if (shape_of(b->vulkan, weight, n).gain > 1) {
    STILL_TRY(halve(b, &in->data, n, weight->columns));
    factor = &b->halves;
  }
  for (uint32_t i = 0; i < weight->part_count; i++)
    STILL_TRY(
        product_part(b->vulkan, &out->data, weight, &weight->parts[i], factor, n, accumulate));
  return STILL_OK;
}

static still_status matmul(still_backend *backend, still_buffer *out, const still_weight *weight,
                           const still_buffer *in, size_t n, int accumulate) {
  still_backend_vulkan *b = still_vulkan_of(backend);
  still_status status;
  STILL_VULKAN_STOPPABLE(backend, status, product(b, out, weight, in, n, accumulate != 0));
  return status;
}

static still_status rms_norm(still_backend *backend, still_buffer *out, const still_buffer *in,
                             const still_weight *weight, float eps, size_t n, size_t width) {
  return run_locked(&(run_of){
      .vulkan = still_vulkan_of(backend)->vulkan,
      .shader = still_vulkan_reducing(still_vulkan_of(backend)->vulkan, STILL_SHADER_rms_norm_f32),
      .buffers = {&weight->parts[0].data, &in->data, &out->data},
      .writes = 1 << 2,
      .push = {.n = (uint32_t)n, .columns = (uint32_t)width, .factor = eps},
      .groups = {n < MOST_GROUPS ? (uint32_t)n : MOST_GROUPS},
      .work = 4.0 * (double)n * (double)width});
}

/* ---- element by element ------------------------------------------------------------------------------------ */

static still_status elementwise(still_backend *backend, uint32_t operation, still_buffer *x,
                                const still_vulkan_buffer *y, const still_vulkan_buffer *z,
                                const dense_push *push) {
  return run_locked(&(run_of){.vulkan = still_vulkan_of(backend)->vulkan,
                              .shader = STILL_SHADER_elementwise_f32,
                              .constant = operation,
                              .buffers = {&x->data, y ? y : &x->data, z ? z : &x->data},
                              .writes = 1,
                              .push = *push,
                              .groups = {groups_for(push->n)},
                              .work = 12.0 * push->n});
}

static still_status copy_rows(still_backend *backend, still_buffer *out, const still_buffer *in,
                              size_t first, size_t n, size_t width) {
  return elementwise(backend, STILL_OP_COPY_ROWS, out, &in->data, NULL,
                     &(dense_push){.n = (uint32_t)(n * width),
                                   .columns = (uint32_t)width,
                                   .first = (uint32_t)first});
}

static still_status add_vector(still_backend *backend, still_buffer *x, const still_weight *vector,
                               size_t n, size_t width) {
  return elementwise(backend, STILL_OP_ADD_VECTOR, x, &vector->parts[0].data, NULL,
                     &(dense_push){.n = (uint32_t)(n * width), .columns = (uint32_t)width});
}

static still_status add(still_backend *backend, still_buffer *x, const still_buffer *y,
                        size_t floats) {
  return elementwise(backend, STILL_OP_ADD, x, &y->data, NULL,
                     &(dense_push){.n = (uint32_t)floats});
}

static still_status scale(still_backend *backend, still_buffer *x, float factor, size_t floats) {
  return elementwise(backend, STILL_OP_SCALE, x, NULL, NULL,
                     &(dense_push){.n = (uint32_t)floats, .factor = factor});
}

static still_status swiglu(still_backend *backend, still_buffer *out, const still_buffer *gate,
                           const still_buffer *up, size_t floats) {
  return elementwise(backend, STILL_OP_SWIGLU, out, &gate->data, &up->data,
                     &(dense_push){.n = (uint32_t)floats});
}

static still_status sigmoid(still_backend *backend, still_buffer *x, size_t floats) {
  return elementwise(backend, STILL_OP_SIGMOID, x, NULL, NULL,
                     &(dense_push){.n = (uint32_t)floats});
}

/* ---- finite values -------------------------------------------------------------------------------------------- */

static still_status find_not_finite(still_backend_vulkan *b, const still_buffer *x, size_t n,
                                    size_t width, size_t *row) {
  uint32_t worst;
  STILL_TRY(still_vulkan_work_reserve(b->vulkan, &b->worst, sizeof worst));
  STILL_TRY(still_vulkan_zero(b->vulkan, &b->worst));
  STILL_TRY(run(&(run_of){.vulkan = b->vulkan,
                          .shader = STILL_SHADER_finite_f32,
                          .buffers = {&b->worst, &x->data},
                          .writes = 1,
                          .push = {.n = (uint32_t)n, .columns = (uint32_t)width},
                          .groups = {n < MOST_GROUPS ? (uint32_t)n : MOST_GROUPS},
                          .work = 4.0 * (double)n * (double)width}));
  STILL_TRY(still_vulkan_read(b->vulkan, &b->worst, 0, &worst, sizeof worst));
  *row = n - worst;
  return STILL_OK;
}

static still_status first_not_finite(still_backend *backend, const still_buffer *x, size_t n,
                                     size_t width, size_t *row) {
  still_backend_vulkan *b = still_vulkan_of(backend);
  still_status status;
  STILL_VULKAN_LOCKED(b->vulkan, status, find_not_finite(b, x, n, width, row));
  return status;
}

/* ---- rotation ------------------------------------------------------------------------------------------------- */

typedef struct turn {
  double c, s, by_c, by_s;
} turn;

/* Each position turns the one before by the same angle, which in double is as exact as asking for every cosine and much
 * faster. */
static void fill_angles(const still_backend_vulkan *b, turn *turns, float *angles) {
  for (size_t d = 0; d < b->half; d++) {
    const double frequency = b->frequencies->host[d], angle = (double)b->first * frequency;
    turns[d] = (turn){cos(angle), sin(angle), cos(frequency), sin(frequency)};
  }
  for (size_t i = 0; i < b->n; i++)
    for (size_t d = 0; d < b->half; d++, angles += 2) {
      turn *t = &turns[d];
      angles[0] = b->scale * (float)t->c;
      angles[1] = b->scale * (float)t->s;
      const double next = t->c * t->by_c - t->s * t->by_s;
      t->s = t->s * t->by_c + t->c * t->by_s;
      t->c = next;
    }
}

/* In double on the CPU: at position 10^5 a float angle is off by 0.004, and a GPU's sine of large angles by more. */
static still_status upload_angles(still_backend_vulkan *b) {
  turn *turns;
  float *angles = NULL;
  const size_t bytes = 2 * b->n * b->half * sizeof *angles;
  still_status status = STILL_ALLOC(&turns, b->half, "the rotation's angles");
  if (!status) status = STILL_ALLOC(&angles, 2 * b->n * b->half, "cosines and sines of positions");
  if (!status) fill_angles(b, turns, angles);
  if (!status) status = still_vulkan_work_reserve(b->vulkan, &b->angles, bytes);
  if (!status) status = still_vulkan_write(b->vulkan, &b->angles, 0, angles, bytes);
  if (status) b->frequencies = NULL;
  still_free(angles);
  still_free(turns);
  return status;
}

static still_status find_angles(still_backend_vulkan *b, const still_weight *frequencies,
                                float scale, int64_t first, size_t n, size_t half) {
  if (b->frequencies == frequencies && b->scale == scale && b->first == first && b->n == n &&
      b->half == half && b->angles_dropped == b->vulkan->commands.dropped)
    return STILL_OK;
  b->frequencies = frequencies;
  b->scale = scale;
  b->first = first;
  b->n = n;
  b->half = half;
  b->angles_dropped = b->vulkan->commands.dropped;
  return upload_angles(b);
}

static still_status rotary(still_backend *backend, still_buffer *x, const still_weight *frequencies,
                           float scale, int64_t first, size_t n, size_t heads, size_t dim,
                           size_t half) {
  still_backend_vulkan *b = still_vulkan_of(backend);
  still_status status;
  STILL_VULKAN_LOCKED(b->vulkan, status, find_angles(b, frequencies, scale, first, n, half));
  STILL_TRY(status);
  return run_locked(&(run_of){.vulkan = b->vulkan,
                              .shader = STILL_SHADER_rotary_f32,
                              .buffers = {&x->data, &b->angles},
                              .writes = 1,
                              .push = {.n = (uint32_t)n,
                                       .heads = (uint32_t)heads,
                                       .dim = (uint32_t)dim,
                                       .half_dim = (uint32_t)half},
                              .groups = {groups_for(n * heads * half)},
                              .work = 8.0 * (double)(n * heads * half)});
}

void still_vulkan_dense_operations(still_backend_ops *ops) {
  ops->embed = embed;
  ops->rms_norm = rms_norm;
  ops->matmul = matmul;
  ops->copy_rows = copy_rows;
  ops->add_vector = add_vector;
  ops->add = add;
  ops->scale = scale;
  ops->swiglu = swiglu;
  ops->sigmoid = sigmoid;
  ops->first_not_finite = first_not_finite;
  ops->rotary = rotary;
}
