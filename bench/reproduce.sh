#!/bin/bash
# SPDX-License-Identifier: MIT
# reproduce.sh FOLDER [TABLE...]: the paper's tables (arXiv 2602.02180) on the embedded model, into FOLDER:
# tables.md, and for each table its Markdown, every sample as JSON lines, and pictures. Nothing is fetched.
#
#   16  needles by budget and length (18, too)         9  modules: without gate, NP-map, both, saliency
#   3   subtasks in RULER's style, 4K, 896 tokens      10 routing metrics (11, too)
#   4   bAbI's questions in long text (17, too)        12 overlap with what full attention would keep
#   5   a quarter of the layers full                   13 tokens of a chunk
#   depths    depth and length of the needle           language  perplexity, distance from full attention
#
# Without TABLE: all of them. Stopped, it goes on where it was. By variables:
#   JOBS=N          evaluations at a time, one thread each (default: the CPUs)
#   DEVICES=A,B     devices that they are dealt to, such as vulkan:0 (still-run --list-devices; default: the CPU)
#   LIMIT=SECONDS   stop after this time; what there is then makes the tables (default: none)
#   N=SAMPLES       of each task and length, instead of each table's own number
#   LENGTHS=512,... tokens, instead of each table's own
#   ADAPTERS=DIR    trained by train_adapters.sh (default: FOLDER/adapters); where PROSE is given, too, what is
#                   missing there is trained first, else the table goes without
#   HAYSTACK=FILE   prose to hide needles in, instead of the model's own
#   QUESTIONS=FILE  JSON lines for the task documents, which table 3 goes without otherwise
#   BABI=DIR        bAbI's files; without them table 4 asks stories of the same kinds
#   SMOLLM=FILE     SmolLM2-135M-Instruct (examples/models/get-smollm2.sh), for table 12
set -u
[ $# -ge 1 ] || { sed -n '3,25s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root=$(realpath "$(dirname "$0")/..")
evaluate=$(realpath "${STILL_EVALUATE:-$root/build/examples/programs/still-evaluate}")
needle=$root/examples/models/needle
mkdir -p "$1"
folder=$(realpath "$1")
shift
tables=${*:-16 3 4 9 10 12 13 5 depths language}
adapters=$(realpath -m "${ADAPTERS:-$folder/adapters}")
haystack=${HAYSTACK:+$(realpath "$HAYSTACK")}
babi=${BABI:+$(realpath "$BABI")}
questions_file=${QUESTIONS:+$(realpath "$QUESTIONS")}
smollm=${SMOLLM:+$(realpath "$SMOLLM")}
cpus=$(env -u OMP_NUM_THREADS nproc) # which would tell that variable instead
jobs=${JOBS:-$cpus}
IFS=, read -ra devices <<<"${DEVICES:-cpu}"
end=$((SECONDS + ${LIMIT:-1000000000}))
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1
mkdir -p "$folder/adapters" "$adapters"
[ -e "$adapters/still.safetensors" ] || cp "$needle/adapter.safetensors" "$adapters/still.safetensors"
queue=$folder/queue
: >"$queue"

# ---- what is asked: pieces of work, one a line

# wanted NAME...: trains what is missing, where that was asked for.
wanted() {
  [ -n "${PROSE:-}" ] || return 0
  "$root/bench/train_adapters.sh" "$adapters" "$@"
}

# has NAME: is there such an adapter? Tables go without those that are missing, and say so.
has() {
  [ -e "$adapters/$1.safetensors" ] && return 0
  echo "table $table goes without the adapter '$1' ($adapters/$1.safetensors)" >&2
  return 1
}

# rivals TOKENS: every kind of attention at this budget. STILL has up to C tokens more than its budget in the window,
# so the window with sinks is that much longer.
rivals() {
  local runs="swa:$1 swa:$(($1 + 60))+sinks=4 still:$1 still:$1+metric=keynorm adapter:$1@still.safetensors"
  ! has lolcats || runs="$runs lolcats:$1@lolcats.safetensors"
  ! has liger || runs="$runs liger-gla:$1@liger.safetensors"
  echo "$runs"
}

# lengths_of BUDGET LENGTHS: those whose every chunk of 64 can keep a token.
lengths_of() {
  local length fitting=
  for length in ${2//,/ }; do [ $((length / 64 + 64)) -gt "$1" ] || fitting=$fitting,$length; done
  echo "${fitting#,}"
}

# ask GROUP SAMPLES TASKS LENGTHS RUNS FLAGS...: one piece for each run and 1,024 tokens of length. GROUP: tables
# of its own, with its picture.
ask() {
  local group=$1 samples=${N:-$2} tasks=$3 lengths=$4 runs=$5 run length shards shard name
  shift 5
  mkdir -p "$folder/$table/$group"
  for run in $runs; do
    for length in ${lengths//,/ }; do
      shards=$(((length + 1023) / 1024))
      [ $shards -gt 0 ] || shards=1
      for shard in $(seq $shards); do
        name=${run//[^a-z0-9=.@]/_}.$length.$shard
        printf '%s\t%s\n' "$folder/$table/$group/$name.jsonl" "--runs $run --tasks $tasks --lengths $length \
-n $samples --shard $shard/$shards --skip-long ${haystack:+--haystack $haystack} ${babi:+--babi $babi} $*" >>"$queue"
      done
    done
  done
}

# measure GROUP FLAGS...: one piece whose tables are what it prints.
measure() {
  local group=$1
  shift
  mkdir -p "$folder/$table/$group"
  printf '%s\t%s\n' "$folder/$table/$group/printed.md" "$*" >>"$queue"
}

# work PIECE DEVICE: runs one, in the adapters' folder, so that runs have short names. A complete one is not asked again.
# A whole text goes to a device at once; the CPU keeps its shorter blocks.
work() {
  local file=${1%%$'\t'*} flags=${1#*$'\t'} left=$((end - SECONDS)) status=0 on=
  [ "$2" = cpu ] || on="-dev $2 -b 4096"
  [ "$(cat "$file.done" 2>/dev/null)" != "$flags" ] || return 0
  [ $left -gt 0 ] || return 0
  cd "$adapters" || return 1
  case $file in
    *.md) timeout -s INT "$left" "$evaluate" -t 1 -q $on $flags >"$file.part" 2>"$file.log" </dev/null || status=$? ;;
    *) timeout -s INT "$left" "$evaluate" -t 1 -q $on $flags -o "$file" --resume >/dev/null 2>"$file.log" </dev/null || status=$? ;;
  esac
  [ ! -e "$file.part" ] || [ $status != 0 ] || mv "$file.part" "$file"
  if [ $status = 0 ]; then
    printf '%s' "$flags" >"$file.done"
  elif [ $status != 124 ] && [ $status != 130 ]; then
    echo "$file: status $status" >&2
    tail -n 3 "$file.log" >&2
  fi
}

# work_all: the pieces of the queue, JOBS at a time.
work_all() {
  local piece running=0 begun=0
  while IFS= read -r piece; do
    if [ $running -ge "$jobs" ]; then
      wait -n
      running=$((running - 1))
    fi
    work "$piece" "${devices[begun++ % ${#devices[@]}]}" &
    running=$((running + 1))
  done <"$queue"
  wait
}

# ---- what is shown

title() { titles="$titles$table|$1"$'\n'; }

# mean_of_tasks: the report's tables on stdin; adds one with the mean of all tasks.
mean_of_tasks() {
  awk '
    { print }
    /^\|---/ { rule = $0; inside = 1; if (!tasks++) head = before; next }
    !/^\|/ { inside = 0 }
    inside {
      n = split($0, cell, " *\\| *")
      if (!(cell[2] in seen)) { order[++runs] = cell[2]; seen[cell[2]] = 1 }
      for (i = 3; i < n; i++) if (cell[i] != "-") { sum[cell[2], i] += cell[i]; count[cell[2], i]++ }
      width = n
    }
    { before = $0 }
    END {
      if (tasks < 2) exit
      sub(/^\| [^|]*\|/, "| mean of " tasks " tasks |", head)
      print "\n" head "\n" rule
      for (r = 1; r <= runs; r++) {
        printf "| %s |", order[r]
        for (i = 3; i < width; i++)
          if (count[order[r], i] == tasks) printf " %.1f |", sum[order[r], i] / tasks
          else printf " - |"
        printf "\n"
      }
    }'
}

# show_group FOLDER: its tables on stdout, its picture beside it; runs in the order in which they were asked.
show_group() {
  local files
  files=$(cut -f 1 "$queue" | while IFS= read -r file; do
    [ "${file%/*}" != "$1" ] || [ ! -s "$file" ] || [ "${file##*.}" != jsonl ] || printf '%s\n' "$file"
  done | paste -sd,)
  if [ -n "$files" ]; then
    "$evaluate" --report "$files" --plot "$1.svg" | mean_of_tasks
    printf '\n![](<%s>)\n' "${1#"$folder"/}.svg"
  fi
  [ ! -e "$1/printed.md" ] || cat "$1/printed.md"
}

show() {
  local group
  machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  {
    printf '# Tables of arXiv 2602.02180 on needle\n\n%s, %s CPUs, %s processes of one thread on %s, %s\n' \
      "${machine:-unknown CPU}" "$cpus" "$jobs" "${devices[*]}" "$("$evaluate" --version)"
    printf '%s' "$titles" | while IFS='|' read -r table text; do
      printf '\n## %s\n' "$text"
      for group in "$folder/$table"/*/; do
        group=${group%/}
        printf '\n### %s\n\n' "$(basename "$group")"
        show_group "$group"
      done | tee "$folder/$table/table.md"
    done
  } >"$folder/tables.md"
}

# ---- the tables

titles=
for table in $tables; do
  case $table in 18) table=16 ;; 17) table=4 ;; 11) table=10 ;; esac
  case $table in
    16)
      title "Tables 16 and 18: needles found by budget and length, %"
      wanted lolcats liger
      for m in 128 256 512; do # the least that STILL can spread over 8K, one token of each chunk and the window, is 192
        ask "$m tokens" 200 sniah1,sniah2,sniah3 "$(lengths_of $m "${LENGTHS:-8192,4096,2048,1024,512}")" "$(rivals $m)"
      done
      ask "no budget" 200 sniah1,sniah2,sniah3 "${LENGTHS:-8192,4096,2048,1024,512}" full
      ;;
    3)
      title "Table 3: subtasks in RULER's style at 4K, 896 tokens, %"
      wanted lolcats liger
      subtasks=$("$evaluate" --list-tasks | grep -v '^babi\|^qa\|^documents' | paste -sd,)
      [ -z "$questions_file" ] || subtasks=$subtasks,documents
      ask subtasks 100 "$subtasks" "${LENGTHS:-4096}" "full $(rivals 896)" ${questions_file:+--questions $questions_file}
      ;;
    4)
      title "Tables 4 and 17: questions about facts in long text, 256 tokens, %"
      wanted lolcats liger
      questions=qa1,qa2,qa3,qa4,qa5
      [ -z "$babi" ] || questions=babi1,babi2,babi3,babi4,babi5
      ask questions 100 $questions "${LENGTHS:-4096,2048,1024,512,0}" "full $(rivals 256)"
      ;;
    9)
      title "Table 9: modules, trained alike, 256 tokens, %"
      modules="nogate hhmap neither nothing"
      wanted $modules
      runs="full swa:316+sinks=4 adapter:256@still.safetensors"
      for name in $modules; do ! has $name || runs="$runs adapter:256@$name.safetensors"; done
      ask needles 200 sniah1,sniah2,sniah3,multikey "${LENGTHS:-2048,1024,512}" "$runs"
      ask stories 100 qa1,qa2,qa3,qa4,qa5 "${LENGTHS:-1024}" "$runs"
      measure perplexity --text "${haystack:-$needle/haystack.txt}" --lengths 1024 --rows 8 \
        --runs "full,$(echo "$runs" | cut -d ' ' -f 2- | tr ' ' ,)"
      ;;
    10)
      title "Tables 10 and 11: routing metrics, 128 tokens, %"
      wanted uniform
      runs="swa:188+sinks=4" trained=
      for metric in saliency diagonal qk keynorm uniform random; do
        for routing in head group; do runs="$runs still:128+metric=$metric+routing=$routing"; done
        trained="$trained adapter:128+metric=$metric@still.safetensors"
        ! [ -e "$adapters/$metric.safetensors" ] || trained="$trained adapter:128@$metric.safetensors"
      done
      ask untrained 200 sniah1,sniah2 "${LENGTHS:-1024,512}" "full $runs"
      ask "with the adapter" 200 sniah1,sniah2 "${LENGTHS:-1024,512}" "$trained adapter:128+routing=group@still.safetensors"
      ;;
    12)
      title "Table 12: local choice against future full attention"
      text=${haystack:-$needle/haystack.txt}
      for length in $(tr , " " <<<"${LENGTHS:-512,2048}"); do
        for m in 128 256 512; do
          [ $((m * 8)) -ge $length ] || continue
          measure "needle, $length tokens, budget $m" --mechanism --text "$text" --lengths $length \
            --runs full,still:$m,still:$m+metric=keynorm,still:$m+metric=random,adapter:$m@still.safetensors
        done
        [ -z "$smollm" ] || measure "SmolLM2-135M-Instruct, $length tokens, budget 256" -m "$smollm" --mechanism \
          --text "$text" --lengths $length --runs full,still:256,still:256+metric=keynorm,still:256+metric=random
      done
      ;;
    13)
      title "Table 13: tokens of a chunk, 256 tokens, %"
      wanted chunk16 chunk64 chunk128
      runs="full swa:316+sinks=4"
      for c in 16 64 128; do # the adapter's own is 64
        runs="$runs still:256+chunk=$c still:256+chunk=$c+metric=keynorm adapter:256+chunk=$c@still.safetensors"
      done
      for c in 16 64 128; do
        ! has chunk$c || runs="$runs adapter:256@chunk$c.safetensors"
      done
      ask needles 200 sniah1,sniah2,sniah3 "${LENGTHS:-1024,512}" "$runs"
      ;;
    5)
      title "Table 5: a quarter of the layers full, the others with an eighth of the tokens, %"
      wanted hybrid-still hybrid-lolcats
      tasks=sniah1,sniah2,sniah3,multikey,qa1,qa2
      runs=full
      ! has hybrid-still || runs="$runs adapter@hybrid-still.safetensors"
      full=$(cat "$adapters/full_layers" 2>/dev/null || echo 0,4)
      for length in $(tr , " " <<<"${LENGTHS:-4096,2048,1024}"); do # the others have as many tokens as STILL then: an eighth, and two chunks
        ask tasks 100 $tasks $length "$runs"
        ask tasks 100 $tasks $length "swa:$((length / 8 + 124))+sinks=4" --layers "$full:full"
        ! has hybrid-lolcats ||
          ask tasks 100 $tasks $length "lolcats:$((length / 8 + 128))@hybrid-lolcats.safetensors" --layers "$full:full"
      done
      ;;
    depths)
      title "Depth and length of the needle, 256 tokens, %"
      ask needles 20 sniah2 "${LENGTHS:-4096,2048,1024,512}" "full swa:316+sinks=4 still:256 adapter:256@still.safetensors" \
        --depths 5
      ;;
    language)
      title "Perplexity, and distance from full attention, 256 tokens"
      wanted lolcats liger
      for length in 1024 ${haystack:+4096}; do
        measure "rows of $length" --text "${haystack:-$needle/haystack.txt}" --lengths $length --rows 4 \
          --runs "full,$(rivals 256 | tr ' ' ,)"
      done
      ;;
    *)
      echo "$table: no such table; there are 16 3 4 9 10 12 13 5 depths language" >&2
      exit 2
      ;;
  esac
done

began=$SECONDS
work_all
show
printf '\n%d s for what was asked this time\n' $((SECONDS - began)) >>"$folder/tables.md"
left=0
while IFS= read -r piece; do
  [ "$(cat "${piece%%$'\t'*}.done" 2>/dev/null)" = "${piece#*$'\t'}" ] || left=$((left + 1))
done <"$queue"
echo "$folder/tables.md: $(wc -l <"$queue") pieces, $left not complete" >&2
