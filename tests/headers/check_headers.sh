#!/bin/sh
# SPDX-License-Identifier: MIT
# check_headers.sh INCLUDE LANGUAGE STANDARD COMPILER...: compiles each header of INCLUDE/still alone, twice
# in one translation unit, with every warning an error.
set -u
include=$1 language=$2 standard=$3
shift 3
failed=0
for header in "$include"/still/*.h; do
  name=${header##*/}
  printf '#include <still/%s>\n#include <still/%s>\n' "$name" "$name" |
    "$@" -x "$language" -std="$standard" -pedantic -Wall -Wextra -Werror -fsyntax-only -I"$include" - &&
    echo "ok $name" || { echo "FAILED $name as $standard"; failed=1; }
done
exit $failed
