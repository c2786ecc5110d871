/* SPDX-License-Identifier: MIT
 * Gradients of every operator against finite differences of a float64 oracle. */
#include "gradient_oracle.h"

#include "base/memory.h"
#include "base/random.h"
#include "linearize/hybrid_gradient.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 8, SAMPLES = 24 };

/* One array in double (the truth), float (what runs) and its gradient. */
typedef struct array {
  const char *name;
  size_t count;
  double *value;
  float *single, *gradient;
} array;

typedef struct problem {
  oracle_head oracle;
  still_hybrid_head head;
  array q, k, v, gate, aq, ak, bq, bk, factor;
  uint8_t *keep;
  double *dy;
} problem;

static still_random random_state;

static array make(const char *name, size_t count, double size) {
  array a = {name, count, calloc(count, sizeof(double)), calloc(count, sizeof(float)),
             calloc(count, sizeof(float))};
  for (size_t i = 0; i < count; i++) {
    a.single[i] = (float)(size * still_random_normal(&random_state));
    a.value[i] = a.single[i];
  }
  return a;
}

static void drop(array *a) {
  free(a->value), free(a->single), free(a->gradient);
}

static problem make_problem(still_attention_kind kind, int tokens, int dim, int chunk, int window,
                            int sinks, int hedgehog, int gated, int linear) {
  const size_t rows = (size_t)(tokens * dim), square = (size_t)(dim * dim);
  still_random_seed(&random_state, 7);
  problem p = {.q = make("q", rows, 1.5), .k = make("k", rows, 1.5), .v = make("v", rows, 1)};
  p.gate = make("gate", rows, 1), p.aq = make("A_q", square, 0.6), p.ak = make("A_k", square, 0.6);
  p.bq = make("bias_q", (size_t)dim, 0.3), p.bk = make("bias_k", (size_t)dim, 0.3);
  p.factor = make("factor", 1, 0);
  p.factor.single[0] = kind == STILL_ATTENTION_LOLCATS ? 0.525f : 1;
  p.factor.value[0] = p.factor.single[0];
  p.keep = calloc((size_t)tokens, 1);
  for (int t = 0; t < tokens; t++) p.keep[t] = still_random_below(&random_state, 5) == 0;
  p.dy = calloc(rows, sizeof *p.dy);
  for (size_t i = 0; i < rows; i++) p.dy[i] = (float)still_random_normal(&random_state);
  const int t2r = kind == STILL_ATTENTION_T2R;
  p.oracle = (oracle_head){kind,
                           tokens,
                           dim,
                           chunk,
                           window,
                           sinks,
                           hedgehog,
                           p.q.value,
                           p.k.value,
                           p.v.value,
                           gated ? p.gate.value : NULL,
                           linear ? p.aq.value : NULL,
                           linear ? p.ak.value : NULL,
                           t2r ? p.bq.value : NULL,
                           t2r ? p.bk.value : NULL,
                           NULL,
                           NULL,
                           p.factor.value[0],
                           p.keep};
  const still_map_kind map = t2r                                         ? STILL_MAP_RELU
                             : hedgehog || kind != STILL_ATTENTION_STILL ? STILL_MAP_HEDGEHOG
                                                                         : STILL_MAP_NORM_PRESERVED;
  p.head = (still_hybrid_head){kind,
                               (size_t)dim,
                               (size_t)chunk,
                               (size_t)window,
                               (size_t)sinks,
                               p.factor.single[0],
                               {map, linear ? p.aq.single : NULL, t2r ? p.bq.single : NULL},
                               {map, linear ? p.ak.single : NULL, t2r ? p.bk.single : NULL}};
  return p;
}

static void free_problem(problem *p) {
  array *all[] = {&p->q, &p->k, &p->v, &p->gate, &p->aq, &p->ak, &p->bq, &p->bk, &p->factor};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
  free(p->keep), free(p->dy);
}

static double loss(problem *p) {
  const size_t rows = (size_t)(p->oracle.tokens * p->oracle.dim);
  double *y = calloc(rows, sizeof *y), sum = 0;
  p->oracle.window_factor = p->factor.value[0];
  oracle_attention(&p->oracle, y);
  for (size_t i = 0; i < rows; i++) sum += y[i] * p->dy[i];
  free(y);
  return sum;
}

/* Samples of an array's gradient against central differences, to 1e-4 of its largest entry. */
static void check(problem *p, array *a) {
  float largest = 0;
  for (size_t i = 0; i < a->count; i++) largest = fmaxf(largest, fabsf(a->gradient[i]));
  for (int n = 0; n < SAMPLES; n++) {
    const size_t i = still_random_below(&random_state, a->count);
    const double step = 1e-5, at = a->value[i];
    a->value[i] = at + step;
    const double up = loss(p);
    a->value[i] = at - step;
    const double down = loss(p);
    a->value[i] = at;
    const double expected = (up - down) / (2 * step);
    if (fabs(expected - a->gradient[i]) > 1e-4 * largest + 3e-6)
      fail_msg("%s[%zu]: gradient %g, finite difference %g, largest %g", a->name, i,
               (double)a->gradient[i], expected, largest);
  }
}

static void run(problem *p) {
  const size_t N = (size_t)p->oracle.tokens, D = (size_t)p->oracle.dim, rows = N * D;
  float *y = calloc(rows, sizeof *y), *denominator = calloc(N, sizeof *denominator);
  float *dy = calloc(rows, sizeof *dy), *gate = calloc(rows, sizeof *gate);
  double *truth = calloc(rows, sizeof *truth);
  float *work = calloc(still_hybrid_work_floats(&p->head, N), sizeof *work);
  for (size_t i = 0; i < rows; i++) dy[i] = (float)p->dy[i];
  for (size_t i = 0; i < rows; i++) gate[i] = 1 / (1 + expf(-p->gate.single[i]));
  const still_hybrid_inputs in = {N, p->q.single, p->k.single, p->v.single,
                                  D, D,           D,           p->oracle.gate_logit ? gate : NULL,
                                  D, p->keep,     NULL};
  const int linear = p->oracle.aq != NULL, t2r = p->oracle.bq != NULL;
  const still_hybrid_gradients out = {p->q.gradient,
                                      p->k.gradient,
                                      p->v.gradient,
                                      D,
                                      D,
                                      D,
                                      p->oracle.gate_logit ? p->gate.gradient : NULL,
                                      D,
                                      p->aq.gradient,
                                      p->ak.gradient,
                                      t2r ? p->bq.gradient : NULL,
                                      t2r ? p->bk.gradient : NULL,
                                      p->oracle.kind == STILL_ATTENTION_LOLCATS ? p->factor.gradient
                                                                                : NULL};
  still_hybrid_forward(&p->head, &in, y, D, denominator, work);
  oracle_attention(&p->oracle, truth);
  for (size_t i = 0; i < rows; i++)
    if (!(fabs(y[i] - truth[i]) < 2e-5)) fail_msg("y[%zu] %g, %g", i, (double)y[i], truth[i]);
  still_hybrid_backward(&p->head, &in, y, D, denominator, dy, D, &out, work);
  check(p, &p->q), check(p, &p->k), check(p, &p->v);
  if (out.gate_logit) check(p, &p->gate);
  if (linear) check(p, &p->aq), check(p, &p->ak);
  if (t2r) check(p, &p->bq), check(p, &p->bk);
  if (out.window_factor) check(p, &p->factor);
  free(y), free(denominator), free(dy), free(gate), free(truth), free(work);
}

static void one(still_attention_kind kind, int tokens, int dim, int chunk, int window, int sinks,
                int hedgehog, int gated, int linear) {
  problem p = make_problem(kind, tokens, dim, chunk, window, sinks, hedgehog, gated, linear);
  run(&p);
  free_problem(&p);
}

static void still_norm_preserved(void **state) {
  (void)state;
  one(STILL_ATTENTION_STILL, 90, 16, 16, 0, 0, 0, 1, 1);
  one(STILL_ATTENTION_STILL, 7, 8, 16, 0, 0, 0, 1, 1);
  one(STILL_ATTENTION_STILL, 64, 8, 16, 0, 0, 0, 0, 1);
}
static void still_hedgehog_map(void **state) {
  (void)state;
  one(STILL_ATTENTION_STILL, 75, 8, 16, 0, 0, 1, 1, 1);
}
static void still_salient_only(void **state) {
  (void)state;
  one(STILL_ATTENTION_STILL, 75, 8, 16, 0, 0, 0, 0, 0);
}
static void full_softmax(void **state) {
  (void)state;
  one(STILL_ATTENTION_FULL, 100, 8, 0, 0, 0, 0, 0, 0);
}
static void sliding_window(void **state) {
  (void)state;
  one(STILL_ATTENTION_SWA, 150, 8, 0, 20, 4, 0, 0, 0);
  one(STILL_ATTENTION_SWA, 70, 8, 0, 1, 0, 0, 0, 0);
}
static void lolcats(void **state) {
  (void)state;
  one(STILL_ATTENTION_LOLCATS, 150, 8, 0, 20, 0, 0, 0, 1);
  one(STILL_ATTENTION_LOLCATS, 150, 8, 0, 70, 0, 0, 0, 1);
}
static void hedgehog(void **state) {
  (void)state;
  one(STILL_ATTENTION_HEDGEHOG, 150, 8, 0, 0, 0, 0, 0, 1);
}
static void t2r(void **state) {
  (void)state;
  one(STILL_ATTENTION_T2R, 130, 8, 0, 0, 0, 0, 0, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(still_norm_preserved),
      cmocka_unit_test(still_hedgehog_map),
      cmocka_unit_test(still_salient_only),
      cmocka_unit_test(full_softmax),
      cmocka_unit_test(sliding_window),
      cmocka_unit_test(lolcats),
      cmocka_unit_test(hedgehog),
      cmocka_unit_test(t2r),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
