#!/bin/sh
# SPDX-License-Identifier: MIT
# compile_coopmat.sh GLSLANG: compiles the *_coopmat shaders into spirv/, for builds whose glslangValidator is older than
# GL_KHR_cooperative_matrix (needs glslang 13 or newer). compile_coopmat.sh --check: says whether spirv/ is current.
set -e
cd "$(dirname "$0")"
sums() {
  sha256sum ./*_coopmat.comp shader_common.glsl coopmat_common.glsl attention_sets.glsl weight_types.glsl shader_interface.h compile_coopmat.sh
}
if [ "$1" = --check ]; then
  sums | diff - spirv/SOURCES && exit 0
  echo "shaders/spirv is older than its sources: run shaders/compile_coopmat.sh GLSLANG"
  exit 1
fi
mkdir -p spirv
compile() { # stem suffix definition
  name=$1_$2
  "$glslang" -V --quiet --target-env vulkan1.1 -DSTILL_SHADER -DSTORE_F16 "$3" --vn "shader_$name" -o "spirv/$name.spv.h" "$1.comp"
}
glslang=$1
for stem in saliency feature_map linear_state linear_branch softmax_branch; do
  for dim in 64 128; do compile ${stem}_coopmat d$dim -DDIM=$dim; done
done
for type in f16 bf16 q8_0; do
  compile matmul_coopmat $type "-DWEIGHT_$(echo $type | tr a-z A-Z)"
done
compile probe_coopmat f16 -DDIM=64
sums > spirv/SOURCES
