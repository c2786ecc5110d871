/* SPDX-License-Identifier: MIT
 * The hybrid operator's gradients against files of the executable specification: to 1e-4 of the
 * largest entry. */
#include "harness/check.h"

#include "formats/safetensors.h"
#include "linearize/hybrid_gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double bound = 1e-4;
static const char *const *files;

typedef struct golden {
  still_safetensors *file;
  size_t H, G, N, D, C;
} golden;

static float *array(const golden *g, const char *name) {
  const still_tensor *tensor = still_safetensors_find(g->file, name);
  if (!tensor) fail_msg("no tensor %s", name);
  const uint64_t items = still_tensor_items(tensor);
  float *out = calloc(items, sizeof *out);
  check_ok(still_tensor_to_f32(tensor, 0, items, out));
  return out;
}

static size_t number(const golden *g, const char *key) {
  return (size_t)atoi(still_safetensors_metadata(g->file, key));
}

static void compare(const golden *g, const char *name, const float *got, size_t count) {
  float *want = array(g, name);
  float largest = 0, error = 0;
  for (size_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(want[i]));
  for (size_t i = 0; i < count; i++) {
    const float off = fabsf(got[i] - want[i]);
    if (!(off <= error)) error = isnan(off) ? INFINITY : off;
  }
  if (!(error <= bound * largest)) fail_msg("%s: off by %g, largest %g", name, error, largest);
  free(want);
}

/* One operator's inputs and where its gradients go, for all heads. */
typedef struct run {
  const golden *g;
  float *q, *k, *v, *gate, *aq, *ak, *y, *denominator;
  float *dq, *dk, *dv, *dgate, *daq, *dak;
  uint8_t *keep;
} run;

static still_hybrid_head head_of(const run *r, size_t h, still_attention_kind kind) {
  const golden *g = r->g;
  const size_t square = g->D * g->D;
  return (still_hybrid_head){.kind = kind,
                             .dim = g->D,
                             .chunk = g->C,
                             .window_factor = 1,
                             .map_q = {STILL_MAP_NORM_PRESERVED, r->aq + h * square, NULL},
                             .map_k = {STILL_MAP_NORM_PRESERVED, r->ak + h * square, NULL}};
}

static still_hybrid_inputs inputs_of(const run *r, size_t h) {
  const golden *g = r->g;
  const size_t rows = g->N * g->D, group = h / (g->H / g->G);
  return (still_hybrid_inputs){g->N,
                               r->q + h * rows,
                               r->k + group * rows,
                               r->v + group * rows,
                               g->D,
                               g->D,
                               g->D,
                               r->gate + h * rows,
                               g->D,
                               r->keep + h * g->N,
                               NULL};
}

static void forward(run *r, float *y, still_attention_kind kind) {
  const golden *g = r->g;
  for (size_t h = 0; h < g->H; h++) {
    const still_hybrid_head head = head_of(r, h, kind);
    const still_hybrid_inputs in = inputs_of(r, h);
    float *work = calloc(still_hybrid_work_floats(&head, g->N), sizeof *work);
    still_hybrid_forward(&head, &in, y + h * g->N * g->D, g->D, r->denominator + h * g->N, work);
    free(work);
  }
}

static void backward(run *r, const float *dy, bool inputs) {
  const golden *g = r->g;
  const size_t rows = g->N * g->D, square = g->D * g->D;
  for (size_t h = 0; h < g->H; h++) {
    const size_t group = h / (g->H / g->G);
    const still_hybrid_head head = head_of(r, h, STILL_ATTENTION_STILL);
    const still_hybrid_inputs in = inputs_of(r, h);
    still_hybrid_gradients out = {.gate_logit = r->dgate + h * rows,
                                  .gate_row = g->D,
                                  .feature_q = r->daq + h * square,
                                  .feature_k = r->dak + h * square};
    if (inputs) {
      out.q = r->dq + h * rows, out.k = r->dk + group * rows, out.v = r->dv + group * rows;
      out.q_row = out.k_row = out.v_row = g->D;
    }
    float *work = calloc(still_hybrid_work_floats(&head, g->N), sizeof *work);
    still_hybrid_backward(&head, &in, r->y + h * rows, g->D, r->denominator + h * g->N,
                          dy + h * rows, g->D, &out, work);
    free(work);
  }
}

static run begin(const golden *g) {
  const size_t rows = g->H * g->N * g->D, square = g->H * g->D * g->D;
  run r = {g,
           array(g, "q"),
           array(g, "k"),
           array(g, "v"),
           array(g, "g"),
           array(g, "aq"),
           array(g, "ak"),
           calloc(rows, sizeof(float)),
           calloc(g->H * g->N, sizeof(float)),
           calloc(rows, sizeof(float)),
           calloc(rows, sizeof(float)),
           calloc(rows, sizeof(float)),
           calloc(rows, sizeof(float)),
           calloc(square, sizeof(float)),
           calloc(square, sizeof(float)),
           calloc(g->H * g->N, 1)};
  const still_tensor *keep = still_safetensors_find(g->file, "keep");
  memcpy(r.keep, keep->data, g->H * g->N);
  forward(&r, r.y, STILL_ATTENTION_STILL);
  return r;
}

static void end(run *r) {
  float *all[] = {r->q,           r->k,  r->v,  r->gate, r->aq,    r->ak,  r->y,
                  r->denominator, r->dq, r->dk, r->dv,   r->dgate, r->daq, r->dak};
  for (size_t i = 0; i < CHECK_COUNT(all); i++) free(all[i]);
  free(r->keep);
}

/* Every input and parameter, for the file's dy. */
static void all_gradients(const golden *g) {
  const size_t rows = g->N * g->D, square = g->H * g->D * g->D;
  run r = begin(g);
  float *dy = array(g, "dy");
  compare(g, "y", r.y, g->H * rows);
  backward(&r, dy, true);
  compare(g, "d_q", r.dq, g->H * rows), compare(g, "d_k", r.dk, g->G * rows);
  compare(g, "d_v", r.dv, g->G * rows), compare(g, "d_gate_logit", r.dgate, g->H * rows);
  compare(g, "d_aq", r.daq, square), compare(g, "d_ak", r.dak, square);
  free(dy), end(&r);
}

/* Of the mean squared error to full attention, for what stage 1 trains. */
static void transfer_gradients(const golden *g) {
  const size_t rows = g->H * g->N * g->D, square = g->H * g->D * g->D;
  run r = begin(g);
  float *truth = calloc(rows, sizeof *truth), *denominator = r.denominator;
  float *dy = calloc(rows, sizeof *dy), loss = 0;
  r.denominator = calloc(g->H * g->N, sizeof *r.denominator); /* the full pass has its own */
  forward(&r, truth, STILL_ATTENTION_FULL);
  free(r.denominator), r.denominator = denominator;
  for (size_t i = 0; i < rows; i++) {
    const float difference = r.y[i] - truth[i];
    loss += difference * difference / (float)rows, dy[i] = 2 * difference / (float)rows;
  }
  compare(g, "stage1_loss", &loss, 1);
  backward(&r, dy, false);
  compare(g, "stage1_d_aq", r.daq, square), compare(g, "stage1_d_ak", r.dak, square);
  compare(g, "stage1_d_gate_logit", r.dgate, rows);
  free(truth), free(dy), end(&r);
}

static void for_files(void (*test)(const golden *)) {
  for (size_t i = 0; files[i]; i++) {
    golden g = {0};
    check_ok(still_safetensors_open(&g.file, files[i], true));
    g.H = number(&g, "H"), g.G = number(&g, "G"), g.N = number(&g, "N");
    g.D = number(&g, "D"), g.C = number(&g, "C");
    test(&g);
    still_safetensors_close(g.file);
  }
}

static void every_gradient(void **state) {
  (void)state;
  for_files(all_gradients);
}
static void attention_transfer(void **state) {
  (void)state;
  for_files(transfer_gradients);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_gradient),
                                     cmocka_unit_test(attention_transfer)};
  if (argc < 2) return 99;
  files = (const char *const *)argv + 1;
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
