/* SPDX-License-Identifier: MIT
 * A whole model into a smaller GGUF file, tensor by tensor, rows in parallel. */
#include "formats/quantize_model.h"

#include "base/memory.h"
#include "base/threads.h"

#include <math.h>
#include <string.h>
#include <strings.h>

/* Values between two calls of the progress callback: some milliseconds of the slowest type. */
#define SLAB_VALUES ((uint64_t)1 << 18)

/* What may be asked for, and the number that general.file_type has for it. */
static const struct target {
  still_tensor_type type;
  uint32_t file_type;
  bool few_bits; /* embedding and output get more */
} targets[] = {{STILL_TENSOR_Q8_0, 7, false},
               {STILL_TENSOR_Q6_K, 18, false},
               {STILL_TENSOR_Q4_K, 15, true},
               {STILL_TENSOR_Q4_0, 2, true}};

/* What one row said. */
typedef struct row_error {
  double squares, sum, largest; /* of the differences; sum: of the values' squares */
  bool finite;
} row_error;

typedef struct job {
  const still_quantize_options *options;
  const struct target *target;
  const still_quantize_source *source;
  int threads;
  uint8_t *out;      /* one tensor's blocks */
  float *rows;       /* two for each thread */
  row_error *errors; /* one for each row */
  uint64_t row_room; /* the longest row */
  uint64_t done, total;
} job;

static still_status find_target(const char *name, const struct target **target) {
  for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
    *target = &targets[i];
    if (!strcasecmp(still_type_traits_get(targets[i].type)->name, name)) return STILL_OK;
  }
  return still_fail(STILL_ERROR_ARGUMENT,
                    "quantize: type '%.40s' is unknown; known are Q8_0, Q6_K, Q4_K and Q4_0", name);
}

/* ---- which tensor becomes what */

static bool is_float(still_tensor_type type) {
  return type == STILL_TENSOR_F32 || type == STILL_TENSOR_F16 || type == STILL_TENSOR_BF16;
}

static bool fits(const still_tensor *tensor, still_tensor_type type) {
  return tensor->shape[tensor->dimensions - 1] % still_type_traits_get(type)->block_items == 0;
}

static still_tensor_type type_of_output(const struct target *target, const still_tensor *tensor) {
  /* vectors of 16 bits as other programs want them */
  if (tensor->dimensions == 1 && is_float(tensor->type)) return STILL_TENSOR_F32;
  const size_t length = strlen(tensor->name);
  const bool weight = length > 7 && !strcmp(tensor->name + length - 7, ".weight");
  if (!weight || tensor->dimensions < 2 || !is_float(tensor->type)) return tensor->type;
  const bool matters =
      !strcmp(tensor->name, "token_embd.weight") || !strcmp(tensor->name, "output.weight");
  const still_tensor_type wanted = matters && target->few_bits ? STILL_TENSOR_Q6_K : target->type;
  if (fits(tensor, wanted)) return wanted;
  return fits(tensor, STILL_TENSOR_Q8_0) ? STILL_TENSOR_Q8_0 : tensor->type;
}

/* The tensor as it will be: the same name and shape, no data yet where it changes. */
static still_status plan_tensor(const job *j, const still_tensor *tensor, still_tensor *planned) {
  uint64_t items;
  *planned = *tensor;
  planned->type = type_of_output(j->target, tensor);
  if (planned->type == tensor->type) return STILL_OK;
  planned->data = NULL;
  return still_tensor_bytes(tensor->name, planned->type, tensor->dimensions, tensor->shape, &items,
                            &planned->bytes);
}

/* ---- one tensor */

static void quantize_row(const job *j, const still_tensor *tensor, const still_tensor *planned,
                         uint64_t row, size_t columns) {
  float *values = j->rows + (size_t)omp_get_thread_num() * 2 * j->row_room;
  float *back = values + j->row_room;
  const still_type_traits *traits = still_type_traits_get(planned->type);
  uint8_t *blocks = j->out + row * (columns / traits->block_items * traits->block_bytes);
  row_error error = {0, 0, 0, true};
  still_tensor_to_f32(tensor, row * columns, columns,
                      values); /* checked when the file was opened */
  still_type_from_f32(planned->type)(blocks, values, columns);
  still_type_to_f32(planned->type)(back, blocks, columns);
  for (size_t i = 0; i < columns; i++) {
    const double difference = fabs((double)back[i] - (double)values[i]);
    error.finite = error.finite && isfinite(values[i]);
    error.squares += difference * difference;
    error.sum += (double)values[i] * (double)values[i];
    error.largest = fmax(error.largest, difference);
  }
  j->errors[row] = error;
}

static still_status show_progress(job *j, uint64_t done) {
  if (j->options->progress && j->options->progress(j->options->progress_user, done, j->total))
    return still_fail(STILL_ERROR_CANCELLED, "quantize: cancelled at byte %llu of %llu",
                      (unsigned long long)done, (unsigned long long)j->total);
  return STILL_OK;
}

static still_status quantize_rows(job *j, const still_tensor *tensor, const still_tensor *planned,
                                  uint64_t rows, size_t columns) {
  const uint64_t slab = columns < SLAB_VALUES ? SLAB_VALUES / columns : 1;
  for (uint64_t begin = 0; begin < rows; begin += slab) {
    const uint64_t end = rows - begin < slab ? rows : begin + slab;
    STILL_OMP(parallel for num_threads(j->threads) schedule(static))
    for (uint64_t row = begin; row < end; row++) quantize_row(j, tensor, planned, row, columns);
    for (uint64_t row = begin; row < end; row++)
      if (!j->errors[row].finite)
        return still_fail(STILL_ERROR_NUMERIC,
                          "tensor '%s': row %llu holds a number that is not finite", tensor->name,
                          (unsigned long long)row);
    STILL_TRY(show_progress(j, j->done + tensor->bytes / rows * end));
  }
  return STILL_OK;
}

static void report(const job *j, const still_tensor *tensor, const still_tensor *planned,
                   uint64_t rows) {
  double squares = 0, sum = 0, largest = 0;
  for (uint64_t row = 0; row < rows; row++) {
    squares += j->errors[row].squares;
    sum += j->errors[row].sum;
    largest = fmax(largest, j->errors[row].largest);
  }
  const still_quantized_tensor what = {.name = tensor->name,
                                       .from = still_type_traits_get(tensor->type)->name,
                                       .to = still_type_traits_get(planned->type)->name,
                                       .values = still_tensor_items(tensor),
                                       .bytes_before = tensor->bytes,
                                       .bytes_after = planned->bytes,
                                       .error = sum > 0 ? sqrt(squares / sum) : 0,
                                       .largest = largest};
  if (j->options->report) j->options->report(j->options->report_user, &what);
}

/* The writer asks for each tensor in turn. */
static still_status produce(void *user, size_t index, const void **data) {
  job *j = user;
  still_tensor given = j->source->tensors[index], planned;
  const still_tensor *tensor = &given;
  if (j->source->load) STILL_TRY(j->source->load(j->source->user, index, &given.data));
  STILL_TRY(plan_tensor(j, tensor, &planned));
  *data = tensor->data;
  uint64_t rows = 0;
  if (planned.type != tensor->type) {
    const size_t columns = (size_t)tensor->shape[tensor->dimensions - 1];
    rows = still_tensor_items(tensor) / columns;
    STILL_TRY(quantize_rows(j, tensor, &planned, rows, columns));
    *data = j->out;
  }
  j->done += tensor->bytes;
  STILL_TRY(show_progress(j, j->done));
  report(j, tensor, &planned, rows);
  return STILL_OK;
}

/* ---- the file */

/* Plans every tensor and makes room for the largest. */
static still_status plan(job *j, still_gguf_writer *writer) {
  uint64_t blocks = 0, rows = 0;
  for (size_t i = 0; i < j->source->count; i++) {
    const still_tensor *tensor = &j->source->tensors[i];
    still_tensor planned;
    STILL_TRY(plan_tensor(j, tensor, &planned));
    j->total += tensor->bytes;
    if (planned.type != tensor->type) {
      const uint64_t columns = tensor->shape[tensor->dimensions - 1];
      const uint64_t tensor_rows = still_tensor_items(tensor) / columns;
      if (planned.bytes > blocks) blocks = planned.bytes;
      if (tensor_rows > rows) rows = tensor_rows;
      if (columns > j->row_room) j->row_room = columns;
    }
    planned.data = NULL; /* produce() is asked for the copied ones too */
    STILL_TRY(still_gguf_put_tensor(writer, &planned));
  }
  if (!rows)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "holds no float weights that could be quantised (F32, F16 or BF16, named "
                      "*.weight, two dimensions)");
  STILL_TRY(STILL_ALLOC(&j->out, (size_t)blocks, "a quantised tensor"));
  STILL_TRY(STILL_ALLOC(&j->errors, (size_t)rows, "errors of a tensor's rows"));
  return still_alloc((void **)&j->rows, (size_t)j->threads * 2, (size_t)j->row_room * sizeof(float),
                     "rows of a tensor");
}

static still_status write_model(job *j, still_gguf_writer *writer, const char *output) {
  STILL_TRY(still_gguf_put_u32(writer, "general.file_type", j->target->file_type));
  STILL_TRY(still_gguf_put_u32(writer, "general.quantization_version", 2));
  STILL_TRY(j->source->put_metadata(j->source->user, writer));
  STILL_TRY(plan(j, writer));
  return still_gguf_write_from(writer, output, produce, j);
}

still_status still_quantize_check(const still_quantize_options *options) {
  const struct target *target;
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(options, still_quantize_options));
  return find_target(options->type, &target);
}

still_status still_quantize_from(const still_quantize_source *source, const char *output,
                                 const still_quantize_options *options) {
  job j = {
      .options = options, .source = source, .threads = still_resolve_threads(options->threads)};
  still_gguf_writer *writer = NULL;
  STILL_TRY(find_target(options->type, &j.target));
  still_status status = still_gguf_writer_create(&writer);
  if (!status) status = write_model(&j, writer, output);
  still_gguf_writer_destroy(writer);
  still_free(j.out);
  still_free(j.errors);
  still_free(j.rows);
  return status;
}
