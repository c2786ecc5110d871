#!/bin/sh
# SPDX-License-Identifier: MIT
# quickstart.sh [build|run|test]: from a fresh checkout to an answer.
#   build  install the Debian packages that are missing, configure into build/, compile
#   run    build, then ask the embedded model about a text of 4,000 tokens (the default)
#   test   build, then run every test
set -eu
cd "$(dirname "$0")"

packages="gcc g++ libc6-dev meson ninja-build pkg-config libcjson-dev libpcre2-dev libcmocka-dev
  libopenblas-openmp-dev libvulkan-volk-dev libvulkan-dev glslang-tools"

# Threads that spin while they wait are fast on an idle machine and dreadful on a busy one.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

say() { printf '== %s\n' "$*"; }

install_missing() {
  missing=
  if ! command -v dpkg-query >/dev/null; then
    say "not Debian: please see to the equivalents of:" $packages
    return
  fi
  for package in $packages; do
    case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
      *"ok installed") ;;
      *) missing="$missing $package" ;;
    esac
  done
  [ -n "$missing" ] || return 0
  say "installing Debian packages:$missing"
  root=
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { say "as root, please: apt-get install$missing"; exit 1; }
    root=sudo
  fi
  $root apt-get update -qq
  $root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
  [ ! -d build ] || meson setup --reconfigure --clearcache build >/dev/null
}

# build [TARGET...]: everything, or these.
build() {
  install_missing
  if [ ! -f build/build.ninja ]; then
    say "configuring into build/"
    meson setup build >build.log 2>&1 || { cat build.log; rm -f build.log; exit 1; }
    sed -n '/^still [0-9]/,$p' build.log
    rm -f build.log
  fi
  say "compiling"
  ninja -C build --quiet "$@"
}

# One member of a JSON object that still-run --json printed.
member() { printf '%s\n' "$2" | sed -n "s/^  \"$1\": \"\{0,1\}\([^\"]*[^\",]\)\"\{0,1\},\{0,1\}\$/\1/p"; }

megabytes() { awk "BEGIN { printf \"%.1f MB\", $1 / 1e6 }"; }

# row LABEL FLAG...: asks the question with these flags and prints a line of the table.
row() {
  label=$1
  shift
  result=$(build/examples/programs/still-run -f "$question" --temp 0 -n 12 -r . --json -q "$@")
  printf '%-34s %-10s %10s %10s %9.0f %9.0f\n' "$label" "$(member answer "$result" | tr -d ' ')" \
    "$(megabytes "$(member cache_bytes "$result")")" "$(megabytes "$(member peak_resident_bytes "$result")")" \
    "$(member prompt_tokens_per_second "$result")" "$(member answer_tokens_per_second "$result")"
}

run() {
  build examples/programs/still-run examples/programs/still-info examples/programs/still-linearize \
    examples/programs/still-evaluate examples/programs/still-quantize
  question=examples/models/needle/question.txt
  say "a story of $(wc -w <$question) words ($question) hides this sentence:"
  printf '   %s\n' "$(grep -o 'One of the special magic numbers[^.]*\.' $question)"
  say "the question at its end:"
  printf '   %s ...\n' "$(tail -n 1 $question)"
  say "the answers of the model needle (6.8 M parameters, embedded), $(getconf _NPROCESSORS_ONLN) CPUs:"
  printf '%-34s %-10s %10s %10s %9s %9s\n' attention answer cache resident 'read t/s' 'write t/s'
  row "full"
  adapter=examples/models/needle/adapter.safetensors
  row "STILL, budget of 512 tokens" --adapter $adapter --budget 512
  row "STILL, 256" --adapter $adapter --budget 256
  row "untrained STILL, 512" --attn still -c 4096 --budget 512 --metric keynorm --routing group
  row "sliding window of 512" --attn swa --window 512
  say "STILL: the model with its adapter, trained by still-linearize; untrained, it forgets what it does not keep"
  say "next: build/examples/programs/still-run -h; ./quickstart.sh test"
}

run_tests() {
  build
  log=build/meson-logs/quickstart.txt
  code=0
  meson test -C build --no-rebuild --print-errorlogs -t 4 "$@" >$log 2>&1 || code=$?
  grep -v '^\(Full log\|ninja\|$\)' $log || true
  awk '
    /^(Ok|Expected Fail): / { passed += $NF }
    /^(Fail|Unexpected Pass|Timeout): / { failed += $NF }
    /^Skipped: / { skipped += $NF }
    END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' $log
  return $code
}

case ${1:-run} in
  build) build ;;
  run) run ;;
  test) shift; run_tests "$@" ;;
  *) echo "usage: $0 [build|run|test]" >&2; exit 2 ;;
esac
