#!/bin/sh
# SPDX-License-Identifier: MIT
# check_finite_math.sh SOURCE_ROOT CC...: the kernels refuse to be built by flags that take infinities
# and NaN away.
set -eu
root=$1
shift
for file in kernels_portable kernels_avx2 kernels_avxvnni kernels_avx512 kernels_avx512vnni kernels_amx; do
  case $file in
    *avx2) isa='-mavx2 -mfma -mf16c' ;;
    *avxvnni) isa='-mavx2 -mfma -mf16c -mavxvnni' ;;
    *avx512) isa='-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c' ;;
    *avx512vnni) isa='-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c' ;;
    *amx) isa='-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mfma -mf16c -mamx-tile -mamx-bf16' ;;
    *) isa= ;;
  esac
  compile="$* $isa -std=gnu11 -fsyntax-only -I$root $root/simd/$file.c"
  $compile || { echo "$file.c is not built without the flag either"; exit 1; }
  if $compile -ffast-math 2>/dev/null; then
    echo "$file.c was built with -ffast-math"
    exit 1
  fi
done
