#!/bin/sh
# Measures a whole run on random weights in the shape of a real model: time by stage, the forecast of --dry-run next to it, peak
# memory, and the digests of the result with other numbers of threads.  Run it on an idle machine: the forecast for llama3.2-1b is
# 50 minutes on two cores of 200 GFLOP/s.
#
#   tests/bench/whole.sh FOLDER [SHAPE [BLOCKS [OPTIONS OF quantize...]]]
#
#   FOLDER      holds model, store and reports (STAGES.csv, SUMMARY.csv); a model that is there is not made again
#   SHAPE       a name of make_checkpoint --list; llama3.2-1b by default
#   BLOCKS      number of blocks; 0, the default: all
#   THREADS     environment variable: "2 1": the first number for the measured run, the others only for digests; 2 by default
#   CALM, MAKE  environment variables: the program and make_checkpoint; build/release/... by default
#
# CSV: stage, wall and CPU seconds, forecast seconds; then a line for the whole run with bytes.
set -eu
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
[ $# -ge 1 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
to=$1 shape=${2:-llama3.2-1b} blocks=${3:-0}
shift "$(($# < 3 ? $# : 3))"
set -- "$to" "$@"
. "$(dirname "$0")/timed.sh"
. "$CALM_HOME/tests/number.sh"
shift
model=$folder/$shape-$blocks
[ -d "$model" ] || "$make" --shape "$shape" --blocks "$blocks" --output "$model" >&2

options="--bits 4"
[ $# -eq 0 ] || options=$*

# Prints "stage value" for the member NAME of each row of `stages`.
column()    # column NAME FILE
{
    tr '\n' ' ' <"$2" | sed 's/.*"stages": *\[\([^]]*\)\].*/\1/' | tr '}' '\n' |
        sed -n "s/.*\"stage\": *\"\\([^\"]*\\)\".*\"$1\": *\\([-0-9.e+]*\\).*/\\1 \\2/p"
}

# Runs with a number of threads into NAME.json; NAME.time has its peak memory in KiB.
quantize()    # quantize NAME THREADS
{
    rm -rf "$folder/out" "$folder/s.db"*
    # shellcheck disable=SC2086 # several options
    /usr/bin/time -o "$folder/$1.time" -f '%e %U %S %M' "$calm" quantize --model "$model" $options --threads "$2" --json --quiet \
        --output "$folder/out" --lock "$folder/$1.lock.json" --store "$folder/s.db" >"$folder/$1.json" 2>"$folder/said" ||
        { tail -n 5 "$folder/said" >&2; exit 1; }
    sha256sum "$folder/out"/*.safetensors | cut -d ' ' -f 1 | sort | sha256sum | cut -d ' ' -f 1 >"$folder/$1.sha"
}

first=
for threads in ${THREADS:-2}; do
    if [ -z "$first" ]; then
        first=$threads
        # shellcheck disable=SC2086
        "$calm" quantize --model "$model" $options --threads "$threads" --dry-run --json --quiet \
            --output "$folder/out" --store "$folder/none.db" >"$folder/plan.json" 2>"$folder/said" ||
            { tail -n 5 "$folder/said" >&2; exit 1; }
    fi
    quantize "threads-$threads" "$threads"
    cmp -s "$folder/threads-$first.sha" "$folder/threads-$threads.sha" ||
        { echo "whole: $threads threads give other bytes than $first" >&2; exit 1; }
done

report=$folder/threads-$first.json
column seconds "$report" >"$folder/wall"
column cpu_seconds "$report" >"$folder/cpu"
column seconds "$folder/plan.json" >"$folder/forecast"
[ -s "$folder/wall" ] && [ -s "$folder/forecast" ] || { echo "whole: no stages in $report" >&2; exit 1; }
{
    echo stage,seconds,cpu_seconds,forecast_seconds
    awk 'FILENAME ~ /cpu$/ { cpu[$1] = $2; next } FILENAME ~ /forecast$/ { plan[$1] = $2; next }
         { printf "%s,%.2f,%.2f,%.2f\n", $1, $2, cpu[$1], plan[$1]; wall += $2; all += cpu[$1]; sum += plan[$1] }
         END { printf "all,%.2f,%.2f,%.2f\n", wall, all, sum }' "$folder/cpu" "$folder/forecast" "$folder/wall"
} >"$folder/STAGES.csv"
{
    echo model,blocks,options,threads,seconds,forecast_seconds,peak_gb,forecast_gb
    awk -v model="$shape" -v blocks="$blocks" -v options="$options" -v threads="$first" \
        -v sum="$(sed -n 's/^all,.*,//p' "$folder/STAGES.csv")" -v bytes="$(number peak_bytes "$folder/plan.json")" \
        '{ printf "%s,%s,\"%s\",%s,%s,%s,%.3f,%.3f\n", model, blocks, options, threads, $1, sum, $4 * 1024 / 1e9, bytes / 1e9 }' \
        "$folder/threads-$first.time"
} >"$folder/SUMMARY.csv"
cat "$folder/STAGES.csv" "$folder/SUMMARY.csv"
