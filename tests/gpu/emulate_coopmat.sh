#!/bin/sh
# SPDX-License-Identifier: MIT
# emulate_coopmat.sh GLSLANG SHADERS OUTPUT NAME SOURCE DEFINITION...: compiles a *_coopmat shader of attention with
# coopmat_emulated.glsl instead of cooperative matrices into a C array.
set -e
glslang=$1 shaders=$2 output=$3 name=$4 source=$5
shift 5
here=$(cd "$(dirname "$0")" && pwd)
folder=$output.d
mkdir -p "$folder"
for file in "$shaders"/*.glsl "$shaders"/*.h "$shaders/$source"; do
  # loops stay loops, with ends that the compiler does not know: drivers on the CPU take minutes for long shaders with many
  # barriers; no subgroup may leave early, and those of softmax_branch_coopmat.comp take the same number of steps
  sed -E -e 's/\[\[(dont_)?unroll\]\]//' -e 's/for \(uint ([a-z_]*) = ([^;]*); \1 < ([^;]*);/for (uint \1 = \2; \1 < (\3) * ONE;/g' \
    -e 's/gl_SubgroupInvocationID/LANE/g; s/gl_SubgroupID/SUBGROUP/g; s/gl_SubgroupSize/32/g' -e 's/MATRIX_SUM\(([0-9.]*)\)/filled(\1)/g' \
    -e 's/i < \(steps\) \* ONE;/i < most_of_group(steps) * ONE;/; s/at \+= STEP;/at += i + 1 < steps ? STEP : 0;/' \
    -e 's/if \(t0* >=* (end|last)\) return;//' -e '/KHR_shader_subgroup/d' "$file" >"$folder/$(basename "$file")"
done
cp "$here/coopmat_emulated.glsl" "$folder/coopmat_common.glsl"
"$glslang" -V --quiet --target-env vulkan1.1 -DSTILL_SHADER -DSTORE_F16 "$@" --vn "$name" -o "$output" "$folder/$source"
rm -r "$folder"
