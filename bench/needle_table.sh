#!/bin/sh
# SPDX-License-Identifier: MIT
# needle_table.sh [SAMPLES]: how often the embedded model finds the needle in a text of 4,000 tokens, untrained
# (salient-only), for every budget and some metrics and routings, beside full attention and a sliding window.
# Prints Markdown. Needs build/examples/programs/still-run (or STILL_RUN) and python3.
set -eu
cd "$(dirname "$0")/.."
samples=${1:-10}
run=${STILL_RUN:-build/examples/programs/still-run}
budgets=${BUDGETS:-"128 256 512 1024 2048"}
methods=${METHODS:-"saliency/head diagonal/head qk/head keynorm/head uniform/head random/head saliency/group keynorm/group"}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

seed=1
while [ $seed -le "$samples" ]; do
  python3 examples/models/needle/make_question.py --seed $seed --out "$work/$seed"
  seed=$((seed + 1))
done

# One line for each row and budget: name|budget|flags.
{
  echo "full|all|--attn full"
  for m in $budgets; do
    echo "swa|$m|--attn swa --window $m"
    for method in $methods; do
      metric=${method%/*} routing=${method#*/}
      echo "still, $metric per $routing|$m|--attn still --budget $m --metric $metric --routing $routing -c 4096"
    done
  done
} >"$work/rows"

# ask ROW SEED: 1 if the answer is right, into a file of its own.
cat >"$work/ask" <<'ASK'
#!/bin/sh
row=$(sed -n "$1p" "$WORK/rows")
answer=$("$RUN" -f "$WORK/$2.txt" --temp 0 -n 12 -r . -q -t 1 ${row##*|} | tr -d ' \n')
[ "$answer" = "$(cat "$WORK/$2.answer")" ] && echo 1 >"$WORK/right.$1.$2" || echo 0 >"$WORK/right.$1.$2"
ASK
chmod +x "$work/ask"
count=$(wc -l <"$work/rows")
i=1
while [ $i -le "$count" ]; do
  seq 1 "$samples" | sed "s/^/$i /"
  i=$((i + 1))
done | RUN=$run WORK=$work OMP_NUM_THREADS=1 xargs -L 1 -P "$(nproc)" "$work/ask"

printf '| attention |'
for m in $budgets; do printf ' %s |' "$m"; done
printf '\n|---|'
for m in $budgets; do printf -- '---|'; done
printf '\n'
cut -d '|' -f 1 "$work/rows" | awk '!seen[$0]++' | while read -r name; do
  printf '| %s |' "$name"
  i=1
  while [ $i -le "$count" ]; do
    row=$(sed -n "${i}p" "$work/rows")
    if [ "${row%%|*}" = "$name" ]; then
      printf ' %d/%d |' "$(cat "$work"/right.$i.* | grep -c 1 || true)" "$samples"
      [ "$name" != full ] || printf ' %.0s|' $(echo $budgets | cut -d ' ' -f 2-)
    fi
    i=$((i + 1))
  done
  printf '\n'
done
