#!/bin/sh
# SPDX-License-Identifier: MIT
# check_install.sh SOURCE: installs both libraries into a temporary prefix, builds and runs a consumer through
# pkg-config and CMake, shared and static; once more where only the static library is installed; asks the
# installed still-run about the installed model and looks for what else belongs into an installation.
set -eu
source=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "$*"; exit 1; }

quietly() { "$@" >>"$work/log" 2>&1 || { tail -n 30 "$work/log"; fail "failed: $*"; }; }

# in_prefix PREFIX: what is installed there is used from now on.
in_prefix() {
  prefix=$1
  libraries=$(realpath "$(dirname "$(find "$prefix" -name still.pc)")/..")
  export PKG_CONFIG_PATH="$libraries/pkgconfig"
}

# run_consumer SHARED|STATIC PROGRAM: runs without help from LD_LIBRARY_PATH if it should hold the library.
run_consumer() {
  needed=$(objdump -p "$2" | sed -n 's/ *NEEDED *\(libstill.*\)/\1/p')
  case $1 in
    SHARED) [ "$needed" = "libstill.so.$major" ] || fail "$2 needs '$needed', not libstill.so.$major"
            LD_LIBRARY_PATH=$libraries "$2" ;;
    STATIC) [ -z "$needed" ] || fail "$2 is static and needs $needed"; "$2" ;;
  esac
}

# with_cmake KIND_OF_CONSUMER: the project in this folder.
with_cmake() {
  quietly cmake -S "$source/tests/install" -B "$prefix/cmake" -DCMAKE_PREFIX_PATH="$prefix"
  quietly cmake --build "$prefix/cmake"
  run_consumer "$1" "$prefix/cmake/consumer"
  run_consumer STATIC "$prefix/cmake/consumer_static"
}

quietly meson setup "$work/build" "$source" --prefix="$work/both" -Ddefault_library=both -Dtests=disabled \
  --optimization=0 -Dbench=disabled
quietly ninja -C "$work/build" install
in_prefix "$work/both"
version=$(pkg-config --modversion still)
major=${version%%.*}

[ "$(readlink "$libraries/libstill.so")" = "libstill.so.$major" ] || fail "libstill.so is no link to libstill.so.$major"
[ "$(readlink "$libraries/libstill.so.$major")" = "libstill.so.$version" ] || fail "libstill.so.$major is no link to $version"
objdump -p "$libraries/libstill.so" | grep -q "SONAME *libstill.so.$major\$" || fail "the SONAME is not libstill.so.$major"
"$source/tests/headers/check_symbols.sh" "$libraries/libstill.so" "$source/tests/headers/exported_symbols.txt" \
  "$prefix/include"

consumer=$source/tests/install/consumer.c
cc "$consumer" -o "$work/shared" $(pkg-config --cflags --libs still)
run_consumer SHARED "$work/shared"
cc "$consumer" -o "$work/static" $(pkg-config --cflags still) "$libraries/libstill.a" \
  $(pkg-config --static --libs still | sed 's/-lstill//')
run_consumer STATIC "$work/static"
with_cmake SHARED

# The program that the README prints.
sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '/^```/d' >"$work/readme.c"
cc -Wall -Werror "$work/readme.c" -o "$work/readme" $(pkg-config --cflags --libs still)
(cd "$source" && LD_LIBRARY_PATH=$libraries "$work/readme")

(
  cd /
  python3 "$source/examples/models/needle/make_question.py" --characters 1500 --value 2058756 >"$work/question"
  answer=$("$prefix/bin/still-run" -f "$work/question" --temp 0 -n 12 -r . -q)
  [ "$answer" = " 2058756" ] || fail "the installed still-run answers '$answer'"
)
for program in run info linearize evaluate quantize; do
  [ -x "$prefix/bin/still-$program" ] || fail "no still-$program"
  if command -v help2man >/dev/null; then
    page=$prefix/share/man/man1/still-$program.1
    for section in NAME SYNOPSIS EXAMPLES ENVIRONMENT; do
      grep -q "^\.SH $section" "$page" || fail "$page has no $section"
    done
    "$prefix/bin/still-$program" -h >"$work/help"
    for flag in $(sed -n 's/^  \(-[^ ]*\(, -[^ ]*\)*\).*/\1/p' "$work/help" | grep -o -e '--[a-z0-9-]*' | sed 's/-/\\\\-/g'); do
      grep -q "^\\\\fB.*$flag" "$page" || fail "$page says nothing about $flag"
    done
  fi
done

# Only the static library: both ways give it unasked.
quietly meson configure "$work/build" -Ddefault_library=static -Dprefix="$work/alone" -Dexamples=disabled
quietly ninja -C "$work/build" install
in_prefix "$work/alone"
[ ! -e "$libraries/libstill.so" ] || fail "a shared library, although only the static one was asked for"
cc "$consumer" -o "$work/alone/consumer" $(pkg-config --cflags --libs still)
run_consumer STATIC "$work/alone/consumer"
with_cmake STATIC
