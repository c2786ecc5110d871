/* SPDX-License-Identifier: MIT
 * A session's caches, on the device or, where that refuses a plan, on the CPU. */
#include "base/log.h"
#include "model/session.h"

still_backend *still_session_layer_backend(const still_session *session, int layer) {
  return session->layers[layer].on_host ? session->model->host : session->backend;
}

/* Of a layer that runs on the CPU, or whose attention the device cannot do or has no memory for: on the CPU. */
static still_status open_cache(const still_model *model, still_backend *backend, bool layer_on_host,
                               still_session_layer *layer, bool *told) {
  layer->on_host = layer_on_host;
  if (layer_on_host)
    return model->host->ops->attention_create(model->host, layer->plan, &layer->cache);
  still_status status = backend->ops->attention_create(backend, layer->plan, &layer->cache);
  if ((status == STILL_ERROR_UNSUPPORTED || status == STILL_ERROR_MEMORY) &&
      backend != model->host && model->host != model->device) {
    if (!*told)
      still_log(STILL_LOG_WARNING, "%s: %s; such layers attend on the CPU", backend->name,
                still_last_error());
    *told = true;
    layer->on_host = true;
    status = model->host->ops->attention_create(model->host, layer->plan, &layer->cache);
  }
  return status;
}

still_status still_session_open_caches(const still_model *model, still_backend *backend,
                                       still_session_layer *layers) {
  bool told = false;
  still_status status = STILL_OK;
  for (int i = 0; !status && i < model->weights->config.layers; i++)
    status = open_cache(model, backend, model->placed.layers[i].on_host, &layers[i], &told);
  if (status) still_session_close_caches(model, backend, layers);
  return status;
}

void still_session_close_caches(const still_model *model, still_backend *backend,
                                still_session_layer *layers) {
  for (int i = 0; i < model->weights->config.layers; i++) {
    still_backend *owner = layers[i].on_host ? model->host : backend;
    if (layers[i].cache) owner->ops->attention_destroy(owner, layers[i].cache);
    layers[i].cache = NULL;
  }
}
