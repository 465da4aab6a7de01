#!/bin/sh
# Measures float prefill: tokens per second of the model of cores.sh (Qwen3-0.6B's layer shapes, 4 blocks, vocabulary 4,096) in windows
# of 512 tokens, by calm and by llama.cpp in F32, and the share of sgemm's rate that calm's forward pass reaches.  The programs take
# turns in each round, so that they meet the same noise; run it on an idle machine.
#
#   tests/bench/prefill.sh FOLDER
#
#   FOLDER      holds the model of cores.sh and its GGUF file
#
# Environment variables:
#   BLOCKS, THREADS, ROUNDS, WINDOWS    blocks of the model (4), threads (2), rounds (5), windows of the longer of calm's two
#               runs (66; the shorter one has 2)
#   CALM, MAKE  the program and make_checkpoint; build/release/... by default
#   CALM_LLAMA_CPP  llama.cpp's programs (tests/readers/build_llama_cpp.sh); without it the script measures only calm
#
# CSV: round, name, figure, unit.  calm eval reads the model and the text before it computes, so its rate comes from the difference
# of two runs.  calm predicts every token, llama-bench only the last of a window: the head of 4,096 tokens, 6 % of the operations
# of 4 blocks, counts against calm.
set -eu
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
[ $# -eq 1 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
. "$(dirname "$0")/timed.sh"
write=$(dirname "$make")/write_format
blocks=${BLOCKS:-4} threads=${THREADS:-2} windows=${WINDOWS:-66}
need "$write"
[ "$windows" -gt 2 ] || { echo "prefill.sh: WINDOWS=$windows: expected more than 2" >&2; exit 2; }
model=$folder/model-$blocks
[ -d "$model" ] || "$make" --shape qwen3-0.6b --blocks "$blocks" --vocab 4096 --output "$model" >&2
if [ -n "${CALM_LLAMA_CPP:-}" ] && [ ! -f "$folder/f32-$blocks.gguf" ]; then
    [ -d "$folder/float-$blocks" ] || "$write" "$model" "$folder/float-$blocks" gguf float >&2
    "$CALM_LLAMA_CPP/llama-quantize" "$folder/float-$blocks/model.gguf" "$folder/f32-$blocks.gguf" F32 >"$folder/said" 2>&1
fi

# Prints the wall seconds of calm eval over a number of windows.
seconds()    # seconds WINDOWS
{
    /usr/bin/time -o "$folder/time" -f %e "$calm" eval --model "$model" --text "$CALM_HOME/recipes/text/wikitext2-valid.txt" \
        --samples "$1" --seqlen 512 --threads "$threads" --quiet --json >"$folder/said"
    cat "$folder/time"
}

. "$CALM_HOME/tests/number.sh"

"$calm" --version >&2
echo round,name,figure,unit
round=1
while [ "$round" -le "${ROUNDS:-5}" ]; do
    "$calm" bench forward --tokens 512 --threads "$threads" --json >"$folder/bench.json"
    echo "$round,calm bench forward,$(number ratio "$folder/bench.json"),of sgemm"
    few=$(seconds 2) many=$(seconds "$windows")
    awk -v round="$round" -v few="$few" -v many="$many" -v windows="$windows" \
        'BEGIN { printf "%d,calm eval,%.1f,tokens/s\n", round, 512 * (windows - 2) / (many - few) }'
    if [ -n "${CALM_LLAMA_CPP:-}" ]; then
        "$CALM_LLAMA_CPP/llama-bench" -m "$folder/f32-$blocks.gguf" -p 512 -n 0 -t "$threads" -r 5 -o json \
            >"$folder/llama.json" 2>"$folder/said"
        echo "$round,llama-bench pp512,$(number avg_ts "$folder/llama.json"),tokens/s"
    fi
    round=$((round + 1))
done
