/* SPDX-License-Identifier: MIT
 * Which layers should stay full: by how much each brings the student's predictions back to the base
 * model's. */
#include <still/linearize.h>

#include "base/memory.h"
#include "base/threads.h"
#include "linearize/corpus.h"
#include "linearize/dense_gradient.h"
#include "linearize/student.h"

#include <math.h>
#include <string.h>

enum { ROWS = 64 }; /* of logits at a time */

/* Everything a comparison needs: the validation row in work, the base model's hidden states for it.
 */
typedef struct comparison {
  still_student *student;
  const still_training_data *data;
  corpus_batch batch;
  float *teacher;              /* (tokens, W) */
  float *base_logits, *logits; /* (ROWS, V) */
  size_t vocabulary, width;
  const float *output;
} comparison;

/* sum p (log p - log q) of two rows of logits. */
static double divergence_of_row(const float *p, const float *q, size_t count) {
  /* Largest ones in float: of double and float GCC 12 makes nothing on AArch64 (internal compiler error). */
  float max_p = -INFINITY, max_q = -INFINITY;
  double sum_p = 0, sum_q = 0, mean = 0;
  for (size_t i = 0; i < count; i++) max_p = fmaxf(max_p, p[i]), max_q = fmaxf(max_q, q[i]);
  for (size_t i = 0; i < count; i++) {
    const double weight = exp((double)p[i] - max_p);
    sum_p += weight, sum_q += exp((double)q[i] - max_q);
    mean += weight * (((double)p[i] - max_p) - ((double)q[i] - max_q));
  }
  return mean / sum_p - log(sum_p) + log(sum_q);
}

static double divergence_of_hidden(comparison *c, const float *hidden) {
  double total = 0;
  for (size_t first = 0; first < c->batch.batch.tokens; first += ROWS) {
    const size_t left = c->batch.batch.tokens - first, rows = left < ROWS ? left : ROWS;
    still_gemm(false, true, rows, c->vocabulary, c->width, 1, c->teacher + first * c->width,
               c->width, c->output, c->width, 0, c->base_logits, c->vocabulary);
    still_gemm(false, true, rows, c->vocabulary, c->width, 1, hidden + first * c->width, c->width,
               c->output, c->width, 0, c->logits, c->vocabulary);
    double each[ROWS];
    STILL_OMP(parallel for schedule(static))
    for (size_t i = 0; i < rows; i++)
      each[i] = divergence_of_row(c->base_logits + i * c->vocabulary, c->logits + i * c->vocabulary,
                                  c->vocabulary);
    for (size_t i = 0; i < rows; i++) total += each[i];
  }
  return total;
}

/* Adds one row's divergences: sums[0] of the student, sums[1 + i] with layer i full. */
static still_status compare_row(comparison *c, size_t row, int layers, double *sums) {
  const float *hidden;
  corpus_batch_clear(&c->batch);
  corpus_batch_add(&c->batch, c->data, row, 0);
  STILL_TRY(still_student_hidden(c->student, &c->batch.batch, true, -1, &hidden));
  memcpy(c->teacher, hidden, c->batch.batch.tokens * c->width * sizeof(float));
  for (int layer = -1; layer < layers; layer++) {
    STILL_TRY(still_student_hidden(c->student, &c->batch.batch, false, layer, &hidden));
    sums[1 + layer] += divergence_of_hidden(c, hidden);
  }
  return STILL_OK;
}

static still_status open_comparison(comparison *c, const still_model_weights *weights,
                                    const char *path, int threads) {
  still_adapter *adapter;
  STILL_TRY(still_adapter_read(&adapter, path, &weights->config));
  if (!adapter->has_attention || (adapter->base_hash && adapter->base_hash != weights->hash)) {
    const still_status status =
        adapter->has_attention
            ? still_fail(STILL_ERROR_FORMAT,
                         "%s: it was made for another base model: hash %016llx, this "
                         "one has %016llx",
                         path, (unsigned long long)adapter->base_hash,
                         (unsigned long long)weights->hash)
            : still_fail(STILL_ERROR_ARGUMENT,
                         "%s: it holds LoRA pairs alone, no attention to choose", path);
    still_adapter_destroy(adapter);
    return status;
  }
  still_attention_kind kinds[1024];
  bool gated = false;
  for (int i = 0; i < adapter->layer_count; i++) {
    kinds[i] = adapter->layers[i].kind;
    gated |= adapter->layers[i].gate != NULL;
  }
  const still_student_options options = {.attention = adapter->attention,
                                         .kinds = kinds,
                                         .gate = gated,
                                         .maps = true,
                                         .longest = c->data->longest,
                                         .most = c->data->longest,
                                         .sequences = 1,
                                         .threads = threads};
  STILL_TRY(still_student_create(&c->student, weights, adapter, &options));
  c->output = still_student_output_matrix(c->student, &c->vocabulary, &c->width);
  STILL_TRY(corpus_batch_create(&c->batch, c->data->longest, 1));
  STILL_TRY(STILL_ALLOC(&c->teacher, c->data->longest * c->width, "hidden states"));
  STILL_TRY(STILL_ALLOC(&c->base_logits, ROWS * c->vocabulary, "logits"));
  return STILL_ALLOC(&c->logits, ROWS * c->vocabulary, "logits");
}

static void close_comparison(comparison *c) {
  still_student_destroy(c->student);
  corpus_batch_destroy(&c->batch);
  still_free(c->teacher), still_free(c->base_logits), still_free(c->logits);
}

static still_status compare_all(comparison *c, int layers, double *sums,
                                still_progress_callback *progress, void *user) {
  for (size_t i = 0; i < c->data->validation_rows; i++) {
    STILL_TRY(compare_row(c, c->data->validation[i], layers, sums));
    if (progress && progress(user, i + 1, c->data->validation_rows))
      return still_fail(STILL_ERROR_CANCELLED, "the choice of layers was stopped");
  }
  return STILL_OK;
}

still_status still_select_layers(const still_model *model, const still_training_data *data,
                                 const char *adapter, int threads, double *scores,
                                 double *divergence, still_progress_callback *progress,
                                 void *user) {
  const still_model_weights *weights = still_model_get_weights(model);
  const int layers = weights->config.layers;
  comparison c = {.data = data};
  double *sums, tokens = 0;
  STILL_TRY(STILL_ALLOC(&sums, (size_t)layers + 1, "divergences"));
  still_status status = open_comparison(&c, weights, adapter, threads);
  if (!status) status = compare_all(&c, layers, sums, progress, user);
  for (size_t i = 0; i < data->validation_rows; i++)
    tokens += (double)(data->store.first[data->validation[i] + 1] -
                       data->store.first[data->validation[i]]);
  if (!status)
    for (int i = 0; i < layers; i++) scores[i] = (sums[0] - sums[1 + i]) / tokens;
  if (!status && divergence) *divergence = sums[0] / tokens;
  close_comparison(&c);
  still_free(sums);
  return status;
}

still_status still_adapter_with_full_layers(const still_model *model, const char *path,
                                            const char *output, const int *layers, size_t count) {
  const still_model_config *config = &still_model_get_weights(model)->config;
  still_adapter *adapter;
  STILL_TRY(still_adapter_read(&adapter, path, config));
  still_status status = STILL_OK;
  for (size_t i = 0; i < count && !status; i++) {
    if (layers[i] < 0 || layers[i] >= config->layers)
      status = still_fail(STILL_ERROR_ARGUMENT, "layer %d is outside 0 .. %d", layers[i],
                          config->layers - 1);
    else
      adapter->layers[layers[i]].kind = STILL_ATTENTION_FULL;
  }
  if (!status) status = still_adapter_write(adapter, output, config, STILL_TENSOR_F32);
  still_adapter_destroy(adapter);
  return status;
}
