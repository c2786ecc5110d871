#!/bin/sh
# SPDX-License-Identifier: MIT
# run_old_cpus.sh BUILD: runs check_kernels, and still-run where it is built, on emulated x86
# processors older than this one; an instruction that such a processor lacks ends in "Illegal
# instruction". Needs qemu-user >= 7.2, the first with AVX2.
set -eu
build=$1
command -v qemu-x86_64 >/dev/null || { echo 'no qemu-x86_64'; exit 77; }
check=$build/tests/kernels/check_kernels
run=$build/examples/programs/still-run
[ -x "$run" ] || run=

# The emulator must refuse what a processor lacks, or all below says nothing.
probe=$(mktemp)
trap 'rm -f "$probe"' EXIT
echo 'int main(void) { __asm__ volatile("vpaddd %ymm0, %ymm0, %ymm0"); return 0; }' |
  ${CC:-cc} -x c - -o "$probe"
if ! qemu-x86_64 -cpu Haswell "$probe" 2>/dev/null ||
  qemu-x86_64 -cpu qemu64 "$probe" 2>/dev/null; then
  echo 'this qemu-x86_64 does not tell processors apart'
  exit 77
fi

# the processor, the level that must be found on it
while read -r cpu level; do
  emulate="qemu-x86_64 -cpu $cpu"
  found=$($emulate "$check" --list 2>/dev/null | sed -n 's/^level //p' | tail -n 1)
  [ "$found" = "$level" ] || { echo "$cpu: level $found was chosen, $level was expected"; exit 1; }
  for each in portable "$level"; do
    $emulate "$check" --level "$each" 2>/dev/null || { echo "$cpu: level $each fails"; exit 1; }
  done
  if [ -n "$run" ] && ! $emulate "$run" -n 2 -p 'The town' >/dev/null 2>&1; then
    echo "$cpu: still-run fails"
    exit 1
  fi
  echo "$cpu: right"
done <<END
qemu64 portable
Nehalem portable
SandyBridge portable
Haswell avx2
END
