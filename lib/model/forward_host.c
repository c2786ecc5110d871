/* SPDX-License-Identifier: MIT */
#include "base/memory.h"
#include "model/forward.h"

bool still_forward_needs_host(const still_forward *forward) {
  const still_placement *placed = forward->placed;
  if (forward->backend == forward->host) return false;
  bool needs = placed->embedding.on_host || placed->output.on_host;
  for (int i = 0; i < forward->model->weights->config.layers; i++) {
    const still_placed_layer *layer = &placed->layers[i];
    needs = needs || layer->on_host || forward->layers[i].on_host;
    for (int l = 0; l < STILL_LINEARS; l++)
      needs =
          needs || layer->linear[l].on_host || layer->lora[l].a.on_host || layer->lora[l].b.on_host;
  }
  return needs;
}

still_status still_forward_open_mirrors(still_forward *forward,
                                        const size_t floats[STILL_ACTIVATIONS]) {
  size_t longest = 0;
  for (int i = 0; i < STILL_ACTIVATIONS; i++) {
    if (floats[i] > longest) longest = floats[i];
    if (floats[i])
      STILL_TRY(forward->host->ops->buffer_create(forward->host, floats[i], &forward->mirrors[i]));
  }
  return STILL_ALLOC(&forward->staging, longest, "activations on their way");
}

void still_forward_close_mirrors(still_forward *forward) {
  for (int i = 0; i < STILL_ACTIVATIONS; i++)
    if (forward->mirrors[i]) forward->host->ops->buffer_destroy(forward->host, forward->mirrors[i]);
  still_free(forward->staging);
}

static still_status to_host(still_forward *forward, still_activation which, size_t floats) {
  STILL_TRY(forward->backend->ops->buffer_read(forward->backend, forward->activations[which], 0,
                                               forward->staging, floats));
  return forward->host->ops->buffer_write(forward->host, forward->mirrors[which], 0,
                                          forward->staging, floats);
}

static still_status to_device(still_forward *forward, still_activation which, size_t floats) {
  STILL_TRY(forward->host->ops->buffer_read(forward->host, forward->mirrors[which], 0,
                                            forward->staging, floats));
  return forward->backend->ops->buffer_write(forward->backend, forward->activations[which], 0,
                                             forward->staging, floats);
}

still_status still_forward_move(still_forward *forward, still_activation which, size_t floats,
                                bool host) {
  return host ? to_host(forward, which, floats) : to_device(forward, which, floats);
}

still_status still_host_embed(still_forward *forward, still_activation out,
                              const still_placed *placed, const still_token *ids, size_t n) {
  STILL_TRY(
      forward->host->ops->embed(forward->host, forward->mirrors[out], placed->weight, ids, n));
  return to_device(forward, out, n * (size_t)forward->model->weights->config.width);
}

still_status still_host_matmul(still_forward *forward, still_activation out,
                               const still_placed *placed, size_t rows, still_activation in,
                               size_t columns, size_t n, int accumulate) {
  STILL_TRY(to_host(forward, in, n * columns));
  if (accumulate) STILL_TRY(to_host(forward, out, n * rows));
  STILL_TRY(forward->host->ops->matmul(forward->host, forward->mirrors[out], placed->weight,
                                       forward->mirrors[in], n, accumulate));
  return to_device(forward, out, n * rows);
}

still_status still_host_attention(still_forward *forward, still_session_layer *layer, size_t n) {
  const still_attention_options *options = still_attention_plan_options(layer->plan);
  const size_t query = n * (size_t)options->heads * (size_t)options->head_dim;
  const size_t key_value = n * (size_t)options->kv_heads * (size_t)options->head_dim;
  const bool raw = options->kind == STILL_ATTENTION_LIGER_GLA;
  still_buffer *const *mirrors = forward->mirrors;
  STILL_TRY(to_host(forward, STILL_ACT_Q, query));
  STILL_TRY(to_host(forward, STILL_ACT_K, key_value));
  STILL_TRY(to_host(forward, STILL_ACT_V, key_value));
  if (layer->uses_gate) STILL_TRY(to_host(forward, STILL_ACT_GATE, query));
  if (raw) STILL_TRY(to_host(forward, STILL_ACT_Q_RAW, query));
  if (raw) STILL_TRY(to_host(forward, STILL_ACT_K_RAW, key_value));
  STILL_TRY(forward->host->ops->attention(
      forward->host, layer->cache, mirrors[STILL_ACT_ATTENDED], mirrors[STILL_ACT_Q],
      mirrors[STILL_ACT_K], mirrors[STILL_ACT_V], layer->uses_gate ? mirrors[STILL_ACT_GATE] : NULL,
      raw ? mirrors[STILL_ACT_Q_RAW] : NULL, raw ? mirrors[STILL_ACT_K_RAW] : NULL, n,
      &forward->taps));
  return to_device(forward, STILL_ACT_ATTENDED, query);
}
