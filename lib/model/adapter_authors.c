/* SPDX-License-Identifier: MIT
 * Checkpoints of the STILL authors' own code, one safetensors file or folder:
 *
 *   [...]layers.<i>.self_attn.feature_map_q.mlp.linears.<h>.weight   (D, D)  W: y = r W^T
 *   [...]layers.<i>.self_attn.feature_map_q.mlp.linears.<h>.hh.u     (D)     r = x - 2 (x . u) u / (u . u); optional
 *   [...]layers.<i>.self_attn.g_proj.weight                          (H*D, width)
 *
 * and the same for feature_map_k. Reflection and matrix are folded into one A: u[e] = sum_d x[d] A[d][e],
 * A[d][e] = W[e][d] - 2 u[d] (sum_c u[c] W[e][c]) / (u . u). The file says nothing about attention: layers with
 * feature maps become STILL with the defaults, the others FULL. */
#include "base/memory.h"
#include "model/adapter_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char map_marks[2][40] = {".self_attn.feature_map_q.mlp.linears.",
                                      ".self_attn.feature_map_k.mlp.linears."};
static const char gate_mark[] = ".self_attn.g_proj.weight";

bool still_adapter_is_authors(const still_safetensors *file) {
  for (size_t i = 0; i < still_safetensors_count(file); i++)
    if (strstr(still_safetensors_tensor(file, i)->name, map_marks[0])) return true;
  return false;
}

static still_status no_place(const char *name) {
  return still_fail(STILL_ERROR_UNSUPPORTED, "tensor '%s' has no place in this model", name);
}

/* The number after "layers."; -1 where there is none below `layers`. */
static int layer_of(const char *name, int layers) {
  const char *at = strstr(name, "layers.");
  char *end;
  if (!at || at[7] < '0' || at[7] > '9') return -1;
  const long index = strtol(at + 7, &end, 10);
  return *end == '.' && index < layers ? (int)index : -1;
}

/* A name's tensor with `head` and another ending in the place of "<h>.weight"; NULL: not in the file. */
static const still_tensor *sibling(const still_safetensors *file, const char *name, size_t stem,
                                   int head, const char *ending) {
  char other[512];
  const int length = snprintf(other, sizeof other, "%.*s%d.%s", (int)stem, name, head, ending);
  return length < (int)sizeof other ? still_safetensors_find(file, other) : NULL;
}

static still_status read_checked(const still_tensor *tensor, uint32_t dimensions, size_t dim,
                                 float *out) {
  const uint64_t shape[2] = {dim, dim};
  const uint64_t items = dimensions == 2 ? dim * dim : dim;
  if (!still_tensor_has_shape(tensor, dimensions, shape)) {
    char given[256], wanted[64];
    return still_fail(STILL_ERROR_FORMAT, "tensor '%s' has shape %s, must have %s", tensor->name,
                      still_shape_text(given, sizeof given, tensor->dimensions, tensor->shape),
                      still_shape_text(wanted, sizeof wanted, dimensions, shape));
  }
  STILL_TRY(still_tensor_to_f32(tensor, 0, items, out));
  for (uint64_t i = 0; i < items; i++)
    if (!isfinite(out[i]))
      return still_fail(STILL_ERROR_NUMERIC, "tensor '%s': value %llu is not finite", tensor->name,
                        (unsigned long long)i);
  return STILL_OK;
}

static void fold(float *a, const float *w, const float *u, size_t dim) {
  double norm = 0;
  for (size_t c = 0; u && c < dim; c++) norm += (double)u[c] * u[c];
  for (size_t e = 0; e < dim; e++) {
    double along = 0;
    for (size_t c = 0; u && c < dim; c++) along += (double)u[c] * w[e * dim + c];
    for (size_t d = 0; d < dim; d++)
      a[d * dim + e] = (float)(w[e * dim + d] - (norm > 0 ? 2 * u[d] * along / norm : 0));
  }
}

/* All heads of one feature map; name is that of any of them and `stem` its length before the head's number. work holds
 * a matrix and a vector. */
static still_status read_map(const still_safetensors *file, const char *name, size_t stem,
                             const still_model_config *config, float **map, float *work) {
  const size_t heads = (size_t)config->heads, dim = (size_t)config->head_dim;
  float *u = work + dim * dim;
  STILL_TRY(STILL_ALLOC(map, heads * dim * dim, "a feature map"));
  for (size_t h = 0; h < heads; h++) {
    const still_tensor *weight = sibling(file, name, stem, (int)h, "weight");
    const still_tensor *reflection = sibling(file, name, stem, (int)h, "hh.u");
    if (!weight)
      return still_fail(STILL_ERROR_FORMAT, "tensor '%.*s%zu.weight' is missing", (int)stem, name,
                        h);
    STILL_TRY(read_checked(weight, 2, dim, work));
    if (reflection) STILL_TRY(read_checked(reflection, 1, dim, u));
    fold(*map + h * dim * dim, work, reflection ? u : NULL, dim);
  }
  return STILL_OK;
}

/* Whether what follows the mark is "<h>.weight" or "<h>.hh.u" with h a head of the model. */
static bool names_a_head(const char *rest, int heads) {
  char *end;
  if (*rest < '0' || *rest > '9') return false;
  const long head = strtol(rest, &end, 10);
  return head < heads && (!strcmp(end, ".weight") || !strcmp(end, ".hh.u"));
}

static still_status take(still_adapter *adapter, const still_safetensors *file,
                         const still_tensor *tensor, const still_model_config *config,
                         float *work) {
  const int index = layer_of(tensor->name, adapter->layer_count);
  if (index < 0) return no_place(tensor->name);
  still_adapter_layer *layer = &adapter->layers[index];
  for (int m = 0; m < 2; m++) {
    const char *mark = strstr(tensor->name, map_marks[m]);
    if (!mark) continue;
    const char *rest = mark + strlen(map_marks[m]);
    if (!names_a_head(rest, config->heads)) return no_place(tensor->name);
    float **map = m ? &layer->feature_k : &layer->feature_q;
    layer->kind = STILL_ATTENTION_STILL;
    return *map ? STILL_OK
                : read_map(file, tensor->name, (size_t)(rest - tensor->name), config, map, work);
  }
  const char *mark = strstr(tensor->name, gate_mark);
  if (!mark || mark[strlen(gate_mark)]) return no_place(tensor->name);
  return still_adapter_take_gate(layer, tensor, config);
}

static still_status take_all(still_adapter *adapter, const still_safetensors *file,
                             const still_model_config *config, float *work) {
  for (size_t i = 0; i < still_safetensors_count(file); i++)
    STILL_TRY(take(adapter, file, still_safetensors_tensor(file, i), config, work));
  for (int i = 0; i < adapter->layer_count; i++)
    if (!adapter->layers[i].feature_q != !adapter->layers[i].feature_k)
      return still_fail(STILL_ERROR_FORMAT, "layer %d: feature_map_%c is missing", i,
                        adapter->layers[i].feature_q ? 'k' : 'q');
  adapter->has_attention = true;
  return STILL_OK;
}

still_status still_adapter_take_authors(still_adapter *adapter, const still_safetensors *file,
                                        const still_model_config *config) {
  const size_t dim = (size_t)config->head_dim;
  float *work;
  STILL_TRY(STILL_ALLOC(&work, dim * dim + dim, "a feature map"));
  const still_status status = take_all(adapter, file, config, work);
  still_free(work);
  return status;
}
