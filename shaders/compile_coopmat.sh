#!/bin/sh
# SPDX-License-Identifier: MIT
# compile_coopmat.sh GLSLANG SPIRV_OPT: compiles the *_coopmat shaders into spirv/, for builds whose glslangValidator is older than
# GL_KHR_cooperative_matrix (needs glslang 13 or newer and a spirv-opt of that age, which unrolls loops and turns arrays of
# matrices into values: drivers did half as well without). compile_coopmat.sh --check: says whether spirv/ is current.
set -e
cd "$(dirname "$0")"
sums() {
  sha256sum ./*_coopmat.comp shader_common.glsl coopmat_common.glsl tile_rows.glsl dim_order.glsl register_tiles.glsl query_tiles.glsl linear_tiles.glsl attention_sets.glsl weight_types.glsl shader_interface.h compile_coopmat.sh
}
if [ "$1" = --check ]; then
  sums | diff - spirv/SOURCES && exit 0
  echo "shaders/spirv is older than its sources: run shaders/compile_coopmat.sh GLSLANG SPIRV_OPT"
  exit 1
fi
mkdir -p spirv
rm -f spirv/*.spv.h
compile() { # name source definitions
  name=$1 source=$2
  shift 2
  "$glslang" -V --quiet --target-env vulkan1.1 -DSTILL_SHADER -DSTORE_F16 "$@" -o spirv/code.spv "$source.comp"
  "$spirv_opt" --target-env=vulkan1.1 -O --strip-debug spirv/code.spv -o spirv/code.spv
  {
    echo "const uint32_t shader_$name[] = {"
    od -An -v -t x4 spirv/code.spv | sed 's/ \([0-9a-f]\{8\}\)/0x\1,/g'
    echo "};"
  } > "spirv/$name.spv.h"
  rm spirv/code.spv
}
glslang=$1
spirv_opt=$2
for dim in 64 128; do
  for stem in saliency_coopmat linear_branch_coopmat softmax_branch_coopmat; do compile ${stem}_d$dim $stem -DDIM=$dim; done
  compile linear_totals_coopmat_d$dim linear_branch_coopmat -DDIM=$dim -DTOTALS
  compile query_features_coopmat_d$dim feature_map_coopmat -DDIM=$dim
  compile key_features_coopmat_d$dim feature_map_coopmat -DDIM=$dim -DKEYS
  compile hybrid_branch_coopmat_d$dim softmax_branch_coopmat -DDIM=$dim -DLINEAR
done
for type in f16 bf16 q8_0; do
  compile matmul_coopmat_$type matmul_coopmat "-DWEIGHT_$(echo $type | tr a-z A-Z)"
done
compile probe_coopmat_f16 probe_coopmat -DDIM=64
sums > spirv/SOURCES
