/* SPDX-License-Identifier: MIT
 * Halves to floats, floats to halves. Ends of arrays go through half.h: the same bits. */

static void f16_to_f32(float *out, const uint16_t *x, size_t n) {
  size_t i = 0;
  for (; i + VF <= n; i += VF) vf_store(out + i, vf_load_f16(x + i));
  for (; i < n; i++) out[i] = still_f16_to_f32(x[i]);
}

static void f32_to_f16(uint16_t *out, const float *x, size_t n) {
  size_t i = 0;
  for (; i + VF <= n; i += VF) vf_store_f16(out + i, vf_load(x + i));
  for (; i < n; i++) out[i] = still_f32_to_f16(x[i]);
}

static void bf16_to_f32(float *out, const uint16_t *x, size_t n) {
  size_t i = 0;
  for (; i + VF <= n; i += VF) vf_store(out + i, vf_load_bf16(x + i));
  for (; i < n; i++) out[i] = still_bf16_to_f32(x[i]);
}

static void f32_to_bf16(uint16_t *out, const float *x, size_t n) {
  size_t i = 0;
  for (; i + VF <= n; i += VF) vf_store_bf16(out + i, vf_load(x + i));
  for (; i < n; i++) out[i] = still_f32_to_bf16(x[i]);
}
