/* SPDX-License-Identifier: MIT
 * Introduces: the attention operator alone. A plan says what is computed, a cache holds one sequence,
 * forward takes q, k, v as plain arrays and gives y. No model, no file. */
#include <still/attention.h>

#include <math.h>
#include <stdio.h>

enum { HEADS = 4, KV_HEADS = 2, TOKENS = 1000, DIM = 64 };

static float q[HEADS * TOKENS * DIM], k[KV_HEADS * TOKENS * DIM], v[KV_HEADS * TOKENS * DIM];
static float y[HEADS * TOKENS * DIM];

static void fill(float *values, int count, float step) {
  for (int i = 0; i < count; i++) values[i] = sinf(step * (float)i * (float)(1 + i % 7));
}

int main(void) {
  fill(q, HEADS * TOKENS * DIM, 0.7f);
  fill(k, KV_HEADS * TOKENS * DIM, 1.1f);
  fill(v, KV_HEADS * TOKENS * DIM, 0.3f);

  still_attention_options options = STILL_ATTENTION_OPTIONS_INIT; /* STILL, chunks of 64 */
  options.heads = HEADS;
  options.kv_heads = KV_HEADS;
  options.head_dim = DIM;
  options.budget = 256;
  options.context = TOKENS;

  still_attention_plan *plan = NULL;
  still_attention_cache *cache = NULL;
  /* Without learned feature maps (NULL) the tokens that are not kept are forgotten. */
  if (still_attention_plan_create(&plan, &options, NULL) ||
      still_attention_cache_create(&cache, plan))
    goto fail;

  /* Rows of a head lie behind each other: head h, token t at (h * TOKENS + t) * DIM. */
  still_attention_inputs inputs = STILL_ATTENTION_INPUTS_INIT;
  inputs.q = (still_rows){q, TOKENS * DIM, DIM};
  inputs.k = (still_rows){k, TOKENS * DIM, DIM};
  inputs.v = (still_rows){v, TOKENS * DIM, DIM};
  if (still_attention_forward(plan, cache, TOKENS, &inputs, y, TOKENS * DIM, DIM)) goto fail;

  still_attention_usage usage;
  still_attention_cache_usage(cache, &usage);
  printf("y[last token of head 0][0] = %.6f\n", (double)y[(TOKENS - 1) * DIM]);
  printf("%lld tokens: the next query sees %lld (%lld kept, %lld near) in %llu bytes; %lld "
         "forgotten\n",
         (long long)usage.tokens, (long long)usage.softmax_tokens, (long long)usage.kept_tokens,
         (long long)usage.near_tokens, (unsigned long long)usage.bytes,
         (long long)usage.forgotten_tokens);
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  return 0;

fail:
  fprintf(stderr, "%s\n", still_last_error());
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  return 1;
}
