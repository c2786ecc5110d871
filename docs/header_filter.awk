# SPDX-License-Identifier: MIT
# The public headers carry plain C comments; Doxygen gets to see them as its own. A comment belongs to what
# follows it, one behind code to that code; "/* ---- name ----" begins a group; indented lines are tables
# or formulas and stay as they are.
function end_table() {
  if (table) print "@endverbatim"
  table = 0
}
/^\/\* SPDX/ { print "/** @file"; next }
/^ \*  - / { list = 1 }
/^ \*$/ { list = 0 }
/^ \*   +[^ ]/ && !list {
  if (!table) print " * @verbatim"
  table = 1
  last = sub(/ *\*\/$/, "")
  print substr($0, 5)
  if (last) { end_table(); print " */" }
  next
}
{ end_table() }
/^\/\* ---- / {
  sub(/^\/\* ---- /, "")
  whole = sub(/ *\*\/$/, "")
  sub(/ *----*$/, "")
  print (group ? "/** @} */ " : "") "/** @name " $0 (whole ? " */ /** @{ */" : "")
  opening = !whole
  group = 1
  next
}
opening && /\*\/$/ { $0 = $0 " /** @{ */"; opening = 0 }
group && /^#ifdef __cplusplus$/ { print "/** @} */"; group = 0 }
/^ *\/\*/ { sub(/\/\*/, "/**") }
/[^ ] +\/\* / { sub(/\/\* /, "/**< ") }
{ print }
