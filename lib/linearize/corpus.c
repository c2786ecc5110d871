/* SPDX-License-Identifier: MIT
 * Rows, their split, their order and their batches. */
#include "linearize/corpus.h"

#include "base/memory.h"
#include "base/random.h"

#include <string.h>

enum {
  SHORTEST_LENGTH = 16,
  LONGEST_LENGTH = 1 << 20,
  FEWEST_ROWS = 2 /* one to train on, one to validate with */
};

/* ---- store ---- */

static still_status grow(row_store *store, size_t more) {
  if (store->tokens + more > store->token_capacity) {
    const size_t capacity = 2 * (store->tokens + more) + 1024;
    STILL_TRY(STILL_REALLOC(&store->ids, capacity, "training tokens"));
    STILL_TRY(STILL_REALLOC(&store->weights, capacity, "training weights"));
    store->token_capacity = capacity;
  }
  if (store->rows + 2 > store->row_capacity) {
    const size_t capacity = 2 * store->rows + 64;
    STILL_TRY(STILL_REALLOC(&store->first, capacity, "training rows"));
    store->row_capacity = capacity;
  }
  return STILL_OK;
}

still_status corpus_add(row_store *store, const int32_t *ids, float weight, size_t count) {
  STILL_TRY(grow(store, count));
  memcpy(store->ids + store->tokens, ids, count * sizeof *ids);
  for (size_t i = 0; i < count; i++) store->weights[store->tokens + i] = weight;
  store->tokens += count;
  return STILL_OK;
}

/* Rows that would teach nothing (no weighted token but the first) are dropped. */
still_status corpus_close_row(row_store *store) {
  STILL_TRY(grow(store, 0));
  const size_t first = store->first[store->rows];
  bool useful = false;
  for (size_t t = first + 1; t < store->tokens && !useful; t++) useful = store->weights[t] > 0;
  if (!useful) {
    store->tokens = first;
    return STILL_OK;
  }
  store->first[++store->rows] = store->tokens;
  return STILL_OK;
}

/* ---- split and order ---- */

static void shuffle(size_t *list, size_t count, uint64_t seed) {
  still_random random;
  still_random_seed(&random, seed);
  for (size_t i = count; i > 1; i--) {
    const size_t j = (size_t)still_random_below(&random, i);
    const size_t kept = list[i - 1];
    list[i - 1] = list[j], list[j] = kept;
  }
}

static still_status split_rows(still_training_data *data) {
  const size_t rows = data->store.rows, most = (size_t)data->options.most_validation_rows;
  size_t validation = (size_t)((double)rows * data->options.validation);
  if (validation > most) validation = most;
  if (validation < 1) validation = 1;
  STILL_TRY(STILL_ALLOC(&data->training, rows, "row lists"));
  for (size_t i = 0; i < rows; i++) data->training[i] = i;
  shuffle(data->training, rows, data->options.seed);
  data->training_rows = rows - validation, data->validation_rows = validation;
  data->validation = data->training + data->training_rows;
  return STILL_OK;
}

void corpus_shuffle(const still_training_data *data, uint64_t epoch, size_t *order) {
  memcpy(order, data->training, data->training_rows * sizeof *order);
  shuffle(order, data->training_rows, still_hash64(data->options.seed) + epoch);
}

static uint64_t hash_store(const row_store *store) {
  uint64_t hash = store->rows;
  for (size_t i = 0; i < store->tokens; i++) {
    uint32_t bits;
    memcpy(&bits, &store->weights[i], sizeof bits);
    hash = still_hash64(hash ^ ((uint64_t)(uint32_t)store->ids[i] << 32 | bits));
  }
  for (size_t i = 0; i < store->rows; i++) hash = still_hash64(hash ^ store->first[i]);
  return hash;
}

/* ---- creation ---- */

static still_status check_options(const still_training_data_options *o) {
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(o, still_training_data_options));
  if (o->length < SHORTEST_LENGTH || o->length > LONGEST_LENGTH)
    return still_fail(STILL_ERROR_ARGUMENT, "training data: length is %d, must be %d .. %d",
                      o->length, SHORTEST_LENGTH, LONGEST_LENGTH);
  if (!(o->validation > 0 && o->validation < 1))
    return still_fail(STILL_ERROR_ARGUMENT,
                      "training data: validation is %g, must be above 0 and below 1",
                      (double)o->validation);
  if (o->most_validation_rows < 1)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "training data: most_validation_rows is %d, must be at least 1",
                      o->most_validation_rows);
  return STILL_OK;
}

static still_status read_all(still_training_data *data, const char *const *paths, size_t count) {
  if (!count) return still_fail(STILL_ERROR_ARGUMENT, "training data: no file was given");
  STILL_TRY(grow(&data->store, 0));
  for (size_t i = 0; i < count; i++) STILL_TRY(corpus_read_file(data, paths[i]));
  const row_store *store = &data->store;
  if (store->rows < FEWEST_ROWS)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "%s: %zu tokens in %zu rows are too few; needed are %d rows, one of them for "
                      "validation: at "
                      "least %d tokens of text, or two lines of JSONL, with a weight above 0",
                      paths[0], store->tokens, store->rows, FEWEST_ROWS,
                      data->options.length + SHORTEST_LENGTH);
  for (size_t i = 0; i < store->rows; i++)
    if (store->first[i + 1] - store->first[i] > data->longest)
      data->longest = store->first[i + 1] - store->first[i];
  data->hash = hash_store(store);
  return split_rows(data);
}

still_status still_training_data_open(still_training_data **data, const still_tokenizer *tokenizer,
                                      const char *const *paths, size_t count,
                                      const still_training_data_options *options) {
  static const still_training_data_options defaults = STILL_TRAINING_DATA_OPTIONS_INIT;
  if (!options) options = &defaults;
  *data = NULL;
  STILL_TRY(check_options(options));
  still_training_data *made;
  STILL_TRY(STILL_ALLOC(&made, 1, "training data"));
  made->options = *options, made->tokenizer = tokenizer;
  const still_status status = read_all(made, paths, count);
  if (status) {
    still_training_data_destroy(made);
    return status;
  }
  *data = made;
  return STILL_OK;
}

void still_training_data_destroy(still_training_data *data) {
  if (!data) return;
  still_free(data->store.first), still_free(data->store.ids), still_free(data->store.weights);
  still_free(data->training);
  still_free(data);
}

void still_training_data_get_info(const still_training_data *data, still_training_data_info *info) {
  *info = (still_training_data_info){.training_rows = data->training_rows,
                                     .validation_rows = data->validation_rows,
                                     .tokens = data->store.tokens,
                                     .longest = data->longest};
  for (size_t i = 0; i < data->store.tokens; i++)
    info->weighted_tokens += data->store.weights[i] > 0;
}

/* ---- batches ---- */

still_status corpus_batch_create(corpus_batch *b, size_t tokens, size_t sequences) {
  memset(b, 0, sizeof *b);
  STILL_TRY(STILL_ALLOC(&b->offsets, sequences + 1, "batch"));
  STILL_TRY(STILL_ALLOC(&b->ids, tokens, "batch"));
  STILL_TRY(STILL_ALLOC(&b->target, tokens, "batch"));
  STILL_TRY(STILL_ALLOC(&b->weight, tokens, "batch"));
  STILL_TRY(STILL_ALLOC(&b->budget, sequences, "batch"));
  corpus_batch_clear(b);
  return STILL_OK;
}

void corpus_batch_destroy(corpus_batch *b) {
  still_free(b->offsets), still_free(b->ids), still_free(b->target), still_free(b->weight);
  still_free(b->budget);
  memset(b, 0, sizeof *b);
}

void corpus_batch_clear(corpus_batch *b) {
  b->batch = (still_batch){0, 0, b->offsets, b->ids, b->target, b->weight, NULL};
}

void corpus_batch_add(corpus_batch *b, const still_training_data *data, size_t row, int budget) {
  const size_t first = data->store.first[row], count = data->store.first[row + 1] - first;
  const size_t at = b->batch.tokens;
  memcpy(b->ids + at, data->store.ids + first, count * sizeof *b->ids);
  memcpy(b->target + at, data->store.ids + first + 1, (count - 1) * sizeof *b->target);
  memcpy(b->weight + at, data->store.weights + first + 1, (count - 1) * sizeof *b->weight);
  b->target[at + count - 1] = -1, b->weight[at + count - 1] = 0;
  b->budget[b->batch.sequences] = budget;
  if (budget) b->batch.budget = b->budget;
  b->offsets[b->batch.sequences++] = at;
  b->batch.tokens = b->offsets[b->batch.sequences] = at + count;
}
