/* SPDX-License-Identifier: MIT
 * out = in W^T with W as the file stores it.
 *
 * Few rows of activations (decode): W is read once, by the matrix-vector kernels. Many (prefill): pieces of W are
 * converted to floats, transposed into tiles and multiplied by the matmul kernel, which is as fast as OpenBLAS here (0.9
 * to 1.05 times, one core with AVX2, shapes from 256 x 256 to 2048 x 8192, 512 rows) and, unlike it, sums in the same order
 * for any number of threads and any split of the rows. Quantised weights are multiplied as integers where the CPU level has
 * kernels for that: the activations then become integers once for the whole product; with AMX, as pairs of bf16.
 */
#include "backend/cpu/backend_cpu.h"
#include "base/memory.h"
#include "base/threads.h"
#include "simd/kernel_facts.h"
#include "simd/kernels.h"

#include <string.h>

enum {
  FEW = 8,          /* rows of activations up to which the matrix-vector kernels win */
  FEW_INTEGERS = 3, /* the same against panels of integers */
  VECTOR_ROWS = 32, /* rows of W in a piece of those */
  TILE = STILL_KEY_TILE,
  PANEL_ROWS = 2 * TILE, /* of W in a piece of a product ... */
  PANEL_DEPTH = 256,     /* ... and columns at a time: 64 KiB of floats, and */
  IN_ROWS = 64,          /* as many of activations, share the second-level cache */
  CONVERTED = TILE * PANEL_DEPTH,
  WORK = PANEL_ROWS * PANEL_DEPTH + CONVERTED,
  PIECE_PANELS = 8, /* of pairs, 256 KiB, */
  PIECE_ROWS = PIECE_PANELS * STILL_PANEL_ROWS,
  PIECE_IN = 512,          /* and 512 KiB of sums: what a second-level cache holds */
  WORTH_A_TEAM = 1 << 17,  /* multiply-adds: some 4 microseconds of one thread */
  WORTH_INTEGERS = 1 << 14 /* activations: the same */
};

typedef struct still_pair_room {
  still_pair_panel panels[PIECE_PANELS];
  float sums[PIECE_IN * PIECE_ROWS];
} pair_room;

size_t still_cpu_activation_bytes(int threads, size_t n, size_t columns) {
  if (!columns) return 0;
  const size_t a_part = SCALED_BLOCK * sizeof(int16_t) + (2 + STILL_PART_TOTALS) * sizeof(float);
  const size_t a_row = columns / SCALED_BLOCK * a_part;
  if (!still_kernels_get()->matmul_pairs) return n * a_row;
  const size_t tiles = (n + STILL_PAIR_ROWS - 1) / STILL_PAIR_ROWS * (columns / STILL_PAIR_COLUMNS);
  return still_smaller(n, FEW_INTEGERS) * a_row + tiles * sizeof(still_pair_tile) +
         (size_t)threads * sizeof(pair_room);
}

size_t still_cpu_matmul_work(void) {
  return WORK;
}

_Static_assert(VECTOR_ROWS % STILL_LANES == 0 && STILL_PANEL_ROWS % STILL_LANES == 0,
               "pieces of W begin where rows side by side do");
_Static_assert(sizeof(still_panel) <= WORK * sizeof(float), "a panel of integers fits");
_Static_assert(STILL_PANEL_ROWS *STILL_PAIR_DEPTH <= WORK, "the floats of a panel of pairs fit");

/* The kernels for one type of quantised blocks; NULL where the CPU level has none. */
typedef struct integer_kernels {
  still_matvec *matvec;
  still_pack *pack;
  still_matvec *matvec_lanes; /* of rows side by side */
  still_pack *pack_lanes;
} integer_kernels;

typedef struct matrix_product {
  float *out;
  const float *in;
  integer_kernels integers;
  still_integers x;       /* `in` as integers, where there are such kernels */
  still_pair_tile *pairs; /* or as pairs of bf16 */
  const still_weight *weight;
  size_t n;
  bool accumulate;
} matrix_product;

/* Threads for a product; the pieces do not depend on it. */
static int team_size(const still_backend_cpu *cpu, const matrix_product *product) {
  const still_weight *weight = product->weight;
  return weight->rows * weight->columns * product->n > WORTH_A_TEAM ? cpu->base.threads : 1;
}

/* ---- activations as integers -------------------------------------------------------------------- */

static integer_kernels kernels_for(still_tensor_type type) {
  const still_kernels *k = still_kernels_get();
  switch (type) {
  case STILL_TENSOR_Q8_0: return (integer_kernels){k->matvec_q8_0, k->pack_q8_0, NULL, NULL};
#define WITH_LANES(name)                                                                           \
  (integer_kernels) {                                                                              \
    k->matvec_##name, k->pack_##name, k->lanes_##name, k->pack_lanes_##name                        \
  }
  case STILL_TENSOR_Q4_0: return WITH_LANES(q4_0);
  case STILL_TENSOR_Q4_1: return WITH_LANES(q4_1);
  case STILL_TENSOR_Q4_K: return WITH_LANES(q4_k);
  case STILL_TENSOR_Q5_K: return WITH_LANES(q5_k);
  case STILL_TENSOR_Q6_K: return WITH_LANES(q6_k);
#undef WITH_LANES
  default: return (integer_kernels){NULL, NULL, NULL, NULL};
  }
}

bool still_cpu_has_lanes(const still_weight *weight) {
  return weight->tensor.dimensions == 2 && kernels_for(weight->tensor.type).matvec_lanes;
}

/* Where block p / block_items of the rows from `first` on begins, a multiple of STILL_LANES where rows lie side by side. */
static const char *blocks_of(const still_weight *weight, size_t first, size_t p) {
  const still_type_traits *traits = still_type_traits_get(weight->tensor.type);
  const size_t across = p / traits->block_items * traits->block_bytes;
  const size_t down = first * weight->row_bytes;
  return weight->lanes ? (const char *)weight->lanes + down + across * STILL_LANES
                       : (const char *)weight->tensor.data + down + across;
}

static still_integers integers_row(const matrix_product *product, size_t row) {
  const size_t columns = product->weight->columns, parts = columns / SCALED_BLOCK;
  const still_integers *x = &product->x;
  return (still_integers){x->values + row * columns, x->scales + row * parts, x->sums + row * parts,
                          x->totals + STILL_PART_TOTALS * row * parts};
}

static still_status make_integers(still_backend_cpu *cpu, matrix_product *product) {
  const size_t columns = product->weight->columns, count = product->n * columns;
  if (count > cpu->integer_capacity) {
    cpu->integer_capacity = 0;
    STILL_TRY(STILL_REALLOC(&cpu->integers.values, count, "activations as integers"));
    STILL_TRY(STILL_REALLOC(&cpu->integers.scales, count / SCALED_BLOCK, "their scales"));
    STILL_TRY(STILL_REALLOC(&cpu->integers.sums, count / SCALED_BLOCK, "their sums"));
    STILL_TRY(STILL_REALLOC(&cpu->integers.totals, count / SCALED_BLOCK * STILL_PART_TOTALS,
                            "their totals"));
    cpu->integer_capacity = count;
  }
  product->x = cpu->integers;
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static) num_threads(cpu->base.threads) if (count > WORTH_INTEGERS))
  for (size_t i = 0; i < product->n; i++) {
    const still_integers row = integers_row(product, i);
    kernels->to_integers(&row, product->in + i * columns, columns);
  }
  return STILL_OK;
}

static still_status make_pairs(still_backend_cpu *cpu, matrix_product *product) {
  const size_t columns = product->weight->columns, across = columns / STILL_PAIR_COLUMNS;
  const size_t count = (product->n + STILL_PAIR_ROWS - 1) / STILL_PAIR_ROWS * across;
  if (count > cpu->pair_capacity) {
    cpu->pair_capacity = 0;
    STILL_TRY(STILL_REALLOC(&cpu->pairs, count, "activations as pairs"));
    cpu->pair_capacity = count;
    if (!cpu->pair_rooms)
      STILL_TRY(STILL_ALLOC(&cpu->pair_rooms, (size_t)cpu->base.threads, "panels of pairs"));
  }
  product->pairs = cpu->pairs;
  const still_kernels *kernels = still_kernels_get();
  STILL_OMP(parallel for schedule(static) num_threads(cpu->base.threads) if (product->n * columns > WORTH_INTEGERS))
  for (size_t i = 0; i < product->n; i += STILL_PAIR_ROWS)
    kernels->to_pairs(product->pairs + i / STILL_PAIR_ROWS * across, product->in + i * columns,
                      columns, still_smaller(product->n - i, STILL_PAIR_ROWS), columns);
  return STILL_OK;
}

/* ---- few rows ----------------------------------------------------------------------------------- */

/* dots (count) = rows first .. of W times row i of the activations. Types without a kernel are converted row by row. */
static void dot_rows(const matrix_product *product, size_t first, size_t count, size_t i,
                     float *dots, float *work) {
  const still_kernels *kernels = still_kernels_get();
  const still_weight *weight = product->weight;
  const size_t columns = weight->columns;
  const char *rows = blocks_of(weight, first, 0);
  const float *x = product->in + i * columns;
  if (product->integers.matvec) {
    const still_integers row = integers_row(product, i);
    (weight->lanes ? product->integers.matvec_lanes : product->integers.matvec)(dots, rows, &row,
                                                                                count, columns);
    return;
  }
  switch (weight->tensor.type) {
  case STILL_TENSOR_F32: kernels->matvec_f32(dots, (const void *)rows, x, count, columns); return;
  case STILL_TENSOR_F16: kernels->matvec_f16(dots, (const void *)rows, x, count, columns); return;
  case STILL_TENSOR_BF16: kernels->matvec_bf16(dots, (const void *)rows, x, count, columns); return;
  default: break;
  }
  const still_type_traits *traits = still_type_traits_get(weight->tensor.type);
  for (size_t r = 0; r < count; r++) {
    dots[r] = 0;
    for (size_t p = 0; p < columns; p += WORK) {
      const size_t depth = still_smaller(WORK, columns - p);
      weight->to_f32(work,
                     rows + r * weight->row_bytes + p / traits->block_items * traits->block_bytes,
                     depth);
      dots[r] += kernels->dot(work, x + p, depth);
    }
  }
}

static void vector_piece(const matrix_product *product, size_t first, float *work) {
  const still_weight *weight = product->weight;
  const size_t count = still_smaller(VECTOR_ROWS, weight->rows - first);
  for (size_t i = 0; i < product->n; i++) {
    float dots[VECTOR_ROWS];
    dot_rows(product, first, count, i, dots, work);
    float *out = product->out + i * weight->rows + first;
    for (size_t r = 0; r < count; r++) out[r] = product->accumulate ? out[r] + dots[r] : dots[r];
  }
}

static void multiply_few(const still_backend_cpu *cpu, const matrix_product *product) {
  const int team = team_size(cpu, product);
  STILL_OMP(parallel for schedule(static) num_threads(team))
  for (size_t first = 0; first < product->weight->rows; first += VECTOR_ROWS)
    if (!still_backend_stops(&cpu->base))
      vector_piece(product, first, cpu->work + (size_t)omp_get_thread_num() * WORK);
  (void)team;
}

/* ---- many rows ---------------------------------------------------------------------------------- */

/* Rows first .. first+count-1 of W, columns p .. p+depth-1 of at most PANEL_DEPTH, as floats: in out, or where they lie
 * if the file holds floats. */
static const float *float_rows(const still_weight *weight, size_t first, size_t count, size_t p,
                               size_t depth, float *out, size_t *row_stride) {
  if (weight->tensor.type == STILL_TENSOR_F32) {
    *row_stride = weight->columns;
    return (const float *)weight->tensor.data + first * weight->columns + p;
  }
  *row_stride = depth;
  if (!weight->lanes) {
    const char *data = blocks_of(weight, first, p);
    for (size_t r = 0; r < count; r++)
      weight->to_f32(out + r * depth, data + r * weight->row_bytes, depth);
    return out;
  }
  const still_type_traits *traits = still_type_traits_get(weight->tensor.type);
  uint8_t
      rows[STILL_LANES * 2 * PANEL_DEPTH]; /* no type of theirs has more than two bytes a value */
  const size_t row_bytes = depth / traits->block_items * traits->block_bytes;
  for (size_t r = 0; r < count; r += STILL_LANES) {
    const size_t here = still_smaller(STILL_LANES, count - r);
    still_lanes_read(rows, (const uint8_t *)blocks_of(weight, first + r, p), weight->tensor.type,
                     here, row_bytes);
    for (size_t i = 0; i < here; i++)
      weight->to_f32(out + (r + i) * depth, rows + i * row_bytes, depth);
  }
  return out;
}

/* One piece of W, PANEL_ROWS rows from `first` on, with all rows of activations. */
static void panel_piece(const still_backend_cpu *cpu, const matrix_product *product, size_t first,
                        float *work) {
  const still_kernels *kernels = still_kernels_get();
  const still_weight *weight = product->weight;
  const size_t columns = weight->columns, count = still_smaller(PANEL_ROWS, weight->rows - first);
  float *panel = work + CONVERTED;
  for (size_t p = 0; p < columns; p += PANEL_DEPTH) {
    const size_t depth = still_smaller(PANEL_DEPTH, columns - p);
    for (size_t r = 0; r < count; r += TILE) {
      size_t stride;
      const size_t rows = still_smaller(TILE, count - r);
      const float *from = float_rows(weight, first + r, rows, p, depth, work, &stride);
      kernels->pack_keys(panel + r * depth, 0, from, stride, rows, depth);
    }
    for (size_t i = 0; i < product->n && !still_backend_stops(&cpu->base); i += IN_ROWS)
      for (size_t r = 0; r < count; r += TILE)
        kernels->matmul(product->out + i * weight->rows + first + r, weight->rows,
                        product->in + i * columns + p, columns, 1, panel + r * depth, TILE,
                        still_smaller(IN_ROWS, product->n - i), still_smaller(TILE, count - r),
                        depth, product->accumulate || p);
  }
}

/* The same of integers, STILL_PANEL_ROWS rows. */
static void integer_panel_piece(const still_backend_cpu *cpu, const matrix_product *product,
                                size_t first, float *work) {
  const still_weight *weight = product->weight;
  const size_t columns = weight->columns;
  const size_t count = still_smaller(STILL_PANEL_ROWS, weight->rows - first);
  still_pack *pack = weight->lanes ? product->integers.pack_lanes : product->integers.pack;
  still_panel *panel = (void *)work;
  for (size_t p = 0; p < columns && !still_backend_stops(&cpu->base); p += STILL_PANEL_DEPTH) {
    const size_t depth = still_smaller(STILL_PANEL_DEPTH, columns - p);
    pack(panel, blocks_of(weight, first, p), weight->row_bytes, count, depth);
    still_kernels_get()->matmul_panel(product->out + first, weight->rows, &product->x, columns, p,
                                      panel, product->n, count, depth, product->accumulate || p);
  }
}

/* out (n x rows of W, from `first` on) = or += sums (n x PIECE_ROWS) */
static void store_sums(const matrix_product *product, size_t begin, size_t n, size_t first,
                       size_t count, const float *sums) {
  const still_kernels *kernels = still_kernels_get();
  for (size_t i = 0; i < n; i++) {
    float *out = product->out + (begin + i) * product->weight->rows + first;
    const float *from = sums + i * PIECE_ROWS;
    if (product->accumulate)
      kernels->add(out, from, count);
    else
      memcpy(out, from, count * sizeof *out);
  }
}

/* Pairs of bf16, `count` rows of W with PIECE_IN rows of activations: panels and sums stay in the second-level cache, a
 * block of activations in the first; the activations come from further away, once. */
static void pair_panel_piece(const still_backend_cpu *cpu, const matrix_product *product,
                             size_t first, size_t count, float *work, pair_room *room) {
  const still_kernels *kernels = still_kernels_get();
  const still_weight *weight = product->weight;
  const size_t columns = weight->columns, across = columns / STILL_PAIR_COLUMNS;
  for (size_t begin = 0; begin < product->n; begin += PIECE_IN) {
    const size_t n = still_smaller(PIECE_IN, product->n - begin);
    for (size_t p = 0; p < columns && !still_backend_stops(&cpu->base); p += STILL_PAIR_DEPTH) {
      const size_t depth = still_smaller(STILL_PAIR_DEPTH, columns - p);
      for (size_t r = 0; r < count; r += STILL_PANEL_ROWS) {
        size_t stride;
        const size_t rows = still_smaller(STILL_PANEL_ROWS, count - r);
        const float *from = float_rows(weight, first + r, rows, p, depth, work, &stride);
        kernels->pack_pairs(&room->panels[r / STILL_PANEL_ROWS], from, stride, rows, depth);
      }
      kernels->matmul_pairs(room->sums, PIECE_ROWS,
                            product->pairs + begin / STILL_PAIR_ROWS * across, across, p,
                            room->panels, n, count, depth, p != 0);
    }
    store_sums(product, begin, n, first, count, room->sums);
  }
}

/* Rows of W in a piece: equal shares for the threads, cut up where that is more than PIECE_PANELS. No border
 * shows in the results. */
static size_t pair_piece_rows(const still_weight *weight, int team) {
  const size_t all = (weight->rows + STILL_PANEL_ROWS - 1) / STILL_PANEL_ROWS;
  const size_t share = (all + (size_t)team - 1) / (size_t)team;
  const size_t cuts = (share + PIECE_PANELS - 1) / PIECE_PANELS;
  return (share + cuts - 1) / cuts * STILL_PANEL_ROWS;
}

static void multiply_pairs(const still_backend_cpu *cpu, const matrix_product *product) {
  const int team = team_size(cpu, product);
  const size_t rows = pair_piece_rows(product->weight, team), all = product->weight->rows;
  STILL_OMP(parallel for schedule(static) num_threads(team))
  for (size_t first = 0; first < all; first += rows) {
    const size_t thread = (size_t)omp_get_thread_num();
    pair_panel_piece(cpu, product, first, still_smaller(rows, all - first),
                     cpu->work + thread * WORK, cpu->pair_rooms + thread);
  }
}

static void multiply_many(const still_backend_cpu *cpu, const matrix_product *product) {
  const int team = team_size(cpu, product);
  const size_t rows = product->integers.pack ? STILL_PANEL_ROWS : PANEL_ROWS;
  STILL_OMP(parallel for schedule(static) num_threads(team))
  for (size_t first = 0; first < product->weight->rows; first += rows) {
    float *work = cpu->work + (size_t)omp_get_thread_num() * WORK;
    if (product->integers.pack)
      integer_panel_piece(cpu, product, first, work);
    else
      panel_piece(cpu, product, first, work);
  }
  (void)team;
}

/* Whether its products with many rows are of pairs: quantised types, which are coarser than these. */
static bool has_pairs(const still_weight *weight) {
  return still_kernels_get()->matmul_pairs && weight->columns % SCALED_BLOCK == 0 &&
         still_type_traits_get(weight->tensor.type)->block_items > 1;
}

still_status still_cpu_matmul(still_backend *backend, still_buffer *out, const still_weight *weight,
                              const still_buffer *in, size_t n, int accumulate) {
  still_backend_cpu *cpu = still_cpu(backend);
  matrix_product product = {.out = out->data,
                            .in = in->data,
                            .integers = kernels_for(weight->tensor.type),
                            .weight = weight,
                            .n = n,
                            .accumulate = accumulate != 0};
  const bool pairs = has_pairs(weight), panels = pairs || product.integers.pack;
  const bool few = n <= (panels ? FEW_INTEGERS : FEW);
  if (few ? product.integers.matvec != NULL : !pairs && product.integers.pack)
    STILL_TRY(make_integers(cpu, &product));
  if (!few && pairs) STILL_TRY(make_pairs(cpu, &product));
  if (few)
    multiply_few(cpu, &product);
  else if (pairs)
    multiply_pairs(cpu, &product);
  else
    multiply_many(cpu, &product);
  if (still_backend_stops(backend))
    return still_fail(STILL_ERROR_CANCELLED, "a matrix product was stopped");
  return STILL_OK;
}
