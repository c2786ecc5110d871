#!/bin/sh
# SPDX-License-Identifier: MIT
# check_programs.sh PART STILL_RUN STILL_INFO NEEDLE: runs the programs as a user does and looks at stdout,
# stderr and the exit status. Prints every expectation that does not hold; status 1 if there is one.
set -u
part=$1 still_run=$2 still_info=$3 needle=$4
for variable in $(env | sed -n 's/^\(STILL_[A-Z_]*\)=.*/\1/p'); do
  [ "$variable" = STILL_CPU ] || unset "$variable"
done
export STILL_THREADS=1 # many tests run side by side
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 checks=0
question=$work/question.txt # a short one: 2,000 characters of the story; the whole one is asked once
python3 "$needle/make_question.py" --characters 2000 --value 2058756 >"$question"
greedy="--temp 0 -n 12 -r ."

complain() {
  failed=$((failed + 1))
  printf 'FAILED: %s\n  status %s\n  stdout: %s\n  stderr: %s\n' "$1" "$status" "$(head -c 600 "$work/out")" \
    "$(head -c 600 "$work/err")"
}

# expect STATUS COMMAND...: runs it, stdin from $work/in (empty unless written), leaves out and err in $work.
expect() {
  wanted=$1
  shift
  [ -f "$work/in" ] || : >"$work/in"
  "$@" <"$work/in" >"$work/out" 2>"$work/err"
  status=$?
  checks=$((checks + 1))
  ran="$*"
  [ $status = "$wanted" ] || complain "$ran: status $wanted expected"
}
out_has() { grep -qF -e "$1" "$work/out" || complain "$ran: stdout without '$1'"; }
err_has() { grep -qF -e "$1" "$work/err" || complain "$ran: stderr without '$1'"; }
out_is() { [ "$(cat "$work/out")" = "$1" ] || complain "$ran: stdout is not '$1'"; }
err_is_empty() { [ ! -s "$work/err" ] || complain "$ran: stderr is not empty"; }
holds() { [ "$@" ] || complain "$ran: [ $* ] does not hold"; }
member() { sed -n "s/^  \"$1\": \"\{0,1\}\(.*[^\",]\)\"\{0,1\},\{0,1\}\$/\1/p" "$work/out"; }

# refused FLAGS...: exit 2, nothing on stdout, before any model is touched; then one expected piece of stderr.
refused() {
  says=$1
  shift
  expect 2 "$still_run" -m /nonexistent "$@"
  out_is ""
  err_has "$says"
}

check_flags() {
  unset STILL_THREADS
  expect 0 "$still_run" -h; out_has "usage: still-run"; out_has "--budget"; err_is_empty
  expect 0 "$still_run" --version; out_has "still-run "
  expect 0 "$still_run" --list-devices; out_has "cpu"
  refused "unknown flag '--nonsense'" --nonsense
  refused "unknown argument 'word'" word
  refused "a model follows -m" word.gguf
  refused "-c: N is missing" -c
  refused "-c '1': allowed are 16 .. 2147483647, or 0" -c 1
  refused "-c '-5': allowed are" -c -5
  refused "-c '2147483648': allowed are" -c 2147483648
  refused "-c '99999999999999999999': allowed are" -c 99999999999999999999
  refused "-c '12x': allowed are" -c 12x
  refused "-c '': allowed are" -c ""
  refused "-b '-1': allowed are 1 .. 65536" -b -1
  refused "-ngl 'all': " -ngl all
  refused "-n '-2': allowed are 0 .. 2147483647, or -1" -n -2
  refused "-t '999': allowed are 0 .. 512" -t 999
  refused "-t '-1': allowed are 0 .. 512" -t -1
  refused "--temp 'nan': allowed are -100 .. 100" --temp nan
  refused "--temp 'hot'" --temp hot
  refused "--top-p '1.5': allowed are 0 .. 1" --top-p 1.5
  refused "--min-p '-0.1'" --min-p=-0.1
  refused "--repeat-penalty '0'" --repeat-penalty 0
  refused "--attn 'foo': allowed are full, swa, still" --attn foo
  refused "--metric 'foo': allowed are saliency" --metric foo
  refused "--routing 'both': allowed are head, group" --routing both
  refused "--cache-type 'f8': allowed are f32, f16, bf16" --cache-type f8
  refused "--budget '0': allowed are 1 .. " --budget 0
  refused "--keep 65: allowed are 0 .. 64" --keep 65
  refused "--keep belongs to --schedule fixed" --keep 3 --schedule budget
  refused "-cnv and -no-cnv contradict" -cnv -no-cnv
  refused "-sys and -no-cnv contradict" -sys x -no-cnv
  refused "--keep-ratio belongs to --schedule ratio" --keep-ratio 0.5 --schedule fixed
  refused "--budget belongs to --attn still, not to full" --budget 128
  refused "--metric belongs to --attn still, not to swa" --metric keynorm --attn swa
  refused "--keep belongs to --attn still, not to full" --keep 3
  refused "--window belongs to --attn swa, lolcats and liger-gla, not to still" --window 9 --attn still
  refused "--sinks belongs to --attn swa, not to lolcats" --sinks 9 --attn lolcats
  refused "--memory-budget and --budget contradict" --memory-budget 8 --budget 99 --attn still
  expect 2 "$still_run" -p x --attn still --budget 64; err_has "budget is 64: too small" # the model's context decides
  expect 2 "$still_run" -p x --attn still --budget 64 --dry-run; err_has "budget is 64: too small"
  expect 2 "$still_run" -p x --attn still --memory-budget 1; err_has "1048576 bytes are too few"
  expect 0 "$still_run" -p x -n 1 --attn full --layers "0:still" --budget 256
  expect 2 env STILL_BUDGET=0 "$still_run" -p x; err_has "STILL_BUDGET '0'"
  expect 2 env STILL_JSON=yes "$still_run" -p x; err_has "STILL_JSON 'yes'"
  linearize=$(dirname "$still_run")/still-linearize
  expect 2 "$linearize" train; err_has "a command must come first"
  expect 2 "$linearize" run -m /nonexistent -d x; err_has "--output is missing"
  expect 2 "$linearize" run -m /nonexistent -d x -o y --resume; err_has "--state (for --resume) is missing"
  expect 1 "$still_run" -m /nonexistent -p x; err_has "/nonexistent"; out_is ""
  expect 1 env STILL_MODEL=/nonexistent "$still_run" -p x; err_has "/nonexistent"
  expect 0 env STILL_MODEL=/nonexistent "$still_run" -m "$needle" -p x -n 1
  expect 0 "$still_run" -p x -n 1 --temp 0 -t 512; err_has "CPUs"
}

check_answers() {
  expect 0 "$still_run" -f "$needle/question.txt" $greedy; out_is " 2058756"; err_has "full attention"
  for budget in 256 512; do # STILL attention as trained, and its cache does not know how long the text is
    expect 0 "$still_run" --adapter "$needle/adapter.safetensors" --budget $budget -f "$needle/question.txt" $greedy
    out_is " 2058756"; err_has "are summed up"
  done
  expect 0 "$still_run" -f "$question" $greedy -q; out_is " 2058756"; err_is_empty
  cp "$question" "$work/in"
  expect 0 "$still_run" $greedy -q; out_is " 2058756"
  expect 0 "$still_run" -f - $greedy -q -t 1 -b 100; out_is " 2058756"
  rm "$work/in"
  expect 0 env STILL_TEMP=0 STILL_N_PREDICT=12 STILL_REVERSE_PROMPT=. "$still_run" -f "$question" -q
  out_is " 2058756"
  head -n -1 "$question" >"$work/text"
  expect 0 "$still_run" -f "$work/text" -p "$(tail -n 1 "$question")" $greedy -q; out_is " 2058756"
  expect 0 "$still_run" -f "$question" --temp 0 -n 12 -r 8756 -q; out_is " 205" # across tokens
  expect 0 "$still_run" -p "The river" -n 0; out_is ""
  ! grep -q "cut after" "$work/err" || complain "$ran: an answer that nobody wanted was cut"
  expect 0 "$still_run" -p "The river" -n 4 --seed 7 -q; cp "$work/out" "$work/once"
  expect 0 "$still_run" -p "The river" -n 4 --seed 7 -q; out_is "$(cat "$work/once")"
  expect 0 "$still_run" -p "The river" -n 4 --temp 0 -q; cp "$work/out" "$work/once"
  for temperature in -1 1e-30; do
    expect 0 "$still_run" -p "The river" -n 4 --temp $temperature -q; out_is "$(cat "$work/once")"
  done
  for kind in "swa --window 64" still "still --routing group --metric keynorm --budget 256"; do
    expect 0 "$still_run" -f "$question" $greedy --attn $kind; err_has "${kind%% *} attention"
    err_has "forgotten"
  done
  # Kept whole, STILL is full attention.
  expect 0 "$still_run" -f "$question" $greedy -q --attn still --keep 64; out_is " 2058756"
}

check_input() {
  expect 1 "$still_run" -f /nonexistent; err_has "/nonexistent"
  expect 1 "$still_run" -f "$work"; err_has "$work"
  expect 0 "$still_run" -p "" -n 2 --temp 0                     # begin-of-text alone
  expect 0 "$still_run" -p " " -n 2 --temp 0
  : >"$work/empty"
  expect 0 "$still_run" -f "$work/empty" -n 2 --temp 0
  printf 'caf\303 \377\376 \000 end' >"$work/bytes"              # half a character, no UTF-8, a NUL
  expect 0 "$still_run" -f "$work/bytes" -n 2 --temp 0
  expect 1 "$still_run" -c 32 -f "$question"; out_is ""; err_has "32"; err_has "--attn still"
  expect 0 "$still_run" -c 4096 --attn still -f "$question" -n 1; err_has "forgotten"
  yes river | head -n 40 | tr '\n' ' ' >"$work/in"
  expect 1 "$still_run" -c 32; out_is ""
  rm "$work/in"
  expect 0 "$still_run" -c 16 -p "The river is" -n 100 --temp 0; err_has "the context is full"
  # No line, no word ends: still read, and said.
  head -c 1200000 /dev/zero | tr '\000' '7' >"$work/digits"
  expect 1 "$still_run" -c 64 -f "$work/digits" -n 1
}

check_memory() {
  still="--attn still --budget 192 -c 1024 --json -q -n 1 --temp 0"
  expect 0 "$still_run" -f "$question" $still; small=$(member cache_bytes) tokens=$(member tokens)
  { cat "$question"; cat "$question"; } >"$work/twice"
  expect 0 "$still_run" -f "$work/twice" $still; holds "$(member cache_bytes)" = "$small"
  holds "$(member tokens)" -gt $((tokens * 2 - 20))
  # A pipe of any length: nothing grows with it, the list of its tokens neither.
  stream="-f - --attn still --budget 192 --json -q -n 1 --temp 0"
  expect 0 sh -c "cat '$question' | '$still_run' $stream"; once=$(($(member cache_bytes) + $(member work_bytes)))
  expect 0 sh -c "cat '$question' '$question' '$question' '$question' | '$still_run' $stream"
  holds $(($(member cache_bytes) + $(member work_bytes))) = $once
  holds "$(member tokens)" -gt $((tokens * 4 - 40))
  for flags in "--attn full -c 8192" "--attn swa" "--attn still" "--attn still --cache-type f16"; do
    expect 0 "$still_run" -f "$question" --json $flags -n 0 --dry-run
    planned=$(member cache_bytes) work_planned=$(member work_bytes)
    expect 0 "$still_run" -f "$question" --json -q $flags -n 0
    holds "$(member cache_bytes)" = "$planned"
    holds "$(member work_bytes)" -le $((work_planned * 102 / 100))
    holds "$(member work_bytes)" -ge $((work_planned * 98 / 100))
  done
  # A budget in MiB: what a session then takes is below it, and not by much.
  for flags in "--attn still" "--attn swa" "--attn full -c 8192"; do
    expect 0 "$still_run" -f "$question" --json $flags -n 0 --memory-budget 24; err_has "--memory-budget 24: -"
    holds $(($(member cache_bytes) + $(member work_bytes))) -le $((24 << 20))
    [ "$flags" = "--attn full -c 8192" ] || holds $(($(member cache_bytes) + $(member work_bytes))) -ge $((22 << 20))
  done
  expect 0 "$still_run" --dry-run; out_has "full attention with"; out_has "it fits"
  expect 1 "$still_run" --dry-run -c 2147483647 -n -1; out_has "does not fit"
}

check_state() {
  head -n -1 "$question" >"$work/text"
  asked=$(printf '\n%s' "$(tail -n 1 "$question")")
  for kind in full "still --budget 256"; do
    expect 0 "$still_run" -f "$question" $greedy -q --attn $kind; answer=$(cat "$work/out")
    expect 0 "$still_run" -f "$work/text" -n 0 -q --attn $kind --state-save "$work/state"
    expect 0 "$still_run" -p "$asked" $greedy -q --attn $kind --state-load "$work/state"; out_is "$answer"
  done
  expect 1 "$still_run" -p x -n 1 --attn full --state-load "$work/state" # of other options
  err_has "--state-load"
  head -c 5000 "$work/state" >"$work/short"
  expect 1 "$still_run" -p x -n 1 --attn still --budget 256 --state-load "$work/short"; out_is ""
  expect 1 "$still_run" -p x -n 1 --state-save /nonexistent/state; err_has "--state-save"; out_is ""
  # A link stays a link, a pipe or device stays one and is written in place; a folder and a full disk are named.
  save="-p x -n 1 -q --temp 0"
  expect 0 "$still_run" $save --state-save "$work/state"
  ln -s "$work/behind" "$work/link"
  : >"$work/behind"
  expect 0 "$still_run" $save --state-save "$work/link"; holds -L "$work/link"
  cmp -s "$work/behind" "$work/state" || complain "$ran: the file behind the link differs"
  mkfifo "$work/pipe"
  timeout 20 cat "$work/pipe" >"$work/piped" &
  reader=$!
  expect 0 "$still_run" $save --state-save "$work/pipe"; holds -p "$work/pipe"
  wait $reader
  cmp -s "$work/piped" "$work/state" || complain "$ran: the piped state differs"
  expect 1 "$still_run" $save --state-save "$work"; err_has "$work: is a folder"
  expect 1 timeout 20 "$still_run" $save --state-load "$work/pipe"; err_has "not a regular file"
  if [ -c /dev/full ] && [ ! -w /dev ]; then
    expect 1 "$still_run" $save --state-save /dev/full; err_has "No space left"
  fi
}

check_report() {
  expect 0 "$still_run" -f "$question" $greedy --json -q; cp "$work/out" "$work/json"
  python3 -m json.tool "$work/json" >/dev/null || complain "$ran: not JSON"
  for name in answer end prompt_tokens answer_tokens prompt_seconds cache_bytes softmax_tokens linear_tokens \
    forgotten_tokens peak_resident_bytes seed; do
    out_has "\"$name\":"
  done
  out_has '"answer": " 2058756"'; out_has '"end": "stop"'
  expect 0 "$still_run" -p x -n 3 --temp 0 --json -q; out_has '"end": "limit"'; out_has '"answer_tokens": 3'
  expect 0 "$still_run" -p x -n 3 --temp 0; err_has "cut after 3 tokens"
  expect 0 "$still_run" -p x -n 3 --temp 0 --perf; err_has "work space"; err_has "kernels"
  ! grep -q "$(printf '\033')" "$work/err" || complain "$ran: colours without a terminal"
  expect 0 "$still_run" -f "$question" -n 1 -q --attn still --saliency "$work/page.html"
  holds "$(grep -c '"chunk":64,"routes":1' "$work/page.html")" = 8
  { printf '\303\251 \360\237\230\200 \377 \001 <b>'; cat "$question"; } >"$work/odd" # characters of several tokens
  expect 0 "$still_run" -f "$work/odd" -n 0 -q --attn still --saliency "$work/page.html"
  python3 -c 'import sys; assert "\u00e9" in open(sys.argv[1], encoding="utf-8").read()' "$work/page.html" ||
    complain "$ran: not UTF-8 or a character in pieces"
  expect 1 "$still_run" -p x -n 1 -q --attn still --saliency /nonexistent/page.html; err_has "--saliency"
  expect 0 "$still_run" -p x -n 1 --saliency "$work/page.html"; err_has "nothing is kept"
  expect 2 "$still_run" -p x --saliency "$work/page.html" --state-load x; err_has "contradict each other"
  if [ -c /dev/full ]; then
    for command in "$still_run -p x -n 1 --json -q" "$still_run -h" "$still_run --dry-run" "$still_info"; do
      $command >/dev/full 2>"$work/err"
      status=$? ran="$command >/dev/full"
      holds $status = 1
      err_has "stdout cannot be written"
    done
  fi
}

# Ctrl-C ends the answer; the summary says so.
check_interrupt() {
  "$still_run" -p "The river" -n -1 --attn still >"$work/out" 2>"$work/err" </dev/null &
  process=$!
  tries=0
  until [ -s "$work/out" ] || [ $tries = 100 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -INT $process
  wait $process
  status=$? ran="interrupted answer"
  holds $status = 0
  err_has "interrupted"
  # Of a prompt that is interrupted all whole blocks stay, and can be saved; a pipe that waits can be interrupted, too.
  mkfifo "$work/pipe"
  for flags in "-b 64" "-b 512"; do
    { cat "$needle/question.txt"; sleep 20; } >"$work/pipe" &
    writer=$!
    "$still_run" -f "$work/pipe" $flags --attn still --state-save "$work/part" >"$work/out" 2>"$work/err" </dev/null &
    process=$!
    sleep 2
    kill -INT $process
    wait $process
    status=$? ran="interrupted prompt $flags"
    kill $writer
    holds $status = 1
    err_has "interrupted after"
    err_has "still attention: "
    out_is ""
    read_tokens=$(sed -n 's/.*interrupted after \([0-9]*\) tokens.*/\1/p' "$work/err")
    expect 0 "$still_run" --state-load "$work/part" -n 1 -p " x" --attn still --json -q
    holds "$(member tokens)" -gt "$read_tokens"
  done
}

# needle has no chat template; a copy of it gets one.
check_chat() {
  expect 2 "$still_run" -cnv -n 1; err_has "chat template"
  expect 2 "$still_run" -p x -sys be -n 1; err_has "-sys: this model has no chat template"
  mkdir "$work/model"
  for file in config.json model.safetensors tokenizer.json; do ln -s "$needle/$file" "$work/model/$file"; done
  sed 's/^{/{ "chat_template": "{{ bos_token }}{% for message in messages %}[INST] {{ message.content }} [\/INST]{% endfor %}",/' \
    "$needle/tokenizer_config.json" >"$work/model/tokenizer_config.json"
  expect 0 "$still_run" -m "$work/model" -p "The river" -n 4 --temp 0 -q; once=$(cat "$work/out")
  expect 0 "$still_run" -m "$work/model" -p "The river" -n 4 --temp 0 -q -no-cnv
  [ "$once" != "$(cat "$work/out")" ] || complain "$ran: the template changes nothing"
  printf 'The river\nThe road\n' >"$work/in"
  expect 0 "$still_run" -m "$work/model" -cnv -n 4 --temp 0 -q
  holds "$(wc -l <"$work/out")" -ge 2
  [ "$(head -n 1 "$work/out")" = "$(printf '%s\n' "$once" | head -n 1)" ] || complain "$ran: first turn differs"
}

check_info() {
  expect 0 "$still_info"; out_has "6.8 M"; out_has "8 layers"; out_has "trained for 8192 tokens"; out_has "full cache"
  expect 0 "$still_info" --json; cp "$work/out" "$work/json"
  python3 -m json.tool "$work/json" >/dev/null || complain "$ran: not JSON"
  holds "$(member layers)" = 8
  holds "$(member parameters)" = 6820096
  holds "$(member kv_heads)" = 2
  expect 2 "$still_info" --nonsense; err_has "unknown flag"
  expect 1 "$still_info" -m "$work"; err_has "$work"
  truncate -s 3G "$work/large.gguf" && printf 'GGUF\003\0\0\0' | dd of="$work/large.gguf" conv=notrunc status=none
  expect 1 "$still_info" -m "$work/large.gguf" # 32-bit programs, by their ELF class, cannot hold it
  [ "$(od -An -tx1 -j4 -N1 "$still_info")" != " 01" ] || err_has "3221225472 bytes, more than a 32-bit program"
  rm "$work/large.gguf"
  head -c 1000000 "$needle/model.safetensors" >"$work/model.safetensors"
  for file in config.json tokenizer.json tokenizer_config.json; do cp "$needle/$file" "$work"; done
  expect 1 "$still_info" -m "$work"; out_is ""; err_has "model.safetensors"
  head -c 100 /dev/zero >"$work/zero.gguf"
  expect 1 "$still_info" -m "$work/zero.gguf"; err_has "zero.gguf"
}

"check_$part"
echo "$checks commands run, $failed expectations failed"
[ $failed = 0 ]
