/* SPDX-License-Identifier: MIT
 * Drivers can be wrong without an error: before a variant of shaders is used for the first time, it has to give what the CPU
 * gives for a small problem of the same kind. */
#ifndef STILL_VULKAN_CHECK_H
#define STILL_VULKAN_CHECK_H

#include "backend/backend.h"
#include "backend/vulkan/vulkan_attention.h"

/* Checks the attention shaders that this plan would use, once for each kind, head dimension, chunk and variant. Variants
 * that fail are switched off (a warning names them) and the next simpler one is tried; UNSUPPORTED if f32 fails too. The caller holds
 * vulkan->lock. */
still_status still_vulkan_check_attention(still_vulkan *vulkan, const still_attention_plan *plan);

/* The same for the other operations of a model, with the CPU backend's for comparison; DEVICE if plain shaders fail. The caller
 * does not hold the lock. */
still_status still_vulkan_check_dense(still_backend *backend);

/* The same for products with weights of a type, UNSUPPORTED if they fail. The caller does not hold the lock. */
still_status still_vulkan_check_weights(still_backend *backend, still_tensor_type type);

/* For tests: variants of these still_vulkan_feature bits count as wrong; STILL_VULKAN_F32 is the plain one. */
enum { STILL_VULKAN_F32 = 1 << 30 };
void still_vulkan_pretend_wrong(unsigned features);

#endif
