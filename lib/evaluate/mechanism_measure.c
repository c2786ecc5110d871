/* SPDX-License-Identifier: MIT
 * What a record says: head by head, full attention over the recorded queries and keys, and how the
 * head's own choice compares with it. */
#include "attention/attention_stages.h"
#include "base/memory.h"
#include "base/threads.h"
#include "evaluate/mechanism.h"
#include "model/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The arrays of one head's work. */
typedef struct work {
  float *keys, *logits;            /* (N, D), (N) */
  double *weights, *received;      /* (N) */
  float *self_local, *self_global; /* (N) */
  unsigned char *best;             /* (N) */
  int *order;                      /* (N) */
} work;

/* One head of a record, and of its reference. */
typedef struct subject {
  const still_mechanism *own, *reference;
  int layer, head;
  size_t tokens, chunk, routed;
} subject;

static void free_work(work *w) {
  void *const arrays[] = {w->keys,       w->logits,      w->weights, w->received,
                          w->self_local, w->self_global, w->best,    w->order};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) still_free(arrays[i]);
}

static still_status make_work(work *w, size_t tokens, size_t dim) {
  STILL_TRY(STILL_ALLOC(&w->keys, tokens * dim, "a head's keys"));
  STILL_TRY(STILL_ALLOC(&w->logits, tokens, "a head's logits"));
  STILL_TRY(STILL_ALLOC(&w->weights, tokens, "a head's weights"));
  STILL_TRY(STILL_ALLOC(&w->received, tokens, "a head's weights"));
  STILL_TRY(STILL_ALLOC(&w->self_local, tokens, "a head's weights"));
  STILL_TRY(STILL_ALLOC(&w->self_global, tokens, "a head's weights"));
  STILL_TRY(STILL_ALLOC(&w->best, tokens, "a head's choice"));
  return STILL_ALLOC(&w->order, tokens, "a head's choice");
}

/* Chunks that have been routed when the sequence has this many tokens: all but the last two. */
static size_t routed_tokens(size_t tokens, size_t chunk) {
  const size_t last = (tokens - 1) / chunk;
  return last < 2 ? 0 : (last - 1) * chunk;
}

/* ---- full attention */

/* weights[0 .. count-1] = exp(logits - their maximum); returns their sum. */
static double exponentials(const float *logits, size_t count, double scale, double *weights) {
  float largest = -INFINITY;
  double sum = 0;
  for (size_t i = 0; i < count; i++) largest = fmaxf(largest, logits[i]);
  for (size_t i = 0; i < count; i++)
    sum += weights[i] = exp(scale * ((double)logits[i] - (double)largest));
  return sum;
}

/* The query of token t: its attention to itself, within its window and among all, and what it adds
 * to the attention that remote tokens receive. */
static void attend(const subject *s, work *w, size_t t) {
  const size_t dim = (size_t)s->own->dim, seen = t + 1, chunk = t / s->chunk;
  const size_t window = still_smaller(seen, s->chunk);
  const float *q = s->reference->layers[s->layer].q +
                   (t * (size_t)s->reference->head_count + (size_t)s->head) * dim;
  const double scale = 1 / sqrt((double)dim);
  still_kernels_get()->matvec_f32(w->logits, w->keys, q, seen, dim);
  const double local = exponentials(w->logits + seen - window, window, scale, w->weights);
  w->self_local[t] = (float)(w->weights[window - 1] / local);
  const double all = exponentials(w->logits, seen, scale, w->weights);
  w->self_global[t] = (float)(w->weights[t] / all);
  const size_t remote = chunk < 2 ? 0 : (chunk - 1) * s->chunk;
  for (size_t j = 0; j < remote; j++) w->received[j] += w->weights[j] / all;
}

/* Sums become means over the queries for which a token is remote. */
static void attend_all(const subject *s, work *w, float *attention) {
  const still_recorded_layer *layer = &s->reference->layers[s->layer];
  const size_t dim = (size_t)s->own->dim, kv_heads = (size_t)s->own->kv_heads;
  const size_t kv_head = (size_t)s->head / ((size_t)s->own->head_count / kv_heads);
  for (size_t t = 0; t < s->tokens; t++)
    memcpy(w->keys + t * dim, layer->k + (t * kv_heads + kv_head) * dim, dim * sizeof *w->keys);
  for (size_t t = 0; t < s->tokens; t++) attend(s, w, t);
  for (size_t j = 0; j < s->routed; j++)
    attention[j] = (float)(w->received[j] / (double)(s->tokens - (j / s->chunk + 2) * s->chunk));
}

/* ---- one head's choice */

/* How many of count tokens are kept and, of these, among as many with the largest values. */
static void overlap(work *w, const float *values, const unsigned char *kept, size_t count,
                    int64_t *all, int64_t *both) {
  size_t keep = 0;
  for (size_t i = 0; i < count; i++) keep += kept[i];
  still_choose_best(w->best, values, count, keep, w->order);
  *all += (int64_t)keep;
  for (size_t i = 0; i < count; i++) *both += kept[i] && w->best[i];
}

static void compare_choice(const subject *s, work *w, const still_measured_head *measured,
                           still_mechanism_head *head) {
  int64_t both = 0, both_in_chunks = 0, again = 0;
  overlap(w, measured->attention, measured->kept, s->routed, &head->kept, &both);
  for (size_t first = 0; first < s->routed; first += s->chunk)
    overlap(w, measured->attention + first, measured->kept + first, s->chunk, &again,
            &both_in_chunks);
  const double kept = head->kept ? (double)head->kept : NAN;
  head->overlap = (double)both / kept;
  head->overlap_in_chunks = (double)both_in_chunks / kept;
  head->chance = kept / (double)s->routed;
}

static double mean_from(const float *values, size_t heads, size_t head, size_t first, size_t end) {
  double sum = 0;
  if (first >= end) return NAN;
  for (size_t t = first; t < end; t++) sum += (double)values[t * heads + head];
  return sum / (double)(end - first);
}

static still_status read_kept(const subject *s, still_measured_head *measured) {
  const size_t count = still_session_kept(s->own->session, s->layer, s->head, NULL, 0);
  int64_t *positions;
  STILL_TRY(STILL_ALLOC(&positions, count, "kept positions"));
  still_session_kept(s->own->session, s->layer, s->head, positions, count);
  for (size_t i = 0; i < count; i++)
    if (positions[i] < (int64_t)s->routed) measured->kept[positions[i]] = 1;
  still_free(positions);
  return STILL_OK;
}

static still_status make_measured(const subject *s, still_measured_head *measured) {
  const still_recorded_layer *layer = &s->own->layers[s->layer];
  still_free(measured->scores), still_free(measured->attention), still_free(measured->kept);
  memset(measured, 0, sizeof *measured);
  STILL_TRY(STILL_ALLOC(&measured->scores, s->tokens, "a head's scores"));
  STILL_TRY(STILL_ALLOC(&measured->attention, s->tokens, "a head's attention"));
  STILL_TRY(STILL_ALLOC(&measured->kept, s->tokens, "a head's choice"));
  for (size_t t = 0; layer->routes && t < s->tokens; t++)
    measured->scores[t] = layer->scores[t * (size_t)s->own->head_count + (size_t)s->head];
  return read_kept(s, measured);
}

static still_status fill_head(const subject *s, work *w, still_measured_head *measured,
                              still_mechanism_head *head) {
  const still_recorded_layer *layer = &s->own->layers[s->layer];
  const size_t heads = (size_t)s->own->head_count, at = (size_t)s->head;
  *head = (still_mechanism_head){.layer = s->layer,
                                 .head = s->head,
                                 .routed = layer->routes ? (int64_t)s->routed : 0,
                                 .score_correlation = NAN};
  STILL_TRY(make_measured(s, measured));
  attend_all(s, w, measured->attention);
  compare_choice(s, w, measured, head);
  head->linear_mass = mean_from(layer->linear_mass, heads, at, 2 * s->chunk, s->tokens);
  head->linear_output = mean_from(layer->linear_output, heads, at, 2 * s->chunk, s->tokens);
  if (layer->routes)
    STILL_TRY(still_rank_correlation(measured->scores, measured->attention, s->routed,
                                     &head->score_correlation));
  else
    memcpy(measured->scores, w->self_local, s->tokens * sizeof(float));
  const size_t first = still_smaller(s->chunk, s->tokens);
  return still_rank_correlation(w->self_local + first, w->self_global + first, s->tokens - first,
                                &head->self_correlation);
}

static still_status measure_head(still_mechanism *m, const still_mechanism *reference, int index) {
  const int layer = index / m->head_count;
  const size_t chunk = m->layers[layer].chunk;
  const subject s = {.own = m,
                     .reference = reference,
                     .layer = layer,
                     .head = index % m->head_count,
                     .tokens = m->tokens,
                     .chunk = chunk,
                     .routed = routed_tokens(m->tokens, chunk)};
  work w = {0};
  still_status status = make_work(&w, s.tokens, (size_t)m->dim);
  if (!status) status = fill_head(&s, &w, &m->measured[index], &m->heads[index]);
  free_work(&w);
  return status;
}

/* ---- words */

static int by_kept(const void *a, const void *b) {
  const still_mechanism_word *x = a, *y = b;
  if (x->kept != y->kept) return x->kept < y->kept ? 1 : -1;
  return (x->id > y->id) - (x->id < y->id);
}

static void count_word(const still_mechanism *m, size_t t, still_mechanism_word *word) {
  for (int i = 0; i < m->layer_count * m->head_count; i++) {
    if ((int64_t)t >= m->heads[i].routed) continue;
    word->seen++;
    word->kept += m->measured[i].kept[t];
  }
}

static still_status count_words(still_mechanism *m) {
  const size_t vocabulary = (size_t)m->session->model->weights->config.vocabulary;
  still_free(m->words);
  m->word_count = 0;
  STILL_TRY(STILL_ALLOC(&m->words, vocabulary, "a list of words"));
  for (size_t id = 0; id < vocabulary; id++) m->words[id].id = (still_token)id;
  for (size_t t = 0; t < m->tokens; t++) count_word(m, t, &m->words[m->ids[t]]);
  qsort(m->words, vocabulary, sizeof *m->words, by_kept);
  while (m->word_count < vocabulary && m->words[m->word_count].kept) m->word_count++;
  return STILL_OK;
}

/* ---- the whole */

static size_t recorded_tokens(const still_mechanism *m) {
  size_t tokens = m->session ? (size_t)still_session_position(m->session) : m->tokens;
  for (int i = 0; i < m->layer_count; i++) tokens = still_smaller(tokens, m->layers[i].tokens);
  return tokens;
}

static still_status check(const still_mechanism *m, const still_mechanism *reference) {
  if (!m->session) return still_fail(STILL_ERROR_ARGUMENT, "the recorded session is gone");
  if (!recorded_tokens(m)) return still_fail(STILL_ERROR_ARGUMENT, "no tokens were recorded");
  if (m->layer_count != reference->layer_count || m->head_count != reference->head_count ||
      m->kv_heads != reference->kv_heads || m->dim != reference->dim)
    return still_fail(STILL_ERROR_ARGUMENT, "the reference is of a model of another shape");
  if (recorded_tokens(reference) == recorded_tokens(m)) return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT, "%zu tokens were recorded, of the reference %zu",
                    recorded_tokens(m), recorded_tokens(reference));
}

static still_status make_room(still_mechanism *m) {
  const size_t heads = (size_t)m->layer_count * (size_t)m->head_count;
  STILL_TRY(STILL_REALLOC(&m->ids, m->tokens, "recorded tokens"));
  memcpy(m->ids, still_session_tokens(m->session), m->tokens * sizeof *m->ids);
  STILL_TRY(STILL_REALLOC(&m->measured, heads, "measured heads"));
  return STILL_REALLOC(&m->heads, heads, "measured heads");
}

/* Heads side by side; each is one thread's. */
static still_status measure_heads(still_mechanism *m, const still_mechanism *reference) {
  const int heads = m->layer_count * m->head_count;
  still_status first = STILL_OK;
  STILL_OMP(parallel for num_threads(m->session->options.threads) schedule(dynamic, 1))
  for (int i = 0; i < heads; i++) {
    const still_status status = measure_head(m, reference, i);
    if (status) {
      STILL_OMP(critical)
      first = status;
    }
  }
  /* the sentence is of the thread that failed */
  return first ? still_fail(first, "no memory to measure %zu tokens", m->tokens) : STILL_OK;
}

still_status still_mechanism_measure(still_mechanism *m, const still_mechanism *reference) {
  if (!reference) reference = m;
  STILL_TRY(check(m, reference));
  m->tokens = recorded_tokens(m);
  still_status status = make_room(m);
  if (!status) status = measure_heads(m, reference);
  if (!status) status = count_words(m);
  if (!status) return STILL_OK;
  still_free(m->heads);
  m->heads = NULL;
  m->word_count = 0;
  return status;
}
