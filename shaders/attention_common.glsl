// SPDX-License-Identifier: MIT
// Shared by the attention stages.
layout(constant_id = 0) const uint D = 64;  // head dimension, a multiple of 4
layout(push_constant) uniform block { attention_push push; };

const uint D4 = D / 4;
const uint F = 2 * D;
const uint F4 = F / 4;

#include "attention_sets.glsl"
