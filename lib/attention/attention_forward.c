/* SPDX-License-Identifier: MIT
 * One forward call: checks, room in the cache, work space, and the units on their threads. */
#include "attention/attention_stages.h"
#include "attention/attention_work.h"
#include "base/memory.h"
#include "base/threads.h"

#include <string.h>

static still_status check_rows(const char *name, const still_rows *rows, bool needed) {
  if (rows->data || !needed) return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT, "inputs.%s.data is NULL", name);
}

static still_status check_call(const still_attention_plan *plan, const still_attention_cache *cache,
                               size_t n) {
  if (cache->plan != plan)
    return still_fail(STILL_ERROR_ARGUMENT, "cache: made for another plan than the one given");
  if (n < 1 || n > INT32_MAX)
    return still_fail(STILL_ERROR_ARGUMENT, "n is %zu, must be 1 .. %d", n, INT32_MAX);
  return STILL_OK;
}

static still_status check_inputs(const still_attention_plan *plan,
                                 const still_attention_cache *cache, size_t n,
                                 const still_attention_inputs *in, const float *y) {
  if (!plan || !cache || !in || !y)
    return still_fail(STILL_ERROR_ARGUMENT, "still_attention_forward: %s is NULL",
                      !plan    ? "plan"
                      : !cache ? "cache"
                      : !in    ? "inputs"
                               : "y");
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(in, still_attention_inputs));
  STILL_TRY(check_call(plan, cache, n));
  if (cache->on_gpu && (in->linear_mass || in->linear_output))
    return still_fail(STILL_ERROR_UNSUPPORTED, "shares of the linear branch are not told by a GPU");
  const bool liger = plan->options.kind == STILL_ATTENTION_LIGER_GLA;
  STILL_TRY(check_rows("q", &in->q, true));
  STILL_TRY(check_rows("k", &in->k, true));
  STILL_TRY(check_rows("v", &in->v, true));
  STILL_TRY(check_rows("q_raw", &in->q_raw, liger));
  return check_rows("k_raw", &in->k_raw, liger);
}

void still_append(const still_task *task, still_piece piece) {
  const still_attention_inputs *in = task->call->inputs;
  still_attention_cache *cache = task->call->cache;
  const float *k = still_input_row(&in->k, task->kv_head, piece.offset);
  const float *v = still_input_row(&in->v, task->kv_head, piece.offset);
  still_key_store_write(&cache->near[task->unit], task->kernels, piece.position, k,
                        in->k.token_stride, v, in->v.token_stride, piece.tokens,
                        task->scratch->tile);
  const int64_t sinks = cache->sinks ? task->plan->options.sinks : 0;
  if (piece.position < sinks)
    still_key_store_write(&cache->sinks[task->unit], task->kernels, piece.position, k,
                          in->k.token_stride, v, in->v.token_stride,
                          still_smaller(piece.tokens, (size_t)(sinks - piece.position)),
                          task->scratch->tile);
}

/* The exponent of infinities and NaN. */
static bool has_non_finite(const float *x, size_t n) {
  uint32_t found = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    found |= (bits & 0x7f800000u) == 0x7f800000u;
  }
  return found;
}

size_t still_block_tokens(const still_call *call, size_t kv_head, still_piece piece) {
  const size_t dim = (size_t)call->plan->options.head_dim;
  for (size_t i = 0; i < piece.tokens; i++)
    if (has_non_finite(still_input_row(&call->inputs->v, kv_head, piece.offset + i), dim)) return 1;
  return still_block_rows(call->plan);
}

void still_for_blocks(const still_task *task, still_piece piece, still_block_function *attend) {
  const size_t rows = still_block_rows(task->plan);
  const size_t most = still_block_tokens(task->call, task->kv_head, piece);
  for (size_t done = 0, tokens; done < piece.tokens; done += tokens) {
    if (still_call_stops(task->call)) return;
    tokens = still_smaller(piece.tokens - done, most);
    const size_t together =
        tokens > STILL_SHARED_ROWS ? 1 : still_smaller(rows / tokens, task->heads);
    for (size_t h = 0, heads; h < task->heads; h += heads) {
      heads = still_smaller(task->heads - h, together);
      attend(task, &(still_block){.at = {.offset = piece.offset + done,
                                         .tokens = tokens,
                                         .position = piece.position + (int64_t)done},
                                  .head = task->head + h,
                                  .heads = heads,
                                  .rows = heads * tokens});
    }
  }
}

static still_unit_function *unit_function(still_attention_kind kind) {
  switch (kind) {
  case STILL_ATTENTION_STILL: return still_hybrid_attention;
  case STILL_ATTENTION_SWA: return still_sliding_window;
  case STILL_ATTENTION_LOLCATS: return still_lolcats_attention;
  case STILL_ATTENTION_LIGER_GLA: return still_liger_gla_attention;
  case STILL_ATTENTION_HEDGEHOG:
  case STILL_ATTENTION_T2R: return still_feature_attention;
  case STILL_ATTENTION_FULL: break;
  }
  return NULL;
}

still_task still_task_of(const still_call *call, still_scratch *scratch, size_t head,
                         size_t heads) {
  const still_attention_plan *plan = call->plan;
  return (still_task){.call = call,
                      .plan = plan,
                      .kernels = call->kernels,
                      .scratch = scratch,
                      .unit = head / (size_t)plan->unit_heads,
                      .dim = (size_t)plan->options.head_dim,
                      .kv_head = head / (size_t)plan->group,
                      .head = head,
                      .heads = heads};
}

/* Each unit is worked off by one thread, in the order of its tokens: the result does not depend on
 * which. */
static void run_units(const still_call *call, still_scratch *scratches) {
  const still_attention_plan *plan = call->plan;
  const size_t heads = (size_t)plan->unit_heads;
  still_unit_function *run = unit_function(plan->options.kind);
  STILL_OMP(parallel for num_threads(plan->threads) schedule(dynamic, 1))
  for (int unit = 0; unit < plan->units; unit++) {
    const still_task task =
        still_task_of(call, &scratches[omp_get_thread_num()], (size_t)unit * heads, heads);
    run(&task);
  }
}

/* Work space: the table of scratches, each thread's arrays, what passes need. */
static size_t table_bytes(const still_attention_plan *plan) {
  return still_round_up((size_t)plan->threads * sizeof(still_scratch), STILL_ALIGNMENT);
}

size_t still_forward_work_bytes(const still_attention_plan *plan) {
  return table_bytes(plan) + (size_t)plan->threads * still_scratch_bytes(plan) +
         still_passes_bytes(plan);
}

static void run(const still_call *call, char *memory) {
  const still_attention_plan *plan = call->plan;
  const size_t bytes = still_scratch_bytes(plan);
  still_scratch *scratches = (still_scratch *)memory;
  memory += table_bytes(plan);
  for (int t = 0; t < plan->threads; t++, memory += bytes)
    still_scratch_place(&scratches[t], plan, memory);
  if (plan->options.kind == STILL_ATTENTION_FULL)
    still_full_attention(call, scratches);
  else if (plan->pass_chunks && call->n > STILL_SHARED_ROWS)
    still_hybrid_passes(call, scratches, memory);
  else
    run_units(call, scratches);
}

still_status still_attention_forward(const still_attention_plan *plan, still_attention_cache *cache,
                                     size_t n, const still_attention_inputs *inputs, float *y,
                                     size_t y_head_stride, size_t y_token_stride) {
  STILL_TRY(check_inputs(plan, cache, n, inputs, y));
  if (cache->on_gpu)
    return plan->gpu->forward(cache->on_gpu, n, inputs, y, y_head_stride, y_token_stride);
  still_work *work;
  STILL_TRY(still_work_take(still_forward_work_bytes(plan), &work));
  still_status status = still_attention_cache_reserve(cache, cache->tokens + (int64_t)n);
  if (!status) {
    const still_call call = {.plan = plan,
                             .cache = cache,
                             .kernels = still_kernels_get(),
                             .inputs = inputs,
                             .y = y,
                             .y_head_stride = y_head_stride,
                             .y_token_stride = y_token_stride,
                             .n = n};
    run(&call, still_work_data(work));
    if (still_call_stops(&call))
      status = still_fail(STILL_ERROR_CANCELLED, "still_attention_forward was stopped");
    else
      cache->tokens += (int64_t)n;
  }
  still_work_give_back(work);
  return status;
}

static still_status check_buffer(const char *name, const still_buffer_rows *rows, bool needed) {
  if (rows->buffer || !needed) return STILL_OK;
  return still_fail(STILL_ERROR_ARGUMENT, "buffers.%s.buffer is 0", name);
}

still_status still_attention_forward_buffers(const still_attention_plan *plan,
                                             still_attention_cache *cache, size_t n,
                                             const still_attention_buffers *buffers) {
  if (!plan || !cache || !buffers)
    return still_fail(STILL_ERROR_ARGUMENT, "still_attention_forward_buffers: %s is NULL",
                      !plan    ? "plan"
                      : !cache ? "cache"
                               : "buffers");
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(buffers, still_attention_buffers));
  STILL_TRY(check_call(plan, cache, n));
  const bool liger = plan->options.kind == STILL_ATTENTION_LIGER_GLA;
  STILL_TRY(check_buffer("q", &buffers->q, true));
  STILL_TRY(check_buffer("k", &buffers->k, true));
  STILL_TRY(check_buffer("v", &buffers->v, true));
  STILL_TRY(check_buffer("y", &buffers->y, true));
  STILL_TRY(check_buffer("q_raw", &buffers->q_raw, liger));
  STILL_TRY(check_buffer("k_raw", &buffers->k_raw, liger));
  if (!cache->on_gpu)
    return still_fail(STILL_ERROR_ARGUMENT, "the plan runs on the CPU, which has no such buffers");
  return plan->gpu->forward_buffers(cache->on_gpu, n, buffers);
}
