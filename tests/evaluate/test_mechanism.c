/* SPDX-License-Identifier: MIT
 * What is said about the heads of a recorded session, against a plain float64 computation over the
 * queries and keys that a probe of its own heard, and the kept tokens that the session names. */
#include "base/random.h"
#include "byte_model.h"
#include "evaluate/mechanism.h"

#include <math.h>
#include <still/evaluate.h>

enum { TOKENS = 150, LAYERS = 2, HEADS = 4, KV_HEADS = 2, DIM = 16, CHUNK = 8 };

static still_model *model;
static char text[TOKENS + 1];
static const still_mechanism_options whole = STILL_MECHANISM_OPTIONS_INIT;

static int set_up(void **state) {
  (void)state;
  for (uint64_t i = 0; i < TOKENS; i++) text[i] = (char)('a' + still_hash64(i) % 26);
  check_ok(still_model_open(&model, byte_model(), NULL));
  return 0;
}

static int tear_down(void **state) {
  still_model_destroy(model);
  return check_nothing_allocated(state);
}

static still_session_options kind_options(still_attention_kind kind) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = kind;
  options.chunk = CHUNK, options.budget = 48, options.context = TOKENS;
  return options;
}

/* ---- the plain computation */

typedef struct heard {
  double q[LAYERS][HEADS][TOKENS][DIM], k[LAYERS][KV_HEADS][TOKENS][DIM];
  double scores[LAYERS][HEADS][TOKENS];
} heard;

static int hear(void *user, const still_probe *p) {
  heard *all = user;
  for (size_t t = 0; t < p->tokens; t++)
    for (size_t d = 0; d < DIM; d++) {
      const size_t at = (size_t)p->first + t;
      for (size_t h = 0; h < HEADS; h++) {
        all->q[p->layer][h][at][d] =
            (double)p->q.data[h * p->q.head_stride + t * p->q.token_stride + d];
        if (p->scores) all->scores[p->layer][h][at] = (double)p->scores[h * p->tokens + t];
      }
      for (size_t g = 0; g < KV_HEADS; g++)
        all->k[p->layer][g][at][d] =
            (double)p->k.data[g * p->k.head_stride + t * p->k.token_stride + d];
    }
  return 0;
}

/* Softmax of query t over keys first .. t, into weights[first .. t]. */
static void attend(const heard *all, int layer, int head, int first, int t, double *weights) {
  double sum = 0;
  for (int j = first; j <= t; j++) {
    double logit = 0;
    for (int d = 0; d < DIM; d++)
      logit += all->q[layer][head][t][d] * all->k[layer][head / (HEADS / KV_HEADS)][j][d];
    sum += weights[j] = exp(logit / sqrt((double)DIM));
  }
  for (int j = first; j <= t; j++) weights[j] /= sum;
}

/* The share of pairs that are ordered alike gives no ranks; count them by comparison instead. */
static double rank_of(const double *values, int count, int i) {
  double below = 0, equal = 0;
  for (int j = 0; j < count; j++) below += values[j] < values[i], equal += values[j] == values[i];
  return below + (equal - 1) / 2;
}

static double spearman(const double *a, const double *b, int count) {
  double ab = 0, aa = 0, bb = 0;
  for (int i = 0; i < count; i++) {
    const double x = rank_of(a, count, i) - (count - 1) / 2.0;
    const double y = rank_of(b, count, i) - (count - 1) / 2.0;
    ab += x * y, aa += x * x, bb += y * y;
  }
  return ab / sqrt(aa * bb);
}

/* Of the kept tokens among first .. end-1, how many have fewer than `kept` values above their own. */
static int found(const double *values, const int *kept, int first, int end) {
  int all = 0, both = 0;
  for (int i = first; i < end; i++) all += kept[i];
  for (int i = first; i < end; i++) {
    int above = 0;
    for (int j = first; j < end; j++)
      above += values[j] > values[i] || (values[j] == values[i] && j < i);
    both += kept[i] && above < all;
  }
  return both;
}

static void check_head(const heard *own, const heard *reference, const still_session *session,
                       const still_mechanism *m, const still_mechanism_head *got) {
  enum { ROUTED = ((TOKENS - 1) / CHUNK - 1) * CHUNK };
  double received[TOKENS] = {0}, local[TOKENS], global[TOKENS], weights[TOKENS];
  int kept[TOKENS] = {0};
  int64_t positions[TOKENS];
  const int layer = got->layer, head = got->head;
  const int count = (int)still_session_kept(session, layer, head, positions, TOKENS);
  for (int i = 0; i < count; i++) kept[positions[i]] = 1;
  for (int t = 0; t < TOKENS; t++) {
    const int first = t < CHUNK ? 0 : t - CHUNK + 1;
    attend(reference, layer, head, first, t, weights);
    local[t] = weights[t];
    attend(reference, layer, head, 0, t, weights);
    global[t] = weights[t];
    for (int j = 0; j <= t; j++)
      if (t / CHUNK >= j / CHUNK + 2)
        received[j] += weights[j] / (TOKENS - (j / CHUNK + 2) * CHUNK);
  }
  int in_chunks = 0;
  for (int c = 0; c < ROUTED; c += CHUNK) in_chunks += found(received, kept, c, c + CHUNK);
  assert_true(count > 0);
  assert_int_equal(got->routed, ROUTED);
  assert_int_equal(got->kept, count);
  assert_true(fabs(got->chance - (double)count / ROUTED) < 1e-12);
  assert_true(fabs(got->overlap - (double)found(received, kept, 0, ROUTED) / count) < 1e-12);
  assert_true(fabs(got->overlap_in_chunks - (double)in_chunks / count) < 1e-12);
  assert_true(fabs(got->score_correlation - spearman(own->scores[layer][head], received, ROUTED)) <
              1e-3);
  assert_true(
      fabs(got->self_correlation - spearman(local + CHUNK, global + CHUNK, TOKENS - CHUNK)) < 1e-3);
  assert_true(got->linear_mass == 0 && got->linear_output == 0);
  const still_mechanism_tokens tokens = still_mechanism_tokens_of(m, layer, head);
  assert_int_equal(tokens.count, TOKENS);
  for (int t = 0; t < TOKENS; t++) {
    assert_int_equal(tokens.kept[t], kept[t]);
    assert_true(fabs((double)tokens.attention[t] - received[t]) < 1e-6);
    assert_true((double)tokens.scores[t] == own->scores[layer][head][t]);
  }
}

/* How often a byte is kept, over all heads. */
static void check_words(const still_session *session, const still_mechanism *m) {
  size_t count;
  int64_t kept[256] = {0}, positions[TOKENS], all = 0, told = 0;
  for (int i = 0; i < LAYERS * HEADS; i++) {
    const size_t n = still_session_kept(session, i / HEADS, i % HEADS, positions, TOKENS);
    for (size_t p = 0; p < n; p++) kept[(unsigned char)text[positions[p]]]++;
    all += (int64_t)n;
  }
  const still_mechanism_word *words = still_mechanism_words(m, &count);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(words[i].kept, kept[words[i].id]);
    assert_true(words[i].kept <= words[i].seen && words[i].seen % (LAYERS * HEADS) == 0);
    if (i) assert_true(words[i].kept <= words[i - 1].kept);
    told += words[i].kept;
  }
  assert_int_equal(told, all);
}

static void hear_session(still_attention_kind kind, heard *all) {
  const still_session_options options = kind_options(kind);
  still_session *session;
  still_token ids[TOKENS];
  for (int i = 0; i < TOKENS; i++) ids[i] = (unsigned char)text[i];
  check_ok(still_session_create(&session, model, &options));
  check_ok(still_session_probe(session, hear, all));
  check_ok(still_session_evaluate(session, ids, TOKENS, NULL, NULL));
  still_session_destroy(session);
}

static still_session *recorded(still_attention_kind kind, still_mechanism **mechanism) {
  const still_session_options options = kind_options(kind);
  still_session *session;
  still_token ids[TOKENS];
  for (int i = 0; i < TOKENS; i++) ids[i] = (unsigned char)text[i];
  check_ok(still_session_create(&session, model, &options));
  check_ok(still_mechanism_create(mechanism, session, 0));
  check_ok(still_session_evaluate(session, ids, 101, NULL, NULL));
  check_ok(still_session_evaluate(session, ids + 101, TOKENS - 101, NULL, NULL));
  return session;
}

static void heads_as_the_plain_computation(void **state) {
  (void)state;
  heard *still = calloc(1, sizeof *still), *full = calloc(1, sizeof *full);
  still_mechanism *m, *reference;
  size_t count;
  assert_true(still && full);
  hear_session(STILL_ATTENTION_STILL, still);
  hear_session(STILL_ATTENTION_FULL, full);
  still_session *session = recorded(STILL_ATTENTION_STILL, &m);
  still_session *other = recorded(STILL_ATTENTION_FULL, &reference);
  assert_null(still_mechanism_heads(m, &count));
  for (int beside = 0; beside < 2; beside++) {
    check_ok(still_mechanism_measure(m, beside ? reference : NULL));
    const still_mechanism_head *heads = still_mechanism_heads(m, &count);
    assert_int_equal(count, LAYERS * HEADS);
    for (size_t i = 0; i < count; i++) {
      assert_int_equal(heads[i].layer * HEADS + heads[i].head, i);
      check_head(still, beside ? full : still, session, m, &heads[i]);
    }
    check_words(session, m);
  }
  still_mechanism_destroy(m);
  still_mechanism_destroy(reference);
  still_session_destroy(session);
  still_session_destroy(other);
  free(still), free(full);
}

static void a_run_on_a_text(void **state) {
  (void)state;
  const still_evaluation_run run = {"still", model, kind_options(STILL_ATTENTION_STILL)};
  const still_evaluation_run full = {"full", model, kind_options(STILL_ATTENTION_FULL)};
  still_mechanism *m, *direct, *reference;
  still_mechanism_options five = whole;
  size_t count;
  five.length = 5;
  check_ok(still_evaluate_mechanism(&run, &full, text, TOKENS, &whole, &m));
  still_session *session = recorded(STILL_ATTENTION_STILL, &direct);
  still_session *other = recorded(STILL_ATTENTION_FULL, &reference);
  check_ok(still_mechanism_measure(direct, reference));
  const still_mechanism_head *got = still_mechanism_heads(m, &count);
  const still_mechanism_head *want = still_mechanism_heads(direct, &count);
  for (size_t i = 0; i < count; i++) {
    assert_true(got[i].overlap == want[i].overlap && got[i].kept == want[i].kept);
    assert_true(fabs(got[i].self_correlation - want[i].self_correlation) < 1e-9);
  }
  still_mechanism_destroy(m);
  still_mechanism_destroy(direct);
  still_mechanism_destroy(reference);
  still_session_destroy(session);
  still_session_destroy(other);
  /* without routing nothing is kept; a short text has nothing to say either */
  check_ok(still_evaluate_mechanism(&full, NULL, text, TOKENS, &five, &m));
  got = still_mechanism_heads(m, &count);
  assert_true(isnan(got->overlap) && isnan(got->score_correlation) && !got->kept && !got->routed);
  still_mechanism_destroy(m);
}

static void same_results(const still_mechanism *a, const still_mechanism *b) {
  size_t count, others;
  const still_mechanism_head *heads = still_mechanism_heads(a, &count),
                             *other_heads = still_mechanism_heads(b, &others);
  assert_int_equal(count, others);
  assert_memory_equal(heads, other_heads, count * sizeof *heads);
  const still_mechanism_word *words = still_mechanism_words(a, &count),
                             *other_words = still_mechanism_words(b, &others);
  assert_int_equal(count, others);
  for (size_t i = 0; i < count; i++)
    assert_true(words[i].id == other_words[i].id && words[i].kept == other_words[i].kept &&
                words[i].seen == other_words[i].seen);
}

/* Results give back what was measured, to the bit, and nothing is measured twice; others' results do not. */
static void results_go_on(void **state) {
  (void)state;
  const still_evaluation_run run = {"still", model, kind_options(STILL_ATTENTION_STILL)};
  const still_evaluation_run full = {"full", model, kind_options(STILL_ATTENTION_FULL)};
  still_mechanism_options options = whole;
  still_mechanism *first, *again;
  options.results = check_path("mechanism.jsonl");
  check_ok(still_evaluate_mechanism(&run, &full, text, TOKENS, &options, &first));
  options.resume = 1;
  size_t bytes, later;
  char *before = check_read(options.results, &bytes);
  check_ok(still_evaluate_mechanism(&run, &full, text, TOKENS, &options, &again));
  same_results(first, again);
  assert_int_equal(still_mechanism_tokens_of(again, 0, 0).count, 0);
  check_fails(still_mechanism_draw(again, check_path("page.html")), STILL_ERROR_ARGUMENT,
              "a measured record");
  still_mechanism_destroy(again);
  char *after = check_read(options.results, &later);
  assert_int_equal(bytes, later);
  free(after);
  check_ok(still_evaluate_mechanism(&run, NULL, text, TOKENS - 1, &options, &again));
  assert_true(still_mechanism_tokens_of(again, 0, 0).count == TOKENS - 1);
  still_mechanism_destroy(again);
  /* damaged: the line is named */
  char *kept = strstr(before, "\"kept\": ");
  memcpy(kept, "\"kept\": -", 9);
  kept[8] = '-';
  check_file("mechanism.jsonl", before, bytes);
  check_fails(still_evaluate_mechanism(&run, &full, text, TOKENS, &options, &again),
              STILL_ERROR_FORMAT, "mechanism.jsonl, line 2");
  assert_null(again);
  free(before);
  still_mechanism_destroy(first);
}

static void correlations(void **state) {
  (void)state;
  static const float up[] = {1, 2, 3, 4, 5}, down[] = {9, 7, 5, 3, 1}, ties[] = {1, 1, 2, 2, 3};
  static const float flat[] = {4, 4, 4, 4, 4};
  double r;
  check_ok(still_rank_correlation(up, up, 5, &r));
  assert_true(fabs(r - 1) < 1e-12);
  check_ok(still_rank_correlation(up, down, 5, &r));
  assert_true(fabs(r + 1) < 1e-12);
  check_ok(still_rank_correlation(up, ties, 5, &r));
  assert_true(fabs(r - 9 / sqrt(90.0)) < 1e-12); /* ranks .5 .5 2.5 2.5 4 against 0 1 2 3 4 */
  check_ok(still_rank_correlation(up, flat, 5, &r));
  assert_true(isnan(r));
  check_ok(still_rank_correlation(up, down, 1, &r));
  assert_true(isnan(r));
}

static void a_page(void **state) {
  (void)state;
  const char *path = check_path("page.html");
  still_mechanism *m;
  still_session *session = recorded(STILL_ATTENTION_STILL, &m);
  check_fails(still_mechanism_draw(m, path), STILL_ERROR_ARGUMENT, "a measured record");
  check_ok(still_mechanism_measure(m, NULL));
  check_ok(still_mechanism_draw(m, path));
  char *page = check_read(path, NULL);
  assert_non_null(strstr(page, "\"heads\":4,\"tokens\":[\""));
  assert_non_null(strstr(page, "\"chunk\":8,\"routes\":1"));
  assert_non_null(strstr(page, "</html>"));
  free(page);
  check_fails(still_mechanism_draw(m, "/nowhere/page.html"), STILL_ERROR_FILE, "/nowhere");
  still_mechanism_destroy(m);
  still_session_destroy(session);
}

/* Only the first tokens; and what is rolled back is recorded anew. */
static void parts_of_a_session(void **state) {
  (void)state;
  const still_session_options options = kind_options(STILL_ATTENTION_STILL);
  still_session *session;
  still_mechanism *m, *late;
  still_token ids[TOKENS];
  for (int i = 0; i < TOKENS; i++) ids[i] = (unsigned char)text[i];
  check_ok(still_session_create(&session, model, &options));
  check_ok(still_mechanism_create(&m, session, 60));
  check_fails(still_mechanism_measure(m, NULL), STILL_ERROR_ARGUMENT, "no tokens");
  check_ok(still_session_evaluate(session, ids + 9, 20, NULL, NULL));
  still_session_reset(session);
  check_ok(still_session_evaluate(session, ids, TOKENS, NULL, NULL));
  check_fails(still_mechanism_create(&late, session, 0), STILL_ERROR_ARGUMENT,
              "from its beginning");
  check_ok(still_mechanism_measure(m, NULL));
  assert_int_equal(still_mechanism_tokens_of(m, 0, 0).count, 60);
  assert_int_equal(still_mechanism_tokens_of(m, 2, 0).count, 0);
  still_mechanism_destroy(m);
  still_session_destroy(session);
}

static void refusals(void **state) {
  (void)state;
  still_session_options forgetful = kind_options(STILL_ATTENTION_STILL);
  still_session *session;
  forgetful.history = 5;
  check_ok(still_session_create(&session, model, &forgetful));
  still_mechanism *none;
  check_fails(still_mechanism_create(&none, session, 0), STILL_ERROR_ARGUMENT, "history 0");
  still_session_destroy(session);
  const still_evaluation_run run = {"still", model, kind_options(STILL_ATTENTION_STILL)};
  still_mechanism_options longer = whole;
  still_mechanism *m;
  longer.length = TOKENS + 1;
  check_fails(still_evaluate_mechanism(&run, NULL, text, TOKENS, &longer, &m), STILL_ERROR_ARGUMENT,
              "the length is 151, the text has 150 tokens");
}

static still_status open_measure_draw(void *user) {
  still_evaluation_run run = {"still", NULL, kind_options(STILL_ATTENTION_STILL)};
  const still_model_options options = STILL_MODEL_OPTIONS_INIT;
  still_model *own;
  still_mechanism *m = NULL;
  STILL_TRY(still_model_open(&own, user, &options));
  run.model = own;
  run.session.threads = 1;
  still_status status = still_evaluate_mechanism(&run, NULL, text, 40, &whole, &m);
  if (!status) status = still_mechanism_draw(m, check_path("page.html"));
  still_mechanism_destroy(m);
  still_model_destroy(own);
  return status;
}

static void memory_runs_out(void **state) {
  (void)state;
  check_failing_allocations(open_measure_draw, (void *)byte_model(), true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(heads_as_the_plain_computation),
      cmocka_unit_test(a_run_on_a_text),
      cmocka_unit_test(results_go_on),
      cmocka_unit_test(correlations),
      cmocka_unit_test(a_page),
      cmocka_unit_test(parts_of_a_session),
      cmocka_unit_test(refusals),
  };
  const struct CMUnitTest memory[] = {cmocka_unit_test(memory_runs_out)};
  return cmocka_run_group_tests(tests, set_up, tear_down) +
         cmocka_run_group_tests(memory, NULL, check_nothing_allocated);
}
