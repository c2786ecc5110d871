#!/bin/sh
# SPDX-License-Identifier: MIT
# build_dependencies.sh FOLDER COMPILER [FLAG...]: cJSON, PCRE2 (8 bits) and CMocka from Debian's sources, as static libraries
# with pkg-config files in FOLDER/lib/pkgconfig: for a machine without packages, or a sanitizer that has to see everything.
# Needs apt-get, dpkg-dev and Debian's server once, for the sources (beside FOLDER). Nothing happens where FOLDER is complete.
set -eu
[ $# -ge 2 ] || { sed -n '3,5s/^# //p' "$0"; exit 2; }
mkdir -p "$1"
prefix=$(cd "$1" && pwd) compiler=$2
shift 2
flags=$*
[ ! -f "$prefix/complete" ] || exit 0
sources=$(dirname "$prefix")/sources
case $compiler in *-gcc) ar=${compiler##* } ar=${ar%gcc}ar ;; *) ar=ar ;; esac

# From lists of its own: the machine's need not name sources.
fetch() {
  mkdir -p "$sources/lists/partial"
  echo 'deb-src http://deb.debian.org/debian bookworm main' >"$sources/sources.list"
  own="-qq -o Dir::Etc::SourceList=$sources/sources.list -o Dir::Etc::SourceParts=- -o Dir::State::Lists=$sources/lists"
  cd "$sources" && apt-get $own update && apt-get $own -o APT::Sandbox::User=root source cjson pcre2 cmocka
  touch "$sources/complete"
}

# archive NAME PACKAGE VERSION FLAGS SOURCE...
archive() {
  name=$1 package=$2 version=$3 own_flags=$4
  shift 4
  mkdir -p "$prefix/objects/$name" && cd "$prefix/objects/$name"
  echo "$@" | xargs -n 4 -P "$(nproc)" $compiler -c -O1 -g -w -fPIC $flags $own_flags
  $ar rcs "$prefix/lib/lib$name.a" *.o
  cat >"$prefix/lib/pkgconfig/$package.pc" <<END
Name: $name
Description: built for tests
Version: $version
Cflags: -I$prefix/include
Libs: -L$prefix/lib -l$name
END
}

[ -f "$sources/complete" ] || (fetch)
mkdir -p "$prefix/lib/pkgconfig" "$prefix/include/cjson"
cjson=$(echo "$sources"/cjson-*/) pcre2=$(echo "$sources"/pcre2-*/src) cmocka=$(echo "$sources"/cmocka-*/)

cp "$cjson/cJSON.h" "$prefix/include/cjson/"
archive cjson libcjson 1.7 '' "$cjson/cJSON.c"

# As PCRE2's NON-AUTOTOOLS-BUILD says, without a file that another one includes.
cp "$pcre2/pcre2.h.generic" "$prefix/include/pcre2.h"
cp "$pcre2/pcre2.h.generic" "$pcre2/pcre2.h"
cp "$pcre2/config.h.generic" "$pcre2/config.h"
cp "$pcre2/pcre2_chartables.c.dist" "$pcre2/pcre2_chartables.c"
archive pcre2-8 libpcre2-8 10.42 "-I$pcre2 -DHAVE_CONFIG_H -DSUPPORT_UNICODE -DPCRE2_CODE_UNIT_WIDTH=8 -DHAVE_MEMMOVE \
  -DHAVE_STDINT_H -DHAVE_INTTYPES_H" \
  $(sed -n '/ucptables\|fuzzsupport/d; s,^ *\(pcre2_[a-z0-9_]*\.c\)$,'"$pcre2"'/\1,p' "$pcre2/../NON-AUTOTOOLS-BUILD")

cp "$cmocka"/include/cmocka*.h "$prefix/include/"
archive cmocka cmocka 1.1.5 "-I$cmocka/include -DHAVE_MALLOC_H -DHAVE_INTTYPES_H -DHAVE_SIGNAL_H -DHAVE_STRINGS_H \
  -DHAVE_STDINT_H -DHAVE_GCC_THREAD_LOCAL_STORAGE -DHAVE_CLOCK_REALTIME -DHAVE_STRUCT_TIMESPEC -DHAVE_STRSIGNAL" "$cmocka/src/cmocka.c"

touch "$prefix/complete"
