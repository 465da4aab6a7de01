#!/bin/sh
# The measuring programs from outside: what make_checkpoint writes, calm reads; peak_memory sees what was touched.
#
#   check_tools.sh FOLDER    where make_checkpoint, peak_memory and ../calm are
set -eu
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "check_tools: $1" >&2; exit 1; }
status() { set +e; "$@" > "$work/out" 2> "$work/err"; code=$?; set -e; }

# A qwen3 in two files, through the program itself.
status "$bin/make_checkpoint" --shape tiny-qwen3 --output "$work/m" --blocks 2 --shard-size 500KB --seed 5
[ "$code" = 0 ] || fail "make_checkpoint: status $code: $(cat "$work/err")"
[ -f "$work/m/model-00002-of-00002.safetensors" ] || fail "no shards: $(ls "$work/m")"
status "$bin/../calm" inspect "$work/m"
[ "$code" = 0 ] || fail "calm inspect: status $code: $(cat "$work/err")"

# What it refuses.
status "$bin/make_checkpoint" --shape tiny-qwen3 --output "$work/m"
[ "$code" = 1 ] || fail "an output that is there: status $code"
status "$bin/make_checkpoint" --shape tiny-qwen3
[ "$code" = 2 ] || fail "no output: status $code"
status "$bin/make_checkpoint" --shape tiny-qwen3 --output "$work/n" --shard-size 5XB
[ "$code" = 2 ] || fail "a wrong size: status $code"
[ ! -e "$work/n" ] || fail "something was written"

# dd holds its block: 80 MB in one read and write.
status "$bin/peak_memory" dd if=/dev/zero of=/dev/null bs=80000000 count=1
[ "$code" = 0 ] || fail "peak_memory: status $code: $(cat "$work/err")"
peak=$(sed -n 's/^peak_memory: .* peak \([0-9]*\)\.[0-9]* MB$/\1/p' "$work/err")
{ [ "${peak:-0}" -ge 80 ] && [ "$peak" -le 100 ]; } || fail "peak of dd: $(cat "$work/err")"
status "$bin/peak_memory" sh -c 'exit 7'
[ "$code" = 7 ] || fail "status of the command: $code"
status "$bin/peak_memory" sh -c 'kill -9 $$'
[ "$code" = 137 ] || fail "status after a signal: $code"
status "$bin/peak_memory" "$work/none"
[ "$code" = 127 ] || fail "status of no command: $code"
