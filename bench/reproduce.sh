#!/bin/sh
# SPDX-License-Identifier: MIT
# reproduce.sh FOLDER [SAMPLES]: the paper's tables (arXiv 2602.02180) on the embedded model, into
# FOLDER: one Markdown file, the samples as JSON lines, pictures. Stopped, it goes on where it was.
# ADAPTERS="still.safetensors ..." adds runs with these adapters; HAYSTACK=FILE takes another text
# than the model's own; LENGTHS=512,... other lengths of the single needles. Needs
# build/examples/programs/still-evaluate (or STILL_EVALUATE).
set -eu
[ $# -ge 1 ] || { echo "usage: bench/reproduce.sh FOLDER [SAMPLES]" >&2; exit 2; }
folder=$1 samples=${2:-20}
root=$(dirname "$0")/..
evaluate=${STILL_EVALUATE:-$root/build/examples/programs/still-evaluate}
lengths=${LENGTHS:-512,1024,2048,4096}
mkdir -p "$folder"
tables=$folder/tables.md
: >"$tables"

# with_adapters BUDGET: ",adapter:BUDGET@FILE" for each adapter.
with_adapters() {
  for file in ${ADAPTERS:-}; do printf ',adapter:%s@%s' "$1" "$file"; done
}

# table NAME TITLE FLAGS...: asks and appends the tables.
table() {
  name=$1 title=$2
  shift 2
  began=$(date +%s)
  printf '## %s\n\n' "$title" >"$folder/$name.part"
  "$evaluate" -q --skip-long ${HAYSTACK:+--haystack "$HAYSTACK"} "$@" >>"$folder/$name.part"
  { cat "$folder/$name.part"; printf '\nin %d s\n\n' $(($(date +%s) - began)); } >>"$tables"
  rm "$folder/$name.part"
  echo "$title: done" >&2
}

# asked NAME TITLE FLAGS...: the same for tasks, whose samples are kept.
asked() {
  name=$1
  table "$@" -n "$samples" --results "$folder/$name.jsonl" --resume --plot "$folder/$name.svg"
}

for m in 128 256 512; do
  runs=full,swa:$m,swa:$m+sinks=4,still:$m,still:$m+metric=keynorm,still:$m+metric=qk
  asked sniah_$m "Single needles, $m tokens of cache (paper: tables 16 and 18)" \
    --tasks sniah1,sniah2,sniah3 --lengths "$lengths" --runs "$runs$(with_adapters $m)"
done
asked subtasks "Subtasks in RULER's style, 896 tokens of cache, 4K (paper: table 3)" \
  --lengths 4096 --tasks \
  sniah1,sniah2,sniah3,multikey,multikey_noise,multikey_dense,multivalue,multiquery,tracking \
  --runs "full,swa:896+sinks=4,still:896,still:896+metric=keynorm$(with_adapters 896)"
asked stories "Stories, 256 tokens of cache (paper: tables 4 and 17)" \
  --tasks qa1,qa2,qa3,qa4,qa5 --lengths 512,1024,2048,4096 \
  --runs "full,swa:256+sinks=4,still:256,still:256+metric=keynorm$(with_adapters 256)"
runs=still:128
for metric in diagonal qk keynorm uniform random; do runs=$runs,still:128+metric=$metric; done
asked metrics "Routing metrics, 128 tokens of cache (paper: tables 10 and 11)" \
  --tasks sniah1,sniah2 --lengths 512,1024 \
  --runs "$runs,still:128+routing=group,still:128+metric=keynorm+routing=group"
asked chunks "Tokens of a chunk, 256 tokens of cache (paper: table 13)" \
  --tasks sniah1,sniah2 --lengths 1024,2048 \
  --runs "still:256+chunk=16,still:256+chunk=64,still:256+chunk=128"
asked depths "Depth and length, 256 tokens of cache" \
  --tasks sniah2 --lengths 512,1024,2048 --depths 5 \
  --runs "full,swa:256+sinks=4,still:256+metric=keynorm$(with_adapters 256)"
table language "Perplexity and distance from full attention, rows of 1,024 tokens" \
  --lengths 1024 --rows 3 \
  --text "${HAYSTACK:-$root/examples/models/needle/haystack.txt}" \
  --runs "full,swa:256+sinks=4,still:256,still:256+metric=keynorm$(with_adapters 256)"
echo "$tables"
