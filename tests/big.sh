#!/bin/sh
# Measures peak memory: quantizes synthetic checkpoints in real shapes within a memory limit.  Prints a line for each: the memory
# that `calm quantize --dry-run` predicts, the run's peak and the limit; then predicted and measured time, which
# compare only on an idle machine.  Fails if a run exceeds its limit, or (8B shape) if the predicted memory is more than
# 15 % off.
#
#   tests/big.sh FOLDER [qwen3-0.6b] [qwen3-8b] [qwen3-30b-a3b-1]
#
#   FOLDER        scratch folder for checkpoints and results; needs 30 GB.  The script uses and keeps checkpoints that are
#                 there, and removes results
#   names         shapes; all three by default
#
# Environment variables:
#   CALM_BUILD    build with the tests; build/release by default
#   CSV           a file that gets a row per shape: name, predicted and measured GB, predicted and wall seconds, the prediction
#                 over the wall clock
set -eu

CALM_HOME=$(cd "$(dirname "$0")/.." && pwd -P)
export CALM_HOME
case ${1:--h} in
    -*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
folder=$1
shift
[ $# -gt 0 ] || set -- qwen3-0.6b qwen3-8b qwen3-30b-a3b-1
build=${CALM_BUILD:-$CALM_HOME/build/release}
for program in "$build/calm" "$build/tests/make_checkpoint" "$build/tests/peak_memory"; do
    [ -x "$program" ] || { echo "big: no $program; ./tests/run builds it" >&2; exit 2; }
done
mkdir -p "$folder"
work=$(mktemp -d "$folder/big.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0

. "$CALM_HOME/tests/number.sh"

measure() {    # measure NAME LIMIT-IN-GB MOST-PERCENT-OFF "OPTIONS OF make_checkpoint" OPTIONS OF quantize...
    name=$1 limit=$2 off=$3 making=$4
    shift 4
    model=$folder/$name
    if [ ! -d "$model" ]; then
        # shellcheck disable=SC2086 # several options
        "$build/tests/make_checkpoint" --output "$model" $making
    fi
    set -- quantize --model "$model" --memory "${limit}GB" --bits 4 --algorithms rtn,gptq --samples 16 --seqlen 512 \
        --no-eval --quiet --json --output "$work/out" --store "$work/calm.db" "$@"
    "$build/calm" "$@" --dry-run >"$work/plan" || { echo "$name: the dry run failed"; failed=1; return 0; }
    "$build/tests/peak_memory" "$build/calm" "$@" >"$work/report" 2>"$work/usage" ||
        { cat "$work/usage"; echo "$name: the run failed"; failed=1; return 0; }
    peak=$(sed -n 's/^peak_memory: .* peak \([0-9.]*\) MB$/\1/p' "$work/usage")
    # Only the time's member: the plan's "result" has no seconds, and learning's have another name.
    awk -v name="$name" -v predicted="$(number peak_bytes "$work/plan")" -v peak="$peak" \
        -v seconds="$(number seconds "$work/plan")" \
        -v wall="$(sed -n 's/^peak_memory: wall \([0-9.]*\) s.*/\1/p' "$work/usage")" 'BEGIN {
            printf "%s,%.3f,%.3f,%.1f,%.1f,%.3f\n", name, predicted / 1e9, peak / 1e3, seconds, wall, seconds / wall
        }' >"$work/row"
    [ -z "${CSV:-}" ] || cat "$work/row" >>"$CSV"
    awk -v name="$name" -v predicted="$(number peak_bytes "$work/plan")" -v peak="$peak" -v limit="$limit" \
        -v off="$off" -v seconds="$(cut -d , -f 4 "$work/row")" -v usage="$(sed -n 's/^peak_memory: \(.*\), peak.*/\1/p' "$work/usage")" 'BEGIN {
            difference = 100 * (predicted / 1e6 / peak - 1)
            printf "%-15s predicted %6.2f GB, measured %6.2f GB (%+.0f %%), limit %s GB; predicted %.0f s; %s\n", name,
                predicted / 1e9, peak / 1e3, difference, limit, seconds, usage
            exit !(predicted > 0 && peak > 0 && peak <= limit * 1000 && (difference ^ 2 <= off ^ 2))
        }' || { echo "$name: past the limit, or the prediction is off by more than $off %"; failed=1; }
    rm -rf "$work/out" "$work"/calm.db*
}

for name in "$@"; do
    case $name in
        qwen3-0.6b) measure "$name" 2.0 100 "--shape qwen3-0.6b" ;;
        # Without a guard, which would run the whole model four times.
        qwen3-8b) measure "$name" 6 15 "--shape qwen3-8b" --blocks 0-3 --guard-samples 0 ;;
        qwen3-30b-a3b-1) measure "$name" 6 100 "--shape qwen3-30b-a3b --blocks 1" ;;
        *) echo "big: no figure for $name" >&2; exit 2 ;;
    esac
done
exit $failed
