#!/bin/sh
# SPDX-License-Identifier: MIT
# check_pages.sh STILL_RUN STILL_EVALUATE STILL_BENCH: pages and pictures in headless Chromium: they open without an
# error in the console, and the page's controls do what they say. Skipped (77) where Chromium is missing.
# SHOTS=FOLDER keeps light and dark screenshots, to be looked at.
set -u
still_run=$1 still_evaluate=$2 still_bench=$3
browser=$(command -v chromium) || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

complain() {
  failed=1
  printf 'FAILED: %s\n' "$*"
}

# browse FILE FLAGS...: what Chromium prints, and its console in $work/console.
browse() {
  file=$1
  shift
  timeout 50 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
    --user-data-dir="$work/profile" --enable-logging=stderr "$@" "file://$file" 2>"$work/console"
}

# opens FILE: shows it, in $work/dom; the console stays empty. SHOTS: once on light, once on dark.
opens() {
  browse "$1" --dump-dom >"$work/dom" || complain "$1: the browser failed: $(tail -n 3 "$work/console")"
  ! grep -q 'CONSOLE\|parsererror' "$work/console" "$work/dom" || complain "$1: $(grep CONSOLE "$work/console")"
  [ -n "${SHOTS:-}" ] || return 0
  mkdir -p "$SHOTS"
  for scheme in light:1 dark:0; do
    browse "$1" --blink-settings=preferredColorScheme=${scheme#*:} --window-size=1300,850 \
      --screenshot="$SHOTS/$(basename "$1").${scheme%:*}.png" >/dev/null
  done
}

shows() { grep -qF -e "$1" "$work/dom" || complain "the page does not show: $1"; }

# Pictures: results as still-evaluate writes them, small.
"$still_evaluate" -t 1 -q --runs full,swa:64 --tasks sniah1 --lengths 256,320 -n 2 --plot "$work/lengths.svg" >/dev/null ||
  complain "no results"
"$still_evaluate" -t 1 -q --runs full,swa:64 --tasks sniah1 --lengths 320 -n 1 --depths 3 --plot "$work/depths.svg" \
  >/dev/null || complain "no results by depth"
"$still_bench" attention --heads 2 --kv-heads 1 --dim 16 --tokens 64,200 --budget 80 --kind full,swa,still --repeats 1 \
  --plot "$work/time.svg" >/dev/null || complain "no times"
"$still_bench" memory --heads 2 --kv-heads 1 --dim 16 --tokens 64,200 --budget 80 --kind full,swa,still \
  --plot "$work/memory.svg" >/dev/null || complain "no memory"
for picture in lengths:swa:64 depths:'100 %' time:still memory:still; do
  opens "$work/${picture%%:*}.svg"
  shows "${picture#*:}"
done

# The page: its text on both sides, kept tokens marked.
{
  printf 'A <b>bold</b> word, an \303\251 and an \360\237\230\200, </script> too.\n'
  i=0
  while [ $i -lt 25 ]; do
    echo "It rained for $i days and nights, and then the sun came out again over the wet hills."
    i=$((i + 1))
  done
} >"$work/text"
"$still_run" -t 1 -q -f "$work/text" -n 0 --attn still --budget 192 --saliency "$work/page.html" || complain "no page"
opens "$work/page.html"
shows '<section><h2>Local: routing score</h2>'
shows 'class="k"'

# Its controls: a script at its end works them and writes down what they change.
cat >"$work/controls" <<'SCRIPT'
<pre id="found"></pre><script>
const found = ['controls:'];
onerror = message => found.push('error: ' + message);
const change = (id, value) => {
  by(id).value = value;
  by(id).dispatchEvent(new Event('change'));
};
const marks = () => document.querySelectorAll('#local .k').length;
const shades = () => spans.local.map(s => s.style.getPropertyValue('--a')).join();
const all = marks(), before = shades();
change('head', '1');
found.push('one head keeps fewer: ' + (marks() < all && marks() > 0));
const zero = shades();
change('layer', '5');
found.push('another layer, other shades: ' + (zero !== before && shades() !== zero));
by('only').click();
found.push('only: ' + by('panes').className);
spans.global[20].dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
found.push('pointed: ' + spans.local[20].classList.contains('here') + ', ' + by('about').textContent);
found.push('sum: ' + by('sum').textContent);
found.push('whole text: ' + by('local').textContent.includes('word, an \u00e9 and an \u{1f600}, <\/script> too.'));
by('found').textContent = found.join('\n');
</script></body></html>
SCRIPT
sed -n '$p' "$work/page.html" | grep -q '^</script></body></html>$' || complain "the page ends in another way"
{ sed '$d' "$work/page.html"; echo '</script>'; cat "$work/controls"; } >"$work/worked.html"
opens "$work/worked.html"
shows 'one head keeps fewer: true'
shows 'another layer, other shades: true'
shows 'only: only'
shows 'pointed: true, token 20: score above'
shows 'decided tokens are kept'
shows 'whole text: true'
! grep -q '^error: ' "$work/dom" || complain "$(grep '^error: ' "$work/dom")"
exit $failed
