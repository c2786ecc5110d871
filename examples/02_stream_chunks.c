/* SPDX-License-Identifier: MIT
 * Introduces: streaming. Tokens come in pieces of any size; the outputs do not depend on the cut, and the
 * cache keeps its size however long the stream is. */
#include <still/attention.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DIM = 32, STREAM = 20000, LARGEST = 100 };

/* Token t of the endless stream; q, k and v are the same rows here. */
static void make_rows(float *rows, int first, int count) {
  for (int t = 0; t < count; t++)
    for (int d = 0; d < DIM; d++)
      rows[t * DIM + d] = sinf(0.01f * (float)(first + t) * (float)(d + 1)) + cosf((float)(d * t));
}

static still_status push(const still_attention_plan *plan, still_attention_cache *cache,
                         const float *rows, int count, float *y) {
  still_rows one_head = {rows, 0, DIM};
  still_attention_inputs inputs = STILL_ATTENTION_INPUTS_INIT;
  inputs.q = inputs.k = inputs.v = one_head;
  return still_attention_forward(plan, cache, (size_t)count, &inputs, y, 0, DIM);
}

int main(void) {
  static float rows[LARGEST * DIM], y[LARGEST * DIM];
  static const int pieces[] = {1, 7, 64, 100};
  still_attention_options options = STILL_ATTENTION_OPTIONS_INIT;
  options.heads = 1;
  options.head_dim = DIM;
  options.budget = 512;
  options.context = 16384;
  still_attention_plan *plan = NULL;
  still_attention_cache *cache = NULL;
  still_attention_usage usage;
  int code = 1;
  if (still_attention_plan_create(&plan, &options, NULL) ||
      still_attention_cache_create(&cache, plan))
    goto end;
  still_attention_cache_usage(cache, &usage);
  uint64_t bytes = usage.bytes;
  for (int done = 0, i = 0; done < STREAM; i++) {
    int count = pieces[i % 4];
    make_rows(rows, done, count);
    if (push(plan, cache, rows, count, y)) goto end;
    done += count;
  }
  still_attention_cache_usage(cache, &usage);
  printf("%lld tokens streamed: %llu bytes at the start, %llu now; %lld tokens kept for good\n",
         (long long)usage.tokens, (unsigned long long)bytes, (unsigned long long)usage.bytes,
         (long long)usage.kept_tokens);
  code = usage.bytes != bytes;
end:
  if (code) fprintf(stderr, "%s\n", still_last_error());
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  return code;
}
