#!/bin/sh
# SPDX-License-Identifier: MIT
# check_evaluate.sh STILL_EVALUATE: runs the program as a user does and looks at stdout, stderr and the exit status.
set -u
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# expect STATUS FILE TEXT FLAGS...: FILE (out or err) holds TEXT afterwards.
expect() {
  status=$1 file=$2 text=$3
  shift 3
  "$program" -t 1 "$@" >"$work/out" 2>"$work/err"
  got=$?
  if [ $got != "$status" ] || ! grep -qF -e "$text" "$work/$file"; then
    failed=1
    printf 'FAILED: %s: status %s for %s, %s without "%s"\n' "$*" "$got" "$status" "$file" "$text"
    head -c 600 "$work/out" "$work/err"
  fi
}

expect 0 out "usage: still-evaluate" -h
expect 0 out "multikey_dense" --list-tasks
expect 2 err "unknown flag" --nonsense
expect 2 err "task 'niah9' is unknown" --tasks niah9
ask="--tasks sniah1"
expect 2 err "e.g. still-evaluate --runs full,still:256 --tasks sniah1"
expect 2 err "--tasks, --text, --choices or --report is missing" --runs full
expect 2 err "one of them at a time" $ask --text /nowhere
expect 2 err "one of them at a time" $ask --report /nowhere
expect 2 err "--resume needs the results" $ask --resume
expect 2 err "length 512 is given twice" $ask --lengths 512,512
expect 2 err "--lengths: more than 64 items" $ask --lengths "$(seq 1000 1100 | paste -sd,)"
expect 0 out "0 (each sample's or row's own length" -h
expect 2 err "--lengths: 'x' is no number" $ask --lengths x
expect 2 err "a number is out of range" $ask --runs still:0
expect 2 err "no adapter is given" $ask --runs adapter
expect 2 err "known are +metric=, +routing=" $ask --runs still:64+colour=red
expect 2 err "the smallest that works is" $ask --runs still:64 --lengths 1024
expect 2 err "the length is 50" $ask --lengths 50
expect 1 err "nowhere" $ask -m /nowhere
expect 1 err "/nowhere: cannot be read" --text /nowhere
cat >"$work/q.jsonl" <<'Q'
{"question": "x", "choices": ["a", "b"], "answer": 0}
{"question": "x"}
Q
expect 1 err "q.jsonl, line 2" --choices "$work/q.jsonl"

# What full attention finds, a window that does not reach the needle does not.
flags="--tasks sniah1 --lengths 320 -n 2 --depths 2"
expect 0 out "| swa:64 | 50.0 (15-85) |" --runs full,swa:64 $flags -o "$work/r.jsonl" --plot "$work/p.svg"
grep -qF "| full | 100.0 (51-100) |" "$work/out" || { failed=1; echo "FAILED: full attention"; }
[ "$(grep -c '"task": "sniah1"' "$work/r.jsonl")" = 8 ] || { failed=1; echo "FAILED: 8 samples in the results"; }
grep -q '"command": ".*--runs full,swa:64' "$work/r.jsonl" || { failed=1; echo "FAILED: no command in the head"; }
grep -q "</svg>" "$work/p.svg" || { failed=1; echo "FAILED: no picture"; }
expect 0 out "| swa:64 | 50.0 (15-85) |" --runs full,swa:64 $flags -o "$work/r.jsonl" --resume
[ "$(grep -c '"task": "sniah1"' "$work/r.jsonl")" = 8 ] || { failed=1; echo "FAILED: resumed samples were asked again"; }
for i in 1 2 3; do expect 0 out "| full |" --runs full,swa:64 $flags --shard $i/3 -q -o "$work/r$i.jsonl"; done
expect 0 out "| swa:64 | 50.0 (15-85) |" --report "$work/r1.jsonl,$work/r2.jsonl,$work/r3.jsonl" --plot "$work/q.svg"
cmp -s "$work/p.svg" "$work/q.svg" || { failed=1; echo "FAILED: the picture of the parts is another"; }
expect 2 err "is not I/N" $ask --shard 4/3
expect 2 err "-o: '$work/q.jsonl' would be written over" --choices "$work/q.jsonl" -o "$work/q.jsonl"
expect 2 err "is not I/N" $ask --shard 1/4294967297
expect 2 err "unknown flag '--attn'" $ask --attn still
printf 'my notes' >"$work/notes.txt"
expect 1 err "line 1: no results" --runs full $flags -o "$work/notes.txt" --resume
[ "$(cat "$work/notes.txt")" = "my notes" ] || { failed=1; echo "FAILED: --resume cut a file that is no results"; }
expect 2 err "-n belongs to --tasks" --text "$0" -n 3
expect 2 err "--items belongs to --choices" $ask --items 3
expect 2 err "--skip-long belongs to --tasks and --choices" --text "$0" --skip-long
expect 2 err "--shard divides" --text "$0" --shard 1/2
expect 2 err "--plot needs --tasks" --text "$0" --plot "$work/none.svg"
expect 2 err "no run is given" --text "$0" --runs ,
expect 2 err "the run is given twice" --text "$0" --runs full,swa:64,full
expect 1 err "/nowhere" --report /nowhere
expect 2 err "these results are of 'seed 7" --runs full $flags -s 8 -o "$work/r.jsonl" --resume

printf 'It rained for a day and a night, and then the sun came out again over the wet hills. %.0s' 1 2 3 >"$work/text"
expect 0 out "| swa:64 |" --runs full,swa:64 --text "$work/text" --lengths 40

# resumes NAME FLAGS...: interrupted, cut within a line and gone on with, it prints what one go prints and its
# results have the same lines, heads and seconds aside.
resumes() {
  name=$1
  shift
  "$program" -t 1 -q "$@" -o "$work/whole.jsonl" >"$work/whole" 2>"$work/err"
  timeout -s INT 0.3 "$program" -t 1 -q "$@" -o "$work/parts.jsonl" >/dev/null 2>&1
  head -c $(($(wc -c <"$work/whole.jsonl") * 2 / 3)) "$work/whole.jsonl" >"$work/cut.jsonl"
  for file in parts cut; do
    "$program" -t 1 -q "$@" -o "$work/$file.jsonl" --resume >"$work/out" 2>"$work/err" ||
      { failed=1; echo "FAILED: $name does not go on"; cat "$work/err"; }
    cmp -s "$work/out" "$work/whole" || { failed=1; echo "FAILED: $name: a resumed run prints something else"; }
    for each in whole $file; do
      grep -v still_evaluation "$work/$each.jsonl" | sed 's/"seconds": [^,}]*//' >"$work/$each.lines"
    done
    cmp -s "$work/whole.lines" "$work/$file.lines" || { failed=1; echo "FAILED: $name: resumed results differ"; }
  done
  rm -f "$work/whole.jsonl" "$work/parts.jsonl" "$work/cut.jsonl"
}
for i in 1 2 3 4 5 6; do
  echo "{\"question\": \"What is number $i?\", \"choices\": [\"a fox\", \"a hill\"], \"answer\": 0}"
done >"$work/six.jsonl"
resumes tasks --runs full,swa:64 $flags --exact
resumes text --runs full,swa:64 --text "$work/text" --lengths 12
resumes choices --runs full,swa:64 --choices "$work/six.jsonl"

# How heads choose: every head and word in the results.
expect 2 err "--mechanism needs a text" --mechanism
long=$(dirname "$0")/../../examples/models/needle/haystack.txt
expect 0 out "| still:96 |" --mechanism --runs full,still:96 --text "$long" --lengths 200 -o "$work/m.jsonl"
grep -q '^kept most often' "$work/out" || { failed=1; echo "FAILED: no words"; }
[ "$(grep -o '"overlap": 0\.[0-9]' "$work/m.jsonl" | wc -l)" = 32 ] || { failed=1; echo "FAILED: 32 heads in the results"; }
grep -q '"command": ".*--mechanism' "$work/m.jsonl" || { failed=1; echo "FAILED: no command in the head"; }
expect 2 err "the length is 100000" --mechanism --text "$long" --lengths 100000
resumes mechanism --mechanism --runs full,still:96,swa:64 --text "$long" --lengths 200
head -n 1 "$work/q.jsonl" >"$work/one.jsonl"
expect 0 out "| full | 1 |" --choices "$work/one.jsonl"
expect 0 out "| full | 1 |" --choices "$work/one.jsonl" --choice-format letters -o "$work/c.jsonl"
expect 0 out "| swa:64 | 1 |" --choices "$work/one.jsonl" --runs full,swa:64 -o /dev/null
odd=$work/$(printf '\377').svg
expect 0 out "| full |" $ask --lengths 320 -n 1 --plot "$odd" -o "$work/odd.jsonl"
iconv -f UTF-8 -t UTF-8 "$work/odd.jsonl" >"$work/out" 2>&1 || { failed=1; echo "FAILED: results are no UTF-8"; }
expect 0 out "| full | 0 | - | - |" --choices "$work/one.jsonl" --shard 2/2
expect 0 out "| one acc_norm | 0 |" --report "$work/c.jsonl"
expect 0 out "| frequent_words | 1536 |" --tasks cwe,fwe --lengths 1536 -n 1
expect 2 err "'common_words' has no exact answer" --tasks cwe --exact
exit $failed
