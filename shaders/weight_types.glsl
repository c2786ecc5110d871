// SPDX-License-Identifier: MIT
// Rows of a weight matrix at binding 0 in the type of the variant, four values at a time. columns is a multiple of 4.
// Q8_0 is stored as all the signed bytes, then all the f16 scales of blocks of 32 (vulkan_weights.c splits them).
// With WEIGHT_UNITS eight at a time, in two steps: load_unit as stored, so that nothing waits for it, and unit_halves as f16.
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

#ifdef WEIGHT_UNITS
#if defined(WEIGHT_Q8_0)
layout(set = 0, binding = 0) readonly buffer b0_units { uvec2 units[]; };
uvec4 load_unit(uint row, uint c8) {
  uint at = row * (push.columns / 8) + c8, block = at / 4;
  return uvec4(units[at], weight[push.rows * (push.columns / 4) + block / 2], block % 2);
}
uvec2 four_halves(uint bytes, float16_t scale) {
  int x = int(bytes);
  f16vec4 y = scale * f16vec4(bitfieldExtract(x, 0, 8), bitfieldExtract(x, 8, 8), bitfieldExtract(x, 16, 8), x >> 24);
  return uvec2(packFloat2x16(y.xy), packFloat2x16(y.zw));
}
uvec4 unit_halves(uvec4 unit) {
  f16vec2 scales = unpackFloat2x16(unit.z);
  float16_t scale = unit.w == 0 ? scales.x : scales.y;
  return uvec4(four_halves(unit.x, scale), four_halves(unit.y, scale));
}
#else
layout(set = 0, binding = 0) readonly buffer b0_units { uvec4 units[]; };
uvec4 load_unit(uint row, uint c8) { return units[row * (push.columns / 8) + c8]; }
#if defined(WEIGHT_BF16)
uint two_halves(uint x) { return packHalf2x16(uintBitsToFloat(uvec2(x << 16, x & 0xffff0000u))); }
uvec4 unit_halves(uvec4 unit) {
  return uvec4(two_halves(unit.x), two_halves(unit.y), two_halves(unit.z), two_halves(unit.w));
}
#else
uvec4 unit_halves(uvec4 unit) { return unit; }
#endif
#endif
#endif
