#!/bin/sh
# SPDX-License-Identifier: MIT
# run_whole.sh [--all] [MACHINE...]: the whole library for other machines (armhf, aarch64, riscv64, i686: all unless named) in
# build-whole-MACHINE, with cJSON, PCRE2 and CMocka built for them, and its tests under qemu-user: those that take seconds there, or
# with --all every one that needs no shell (an hour a machine). The last line is a sum for .ci/run. Debian packages: as
# run_cross.sh and build_dependencies.sh say, and pkg-config.
set -u
cd "$(dirname "$0")/../.."
all=
if [ "${1:-}" = --all ]; then
  all=yes
  shift
fi
quick_suites='--suite harness --suite formats --suite tokenizer'
quick_tests='golden_portable golden_neon adapter faulty_files model_device model_files model_memory probe rope_frequencies
  session_state golden_gradients student fuzz_gguf fuzz_json fuzz_quantize fuzz_safetensors fuzz_session fuzz_tokenizer_json
  fuzz_tokenizer_model'
passed=0 failed=0 skipped=0
export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive

# add FOLDER ARGUMENT...: runs tests and adds their numbers.
add() {
  meson test -C "$@" --no-rebuild -t 40 --print-errorlogs >"$log" 2>&1 || grep -v ' OK  ' "$log" | tail -n 60
  eval "$(awk '/^(Ok|Expected Fail): / { p += $NF } /^(Fail|Unexpected Pass|Timeout): / { f += $NF } /^Skipped: / { s += $NF }
    END { printf "p=%d f=%d s=%d", p, f, s }' "$log")"
  [ $((p + f + s)) != 0 ] || f=1
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  echo "$1: $p right, $f wrong, $s skipped"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for machine in ${*:-armhf aarch64 riscv64 i686}; do
  compiler=$(sed -n "s/^c = .*'\([^',]*\)'.*/\1/p" "tests/cross/$machine.ini")
  folder=build-whole-$machine
  if ! command -v "$compiler" >/dev/null; then
    echo "$machine: no $compiler"
    skipped=$((skipped + 1))
    continue
  fi
  if ! { tests/cross/build_dependencies.sh "build-dependencies/$machine" "$compiler" &&
    { [ -f "$folder/build.ninja" ] || meson setup "$folder" --werror --cross-file "tests/cross/$machine.ini" \
      -Dpkg_config_path="$PWD/build-dependencies/$machine/lib/pkgconfig" -Dopenblas=disabled -Dvulkan=disabled -Dbench=disabled; } &&
    ninja -C "$folder"; } >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "$machine: FAILED"
    failed=$((failed + 1))
    continue
  fi
  if [ "$all" ]; then
    add "$folder" --no-suite programs --no-suite headers
  else
    add "$folder" $quick_suites
    add "$folder" $quick_tests
  fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
