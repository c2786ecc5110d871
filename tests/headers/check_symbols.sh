#!/bin/sh
# SPDX-License-Identifier: MIT
# check_symbols.sh LIBRARY LIST INCLUDE: the library exports exactly the symbols of LIST, and those are exactly
# the functions that the public headers declare. A new function is added to all three on purpose.
set -u
library=$1 list=$2 include=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$library" | awk '$2 ~ /^[A-Z]$/ { print $3 }' | sed 's/@.*//' | LC_ALL=C sort -u >"$work/exported"
cat "$include"/still/*.h | tr '\n' ' ' | grep -o 'STILL_API[^;(]*(' | grep -o 'still_[a-z0-9_]* *($' | tr -d ' (' |
  LC_ALL=C sort -u >"$work/declared"
failed=0
if ! diff -u "$list" "$work/exported"; then echo "exported symbols differ from the list"; failed=1; fi
if ! diff -u "$list" "$work/declared"; then echo "declared functions differ from the list"; failed=1; fi
exit $failed
