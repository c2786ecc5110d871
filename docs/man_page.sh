#!/bin/sh
# SPDX-License-Identifier: MIT
# man_page.sh HELP2MAN VERSION PROGRAM PAGE: makes the manual page of a program from what its --help prints,
# whose headings are turned into those that help2man knows.
set -eu
help2man=$1 version=$2 program=$(realpath "$3") page=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=$(basename "$program")
"$program" --help >"$work/help"
purpose=$(sed -n "1s/^$name \(.*\)\.$/\1/p" "$work/help")
[ -n "$purpose" ] || { echo "$name: its help does not begin with '$name does something.'" >&2; exit 1; }
sed -i "s/^usage:/Usage:/; s/^examples$/Examples:/; s/^  $name .*/&\\n/; s/^Every flag/Environment:\\n&/
  s/^exit status: \\(.*\\)/\\nExit status:\\n\\1/; s/^[a-z][^.]*[a-z]$/&:/" "$work/help"
printf '#!/bin/sh\ncat "%s"\n' "$work/help" >"$work/$name"
chmod +x "$work/$name"
"$help2man" --no-info --name "$purpose" --version-string "$version" --source "libstill $version" \
  --output "$page" "$work/$name"
