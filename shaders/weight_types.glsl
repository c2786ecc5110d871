// SPDX-License-Identifier: MIT
// Rows of a weight matrix at binding 0 in the type of the variant, four values at a time. columns is a multiple of 4.
// Q8_0 is stored as all the signed bytes, then all the f16 scales of blocks of 32 (vulkan_weights.c splits them).
layout(push_constant) uniform block { dense_push push; };

#if defined(WEIGHT_F32)
layout(set = 0, binding = 0) readonly buffer b0 { vec4 weight[]; };
vec4 load_weight(uint row, uint c4) { return weight[row * (push.columns / 4) + c4]; }
#elif defined(WEIGHT_F16)
layout(set = 0, binding = 0) readonly buffer b0 { uvec2 weight[]; };
vec4 load_weight(uint row, uint c4) {
  uvec2 x = weight[row * (push.columns / 4) + c4];
  return vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y));
}
#elif defined(WEIGHT_BF16)
layout(set = 0, binding = 0) readonly buffer b0 { uvec2 weight[]; };
vec4 load_weight(uint row, uint c4) {
  uvec2 x = weight[row * (push.columns / 4) + c4];
  return uintBitsToFloat(uvec4(x.x << 16, x.x & 0xffff0000u, x.y << 16, x.y & 0xffff0000u));
}
#elif defined(WEIGHT_Q8_0)
layout(set = 0, binding = 0) readonly buffer b0 { uint weight[]; };
vec4 load_weight(uint row, uint c4) {
  uint at = row * (push.columns / 4) + c4;
  int x = int(weight[at]);
  uint pair = weight[push.rows * (push.columns / 4) + at / 16];
  vec2 scales = unpackHalf2x16(pair);
  return vec4(bitfieldExtract(x, 0, 8), bitfieldExtract(x, 8, 8), bitfieldExtract(x, 16, 8),
              bitfieldExtract(x, 24, 8)) * ((at / 8 & 1) == 0 ? scales.x : scales.y);
}
#endif
