#!/bin/sh
# SPDX-License-Identifier: MIT
# run_cross.sh [MACHINE...]: builds the kernels for other machines (armhf, aarch64, riscv64, i686: all unless
# named) into build-MACHINE, runs their whole list of checks under qemu-user, and makes sure that a big-endian
# machine is refused. The last line is a sum for .ci/run. Debian packages: qemu-user and for each
# machine gcc-... and libc6-dev-...-cross; a machine without its compiler is skipped.
set -u
cd "$(dirname "$0")/../.."
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

word() { sed -n "s/^$1 = .*'\([^',]*\)'.*/\1/p" "tests/cross/$2.ini"; }

for machine in ${*:-armhf aarch64 riscv64 i686}; do
  if ! command -v "$(word c "$machine")" >/dev/null; then
    echo "$machine: no $(word c "$machine")"
    skipped=$((skipped + 1))
    continue
  fi
  [ -f "build-$machine/build.ninja" ] ||
    meson setup "build-$machine" --werror --cross-file "tests/cross/$machine.ini" -Dkernels_only=true >"$log" 2>&1
  more=true
  [ "$machine" != aarch64 ] || # what later processors have, too
    more="qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu build-aarch64/tests/kernels/check_kernels --level neondot"
  if ninja -C "build-$machine" >>"$log" 2>&1 && $more >>"$log" 2>&1 && meson test -C "build-$machine" -t 10 --print-errorlogs >>"$log" 2>&1; then
    echo "$machine: right"
    passed=$((passed + 1))
  else
    tail -n 40 "$log"
    echo "$machine: FAILED"
    failed=$((failed + 1))
  fi
done

sed "s/^endian = .*/endian = 'big'/; s/^c = .*/c = 'cc'/; /^exe_wrapper/d" tests/cross/riscv64.ini >"$log.ini"
if meson setup "$log.build" --cross-file "$log.ini" >"$log" 2>&1 || ! grep -q 'needs a little-endian machine' "$log"; then
  echo 'big-endian: FAILED, not refused'
  failed=$((failed + 1))
else
  echo 'big-endian: refused'
  passed=$((passed + 1))
fi
rm -rf "$log.ini" "$log.build"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
