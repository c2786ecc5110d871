// SPDX-License-Identifier: MIT
// Begins every shader: workgroup size, shared declarations, storage types of the variant.
#ifdef STORE_F16
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define STORE4 f16vec4
#else
#define STORE4 vec4
#endif
#include "shader_interface.h"

#ifndef GROUP
#define GROUP STILL_GROUP
#endif
layout(local_size_x = GROUP, local_size_y = 1, local_size_z = 1) in;

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)
const float TINY = 1e-12;  // floor of norms and features (spec section 4)
const float EPSILON = 1e-8;  // smoothing of the saliency score (spec section 2)
