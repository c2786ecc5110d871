/* SPDX-License-Identifier: MIT
 * A session's probe: told the queries, keys and scores that the operator works with. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 90, LAYERS = 2, HEADS = 4, KV_HEADS = 2, DIM = 16 };

/* Everything that was told, put together again. */
typedef struct told {
  float q[LAYERS][HEADS][TOKENS][DIM], k[LAYERS][KV_HEADS][TOKENS][DIM];
  float scores[LAYERS][HEADS][TOKENS];
  int64_t next[LAYERS]; /* where the next tokens must begin */
  int calls, stop_at;
  bool routed;
} told;

static void copy_rows(float *out, const still_rows *rows, int head, size_t tokens) {
  for (size_t t = 0; t < tokens; t++)
    memcpy(out + t * DIM, rows->data + (size_t)head * rows->head_stride + t * rows->token_stride,
           DIM * sizeof *out);
}

static int listen(void *user, const still_probe *p) {
  told *all = user;
  const size_t first = (size_t)p->first;
  if (++all->calls == all->stop_at) return 1;
  assert_true(p->layer < LAYERS && p->first == all->next[p->layer]);
  all->next[p->layer] += (int64_t)p->tokens;
  all->routed = p->scores;
  for (int h = 0; h < HEADS; h++) {
    copy_rows(all->q[p->layer][h][first], &p->q, h, p->tokens);
    if (p->scores)
      memcpy(all->scores[p->layer][h] + first, p->scores + (size_t)h * p->tokens,
             p->tokens * sizeof(float));
    for (size_t t = 0; t < p->tokens; t++) /* no feature maps: no linear branch */
      assert_true(p->linear_mass[(size_t)h * p->tokens + t] == 0 &&
                  p->linear_output[(size_t)h * p->tokens + t] == 0);
  }
  for (int g = 0; g < KV_HEADS; g++) copy_rows(all->k[p->layer][g][first], &p->k, g, p->tokens);
  return 0;
}

static still_session_options small_still(void) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = STILL_ATTENTION_STILL;
  options.chunk = 8, options.budget = 32, options.context = 96, options.block = 32;
  return options;
}

/* The operator, given the queries and keys that were told, scores and keeps as the session did. */
static void check_operator(const told *all, const still_session *session, int layer) {
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
  still_attention_plan *plan;
  still_attention_cache *cache;
  float scores[HEADS][TOKENS], *y = malloc(sizeof all->q[0]);
  int64_t kept[TOKENS], wanted[TOKENS];
  assert_non_null(y);
  o.heads = HEADS, o.kv_heads = KV_HEADS, o.head_dim = DIM;
  o.chunk = 8, o.budget = 32, o.context = 96, o.threads = 1;
  check_ok(still_attention_plan_create(&plan, &o, NULL));
  check_ok(still_attention_cache_create(&cache, plan));
  in.q = (still_rows){all->q[layer][0][0], (size_t)TOKENS * DIM, DIM};
  in.k = in.v = (still_rows){all->k[layer][0][0], (size_t)TOKENS * DIM, DIM};
  in.scores = scores[0];
  check_ok(still_attention_forward(plan, cache, TOKENS, &in, y, (size_t)TOKENS * DIM, DIM));
  check_rows_close("scores", all->scores[layer][0], scores[0], HEADS, TOKENS, 1e-4);
  for (int h = 0; h < HEADS; h++) {
    const size_t count = still_session_kept(session, layer, h, kept, TOKENS);
    assert_true(count > 0);
    assert_int_equal(still_attention_cache_kept(cache, h, wanted, TOKENS), count);
    assert_memory_equal(kept, wanted, count * sizeof *kept);
  }
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  free(y);
}

static void told_what_the_operator_sees(void **state) {
  (void)state;
  const still_session_options options = small_still();
  model_run run = open_run(small_gguf(), &options);
  told *all = calloc(1, sizeof *all);
  still_token ids[TOKENS];
  assert_non_null(all);
  random_ids(ids, TOKENS, 97, 5);
  check_ok(still_session_probe(run.session, listen, all));
  check_ok(still_session_evaluate(run.session, ids, TOKENS - 1, NULL, NULL));
  check_ok(still_session_evaluate(run.session, ids + TOKENS - 1, 1, NULL, NULL));
  assert_true(all->routed && all->next[0] == TOKENS && all->next[1] == TOKENS);
  for (int layer = 0; layer < LAYERS; layer++) check_operator(all, run.session, layer);
  check_ok(still_session_probe(run.session, NULL, NULL));
  const int calls = all->calls;
  check_ok(still_session_evaluate(run.session, ids, 3, NULL, NULL));
  assert_int_equal(all->calls, calls);
  free(all);
  close_run(&run);
}

static void stops_an_evaluation(void **state) {
  (void)state;
  model_run run = open_run(small_gguf(), NULL);
  told *all = calloc(1, sizeof *all);
  still_token ids[TOKENS];
  assert_non_null(all);
  random_ids(ids, TOKENS, 97, 5);
  all->stop_at = 2;
  check_ok(still_session_probe(run.session, listen, all));
  check_fails(still_session_evaluate(run.session, ids, TOKENS, NULL, NULL), STILL_ERROR_CANCELLED,
              "stopped by its probe");
  assert_int_equal(still_session_position(run.session), 0);
  memset(all, 0, sizeof *all);
  check_ok(still_session_evaluate(run.session, ids, TOKENS, NULL, NULL));
  assert_true(all->next[1] == TOKENS && !all->routed);
  free(all);
  close_run(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(told_what_the_operator_sees),
      cmocka_unit_test(stops_an_evaluation),
  };
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}
