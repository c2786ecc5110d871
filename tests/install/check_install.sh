#!/bin/sh
# SPDX-License-Identifier: MIT
# check_install.sh SOURCE: installs both libraries into a temporary prefix, builds and runs a consumer through
# pkg-config and CMake, shared and static, and asks the installed still-run about the installed model.
set -eu
source=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
meson setup "$work/build" "$source" --prefix="$work/prefix" -Ddefault_library=both -Dtests=disabled \
  --optimization=0   -Dbench=disabled >"$work/log" 2>&1 && ninja -C "$work/build" install >>"$work/log" 2>&1 ||
  { tail -n 30 "$work/log"; exit 1; }
libraries=$(dirname "$(find "$work/prefix" -name still.pc)")/..
export PKG_CONFIG_PATH="$libraries/pkgconfig" LD_LIBRARY_PATH="$libraries"

cc "$source/tests/install/consumer.c" -o "$work/shared" $(pkg-config --cflags --libs still)
"$work/shared"
cc "$source/tests/install/consumer.c" -o "$work/static" $(pkg-config --cflags still) "$libraries/libstill.a" \
  $(pkg-config --static --libs still | sed 's/-lstill//')
LD_LIBRARY_PATH= "$work/static"

# The program that the README prints.
sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '/^```/d' >"$work/readme.c"
cc -Wall -Werror "$work/readme.c" -o "$work/readme" $(pkg-config --cflags --libs still)
(cd "$source" && "$work/readme")

cmake -S "$source/tests/install" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1 &&
  cmake --build "$work/cmake" >>"$work/log" 2>&1 || { tail -n 30 "$work/log"; exit 1; }
"$work/cmake/consumer_shared"
LD_LIBRARY_PATH= "$work/cmake/consumer_static"

cd /
python3 "$source/examples/models/needle/make_question.py" --characters 1500 --value 2058756 >"$work/question"
answer=$("$work/prefix/bin/still-run" -f "$work/question" --temp 0 -n 12 -r . -q)
[ "$answer" = " 2058756" ] || { echo "the installed still-run answers '$answer'"; exit 1; }
