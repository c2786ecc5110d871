// SPDX-License-Identifier: MIT
// Shared by the *_coopmat shaders: f16 tiles of 16 x 16 x 16 with f32 sums in subgroups of 32. DIM is the head dimension, 64 or
// 128; chunks have 64 tokens.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_control_flow_attributes : require

#define ROW_MAJOR gl_CooperativeMatrixLayoutRowMajor
#define MATRIX_A coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define MATRIX_B coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define MATRIX_SUM coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>

#ifdef DIM
const uint DIM8 = DIM / 8;        // a row in uvec4
const uint DIM_TILES = DIM / 16;  // tiles of 16 columns
#endif
