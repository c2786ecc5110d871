#!/bin/sh
# SPDX-License-Identifier: MIT
# check_isa.sh LIBRARY.a: only kernels_<isa>.c may hold VEX or EVEX instructions (their mnemonics
# begin with v); all else in the library must run on every x86-64. Exit 77 where there is nothing to
# look at (no objdump, link-time optimisation).
set -eu
command -v objdump >/dev/null || exit 77
objdump -d --no-show-raw-insn "$1" | awk '
  / file format / { member = $1; wide = member ~ /kernels_(avx|amx)/ }
  /^ +[0-9a-f]+:/ {
    count++
    if ($2 !~ /^v/ || $2 ~ /^ver[rw]$/) next
    if (wide) expected++
    else if (!shown[member]++) { print member " holds " $0; bad = 1 }
  }
  END {
    if (!count) exit 77
    if (!expected) { print "none in the AVX kernels either: this check sees nothing"; exit 1 }
    exit bad
  }'
