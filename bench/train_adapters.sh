#!/bin/bash
# SPDX-License-Identifier: MIT
# train_adapters.sh FOLDER [NAME...]: adapters of the embedded model for reproduce.sh, all trained alike: same rows,
# stages, steps and rates as the one in the repository, which is `still`. What FOLDER has already stays.
#
#   still  nogate  hhmap  neither  nothing        STILL; without its gate, its norm-preserved map, both, saliency too
#   diagonal  qk  keynorm  uniform  random        other routing metrics
#   chunk16  chunk64  chunk128                    lengths of a chunk, trained alike on rows of up to 1K with a budget of 256 alone
#                                                 (longer rows have too many chunks of 16, smaller budgets no room for one of 128)
#   lolcats  liger                                the baselines, whose windows are the budgets
#   hybrid-still  hybrid-lolcats                  a quarter of the layers full, chosen by KL divergence with `still`;
#                                                 the others STILL with an eighth of the tokens, LoLCATs with a
#                                                 window of as many
#
# Without NAME: all of them. By variables:
#   PROSE=DIR     books to learn from, *.txt (needed where something is trained)
#   COURSE="..."  steps of the eight stages (default "70 187 185 183 38 94 94 337", as the one in the repository); 0 leaves one
#                 out. Where there are both 4 and 5, 6 goes on from their mean, and 8 from the mean of 4 to 7 where there are all;
#                 the adapter is the last stage's. The README's adapters of 3.8 M tokens: "30 120 130 0 0 0 0 0"; of 11.6 M:
#                 "70 187 185 183 38 94 0 0"
#   SCALE=X       steps of every stage times X, for a try (default 1)
#   JOBS=N        trainings at a time (default 1), each on CPUs / JOBS threads
# One takes about 35 minutes of 16 cores. Each keeps its state: what was stopped goes on.
set -u
[ $# -ge 1 ] || { sed -n '3,25s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root=$(realpath "$(dirname "$0")/..")
linearize=$(realpath "${STILL_LINEARIZE:-$root/build/examples/programs/still-linearize}")
needle=$root/examples/models/needle
mkdir -p "$1"
cd "$1" || exit 1
shift
names=${*:-still nogate hhmap neither nothing diagonal qk keynorm uniform random chunk16 chunk64 chunk128 lolcats liger hybrid-still hybrid-lolcats}
jobs=${JOBS:-1}
cpus=$(env -u OMP_NUM_THREADS nproc) # which would tell that variable instead
threads=${THREADS:-$((cpus / jobs > 0 ? cpus / jobs : 1))}
export OMP_WAIT_POLICY=passive
read -ra course <<<"${COURSE:-70 187 185 183 38 94 94 337}"
[[ ${#course[@]} = 8 && ${course[*]} =~ ^[0-9\ ]+$ && ${course[*]} =~ [1-9] ]] || {
  echo "train_adapters.sh: COURSE='$COURSE' is not the steps of eight stages" >&2
  exit 2
}

steps() { awk -v n="$1" -v scale="${SCALE:-1}" 'BEGIN { s = int(n * scale + 0.5); print s < 1 ? 1 : s }'; }

# rows_of NAME FLAGS...
rows_of() {
  local name=$1
  shift
  [ -e "$name.jsonl" ] || { $rows "$@" >"$name.part" && mv "$name.part" "$name.jsonl"; }
}

make_rows() {
  [ -n "${PROSE:-}" ] || { echo "train_adapters.sh: PROSE=DIR is needed, books to learn from" >&2; return 1; }
  local rows="python3 $needle/make_training_rows.py --prose $PROSE --leave-out alice --leave-out hound"
  rows_of short --tokens 4000000 --shortest 256 --longest 1024 --seed 11
  rows_of mixed --tokens 6500000 --shortest 384 --longest 4096 --seed 12
  rows_of long --tokens 6000000 --shortest 2600 --longest 4096 --seed 13
  rows_of longer --tokens 4000000 --shortest 2600 --longest 8192 --seed 14
  local even="--task-shares prose=0.08,single=0.18,several=0.17,dense=0.06,values=0.1,queries=0.1,tracking=0.12,stories=0.19"
  rows_of even $even --tokens 3900000 --shortest 384 --longest 4096 --seed 41
  rows_of evenlong $even --tokens 3600000 --shortest 2600 --longest 4096 --seed 42
}

# stage NUMBER COMMAND NAME FLAGS...: from $last, which it becomes; unless it is there or left out. A stopped one goes on from
# its state.
stage() {
  local wanted=${course[$1 - 1]} command=$2 out=$3.$1
  shift 3
  [ "$wanted" != 0 ] || return 0
  { [ -e "$out.safetensors" ] && ! [ -e "$out.state" ]; } ||
    { "$linearize" $command -m "$needle" -o "$out.safetensors" --state "$out.state" --resume --metrics "$out.csv" \
      -t "$threads" -q ${last:+--adapter "$last"} "$@" --steps "$(steps "$wanted")" && rm -f "$out.state"; } || return
  last=$out.safetensors
}

# mean NAME A B: of these two stages, with the description of B, where both are there and the last. $last becomes it.
mean() {
  local out=$1.mean$2$3.safetensors
  case $last in "$1.$2.safetensors" | "$1.$3.safetensors") ;; *) return 0 ;; esac
  [ -e "$1.$2.safetensors" ] && [ -e "$1.$3.safetensors" ] || return 0
  "$needle/average_adapters.py" "$1.$2.safetensors" "$1.$3.safetensors" "$out" && last=$out
}

# fitting FLAGS: rows of 8K have 128 chunks of 64: a budget of 128 could not keep a token of each.
fitting() { case " $* " in *" --budgets 128,256,512 "*) echo --budgets 256,512 ;; esac; }

# wider FLAGS: the last stage's budgets go up to that of RULER's table.
wider() { case " $* " in *" --budgets 128,256,512 "*) echo --budgets 128,256,512,896 ;; esac; }

# train NAME FLAGS-OF-THE-ATTENTION...
train() {
  local name=$1 last=
  shift
  local row="--length 4096 --batch 4 --micro 16384" short="-d short.jsonl --length 1024 --batch 8"
  local mixed="-d mixed.jsonl $row" long="-d long.jsonl $row"
  if [ "$name" != liger ]; then # has no maps: nothing to transfer
    stage 1 attention-transfer "$name" $mixed "$@" --lr 1e-2 --lr-schedule cosine --warmup 5 || return
  fi
  stage 2 low-rank "$name" $short "$@" --lr 2e-3 --lr-schedule constant --warmup 20 --train-maps || return
  stage 3 low-rank "$name" $mixed "$@" --f16 --lr 2e-3 --lr-schedule linear --warmup 10 --train-maps || return
  stage 4 low-rank "$name" $mixed "$@" --f16 --lr 1.2e-3 --lr-schedule linear --warmup 5 --train-maps -s 2 || return
  stage 5 low-rank "$name" $long "$@" --f16 --lr 1.5e-3 --lr-schedule linear --warmup 5 --train-maps -s 5 || return
  mean "$name" 4 5
  stage 6 low-rank "$name" $long "$@" --f16 --lr 1.5e-3 --lr-schedule linear --warmup 5 --train-maps -s 7 || return
  stage 7 low-rank "$name" -d longer.jsonl --length 8192 --batch 2 --micro 16384 "$@" $(fitting "$@") --f16 --lr 1.5e-3 \
    --lr-schedule linear --warmup 5 --train-maps -s 8 || return
  mean "$name" 7 6
  if [ -e "$name.mean45.safetensors" ] && [ -e "$name.mean76.safetensors" ]; then
    last=$name.mean4567.safetensors
    "$needle/average_adapters.py" "$name.mean76.safetensors" "$name.mean45.safetensors" "$last" || return
  fi
  stage 8 low-rank "$name" -d even.jsonl,evenlong.jsonl $row "$@" $(wider "$@") --f16 --lr 1.5e-3 --lr-schedule linear --warmup 5 \
    --train-maps -s 21 || return
  cp "$last" "$name.safetensors"
}

# train_chunk NAME: three stages of its own, whatever COURSE says.
train_chunk() {
  local name=$1 last= course=(40 160 160)
  local short="-d short.jsonl --length 1024 --batch 8 --validation-rows 16 --validate-every 80 --chunk ${1#chunk} --budget 256"
  stage 1 attention-transfer "$name" $short --lr 1e-2 --lr-schedule cosine --warmup 5 || return
  stage 2 low-rank "$name" $short --f16 --lr 2e-3 --lr-schedule linear --warmup 20 --train-maps || return
  stage 3 low-rank "$name" $short --f16 --lr 1.5e-3 --lr-schedule linear --warmup 5 --train-maps -s 2 || return
  cp "$last" "$name.safetensors"
}

# The quarter of the layers that is missed most: "1,5".
choose_layers() {
  [ -e full_layers ] || {
    head -n 48 short.jsonl >few.jsonl
    "$linearize" select-layers -m "$needle" -d few.jsonl --adapter still.safetensors -t "$threads" -q >selected.txt &&
      sed -n 's/.*with layer \([0-9]*\) full .*stays full/\1/p' selected.txt | sort -n | paste -sd, >full_layers
  }
  cat full_layers
}

budgets="--budgets 128,256,512 --budget 512"
windows="--budgets 128,256,512 --window 512"
train_name() {
  case $1 in
    still) train still $budgets ;;
    nogate) train nogate --no-gate $budgets ;;
    hhmap) train hhmap --feature-map hedgehog $budgets ;;
    neither) train neither --no-gate --feature-map hedgehog $budgets ;;
    nothing) train nothing --no-gate --feature-map hedgehog --metric uniform $budgets ;;
    diagonal | qk | keynorm | uniform | random) train "$1" --metric "$1" $budgets ;;
    chunk16 | chunk64 | chunk128) train_chunk "$1" ;;
    lolcats) train lolcats --attn lolcats $windows ;;
    liger) train liger --attn liger-gla $windows ;;
    hybrid-still) train "$1" --layers "$(choose_layers):full" --keep-ratio 0.125 ;;
    hybrid-lolcats) train "$1" --attn lolcats --layers "$(choose_layers):full" --budgets 256,384,640 --window 640 ;;
    *) echo "train_adapters.sh: no adapter is named '$1'" >&2; return 2 ;;
  esac || echo "train_adapters.sh: $1 failed" >&2
}

missing=
for name in $names; do [ -e "$name.safetensors" ] || missing="$missing $name"; done
[ -n "$missing" ] || exit 0
make_rows || exit 1
case " $missing " in
  *" hybrid-"*)
    [ -e still.safetensors ] || cp "$needle/adapter.safetensors" still.safetensors
    choose_layers >/dev/null
    ;;
esac
running=0
for name in $missing; do
  [ $running -lt "$jobs" ] || { wait -n; running=$((running - 1)); }
  echo "train_adapters.sh: $name" >&2
  train_name "$name" &
  running=$((running + 1))
done
wait
