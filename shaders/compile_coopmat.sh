#!/bin/sh
# SPDX-License-Identifier: MIT
# compile_coopmat.sh GLSLANG: compiles the *_coopmat shaders into spirv/, for builds whose glslangValidator is older than
# GL_KHR_cooperative_matrix (needs glslang 13 or newer). compile_coopmat.sh --check: says whether spirv/ is current.
set -e
cd "$(dirname "$0")"
sums() {
  sha256sum ./*_coopmat.comp shader_common.glsl coopmat_common.glsl attention_sets.glsl shader_interface.h compile_coopmat.sh
}
if [ "$1" = --check ]; then
  sums | diff - spirv/SOURCES && exit 0
  echo "shaders/spirv is older than its sources: run shaders/compile_coopmat.sh GLSLANG"
  exit 1
fi
mkdir -p spirv
for source in *_coopmat.comp; do
  dims="64 128"
  [ "$source" = probe_coopmat.comp ] && dims=64
  for dim in $dims; do
    name=$(basename "$source" .comp)_d$dim
    "$1" -V --quiet --target-env vulkan1.1 -DSTILL_SHADER -DSTORE_F16 -DDIM=$dim --vn "shader_$name" -o "spirv/$name.spv.h" "$source"
  done
done
sums > spirv/SOURCES
