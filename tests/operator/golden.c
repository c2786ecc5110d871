/* SPDX-License-Identifier: MIT
 *
 * golden [--level LEVEL] [--oracle] [--device DEVICE] [--f16] FILE...: compares the operator with files
 * made by the executable specification (inputs and outputs as tensors, the case as metadata) and
 * prints the largest error of each. Without --level through the portable kernels; --oracle checks
 * the float64 oracle instead of the operator. Bounds: outputs 2e-5 of the row's largest value,
 * scores 1e-4, routing identical. With --f16, keys and values stored as f16: 5e-3 of the row's largest value for both,
 * and routing identical but for tokens whose score is within 1e-3 of another choice. Exit 1 if any is broken.
 */
#include "attention/attention_oracle.h"
#include "base/memory.h"
#include "formats/safetensors.h"
#include "simd/kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double output_bound = 2e-5, score_bound = 1e-4, routing_gap = 0;
static const char *device; /* of the operator */
static still_dtype cache_type;

typedef struct golden {
  const char *path;
  still_safetensors *file;
  bool oracle, failed;
  bool skipped; /* the device has no shader for the last run */
  int heads, kv_heads, dim, chunk;
  size_t n;
  size_t y_count; /* H * N * D */
  float *y, *scores;
  unsigned char *kept;
} golden;

static void fail(golden *g, const char *what) {
  printf("%s: FAILED: %s\n", g->path, what);
  g->failed = true;
}

static const float *tensor(golden *g, const char *name) {
  const still_tensor *t = still_safetensors_find(g->file, name);
  if (t && t->type == STILL_TENSOR_F32) return t->data;
  printf("%s: FAILED: no float32 tensor '%s'\n", g->path, name);
  exit(1);
}

static int number(golden *g, const char *key) {
  const char *text = still_safetensors_metadata(g->file, key);
  if (text) return atoi(text);
  printf("%s: FAILED: no metadata '%s'\n", g->path, key);
  exit(1);
}

static double row_error(const float *got, const float *want, size_t rows, size_t columns) {
  double worst = 0;
  for (size_t r = 0; r < rows; r++, got += columns, want += columns) {
    double largest = 0, error = 0;
    for (size_t c = 0; c < columns; c++) {
      if (!isfinite(got[c])) return INFINITY;
      largest = fmax(largest, fabs((double)want[c]));
      error = fmax(error, fabs((double)got[c] - (double)want[c]));
    }
    worst = fmax(worst, error / (largest > 0 ? largest : 1));
  }
  return worst;
}

static void report(golden *g, const char *what, double error, double bound) {
  if (g->skipped) return;
  const bool good = error <= bound;
  printf("%s: %s %.2e%s\n", g->path, what, error, good ? "" : " FAILED");
  if (!good) g->failed = true;
}

static still_rows rows_of(golden *g, const char *name) {
  return (still_rows){tensor(g, name), g->n * (size_t)g->dim, (size_t)g->dim};
}

static still_attention_options options_of(const golden *g, still_attention_kind kind) {
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.kind = kind;
  o.heads = g->heads;
  o.kv_heads = g->kv_heads;
  o.head_dim = g->dim;
  o.chunk = g->chunk;
  o.context = (int)g->n;
  o.schedule = STILL_SCHEDULE_FIXED;
  o.budget = 0;
  o.device = device;
  o.cache_type = cache_type;
  return o;
}

static void run_oracle(golden *g, const still_attention_options *o,
                       const still_attention_weights *w, const still_attention_inputs *in) {
  double *y = calloc(g->y_count, sizeof *y);
  double *scores = calloc((size_t)g->heads * g->n, sizeof *scores);
  if (!y || !scores) abort();
  if (still_attention_oracle(o, w, g->n, in, y, scores, g->kept)) fail(g, still_last_error());
  for (size_t i = 0; i < g->y_count; i++) g->y[i] = (float)y[i];
  for (size_t i = 0; i < (size_t)g->heads * g->n; i++) g->scores[i] = (float)scores[i];
  free(y);
  free(scores);
}

/* A device stays open, with its compiled shaders, as long as a plan holds it. NULL: it cannot be
 * had. */
static still_attention_plan *hold_device(void) {
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  still_attention_plan *plan = NULL;
  o.kind = STILL_ATTENTION_FULL;
  o.heads = 1;
  o.head_dim = 4;
  o.device = device;
  (void)still_attention_plan_create(&plan, &o, NULL);
  return plan;
}

/* Two more chunks of nothing, so that every whole chunk of the file gets routed. */
static still_status route_all(golden *g, const still_attention_plan *plan,
                              still_attention_cache *cache) {
  const size_t n = 2 * (size_t)g->chunk, dim = (size_t)g->dim, heads = (size_t)g->heads;
  float *zeros = calloc(heads * n * dim, sizeof *zeros), *y = calloc(heads * n * dim, sizeof *y);
  if (!zeros || !y) abort();
  still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
  in.q = in.k = in.v = (still_rows){zeros, n * dim, dim};
  const still_status status = still_attention_forward(plan, cache, n, &in, y, n * dim, dim);
  free(zeros);
  free(y);
  return status;
}

/* Of the file's whole chunks; its last, broken one was filled up by route_all. */
static void read_kept(golden *g, const still_attention_cache *cache) {
  const size_t whole = g->n / (size_t)g->chunk * (size_t)g->chunk;
  int64_t *positions = calloc(g->n + 2 * (size_t)g->chunk, sizeof *positions);
  if (!positions) abort();
  for (int h = 0; h < g->heads; h++) {
    const size_t count =
        still_attention_cache_kept(cache, h, positions, g->n + 2 * (size_t)g->chunk);
    for (size_t i = 0; i < count; i++)
      if ((size_t)positions[i] < whole) g->kept[(size_t)h * g->n + (size_t)positions[i]] = 1;
  }
  free(positions);
}

static void run_operator(golden *g, const still_attention_options *o,
                         const still_attention_weights *w, const still_attention_inputs *in) {
  still_attention_plan *plan = NULL;
  still_attention_cache *cache = NULL;
  still_attention_inputs with_scores = *in;
  with_scores.scores = o->kind == STILL_ATTENTION_STILL ? g->scores : NULL;
  still_status status = still_attention_plan_create(&plan, o, w);
  if (!status) status = still_attention_cache_create(&cache, plan);
  if (!status)
    status = still_attention_forward(plan, cache, g->n, &with_scores, g->y, g->n * (size_t)g->dim,
                                     (size_t)g->dim);
  if (!status && o->kind == STILL_ATTENTION_STILL) status = route_all(g, plan, cache);
  if (!status) read_kept(g, cache);
  g->skipped = status == STILL_ERROR_UNSUPPORTED && device;
  if (g->skipped)
    printf("%s: skipped: %s\n", g->path, still_last_error());
  else if (status)
    fail(g, still_last_error());
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
}

static void run(golden *g, const still_attention_options *o, const still_attention_weights *w) {
  still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
  in.q = rows_of(g, "q");
  in.k = rows_of(g, "k");
  in.v = rows_of(g, "v");
  in.gate = rows_of(g, "g");
  if (o->kind == STILL_ATTENTION_LIGER_GLA) {
    in.q_raw = rows_of(g, "q0");
    in.k_raw = rows_of(g, "k0");
  }
  for (size_t i = 0; i < g->y_count; i++) g->y[i] = NAN;
  memset(g->kept, 0, (size_t)g->heads * g->n);
  (g->oracle ? run_oracle : run_operator)(g, o, w, &in);
}

static void check_output(golden *g, const char *label, const char *name) {
  report(g, label, row_error(g->y, tensor(g, name), (size_t)g->heads * g->n, (size_t)g->dim),
         output_bound);
}

static void check_scores(golden *g, const char *name) {
  const float *want = tensor(g, name);
  double worst = 0;
  for (size_t i = 0; i < (size_t)g->heads * g->n; i++) {
    const double error = fabs((double)g->scores[i] - (double)want[i]);
    worst = isfinite(g->scores[i]) ? fmax(worst, error) : INFINITY;
  }
  if (cache_type != STILL_F32) worst = row_error(g->scores, want, (size_t)g->heads, g->n);
  report(g, name, worst, score_bound);
}

/* Whether the token's choice, unlike the file's, is one that rounding may make: by the scores of its head's chunk. */
static bool is_close_call(golden *g, const unsigned char *keep, size_t token) {
  const float *scores = tensor(g, "scores");
  const size_t chunk = (size_t)g->chunk, position = token % g->n;
  const size_t first = token - position % chunk;
  const size_t last = still_smaller(first + chunk, token - position + g->n);
  double gap = INFINITY; /* to the nearest token of the other choice */
  for (size_t i = first; i < last; i++)
    if (keep[i] != keep[token]) gap = fmin(gap, fabs((double)scores[i] - (double)scores[token]));
  return gap < routing_gap;
}

static void check_routing(golden *g) {
  const unsigned char *keep = still_safetensors_find(g->file, "keep")->data;
  size_t differ = 0, wrong = 0;
  for (size_t i = 0; i < (size_t)g->heads * g->n; i++) {
    if (g->kept[i] == keep[i]) continue;
    differ++;
    wrong += !is_close_call(g, keep, i);
  }
  printf("%s: routing %s (%zu tokens differ)\n", g->path,
         wrong    ? "FAILED"
         : differ ? "differs in close calls"
                  : "identical",
         differ);
  if (wrong) g->failed = true;
}

static still_attention_weights feature_maps(golden *g) {
  still_attention_weights w = STILL_ATTENTION_WEIGHTS_INIT;
  w.feature_q = tensor(g, "aq");
  w.feature_k = tensor(g, "ak");
  return w;
}

static void check_still(golden *g) {
  still_attention_options o = options_of(g, STILL_ATTENTION_STILL);
  const int cap = number(g, "cap");
  o.keep = number(g, "lam");
  if (cap >= 0) o.budget = o.chunk + cap;
  const char *metric = still_safetensors_metadata(g->file, "metric");
  if (still_metric_parse(metric, &o.metric)) return fail(g, still_last_error());
  const still_attention_weights w = feature_maps(g);
  run(g, &o, &w);
  check_output(g, "y", "y");
  check_scores(g, "scores");
  check_routing(g);
}

static void check_kind(golden *g, const char *label, still_attention_kind kind, int sinks) {
  still_attention_options o = options_of(g, kind);
  o.window = number(g, "W");
  o.sinks = sinks;
  still_attention_weights w = STILL_ATTENTION_WEIGHTS_INIT;
  if (kind == STILL_ATTENTION_LOLCATS) {
    w = feature_maps(g);
    w.window_factor = tensor(g, "wf");
  }
  run(g, &o, &w);
  check_output(g, label, label);
}

static void check_metric(golden *g, const char *tensor_name, still_metric metric) {
  still_attention_options o = options_of(g, STILL_ATTENTION_STILL);
  o.metric = metric;
  run(g, &o, NULL);
  check_scores(g, tensor_name);
}

/* The feature maps alone, of q. */
static void check_features(golden *g, const char *name, bool norm_preserved) {
  const size_t dim = (size_t)g->dim, rows = g->n;
  const still_kernels *k = still_kernels_get();
  float *u = calloc(rows * dim, sizeof *u), *norm = calloc(rows, sizeof *norm);
  float *got = calloc((size_t)g->heads * rows * 2 * dim, sizeof *got);
  double *wide = calloc(3 * dim, sizeof *wide);
  if (!u || !norm || !got || !wide) abort();
  for (size_t h = 0; h < (size_t)g->heads; h++) {
    const float *q = tensor(g, "q") + h * rows * dim, *map = tensor(g, "aq") + h * dim * dim;
    float *out = got + h * rows * 2 * dim;
    k->matmul(u, dim, q, dim, 1, map, dim, rows, dim, dim, 0);
    k->row_norms(norm, q, dim, rows, dim);
    if (!g->oracle) k->feature_rows(out, 2 * dim, u, dim, norm_preserved ? norm : NULL, rows, dim);
    for (size_t i = 0; g->oracle && i < rows; i++) {
      for (size_t d = 0; d < dim; d++) wide[2 * dim + d] = (double)q[i * dim + d];
      (norm_preserved ? still_oracle_norm_preserved : still_oracle_hedgehog)(wide, wide + 2 * dim,
                                                                             map, dim);
      for (size_t d = 0; d < 2 * dim; d++) out[i * 2 * dim + d] = (float)wide[d];
    }
  }
  report(g, name, row_error(got, tensor(g, name), (size_t)g->heads * rows, 2 * dim), output_bound);
  free(u);
  free(norm);
  free(got);
  free(wide);
}

static void check_baselines(golden *g) {
  check_kind(g, "full", STILL_ATTENTION_FULL, 0);
  check_kind(g, "swa", STILL_ATTENTION_SWA, 0);
  check_kind(g, "swa_sinks", STILL_ATTENTION_SWA, number(g, "sinks"));
  check_kind(g, "lolcats", STILL_ATTENTION_LOLCATS, 0);
  check_kind(g, "liger_gla", STILL_ATTENTION_LIGER_GLA, 0);
  check_features(g, "np_map_q", true);
  check_features(g, "hedgehog_q", false);
  check_metric(g, "score_saliency", STILL_METRIC_SALIENCY);
  check_metric(g, "score_diagonal", STILL_METRIC_DIAGONAL);
  check_metric(g, "score_qk", STILL_METRIC_QK);
  check_metric(g, "score_keynorm", STILL_METRIC_KEYNORM);
}

static void check_case(golden *g, const char *op) {
  g->heads = number(g, "H");
  g->kv_heads = number(g, "G");
  g->dim = number(g, "D");
  g->chunk = number(g, "C");
  g->n = (size_t)number(g, "N");
  g->y_count = (size_t)g->heads * g->n * (size_t)g->dim;
  g->y = calloc(g->y_count, sizeof *g->y);
  g->scores = calloc((size_t)g->heads * g->n, sizeof *g->scores);
  g->kept = calloc((size_t)g->heads * g->n, 1);
  if (!g->y || !g->scores || !g->kept) abort();
  (!strcmp(op, "still") ? check_still : check_baselines)(g);
  free(g->y);
  free(g->scores);
  free(g->kept);
}

/* False if anything in the file is off. */
static bool check_file(const char *path, bool oracle) {
  golden g = {.path = path, .oracle = oracle};
  if (still_safetensors_open(&g.file, path, true)) {
    printf("%s: FAILED: %s\n", path, still_last_error());
    return false;
  }
  const char *op = still_safetensors_metadata(g.file, "op");
  if (op && (!strcmp(op, "still") || !strcmp(op, "baselines")))
    check_case(&g, op);
  else if (op && !strcmp(op, "still_grad"))
    printf("%s: skipped: gradients are checked elsewhere\n", path);
  else
    fail(&g, "metadata 'op' is none of still, baselines, still_grad");
  still_safetensors_close(g.file);
  return !g.failed;
}

int main(int argc, char **argv) {
  const char *level = "portable";
  bool oracle = false, good = true;
  int files = 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--oracle")) {
      oracle = true;
    } else if (!strcmp(argv[i], "--level") && i + 1 < argc) {
      level = argv[++i];
    } else if (!strcmp(argv[i], "--device") && i + 1 < argc) {
      device = argv[++i];
    } else if (!strcmp(argv[i], "--f16")) {
      cache_type = STILL_F16;
      output_bound = score_bound = 5e-3;
      routing_gap = 1e-3;
    } else {
      argv[1 + files++] = argv[i];
    }
  }
  if (!files) {
    fprintf(stderr, "usage: golden [--level LEVEL] [--oracle] [--device DEVICE] [--f16] FILE...\n");
    return 2;
  }
  if (still_set_cpu_level(level)) {
    printf("skipped: %s\n", still_last_error());
    return 77;
  }
  still_attention_plan *held = device ? hold_device() : NULL;
  if (device && !held) {
    printf("skipped: %s\n", still_last_error());
    return 77;
  }
  for (int i = 1; i <= files; i++) good = check_file(argv[i], oracle) && good;
  still_attention_plan_destroy(held);
  return good ? 0 : 1;
}
