/* SPDX-License-Identifier: MIT
 * Training rows: token ids with a loss weight each, read from text and JSONL files, split into
 * training and validation, served in a reproducible order. */
#ifndef STILL_LINEARIZE_CORPUS_H
#define STILL_LINEARIZE_CORPUS_H

#include "linearize/student.h"

#include <still/linearize.h>

/* Rows one after the other; row i is tokens first[i] .. first[i + 1] - 1. */
typedef struct row_store {
  size_t rows, row_capacity;
  size_t tokens, token_capacity;
  size_t *first;
  int32_t *ids;
  float *weights;
} row_store;

struct still_training_data {
  still_training_data_options options;
  const still_tokenizer *tokenizer;
  row_store store;
  size_t *training, *validation; /* indices of rows */
  size_t training_rows, validation_rows;
  size_t longest; /* tokens of the longest row */
  uint64_t hash;  /* of all ids and weights: a resumed run must see the same */
};

/* Fills the store from a file; corpus_read.c. */
still_status corpus_read_file(still_training_data *data, const char *path);
/* Adds tokens to the open row at the end of the store, and closes that row. */
still_status corpus_add(row_store *store, const int32_t *ids, float weight, size_t count);
still_status corpus_close_row(row_store *store);

/* The order of training rows in an epoch: a permutation of data->training. */
void corpus_shuffle(const still_training_data *data, uint64_t epoch, size_t *order);

/* A batch made of rows, in arrays of its own. */
typedef struct corpus_batch {
  still_batch batch;
  size_t *offsets;
  int32_t *ids, *target;
  float *weight;
  int *budget;
} corpus_batch;

still_status corpus_batch_create(corpus_batch *batch, size_t tokens, size_t sequences);
void corpus_batch_destroy(corpus_batch *batch);
void corpus_batch_clear(corpus_batch *batch);
/* Appends a row; the caller sees to it that it fits. budget 0: none of its own. */
void corpus_batch_add(corpus_batch *batch, const still_training_data *data, size_t row, int budget);

#endif
