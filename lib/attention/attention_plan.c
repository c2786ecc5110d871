/* SPDX-License-Identifier: MIT
 * The plan: checked options, copied weights, and the census of a sequence that follows from them.
 */
#include "attention/attention_plan.h"

#include "base/memory.h"
#include "base/threads.h"
#include "still_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static still_status copy_floats(float **copy, const float *source, size_t count, const char *what) {
  if (!source) return STILL_OK;
  for (size_t i = 0; i < count; i++)
    if (!isfinite(source[i]))
      return still_fail(STILL_ERROR_NUMERIC, "weights.%s[%zu] is %g, must be finite", what, i,
                        (double)source[i]);
  STILL_TRY(STILL_ALLOC(copy, count, what));
  memcpy(*copy, source, count * sizeof **copy);
  return STILL_OK;
}

static still_status check_weights(const still_attention_plan *p, const still_attention_weights *w) {
  STILL_TRY(STILL_CHECK_OPTIONS_SIZE(w, still_attention_weights));
  const char *kind = still_attention_kind_name(p->options.kind);
  if (!w->feature_q != !w->feature_k)
    return still_fail(STILL_ERROR_ARGUMENT,
                      "weights: feature_q and feature_k must be given together");
  switch (p->options.kind) {
  case STILL_ATTENTION_LOLCATS:
  case STILL_ATTENTION_HEDGEHOG:
  case STILL_ATTENTION_T2R:
    if (!w->feature_q)
      return still_fail(STILL_ERROR_ARGUMENT,
                        "weights: kind '%s' needs feature_q and feature_k (%d, %d, %d)", kind,
                        p->options.heads, p->options.head_dim, p->options.head_dim);
    return STILL_OK;
  case STILL_ATTENTION_STILL: return STILL_OK;
  default:
    if (w->feature_q)
      return still_fail(STILL_ERROR_ARGUMENT, "weights: kind '%s' takes no feature maps", kind);
    return STILL_OK;
  }
}

static still_status copy_weights(still_attention_plan *p, const still_attention_weights *w) {
  const size_t heads = (size_t)p->options.heads, dim = (size_t)p->options.head_dim;
  STILL_TRY(copy_floats(&p->feature_q, w->feature_q, heads * dim * dim, "feature_q"));
  STILL_TRY(copy_floats(&p->feature_k, w->feature_k, heads * dim * dim, "feature_k"));
  if (p->options.kind == STILL_ATTENTION_T2R) {
    STILL_TRY(copy_floats(&p->bias_q, w->bias_q, heads * dim, "bias_q"));
    STILL_TRY(copy_floats(&p->bias_k, w->bias_k, heads * dim, "bias_k"));
  }
  if (p->options.kind != STILL_ATTENTION_LOLCATS) return STILL_OK;
  STILL_TRY(copy_floats(&p->window_factor, w->window_factor, heads, "window_factor"));
  if (p->window_factor) return STILL_OK;
  STILL_TRY(STILL_ALLOC(&p->window_factor, heads, "window_factor"));
  for (size_t h = 0; h < heads; h++) p->window_factor[h] = 1 / (1 + expf(-0.1f));
  return STILL_OK;
}

/* What the kind's memory looks like. */
static still_status derive(still_attention_plan *p) {
  const still_attention_options *o = &p->options;
  switch (o->kind) {
  case STILL_ATTENTION_STILL:
    STILL_TRY(still_attention_options_schedule(o, &p->keep, &p->most_kept));
    p->near_span = 2 * o->chunk;
    p->features = p->feature_q ? 2 * o->head_dim : 0;
    break;
  case STILL_ATTENTION_SWA: p->near_span = o->window; break;
  case STILL_ATTENTION_LOLCATS:
    p->near_span = o->window;
    p->features = 2 * o->head_dim;
    break;
  case STILL_ATTENTION_LIGER_GLA:
    p->near_span = o->window;
    p->features = o->head_dim;
    break;
  case STILL_ATTENTION_HEDGEHOG: p->features = 2 * o->head_dim; break;
  case STILL_ATTENTION_T2R: p->features = o->head_dim; break;
  case STILL_ATTENTION_FULL: break;
  }
  return STILL_OK;
}

/* Turns of the busiest thread, in query heads, when units of `heads` heads are dealt out. */
static int busiest(const still_attention_plan *p, int heads) {
  const int units = p->options.heads / heads;
  return (units + p->threads - 1) / p->threads * heads;
}

static void share_out(still_attention_plan *p) {
  enum { PASS_TOKENS = 512, LONGEST_CHUNK = 4096 };
  const still_attention_options *o = &p->options;
  const bool routed = o->kind == STILL_ATTENTION_STILL;
  const bool per_group = routed && o->routing == STILL_ROUTING_PER_GROUP;
  const bool by_group =
      per_group || o->kind == STILL_ATTENTION_FULL || busiest(p, p->group) <= busiest(p, 1);
  p->unit_heads = by_group ? p->group : 1;
  p->units = o->heads / p->unit_heads;
  p->route_heads = per_group ? p->group : 1;
  p->routes = routed ? o->heads / p->route_heads : 0;
  p->ring_chunks = routed ? 2 : 0;
  if (!routed || p->units >= p->threads || o->chunk > LONGEST_CHUNK) return;
  p->pass_chunks = o->chunk < PASS_TOKENS ? PASS_TOKENS / o->chunk : 1;
  p->ring_chunks = p->pass_chunks + 2;
  p->unit_heads = p->group; /* for calls of a few tokens */
  p->units = o->kv_heads;
}

/* Hands the plan over to the GPU that its options name. */
static still_status open_device(still_attention_plan *p) {
  const char *device = p->options.device;
  if (!device || !strcmp(device, "cpu")) return STILL_OK;
#if STILL_HAVE_VULKAN
  p->gpu = still_vulkan_operator();
  return p->gpu->open(&p->gpu_device, p);
#else
  return still_fail(STILL_ERROR_DEVICE, "device '%s': this build knows the cpu only", device);
#endif
}

still_status still_attention_plan_create(still_attention_plan **plan,
                                         const still_attention_options *options,
                                         const still_attention_weights *weights) {
  static const still_attention_weights none = STILL_ATTENTION_WEIGHTS_INIT;
  *plan = NULL;
  still_attention_plan *p;
  still_attention_options resolved;
  STILL_TRY(still_attention_options_resolve(options, &resolved));
  STILL_TRY(STILL_ALLOC(&p, 1, "attention plan"));
  p->options = resolved;
  p->threads = still_resolve_threads(resolved.threads);
  p->group = resolved.heads / resolved.kv_heads;
  still_status status = check_weights(p, weights ? weights : &none);
  if (!status) status = copy_weights(p, weights ? weights : &none);
  if (!status) status = still_copy_string(&p->device, resolved.device);
  if (!status) status = derive(p);
  p->options.device = p->device;
  if (!status) {
    share_out(p);
    status = open_device(p);
  }
  if (status)
    still_attention_plan_destroy(p);
  else
    *plan = p;
  return status;
}

void still_attention_plan_destroy(still_attention_plan *p) {
  if (!p) return;
  if (p->gpu) p->gpu->close(p->gpu_device);
  still_free(p->feature_q);
  still_free(p->feature_k);
  still_free(p->bias_q);
  still_free(p->bias_k);
  still_free(p->window_factor);
  still_free(p->device);
  still_free(p);
}

const still_attention_options *still_attention_plan_options(const still_attention_plan *plan) {
  return &plan->options;
}

int still_attention_plan_keep(const still_attention_plan *plan) {
  return plan->keep;
}

int64_t still_routed_chunks(const still_attention_plan *plan, int64_t tokens) {
  const int64_t current = (tokens - 1) / plan->options.chunk;
  return tokens < 1 || current < 2 ? 0 : current - 1;
}

int64_t still_kept_after(const still_attention_plan *plan, int64_t chunks) {
  const int64_t wanted = chunks * plan->keep;
  return plan->most_kept >= 0 && wanted > plan->most_kept ? plan->most_kept : wanted;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

still_census still_attention_census(const still_attention_plan *plan, int64_t tokens) {
  still_census census = {0};
  switch (plan->options.kind) {
  case STILL_ATTENTION_FULL: census.near = tokens; return census;
  case STILL_ATTENTION_STILL: {
    const int64_t routed = still_routed_chunks(plan, tokens);
    census.kept = still_kept_after(plan, routed);
    census.near = tokens - routed * plan->options.chunk;
    break;
  }
  case STILL_ATTENTION_LOLCATS: /* what the next query will not see is summed up already */
    census.near = smaller(tokens, plan->near_span - 1);
    break;
  default:
    census.near = smaller(tokens, plan->near_span);
    if (plan->options.kind == STILL_ATTENTION_SWA)
      census.kept = smaller(plan->options.sinks, tokens - census.near);
    /* Liger's linear half runs over every token, its window's too: they count once, as near. */
  }
  const int64_t rest = tokens - census.kept - census.near;
  *(plan->features ? &census.linear : &census.forgotten) = rest;
  return census;
}

still_attention_usage still_attention_usage_of(const still_attention_plan *plan, int64_t tokens) {
  const still_attention_options *o = &plan->options;
  const still_census census = still_attention_census(plan, tokens);
  still_attention_usage usage = {.tokens = tokens,
                                 .kept_tokens = census.kept,
                                 .near_tokens = census.near,
                                 .softmax_tokens = census.kept + census.near,
                                 .linear_tokens = census.linear,
                                 .forgotten_tokens = census.forgotten};
  if (o->kind == STILL_ATTENTION_STILL && plan->most_kept >= 0) {
    usage.budget_tokens = o->chunk + plan->most_kept;
    usage.max_softmax_tokens = 2 * (int64_t)o->chunk + plan->most_kept;
  } else if (o->kind != STILL_ATTENTION_FULL && o->kind != STILL_ATTENTION_STILL) {
    usage.budget_tokens = plan->near_span + (o->kind == STILL_ATTENTION_SWA ? o->sinks : 0);
    usage.max_softmax_tokens = usage.budget_tokens;
  }
  return usage;
}
